// Of cdc_word, with both clocks free: every word that is taken comes out, once, unchanged, and none comes of nothing.
(* gclk *) logic f_clock;
logic [1:0] f_step = 2'd0;
logic f_phase = 1'b0;
wire f_run = f_step == 2'd3;
always_ff @(posedge f_clock) begin
    if (!f_run) f_step <= f_step + 2'd1;
    f_phase <= !f_phase;
end
// Both resets together at the start, with an edge of each clock; then never again.
always_comb begin
    assume (s_rst == !f_run);
    assume (m_rst == !f_run);
    if (f_step == 2'd0) assume (!s_clk && !m_clk);
    if (f_step == 2'd1) assume (s_clk && m_clk);
    if (f_step == 2'd2) assume (!s_clk && !m_clk);
end

// Words taken, and come, modulo 4; and what the last ones were.
logic [1:0] f_in;
logic [1:0] f_out;
logic [WIDTH-1:0] f_words[4];
always_ff @(posedge s_clk) begin
    if (s_rst) f_in <= '0;
    else if (s_valid && s_ready) begin
        f_in <= f_in + 2'd1;
        f_words[f_in] <= s_data;
    end
end
// A word has come when `m_valid` rises for it: counted with the register that sets it.
always_ff @(posedge m_clk) begin
    if (m_rst) f_out <= '0;
    else if (asked_m != done) f_out <= f_out + 2'd1;
end

wire [4:0] f_changes = {asked, asked_1, asked_m, done, done_1} ^ {asked_1, asked_m, done, done_1, done_s};

always_comb begin
    if (f_run) begin
        assert (f_in == f_out || f_in == f_out + 2'd1);
        assert (!fresh || word == f_words[f_out - 2'd1]);
        // What makes it inductive: along the ring of toggles there is at most one change.
        assert (asked == f_in[0] && done == f_out[0]);
        assert ((f_changes & (f_changes - 5'd1)) == 5'd0);
        assert (!(f_in != f_out) || cdc_word_hold == f_words[f_out]);
    end
`ifdef F_COVER
    assume (s_clk == f_phase && m_clk == f_phase);
`endif
    cover (f_run && fresh && f_out == 2'd3 && word == '1);
end
