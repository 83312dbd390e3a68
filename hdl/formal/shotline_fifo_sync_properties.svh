// Properties of shotline_fifo_sync: the n-th word written is the n-th word read. The solver chooses an arbitrary index;
// the word written with it is stored and compared with the word read with it.

// Words written and read since reset, counted at the ports.
logic [DEPTH_LOG2:0] f_in;
logic [DEPTH_LOG2:0] f_out;
(* anyconst *) logic [DEPTH_LOG2:0] f_index;
logic [WIDTH-1:0] f_word;
logic f_started = 1'b0;
logic f_was_full;

wire f_push = s_valid && s_ready;
wire f_pop = m_valid && m_ready;
wire [DEPTH_LOG2:0] f_held = f_in - f_out;
// Position of the chosen index, counted from the oldest word: inside if that word is held.
wire [DEPTH_LOG2:0] f_ahead = f_index - f_out;
wire f_inside = f_ahead < f_held;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_in       <= '0;
        f_out      <= '0;
        f_was_full <= 1'b0;
    end else begin
        if (f_push) f_in <= f_in + ONE;
        if (f_pop) f_out <= f_out + ONE;
        if (f_held == FULL + ONE) f_was_full <= 1'b1;
        if (f_push && f_in == f_index) f_word <= s_data;
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // No overflow and no underflow.
        assert (f_held <= FULL + ONE);
        assert (level == f_held);
        assert (!m_valid || f_held != '0);
        assert (s_ready || f_held >= FULL);
        // Order and data.
        assert (!(f_pop && f_out == f_index) || m_data == f_word);
        // Induction invariants.
        assert (f_in == write_pointer);
        assert (f_out == read_pointer - {{DEPTH_LOG2{1'b0}}, out_valid});
        assert (stored <= FULL);
        assert (!(f_inside && !(out_valid && f_ahead == '0)) || memory[f_index[DEPTH_LOG2-1:0]] == f_word);
        assert (!(f_inside && out_valid && f_ahead == '0) || out_data == f_word);
        // Stream rule: an offered word stays until it is accepted.
        if ($past(f_started && !rst && m_valid && !m_ready)) assert (m_valid && $stable(m_data));

        cover (f_held == FULL + ONE);
        cover (f_was_full && f_held == '0 && f_out == f_index + ONE && f_word == '1);
    end
end
