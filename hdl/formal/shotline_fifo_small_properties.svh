// Properties of shotline_fifo_small: the n-th entry pushed is the n-th entry popped, as long as the producer and the
// consumer keep the rules. The solver chooses an arbitrary index, and its entry is followed.

// Entries pushed and popped since reset.
logic [DEPTH_LOG2+1:0] f_in;
logic [DEPTH_LOG2+1:0] f_out;
(* anyconst *) logic [DEPTH_LOG2+1:0] f_index;
logic [WIDTH-1:0] f_word;
logic f_started = 1'b0;
logic f_good;  // no push into the full FIFO and no pop from the empty one since reset

localparam logic [DEPTH_LOG2+1:0] F_FULL = {2'b01, {DEPTH_LOG2{1'b0}}};
wire [DEPTH_LOG2+1:0] f_held = f_in - f_out;
wire [DEPTH_LOG2+1:0] f_ahead = f_index - f_out;
wire f_inside = f_ahead < f_held;
wire f_full = f_held == F_FULL + (DEPTH_LOG2+2)'(out_valid);

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_in   <= '0;
        f_out  <= '0;
        f_good <= 1'b1;
    end else begin
        if (push) f_in <= f_in + 1'b1;
        if (pop) f_out <= f_out + 1'b1;
        if ((push && f_full) || (pop && !out_valid)) f_good <= 1'b0;
        if (push && f_in == f_index) f_word <= push_data;
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst && f_good) begin
        assert (f_held <= F_FULL + 1'b1);
        assert (!out_valid || f_held != '0);
        // An entry waits at most one clock for the empty output.
        assert (out_valid || f_held <= 1);
        if (out_valid && f_out == f_index) assert (out_data == f_word);
        // Induction invariants.
        assert (write == f_in[DEPTH_LOG2:0] && f_held - (DEPTH_LOG2+2)'(out_valid) <= F_FULL);
        assert (read == f_out[DEPTH_LOG2:0] + (DEPTH_LOG2+1)'(out_valid));
        if (f_inside && !(out_valid && f_ahead == '0)) assert (entries[f_index[DEPTH_LOG2-1:0]] == f_word);

        cover (f_full && out_valid && f_out == f_index && f_word == '1);
        cover (f_held == '0 && f_out == f_index + 1'b1 && f_out[DEPTH_LOG2+1]);
    end
end
