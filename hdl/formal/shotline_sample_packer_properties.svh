// Properties of shotline_sample_packer: the stream rules of its output, the right number of words, and each byte at its
// offset. The solver chooses an arbitrary byte of a frame, which is followed from the beat to the word.
`define F_CLK clk
`define F_RST rst
`define F_VALID m_axis_tvalid
`define F_READY m_axis_tready
`define F_WORD {m_axis_tdata, m_axis_tkeep, m_axis_tlast, m_axis_tuser}
`include "axis_output.svh"

logic f_started = 1'b0;
// Grains of the frame accepted and delivered, counted at the ports.
logic [15:0] f_in;
logic [15:0] f_out;
logic f_closing;
logic f_closing_bad;
// The chosen byte: its grain, and its lane in the grain.
(* anyconst *) logic [15:0] f_position;
(* anyconst *) logic [15:0] f_lane;
always_comb assume (f_lane < 16'(GRAIN));
logic f_has_byte;  // it has been accepted
logic [7:0] f_byte;

wire f_accept = s_valid && s_ready;
wire f_deliver = m_axis_tvalid && m_axis_tready;
// The next frame may start in the clock in which the previous one leaves.
wire f_ends = f_deliver && m_axis_tlast;
wire [15:0] f_base = f_ends ? 16'd0 : f_in;
wire [15:0] f_in_beat = f_position - f_base;
wire [15:0] f_in_word = f_position - f_out;
wire [6:0] f_kept = out_grains;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    // Frames of fewer than 2^15 grains, so that the counts do not wrap.
    assume (f_in < 16'h7F00);
    if (rst) begin
        f_in       <= '0;
        f_out      <= '0;
        f_closing  <= 1'b0;
        f_has_byte <= 1'b0;
    end else begin
        if (f_accept) begin
            f_in <= f_base + {9'd0, GRAINS};
            if (f_in_beat < {9'd0, GRAINS}) f_byte <= packed_beat[8*(f_in_beat*GRAIN + f_lane) +: 8];
            if (s_last) f_closing_bad <= s_bad;
        end else f_in <= f_base;
        f_has_byte <= (f_has_byte && !f_ends) || (f_accept && f_in_beat < {9'd0, GRAINS});
        f_closing  <= (f_closing && !f_ends) || (f_accept && s_last);
        if (f_deliver) f_out <= f_ends ? 16'd0 : f_out + {9'd0, f_kept};
    end
end

// Grains held: in the output register, or in an incomplete word.
wire [15:0] f_inside = f_in - f_out;
wire [6:0] f_shown = out_valid ? out_grains : 7'd0;
wire [15:0] f_word_position = f_position % {9'd0, WORD};
wire [15:0] f_rest_position = f_in_word - {9'd0, f_shown};
always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        assert (f_out <= f_in);
        assert (f_inside == {9'd0, f_shown} + {9'd0, held});
        assert (held < WORD && f_shown <= WORD);
        assert (!out_valid || out_grains == WORD || out_last);
        // `tlast` exactly with the last byte of the frame.
        assert (!m_axis_tvalid || m_axis_tlast == (f_closing && f_inside == {9'd0, f_kept}));
        assert (!m_axis_tvalid || m_axis_tuser == (m_axis_tlast && f_closing_bad));
        assert (flush == (f_closing && !(out_valid && out_last)));
        assert (!flush || (held != 7'd0 && flush_bad == f_closing_bad));
        assert (!f_closing || (out_valid && out_last) || flush);
        assert (!(out_valid && out_last) || held == 7'd0);
        // The chosen byte.
        assert (f_has_byte == (f_position < f_in));
        if (f_has_byte && f_in_word < {9'd0, f_shown})
            assert (out_data[8*(f_in_word*GRAIN + f_lane) +: 8] == f_byte);
        if (f_has_byte && f_position >= f_out && f_in_word >= {9'd0, f_shown})
            assert (rest[8*(f_rest_position*GRAIN + f_lane) +: 8] == f_byte);
        // Bytes after the last one are zero, checked at the chosen byte's offset, which is the same in every register.
        assert (f_out % {9'd0, WORD} == 16'd0);
        if (f_word_position >= {9'd0, held}) assert (rest[8*(f_word_position*GRAIN + f_lane) +: 8] == 8'd0);
        if (out_valid && f_word_position >= {9'd0, out_grains})
            assert (out_data[8*(f_word_position*GRAIN + f_lane) +: 8] == 8'd0);
        cover (f_deliver && m_axis_tlast && m_axis_tuser && f_out > 16'd8 && f_kept != WORD);
        cover (flush && m_axis_tvalid && !m_axis_tready);
    end
end
