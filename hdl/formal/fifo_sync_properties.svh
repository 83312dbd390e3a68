// Of fifo_sync. Word number `n` that goes in is word number `n` that comes out: one index is chosen by the prover (any), the
// word that gets this index on its way in is kept, and must be the one that has it on its way out.

// Words in and out since reset, as the world outside counts them.
logic [DEPTH_LOG2:0] f_in;
logic [DEPTH_LOG2:0] f_out;
(* anyconst *) logic [DEPTH_LOG2:0] f_index;
logic [WIDTH-1:0] f_word;
logic f_started = 1'b0;
logic f_was_full;

wire f_push = s_valid && s_ready;
wire f_pop = m_valid && m_ready;
wire [DEPTH_LOG2:0] f_held = f_in - f_out;
// The chosen index counts from the oldest word: in here if it is one of the words held.
wire [DEPTH_LOG2:0] f_ahead = f_index - f_out;
wire f_inside = f_ahead < f_held;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_in  <= '0;
        f_out <= '0;
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
        // No overflow and no underflow: words held are never more than there is room for, and none comes of nothing.
        assert (f_held <= FULL + ONE);
        assert (level == f_held);
        assert (!m_valid || f_held != '0);
        assert (s_ready || f_held >= FULL);
        // Order and data.
        assert (!(f_pop && f_out == f_index) || m_data == f_word);
        // What makes the above inductive.
        assert (f_in == write_pointer);
        assert (f_out == read_pointer - {{DEPTH_LOG2{1'b0}}, out_valid});
        assert (stored <= FULL);
        assert (!(f_inside && !(out_valid && f_ahead == '0)) || memory[f_index[DEPTH_LOG2-1:0]] == f_word);
        assert (!(f_inside && out_valid && f_ahead == '0) || out_data == f_word);
        // The stream's rule: a word offered is held until it is taken.
        if ($past(f_started && !rst && m_valid && !m_ready)) assert (m_valid && $stable(m_data));

        cover (f_held == FULL + ONE);
        cover (f_was_full && f_held == '0 && f_out == f_index + ONE && f_word == '1);
    end
end
