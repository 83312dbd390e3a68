// Properties of shotline_card_pcie_completions: each beat that leaves belongs to a completion that came with its tag, and
// all of a completion leave, in order, two descriptors each; an error is the last of its completion. The solver chooses
// an arbitrary beat, and computes what it should be from the beats of the stream.

(* anyconst *) logic [3:0] f_index;

logic f_started = 1'b0;
// The completion in progress: beats that came, up to 255, the last of them, whether they are used, an error, its header.
logic [7:0] f_beats;
logic [511:0] f_last;
logic f_using, f_ended;
logic [7:0] f_tag;
logic [10:0] f_dwords;
logic [8:0] f_made;        // beats of two descriptors made of it
// Beats made of all completions, and those that left.
logic [3:0] f_in, f_out;
logic f_error;             // the chosen beat
logic [TAGS_LOG2-1:0] f_its_tag;
logic [255:0] f_data;
wire [3:0] f_held = f_in - f_out;

// PG213: the header of 12 bytes is in front of the payload: error code, dwords, status and poison, tag.
wire f_take = s_axis_rc_tvalid && s_axis_rc_tready;
wire f_is_first = f_beats == '0;
wire f_discontinue = s_axis_rc_tuser[96];
wire [10:0] f_length = s_axis_rc_tdata[42:32];
wire f_good = s_axis_rc_tdata[15:12] == '0 && s_axis_rc_tdata[45:43] == '0 && !s_axis_rc_tdata[46] && f_length != '0 &&
              f_length % 11'd16 == '0;
wire f_ours = s_axis_rc_tdata[71:64] < (1 << TAGS_LOG2);
wire [7:0] f_tag_now = f_is_first ? s_axis_rc_tdata[71:64] : f_tag;
wire f_fails = f_take && (f_is_first ? f_ours && !(f_good && !f_discontinue) : f_using && f_discontinue);
wire f_passes = f_take && !f_is_first && f_using && !f_discontinue;
// Payload up to the end of this beat that is not used: the beat before without header or used bytes, and 12 bytes of it.
wire [511:0] f_payload = {s_axis_rc_tdata[95:0], f_last[511:96]};

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    // A completion without error ends with its length.
    if (s_axis_rc_tvalid && !f_is_first && f_using && !f_discontinue)
        assume (s_axis_rc_tlast == (12'd16 * 12'(f_beats + 8'd1) >= 12'(f_dwords) + 12'd3));
    if (s_axis_rc_tvalid && f_is_first && f_good && !f_discontinue) assume (!s_axis_rc_tlast);
    if (rst) begin
        {f_beats, f_using, f_ended, f_made, f_in, f_out} <= '0;
    end else begin
        if (f_take) begin
            f_beats <= s_axis_rc_tlast ? '0 : f_beats == '1 ? f_beats : f_beats + 1'b1;
            f_last  <= s_axis_rc_tdata;
            if (f_is_first) {f_tag, f_dwords} <= {s_axis_rc_tdata[71:64], f_length};
            f_using <= !s_axis_rc_tlast && !f_discontinue && (f_is_first ? f_ours && f_good : f_using);
            f_ended <= !s_axis_rc_tlast && (f_fails || f_ended);
            f_made  <= s_axis_rc_tlast ? '0 : f_passes ? f_made + 9'd2 : f_made;
        end
        f_in <= f_in + (f_passes ? 4'd2 : f_fails ? 4'd1 : 4'd0);
        if (m_valid && m_ready) f_out <= f_out + 1'b1;
        if ((f_passes || f_fails) && f_index == f_in) {f_error, f_its_tag, f_data} <=
            {f_fails, TAGS_LOG2'(f_tag_now), f_payload[255:0]};
        if (f_passes && f_index == f_in + 4'd1) {f_error, f_its_tag, f_data} <=
            {1'b0, TAGS_LOG2'(f_tag_now), f_payload[511:256]};
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // All that is made leaves once, and nothing else, in order.
        assert (f_held == 4'(m_valid) + 4'(upper) && (m_valid || !upper));
        if (m_valid && f_out == f_index) begin
            assert (m_error == f_error && m_tag == f_its_tag);
            if (!m_error) assert (m_data == f_data);
        end
        if ($past(f_started && !rst && m_valid && !m_ready))
            assert (m_valid && $stable(m_error) && $stable(m_tag) && $stable(m_data));
        // Nothing of a completion comes after its error, and one without error is complete.
        if (f_ended) assert (!f_passes && !f_fails);
        if (f_passes && s_axis_rc_tlast) assert (11'(f_made + 9'd2) * 11'd8 == f_dwords);
        // The stream does not wait if beats are taken, but for the second half of a beat.
        if (!m_valid) assert (s_axis_rc_tready);

        // Induction invariants.
        assert (inner == (f_beats != '0) && (f_beats == '0 || skip == !f_using));
        assert (!(f_using && f_ended) && (f_beats != '0 || !f_using && !f_ended));
        if (f_using) assert (tag == f_tag && f_tag < (1 << TAGS_LOG2) && carry == f_last[511:96]);
        if (f_using) assert (f_made == 9'(f_beats - 8'd1) * 9'd2 && f_dwords % 11'd16 == '0 && f_dwords != '0);
        if (f_using) assert (12'd16 * 12'(f_beats - 8'd1) < 12'(f_dwords));
        assert (f_beats != '0 || f_made == '0);
        if (upper) assert (f_beats == '0 || f_using);
        if (upper && f_out + 4'd1 == f_index) assert (!f_error && tag == f_its_tag && half == f_data);

        cover (f_passes && s_axis_rc_tlast && f_beats == 8'd2 && f_out == f_index);
        cover (m_valid && m_error && f_out == f_index && f_index == 4'd2 && f_its_tag == '1);
    end
end
