// Properties of shotline_packetizer_registers: no start while a run or a shot is active, at least one sample per shot,
// and a period of at least one clock. The AXI4-Lite rules are proven for shotline_axil_slave.
logic f_started = 1'b0;
always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (f_started && !rst) begin
        assert (!(start && (running || busy)));
        assert (samples != '0 || $past(rst));
        assert (period != '0 || $past(rst));
        cover (start && load_number && samples == 32'd90);
        cover (s_axil_rvalid && s_axil_rdata == 32'h53485054 && $past(s_axil_rvalid && !s_axil_rready));
        cover (s_axil_bvalid && s_axil_bresp == 2'b10);
    end
end
