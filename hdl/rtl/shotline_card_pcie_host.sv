// Register accesses of the host: from the completer streams (PG213: 512 bits, without straddle) to AXI4-Lite in another
// clock domain. One access at a time, so they keep their order.
//
// Reads and writes of one dword in BAR 0 are accesses; other requests that need an answer get the status "unsupported
// request", other writes and messages are dropped. An answer with this status repeats the request, which the integrated
// block logs.

`default_nettype none

module shotline_card_pcie_host (
    // Clock and synchronous reset of the streams.
    input  wire         pcie_clk,
    input  wire         pcie_rst,

    // Completer requests.
    input  wire [511:0] s_axis_cq_tdata,
    input  wire         s_axis_cq_tlast,
    input  wire [182:0] s_axis_cq_tuser,
    input  wire         s_axis_cq_tvalid,
    output wire         s_axis_cq_tready,

    // Completions.
    output wire [511:0] m_axis_cc_tdata,
    output wire [15:0]  m_axis_cc_tkeep,
    output wire         m_axis_cc_tlast,
    output wire [80:0]  m_axis_cc_tuser,
    output wire         m_axis_cc_tvalid,
    input  wire         m_axis_cc_tready,

    // Clock and synchronous reset of the registers.
    input  wire         clk,
    input  wire         rst,

    // AXI4-Lite manager.
    output wire [15:0]  m_axil_awaddr,
    output logic        m_axil_awvalid,
    input  wire         m_axil_awready,
    output wire [31:0]  m_axil_wdata,
    output wire [3:0]   m_axil_wstrb,
    output logic        m_axil_wvalid,
    input  wire         m_axil_wready,
    input  wire         m_axil_bvalid,
    output wire         m_axil_bready,
    output wire [15:0]  m_axil_araddr,
    output logic        m_axil_arvalid,
    input  wire         m_axil_arready,
    input  wire [31:0]  m_axil_rdata,
    input  wire         m_axil_rvalid,
    output wire         m_axil_rready
);
    localparam logic [3:0] READ = 4'd0, WRITE = 4'd1, FIRST_MESSAGE = 4'd12;
    localparam logic [2:0] UNSUPPORTED = 3'd1;
    localparam int DISCONTINUE = 96;

    // ---------------------------------------------------------------- requests
    localparam logic [1:0] TAKE = 2'd0, CALL = 2'd1, WAIT = 2'd2, ANSWER = 2'd3;
    logic [1:0] state;
    logic inner, good;
    logic [127:0] request;
    logic [31:0] data;
    logic [7:0] enables;
    logic [10:0] hint;  // processing hint: steering tag, type, present
    wire [3:0] kind  = s_axis_cq_tdata[78:75];
    wire access = (kind == READ || kind == WRITE) && s_axis_cq_tdata[74:64] == 11'd1 &&
                  s_axis_cq_tdata[114:112] == 3'd0 && !s_axis_cq_tuser[DISCONTINUE];
    wire answers = kind != WRITE && kind < FIRST_MESSAGE;
    wire take = s_axis_cq_tvalid && s_axis_cq_tready;
    wire called, returned;
    wire [31:0] result;
    assign s_axis_cq_tready = state == TAKE;

    always_ff @(posedge pcie_clk) begin
        if (take && !inner) begin
            request <= s_axis_cq_tdata[127:0];
            data    <= s_axis_cq_tdata[159:128];
            enables <= {s_axis_cq_tuser[11:8], s_axis_cq_tuser[3:0]};
            hint    <= {s_axis_cq_tuser[110:103], s_axis_cq_tuser[100:99], s_axis_cq_tuser[97]};
            good    <= access;
        end
        if (returned) data <= result;
        if (pcie_rst) begin
            inner <= 1'b0;
            state  <= TAKE;
        end else begin
            if (take) inner <= !s_axis_cq_tlast;
            case (state)
                TAKE:   if (take && !inner) state <= access ? CALL : answers ? ANSWER : TAKE;
                CALL:   if (called) state <= WAIT;
                WAIT:   if (returned) state <= request[78:75] == READ ? ANSWER : TAKE;
                ANSWER: if (m_axis_cc_tready) state <= TAKE;
            endcase
        end
    end

    // ---------------------------------------------------------------- answers
    // Bytes of the dword from the first to the last enabled one; a read without any is answered as one of one byte.
    function automatic logic [2:0] bytes(input logic [3:0] enabled);
        casez (enabled)
            4'b1??1: bytes = 3'd4;
            4'b01?1, 4'b1?10: bytes = 3'd3;
            4'b0011, 4'b0110, 4'b1100: bytes = 3'd2;
            default: bytes = 3'd1;
        endcase
    endfunction
    function automatic logic [1:0] offset(input logic [3:0] enabled);
        casez (enabled)
            4'b??10: offset = 2'd1;
            4'b?100: offset = 2'd2;
            4'b1000: offset = 2'd3;
            default: offset = 2'd0;
        endcase
    endfunction
    wire [12:0] count = good ? 13'(bytes(enables[3:0])) : 13'd20;
    wire [6:0] lower = good ? {request[6:2], offset(enables[3:0])} : 7'd0;
    wire [95:0] head = {1'b0, request[126:121], 1'b0, 8'd0, request[111:96],
                        request[95:80], 2'd0, good ? 3'd0 : UNSUPPORTED, good ? 11'd1 : 11'd5,
                        2'd0, request[78:75] == 4'd7, count, 6'd0, request[1:0], 1'b0, lower};
    wire [31:0] signals = {8'd0, hint[10:3], 5'd0, hint[2:0], enables};
    assign m_axis_cc_tdata  = {256'd0, good ? 128'd0 : request, good ? data : signals, head};
    assign m_axis_cc_tkeep  = good ? 16'h000F : 16'h00FF;
    assign m_axis_cc_tlast  = 1'b1;
    assign m_axis_cc_tuser  = {69'd0, good ? 4'd3 : 4'd7, 2'b01, 4'd0, 2'b01};
    assign m_axis_cc_tvalid = state == ANSWER;

    // ---------------------------------------------------------------- crossings
    wire write;
    wire [3:0] strobe;
    wire [13:0] address;
    wire [31:0] write_data;
    wire call, finished;
    wire unused_ready;
    shotline_cdc_word #(.WIDTH(51)) to_registers (
        .s_clk(pcie_clk), .s_rst(pcie_rst), .s_data({request[75], enables[3:0], request[15:2], data}),
        .s_valid(state == CALL), .s_ready(called), .m_clk(clk), .m_rst(rst),
        .m_data({write, strobe, address, write_data}), .m_valid(call)
    );
    shotline_cdc_word #(.WIDTH(32)) to_host (
        .s_clk(clk), .s_rst(rst), .s_data(m_axil_rdata), .s_valid(finished), .s_ready(unused_ready),
        .m_clk(pcie_clk), .m_rst(pcie_rst), .m_data(result), .m_valid(returned)
    );

    // ---------------------------------------------------------------- registers
    assign m_axil_awaddr = {address, 2'd0};
    assign m_axil_araddr = {address, 2'd0};
    assign m_axil_wdata  = write_data;
    assign m_axil_wstrb  = strobe;
    assign m_axil_bready = 1'b1;
    assign m_axil_rready = 1'b1;
    assign finished = m_axil_bvalid || m_axil_rvalid;
    always_ff @(posedge clk)
        if (rst) begin
            m_axil_awvalid <= 1'b0;
            m_axil_wvalid  <= 1'b0;
            m_axil_arvalid <= 1'b0;
        end else begin
            if (call) begin
                m_axil_awvalid <= write;
                m_axil_wvalid  <= write;
                m_axil_arvalid <= !write;
            end else begin
                if (m_axil_awready) m_axil_awvalid <= 1'b0;
                if (m_axil_wready) m_axil_wvalid <= 1'b0;
                if (m_axil_arready) m_axil_arvalid <= 1'b0;
            end
        end

    wire unused = &{s_axis_cq_tdata, s_axis_cq_tuser, unused_ready, request[127], request[120:112], 1'b0};
endmodule

`default_nettype wire
