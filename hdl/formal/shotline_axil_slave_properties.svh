// Properties of shotline_axil_slave: the AXI4-Lite rules of a subordinate, one response per request, each write
// executed once with its address and data, and each read answered with the block's data for its address. The block is
// unconstrained.
logic f_started = 1'b0;
logic [1:0] f_writes, f_reads;  // outstanding
logic [ADDRESS_BITS-1:0] f_read_addr;
logic [47:0] f_found;
always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_writes <= '0;
        f_reads  <= '0;
    end else begin
        f_writes <= f_writes + {1'b0, write_accept} - {1'b0, s_axil_bvalid && s_axil_bready};
        f_reads  <= f_reads + {1'b0, read_accept} - {1'b0, s_axil_rvalid && s_axil_rready};
    end
    if (read_accept) f_read_addr <= s_axil_araddr;
    if (read_found) f_found <= read_data;
    if (f_started && $past(!rst) && !rst) begin
        if ($past(s_axil_bvalid && !s_axil_bready)) assert (s_axil_bvalid && $stable(s_axil_bresp));
        if ($past(s_axil_rvalid && !s_axil_rready)) assert (s_axil_rvalid && $stable({s_axil_rdata, s_axil_rresp}));
        // Executed in the clock after it was accepted, if all four bytes are written and the block does not reject it.
        assert (write == ($past(write_accept && s_axil_wstrb == 4'hF) && !bad));
        if (write) assert ({write_addr, write_data} == $past({s_axil_awaddr, s_axil_wdata}));
        if ($past(write_now)) assert (s_axil_bvalid && (s_axil_bresp == 2'b00) == $past(write));
        if ($past(read_found && read_keep)) assert (read_upper == f_found[47:32]);
        if ($past(!read_found || !read_keep)) assert ($stable(read_upper));
    end
    if (f_started && !rst) begin
        assert (f_writes == {1'b0, write_now} + {1'b0, s_axil_bvalid} && f_writes <= 2'd1);
        assert (f_reads == {1'b0, read_lookup} + {1'b0, read_found} + {1'b0, s_axil_rvalid} && f_reads <= 2'd1);
        assert (!s_axil_bvalid || s_axil_bresp == 2'b00 || s_axil_bresp == 2'b10);
        if (f_reads != 2'd0) assert (read_addr == f_read_addr);
        if (s_axil_rvalid) assert (s_axil_rdata == f_found[31:0] && s_axil_rresp == 2'b00);
        cover (s_axil_bvalid && s_axil_bresp == 2'b10 && write_whole);
        cover (s_axil_bvalid && s_axil_bresp == 2'b00 && $past(s_axil_bvalid && !s_axil_bready));
        cover (s_axil_rvalid && s_axil_rdata == 32'h53485054 && $past(s_axil_rvalid && !s_axil_rready));
    end
end
