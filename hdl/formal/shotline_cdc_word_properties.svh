// Properties of shotline_cdc_word, both clocks unconstrained: every accepted word is delivered once and unchanged, and
// nothing else is.
(* gclk *) logic f_clock;
logic [1:0] f_step = 2'd0;
logic f_phase = 1'b0;
wire f_run = f_step == 2'd3;
always_ff @(posedge f_clock) begin
    if (!f_run) f_step <= f_step + 2'd1;
    f_phase <= !f_phase;
end
// Both resets at the start, with an edge of each clock; never again.
always_comb begin
    assume (s_rst == !f_run);
    assume (m_rst == !f_run);
    if (f_step == 2'd0) assume (!s_clk && !m_clk);
    if (f_step == 2'd1) assume (s_clk && m_clk);
    if (f_step == 2'd2) assume (!s_clk && !m_clk);
end

// Words accepted and delivered, modulo 4, and the last accepted ones.
logic [1:0] f_in;
logic [1:0] f_out;
logic [WIDTH-1:0] f_words[4];
always_ff @(posedge s_clk) begin
    if (s_rst) f_in <= '0;
    else if (s_valid && s_ready) begin
        f_in          <= f_in + 2'd1;
        f_words[f_in] <= s_data;
    end
end
// A word counts as delivered in the clock that sets `fresh`, which is `m_valid`.
always_ff @(posedge m_clk) begin
    if (m_rst) f_out <= '0;
    else if (req_m != ack) f_out <= f_out + 2'd1;
end

wire [4:0] f_changes = {req, req_1, req_m, ack, ack_1} ^ {req_1, req_m, ack, ack_1, ack_s};

always_comb begin
    if (f_run) begin
        assert (f_in == f_out || f_in == f_out + 2'd1);
        assert (!fresh || word == f_words[f_out - 2'd1]);
        // Induction invariant: at most one change along the ring of toggles.
        assert (req == f_in[0] && ack == f_out[0]);
        assert ((f_changes & (f_changes - 5'd1)) == 5'd0);
        assert (!(f_in != f_out) || cdc_word_hold == f_words[f_out]);
    end
`ifdef F_COVER
    assume (s_clk == f_phase && m_clk == f_phase);
`endif
    cover (f_run && fresh && f_out == 2'd3 && word == '1);
end
