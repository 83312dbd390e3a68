// One AXI-Lite port for two blocks of registers: address bit 11 says which. Addresses and data go to both outside of this. One write and one read at a time, so that the
// answers come in order. Both blocks must take a write's address and data together.
module axil_split (
    input  wire        clk,
    input  wire        rst,

    input  wire        s_axil_aw_block,  // bit 11 of the address
    input  wire        s_axil_awvalid,
    output wire        s_axil_awready,
    input  wire        s_axil_wvalid,
    output wire        s_axil_wready,
    output wire [1:0]  s_axil_bresp,
    output wire        s_axil_bvalid,
    input  wire        s_axil_bready,
    input  wire        s_axil_ar_block,
    input  wire        s_axil_arvalid,
    output wire        s_axil_arready,
    output wire [31:0] s_axil_rdata,
    output wire [1:0]  s_axil_rresp,
    output wire        s_axil_rvalid,
    input  wire        s_axil_rready,

    // Block 0 in bit 0 or the lower half, block 1 in bit 1 or the upper half.
    output wire [1:0]  m_axil_awvalid,
    input  wire [1:0]  m_axil_awready,
    output wire [1:0]  m_axil_wvalid,
    input  wire [1:0]  m_axil_wready,
    input  wire [3:0]  m_axil_bresp,
    input  wire [1:0]  m_axil_bvalid,
    output wire [1:0]  m_axil_bready,
    output wire [1:0]  m_axil_arvalid,
    input  wire [1:0]  m_axil_arready,
    input  wire [63:0] m_axil_rdata,
    input  wire [3:0]  m_axil_rresp,
    input  wire [1:0]  m_axil_rvalid,
    output wire [1:0]  m_axil_rready
);
    // A write was taken and is not answered yet, and which block it went to; the same of a read.
    logic writing, write_block;
    logic reading, read_block;

    wire [1:0] write_to = s_axil_aw_block ? 2'b10 : 2'b01;
    wire [1:0] read_from = s_axil_ar_block ? 2'b10 : 2'b01;
    wire write_offer = s_axil_awvalid && s_axil_wvalid && !writing;
    wire write_take = |(write_to & m_axil_awready & m_axil_wready) && write_offer;
    wire read_take = |(read_from & m_axil_arready) && s_axil_arvalid && !reading;

    assign m_axil_awvalid = write_offer ? write_to : 2'b00;
    assign m_axil_wvalid  = write_offer ? write_to : 2'b00;
    assign s_axil_awready = write_take;
    assign s_axil_wready  = write_take;
    assign s_axil_bvalid  = writing && m_axil_bvalid[write_block];
    assign s_axil_bresp   = write_block ? m_axil_bresp[3:2] : m_axil_bresp[1:0];
    assign m_axil_bready  = s_axil_bready && writing ? (write_block ? 2'b10 : 2'b01) : 2'b00;

    assign m_axil_arvalid = s_axil_arvalid && !reading ? read_from : 2'b00;
    assign s_axil_arready = read_take;
    assign s_axil_rvalid  = reading && m_axil_rvalid[read_block];
    assign s_axil_rdata   = read_block ? m_axil_rdata[63:32] : m_axil_rdata[31:0];
    assign s_axil_rresp   = read_block ? m_axil_rresp[3:2] : m_axil_rresp[1:0];
    assign m_axil_rready  = s_axil_rready && reading ? (read_block ? 2'b10 : 2'b01) : 2'b00;

    always_ff @(posedge clk) begin
        if (rst) begin
            writing     <= 1'b0;
            reading     <= 1'b0;
            write_block <= 1'b0;
            read_block  <= 1'b0;
        end else begin
            if (write_take) begin
                writing     <= 1'b1;
                write_block <= s_axil_aw_block;
            end else if (s_axil_bvalid && s_axil_bready) writing <= 1'b0;
            if (read_take) begin
                reading    <= 1'b1;
                read_block <= s_axil_ar_block;
            end else if (s_axil_rvalid && s_axil_rready) reading <= 1'b0;
        end
    end

`ifdef FORMAL
    `include "axil_split_properties.svh"
`endif
endmodule
