// Of packetizer_registers: the rules of AXI-Lite on the slave's side, each request answered once, and no start where none is
// allowed.
logic f_started = 1'b0;
logic [1:0] f_writes, f_reads;  // taken and not answered yet
always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_writes <= '0;
        f_reads  <= '0;
    end else begin
        f_writes <= f_writes + {1'b0, write_take} - {1'b0, s_axil_bvalid && s_axil_bready};
        f_reads  <= f_reads + {1'b0, read_take} - {1'b0, s_axil_rvalid && s_axil_rready};
    end
    if (f_started && $past(!rst) && !rst) begin
        if ($past(s_axil_bvalid && !s_axil_bready)) assert (s_axil_bvalid && $stable(s_axil_bresp));
        if ($past(s_axil_rvalid && !s_axil_rready)) assert (s_axil_rvalid && $stable({s_axil_rdata, s_axil_rresp}));
    end
    if (f_started && !rst) begin
        assert (f_writes == {1'b0, write_now} + {1'b0, answer} && f_writes <= 2'd1);
        assert (f_reads == {1'b0, look} + {1'b0, join_now} + {1'b0, data_valid} && f_reads <= 2'd1);
        assert (!(start && (running || busy)));
        assert (samples != '0 || $past(rst));
        assert (period != '0 || $past(rst));
        cover (start && load_number && samples == 32'd90);
        cover (s_axil_rvalid && s_axil_rdata == 32'h53485054 && $past(s_axil_rvalid && !s_axil_rready));
        cover (s_axil_bvalid && s_axil_bresp == 2'b10);
    end
end
