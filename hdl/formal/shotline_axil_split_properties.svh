// Properties of shotline_axil_split: its responses follow the AXI4-Lite rules if those of the blocks do, and no
// response is lost, duplicated or returned for a request of the other kind. The blocks are unconstrained except for
// these rules.
logic f_started = 1'b0;
logic [1:0] f_writes, f_reads;  // outstanding at each block

wire [1:0] f_write = m_axil_awvalid & m_axil_awready;
wire [1:0] f_read = m_axil_arvalid & m_axil_arready;
wire [1:0] f_write_answer = m_axil_bvalid & m_axil_bready;
wire [1:0] f_read_answer = m_axil_rvalid & m_axil_rready;

always_comb begin
    // A block accepts address and data in the same clock.
    assume (m_axil_awready == m_axil_wready);
    assume ((m_axil_awready & ~m_axil_awvalid) == 2'b00);
    // It responds only to accepted requests.
    assume ((m_axil_bvalid & ~f_writes) == 2'b00);
    assume ((m_axil_rvalid & ~f_reads) == 2'b00);
end

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (rst) begin
        f_writes <= 2'b00;
        f_reads  <= 2'b00;
    end else begin
        f_writes <= (f_writes & ~f_write_answer) | f_write;
        f_reads  <= (f_reads & ~f_read_answer) | f_read;
    end
    if (f_started && $past(!rst) && !rst) begin
        // Assumed of the manager and the blocks: an offer stays until accepted.
        if ($past(s_axil_awvalid && !s_axil_awready)) assume (s_axil_awvalid && $stable(s_axil_aw_block));
        if ($past(s_axil_wvalid && !s_axil_wready)) assume (s_axil_wvalid);
        if ($past(s_axil_arvalid && !s_axil_arready)) assume (s_axil_arvalid && $stable(s_axil_ar_block));
        assume (($past(m_axil_bvalid & ~m_axil_bready) & ~m_axil_bvalid) == 2'b00);
        assume (($past(m_axil_rvalid & ~m_axil_rready) & ~m_axil_rvalid) == 2'b00);
        if ($past(m_axil_bvalid != 2'b00)) assume ($stable(m_axil_bresp));
        if ($past(m_axil_rvalid != 2'b00)) assume ($stable({m_axil_rdata, m_axil_rresp}));
        // Asserted of this module.
        if ($past(s_axil_bvalid && !s_axil_bready)) assert (s_axil_bvalid && $stable(s_axil_bresp));
        if ($past(s_axil_rvalid && !s_axil_rready)) assert (s_axil_rvalid && $stable({s_axil_rdata, s_axil_rresp}));
        if ($past(m_axil_awvalid[0] && !m_axil_awready[0])) assert (m_axil_awvalid[0] && m_axil_wvalid[0]);
        if ($past(m_axil_awvalid[1] && !m_axil_awready[1])) assert (m_axil_awvalid[1] && m_axil_wvalid[1]);
        if ($past(m_axil_arvalid[0] && !m_axil_arready[0])) assert (m_axil_arvalid[0]);
        if ($past(m_axil_arvalid[1] && !m_axil_arready[1])) assert (m_axil_arvalid[1]);
    end
    if (f_started && !rst) begin
        assert (f_writes != 2'b11 && f_reads != 2'b11);
        assert (writing == (f_writes != 2'b00) && reading == (f_reads != 2'b00));
        assert (!writing || write_block == f_writes[1]);
        assert (!reading || read_block == f_reads[1]);
        // Accepted exactly when a block accepts, and answered exactly when a block responds.
        assert ((s_axil_awvalid && s_axil_awready) == (f_write != 2'b00));
        assert (s_axil_awready == s_axil_wready && (!s_axil_awready || (s_axil_awvalid && s_axil_wvalid)));
        assert ((s_axil_bvalid && s_axil_bready) == (f_write_answer != 2'b00));
        assert ((s_axil_arvalid && s_axil_arready) == (f_read != 2'b00));
        assert ((s_axil_rvalid && s_axil_rready) == (f_read_answer != 2'b00));
        cover (f_write_answer == 2'b10 && f_read_answer == 2'b01);
        cover ($past(f_write_answer == 2'b01) && f_write == 2'b10);
    end
end
