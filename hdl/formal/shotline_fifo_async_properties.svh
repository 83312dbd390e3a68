// Properties of shotline_fifo_async, both clocks unconstrained (any frequency and phase, also stopped). For an
// arbitrary index, the word read with that index is the word written with it.

localparam logic [P-1:0] F_FULL = {1'b1, {DEPTH_LOG2{1'b0}}};

// Words written and read since reset, counted at the ports.
logic [P-1:0] f_in;
logic [P-1:0] f_out;
(* anyconst *) logic [P-1:0] f_index;
logic [WIDTH-1:0] f_word;
wire [P-1:0] f_held = f_in - f_out;
wire [P-1:0] f_ahead = f_index - f_out;
wire f_inside = f_ahead < f_held;
// The chosen word is in the output register.
wire f_shown = f_inside && out_valid && f_ahead == '0;

always_ff @(posedge s_clk) begin
    if (s_rst) f_in <= '0;
    else if (s_valid && s_ready) f_in <= f_in + ONE;
    if (!s_rst && s_valid && s_ready && f_in == f_index) f_word <= s_data;
end

always_ff @(posedge m_clk) begin
    if (m_rst) f_out <= '0;
    else if (m_valid && m_ready) f_out <= f_out + ONE;
end

// Both resets at the start, until both clocks have had an edge; never again.
(* gclk *) logic f_clock;
logic [1:0] f_step = 2'd0;
logic f_phase = 1'b0;
wire f_run = f_step == 2'd3;
always_ff @(posedge f_clock) begin
    if (!f_run) f_step <= f_step + 2'd1;
    f_phase <= !f_phase;
end
always_comb begin
    assume (s_rst == !f_run);
    assume (m_rst == !f_run);
    // Two steps are a clock period: an edge of both clocks during reset.
    if (f_step == 2'd0) assume (!s_clk && !m_clk);
    if (f_step == 2'd1) assume (s_clk && m_clk);
    if (f_step == 2'd2) assume (!s_clk && !m_clk);
end

// Distance of each copy of a pointer from the write pointer, in words: older copies lag more.
function automatic logic [P-1:0] f_behind(input logic [P-1:0] gray, input logic [P-1:0] pointer);
    logic [P-1:0] binary;
    for (int i = 0; i < P; i++) binary[i] = ^(gray >> i);
    f_behind = pointer - binary;
endfunction

wire [P-1:0] f_write_1 = f_behind(cdc_chain_m, write_pointer);
wire [P-1:0] f_write_2 = f_behind(write_gray_m, write_pointer);
wire [P-1:0] f_read_0  = write_pointer - read_pointer;
wire [P-1:0] f_read_1  = f_behind(cdc_chain_s, write_pointer);
wire [P-1:0] f_read_2  = f_behind(read_gray_s, write_pointer);

logic f_was_full = 1'b0;
always_ff @(posedge f_clock) begin
    if (f_run && f_held > F_FULL) f_was_full <= 1'b1;
end

always_comb begin
    // From the end of reset on, when all registers are initialized.
    if (f_step[1]) begin
        // No overflow, no underflow, and `s_level` is never too low.
        assert (f_held <= F_FULL + ONE);
        assert (!m_valid || f_held != '0);
        assert (s_level >= f_read_0);
`ifndef FORMAL_VIEW
        // Order and data.
        assert (!(m_valid && f_out == f_index) || m_data == f_word);
        assert (!(f_inside && !f_shown) || memory[f_index[DEPTH_LOG2-1:0]] == f_word);
        assert (!f_shown || out_data == f_word);
`endif
        // Induction invariants.
        assert (f_in == write_pointer);
        assert (f_out == read_pointer - {{P - 1{1'b0}}, out_valid});
        assert (cdc_write_gray == (write_pointer ^ (write_pointer >> 1)));
        assert (cdc_read_gray == (read_pointer ^ (read_pointer >> 1)));
        assert (f_write_1 <= f_write_2 && f_write_2 <= f_read_0);
        assert (f_read_0 <= f_read_1 && f_read_1 <= f_read_2 && f_read_2 <= F_FULL);
    end
end

// Gray codes: at most one bit changes between two ticks of the fastest clock.
logic [P-1:0] f_write_gray_last;
logic [P-1:0] f_read_gray_last;
logic f_ran = 1'b0;
wire [P-1:0] f_write_change = cdc_write_gray ^ f_write_gray_last;
wire [P-1:0] f_read_change = cdc_read_gray ^ f_read_gray_last;
always_ff @(posedge f_clock) begin
    f_write_gray_last <= cdc_write_gray;
    f_read_gray_last  <= cdc_read_gray;
    f_ran             <= f_run;
end
always_comb begin
    if (f_ran) begin
        assert ((f_write_change & (f_write_change - ONE)) == '0);
        assert ((f_read_change & (f_read_change - ONE)) == '0);
    end
`ifdef F_COVER
    // One clock schedule is enough to show reachability, and much faster to search.
    assume (s_clk == f_phase && m_clk == f_phase);
`endif
`ifndef FORMAL_VIEW
    cover (f_run && f_held == F_FULL + ONE);
    cover (f_was_full && f_held == '0 && f_out == f_index + ONE && f_word == '1);
`endif
end

`ifdef FORMAL_VIEW
assign view_write  = write_pointer;
assign view_read   = read_pointer;
assign view_chain  = write_pointer - f_write_1;
assign view_synced = write_pointer - f_write_2;
generate
    for (genvar g = 0; g < 2**DEPTH_LOG2; g++) begin : f_top
        assign view_top[g] = memory[g][WIDTH-1];
    end
endgenerate
`endif
