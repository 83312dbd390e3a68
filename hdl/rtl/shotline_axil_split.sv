// AXI4-Lite 1:2 demultiplexer for two register blocks, selected by address bit 11. Address and data are wired to both
// blocks outside of this module. One outstanding write and one outstanding read, so responses return in order. Both
// blocks must accept the address and data of a write in the same clock.

`default_nettype none

module shotline_axil_split (
    // Clock and synchronous reset.
    input  wire        clk,
    input  wire        rst,

    // AXI4-Lite subordinate, without the signals wired around this module.
    input  wire        s_axil_aw_block,  // address bit 11
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

    // AXI4-Lite managers: block 0 in bit 0 or the lower half, block 1 in bit 1 or the upper half.
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
    // A write or a read is outstanding, and at which block.
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
    `include "shotline_axil_split_properties.svh"
`endif
endmodule

`default_nettype wire
