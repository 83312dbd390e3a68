// Properties of shotline_lut_ram: a read returns the word that was last written. The solver chooses an arbitrary
// address.

(* anyconst *) logic [DEPTH_LOG2-1:0] f_address;
logic [WIDTH-1:0] f_word;
// The chosen address was written. F_CLEARED: all addresses were, before the first clock.
`ifdef F_CLEARED
logic f_written = 1'b1;
`else
logic f_written = 1'b0;
`endif
// Without an initial value, which a wire that is joined would lose.
wire f_known = f_written;

always_ff @(posedge clk)
    if (write && write_addr == f_address) begin
        f_word    <= write_data;
        f_written <= 1'b1;
    end

always_ff @(posedge clk) begin
    for (int port = 0; port < READS; port++)
        if (f_known && read_addr[port] == f_address) assert (read_data[port] == f_word);
    // Induction invariant.
    assert (!f_known || memory[f_address] == f_word);

    cover (f_known && f_word == '1 && read_addr[0] == f_address && write && write_addr == f_address);
end
