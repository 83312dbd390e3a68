// Properties of shotline_card_reads: a tag is given again only when its read has ended and its rest is over; each read
// ends exactly once, with the right error; descriptors are stored for a read in flight, at its place. The solver
// chooses an arbitrary tag, an arbitrary channel, whose generation is followed, and an arbitrary ended read.

(* anyconst *) logic [TAGS_LOG2-1:0] f_tag;
(* anyconst *) logic [CHANNELS_LOG2-1:0] f_channel;

// The memories' and the FIFO's own properties. Attribute hierconn joins a wire with the one of that name in the
// flattened module.
(* hierconn *) wire [TAGS_LOG2-1:0] \reads.f_address ;
(* hierconn *) wire [CHANNELS_LOG2+11:0] \reads.f_word ;
(* hierconn *) wire \reads.f_known ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \generations.f_address ;
(* hierconn *) wire [7:0] \generations.f_word ;
(* hierconn *) wire \generations.f_known ;
(* hierconn *) wire [TAGS_LOG2+2:0] \ended.f_in ;
(* hierconn *) wire [TAGS_LOG2+2:0] \ended.f_out ;
(* hierconn *) wire [TAGS_LOG2+2:0] \ended.f_index ;
(* hierconn *) wire [CHANNELS_LOG2+SLOT+1:0] \ended.f_word ;
(* hierconn *) wire \ended.f_good ;

logic f_started = 1'b0;
// Visits of the rings: an ended read is taken first, and a read is started last. PICK and ACT may wait.
localparam logic [1:0] F_PICK = 2'd0, F_LOOK = 2'd1, F_ACT = 2'd2;
logic [1:0] f_step;
(* anyseq *) logic f_wait;

// The chosen tag's read: in flight, its channel and group, completions so far, and whether a descriptor was wrong.
logic f_flying;
logic [CHANNELS_LOG2-1:0] f_of, f_of_1, f_of_2;
logic [11:0] f_group, f_group_1, f_group_2;
logic [3:0] f_beats, f_beats_1, f_beats_2;
logic f_wrong;
// Looks of the scan that the read has survived; looks until its tag may be given again.
logic f_age;
logic [1:0] f_rest;
wire f_scanned = step && scan == f_tag;
// Reads of the chosen tag that started and ended; reads of all tags that started and were not taken.
logic [3:0] f_starts, f_ends;
logic [TAGS_LOG2+2:0] f_open;
// What the completions of the chosen tag are: kinds at clocks 1 and 2.
localparam logic [2:0] F_NONE = 3'd0, F_DATA = 3'd1, F_LAST = 3'd2, F_ERROR = 3'd3, F_TIMEOUT = 3'd4;
logic [2:0] f_kind, f_kind_1, f_kind_2;
wire f_hit = s_completion_valid && s_completion_tag == f_tag;
always_comb begin
    f_kind = F_NONE;
    if (f_hit && f_flying) f_kind = s_completion_error ? F_ERROR : f_beats == 4'd7 ? F_LAST : F_DATA;
    else if (f_flying && f_scanned && f_age) f_kind = F_TIMEOUT;
end
wire f_ends_now = f_kind >= F_LAST;
wire f_started_now = start && tag == f_tag;

// The descriptors at clock 2, with the generation that their channel has at clock 1 if it is the chosen one.
logic [7:0] f_generation_2;
logic [255:0] f_data_1, f_data_2;
logic f_is_wrong;
wire [15:0] f_index = {f_group_2, 4'd0} + {11'd0, f_beats_2, 1'b0};
always_comb begin
    f_is_wrong = f_wrong && f_beats_2 != '0;
    for (int half = 0; half < 2; half++)
        if (f_data_2[128*half+64+:16] != f_index + 16'(half) || f_data_2[128*half+80+:8] != 8'(f_of_2) ||
            f_data_2[128*half+88+:8] != f_generation_2 || f_data_2[128*half+96+:32] != '0 ||
            f_data_2[128*half+:3] != '0) f_is_wrong = 1'b1;
end
// An ended read, when it is pushed.
logic [CHANNELS_LOG2+SLOT+1:0] f_end, f_expected;
logic f_is_expected;  // the chosen entry of the FIFO is of the chosen tag
always_comb begin
    f_end = {f_of_2, f_group_2[SLOT-1:0], 2'd0};
    if (f_kind_2 == F_TIMEOUT) f_end[1:0] = 2'd3;
    else if (f_kind_2 == F_ERROR) f_end[1:0] = 2'd2;
    else if (f_is_wrong) f_end[1:0] = 2'd1;
end
logic [3:0] f_busy;
always_comb begin
    f_busy = '0;
    for (int of = 0; of < TAGS; of++) f_busy = f_busy + 4'(busy[of]);
end

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    assume (\reads.f_address == f_tag && \generations.f_address == f_channel);
    assume (done_take == (f_step == F_PICK && done_valid));
    if (f_step != F_ACT || f_wait) assume (!start_valid);
    if (rst) begin
        {f_flying, f_rest, f_starts, f_ends, f_open} <= '0;
        {f_kind_1, f_kind_2} <= '0;
        f_step  <= F_PICK;
        f_wrong <= valid_2 && tag_2 == f_tag ? bad_2 : bad[f_tag];
    end else begin
        if (f_step == F_PICK ? done_valid || !f_wait : f_step == F_LOOK || !f_wait)
            f_step <= f_step == F_ACT ? F_PICK : f_step + 1'b1;
        f_open <= f_open + (TAGS_LOG2+3)'(start) - (TAGS_LOG2+3)'(done_take);
        if (f_started_now) begin
            f_flying <= 1'b1;
            f_starts <= f_starts + 1'b1;
            f_of     <= start_channel;
            f_group  <= start_group;
            f_beats  <= '0;
            f_age    <= 1'b0;
        end
        if (f_kind == F_DATA) f_beats <= f_beats + 1'b1;
        if (f_ends_now) f_flying <= 1'b0;
        if (f_scanned && !f_started_now) f_age <= 1'b1;
        if (f_kind == F_TIMEOUT) f_rest <= 2'd2;
        else if (f_scanned && f_rest != '0) f_rest <= f_rest - 1'b1;
        {f_kind_1, f_of_1, f_group_1, f_beats_1, f_data_1} <= {f_kind, f_of, f_group, f_beats, s_completion_data};
        {f_kind_2, f_of_2, f_group_2, f_beats_2, f_data_2} <= {f_kind_1, f_of_1, f_group_1, f_beats_1, f_data_1};
        f_generation_2 <= f_of_1 == f_channel && \generations.f_known ? \generations.f_word : generation_1;
        if (f_kind_2 != F_NONE) f_wrong <= f_is_wrong;
        if (f_kind_2 >= F_LAST) f_ends <= f_ends + 1'b1;
        if (valid_2 && last_2 && \ended.f_in == \ended.f_index ) begin
            f_expected    <= f_end;
            f_is_expected <= f_kind_2 != F_NONE;
        end
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // A tag in flight or at rest is not given.
        if (f_started_now) assert (!f_flying && f_rest == '0);
        if ($past(f_started && !rst && f_started_now)) begin
            assert (m_read_valid && m_read_tag == f_tag && m_read_address == $past(start_address));
        end
        if ($past(f_started && !rst && m_read_valid && !m_read_ready))
            assert (m_read_valid && $stable(m_read_tag) && $stable(m_read_address));
        // Each read ends once: those that started have ended, are in flight, or are in clocks 1 and 2.
        assert (f_starts - f_ends == 4'(f_flying) + 4'(f_kind_1 >= F_LAST) + 4'(f_kind_2 >= F_LAST));
        if (valid_2 && last_2 && tag_2 == f_tag) assert (f_kind_2 >= F_LAST);
        if (f_kind_2 >= F_LAST) assert (valid_2 && last_2 && tag_2 == f_tag);
        if (done_valid && \ended.f_out == \ended.f_index && f_is_expected)
            assert ({done_channel, done_slot, done_error} == f_expected);
        // Descriptors are stored if their read is in flight, at its place.
        if (store && tag_2 == f_tag) begin
            assert (f_kind_2 == F_DATA || f_kind_2 == F_LAST);
            assert (store_place == {f_of_2, f_group_2[SLOT-1:0], f_beats_2[2:0]});
            assert (store_address == {f_data_2[255-64-:61], f_data_2[63:3]});
        end
        if (f_kind_2 == F_DATA || f_kind_2 == F_LAST) assert (store && tag_2 == f_tag);
        // A completion of no read is counted.
        if ($past(f_started && !rst && f_hit)) assert (unexpected == $past(!f_flying));
        // No ended read is lost.
        assert (\ended.f_good );

        // Induction invariants.
        assert (f_flying == busy[f_tag] && (!f_flying || f_beats <= 4'd7));
        if (f_flying) assert (f_beats[2:0] == beats[f_tag] && \reads.f_known && \reads.f_word == {f_of, f_group});
        assert (resting[f_tag] == (f_rest != '0) && f_rest != 2'd3 && !(resting[f_tag] && busy[f_tag]));
        if (f_flying) assert (old[f_tag] == f_age);
        if (resting[f_tag]) assert (old[f_tag] == (f_rest == 2'd1));
        assert ((valid_1 && tag_1 == f_tag) == (f_kind_1 != F_NONE));
        assert ((valid_2 && tag_2 == f_tag) == (f_kind_2 != F_NONE));
        if (f_kind_1 != F_NONE) begin
            assert ({channel_1, group_1, beat_1} == {f_of_1, f_group_1, f_beats_1[2:0]} && f_beats_1 <= 4'd7);
            assert (data_1 == f_data_1 && last_1 == (f_kind_1 >= F_LAST));
            assert (error_1 == (f_kind_1 == F_TIMEOUT ? 2'd3 : f_kind_1 == F_ERROR ? 2'd2 : 2'd0));
        end
        if (f_kind_2 != F_NONE) begin
            assert ({channel_2, group_2, beat_2} == {f_of_2, f_group_2, f_beats_2[2:0]} && f_beats_2 <= 4'd7);
            assert (data_2 == f_data_2 && last_2 == (f_kind_2 >= F_LAST));
            assert (error_2 == (f_kind_2 == F_TIMEOUT ? 2'd3 : f_kind_2 == F_ERROR ? 2'd2 : 2'd0));
        end
        assert (f_kind_1 <= F_TIMEOUT && f_kind_2 <= F_TIMEOUT);
        if (f_kind_2 != F_NONE) assert (generation_2 == f_generation_2);
        assert (f_wrong == bad[f_tag] && f_step <= F_ACT);
        if (\ended.f_index - \ended.f_out < \ended.f_in - \ended.f_out && f_is_expected)
            assert (\ended.f_word == f_expected);
        assert (f_open == (TAGS_LOG2+3)'(f_busy) + (TAGS_LOG2+3)'(valid_1 && last_1) +
                          (TAGS_LOG2+3)'(valid_2 && last_2) + (\ended.f_in - \ended.f_out ));
        assert (f_open <= (TAGS_LOG2+3)'(f_step == F_PICK ? 2 * TAGS : 2 * TAGS - 1));

        // A read of good descriptors, and one of which an early descriptor is wrong.
        cover (done_valid && \ended.f_out == \ended.f_index && f_is_expected && done_error == '0);
        cover (done_valid && \ended.f_out == \ended.f_index && f_is_expected && done_error == 2'd1 && !f_is_wrong);
    end
end
