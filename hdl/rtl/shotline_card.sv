// Packet card on a PCIe integrated block of the UltraScale+: packets in, PCIe streams out. The DMA module and its adapter;
// see shotline_card_dma for packets, registers and memory, shotline_card_pcie for how the block is set up.

`default_nettype none

module shotline_card #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the channels, 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6,      // log2 of the descriptor reads in flight, 2 to 8
    parameter int ROWS_LOG2 = 9,      // log2 of the words of payload held, 5 to 12
    parameter int LANE_LOG2 = 6       // log2 of the blocks of payload held in each lane, 6 to 12
) (
    // Clock and synchronous reset of the packets.
    input  wire         clk,
    input  wire         rst,

    // Addresses that writes may have: those that equal the base in the bits of the mask. Stable while channels run.
    input  wire [63:12] window_base,
    input  wire [63:12] window_mask,

    // Packets, packed: at most one begins in a word, at block `s_first_block`, not before the end of the last packet.
    input  wire         s_valid,
    output wire         s_ready,
    input  wire [511:0] s_data,
    input  wire         s_first,
    input  wire [2:0]   s_first_block,
    input  wire [13:0]  s_length,        // bytes, at least 1
    input  wire [CHANNELS_LOG2-1:0] s_channel,

    // Clock and synchronous reset of the integrated block.
    input  wire         pcie_clk,
    input  wire         pcie_rst,

    // Credits of the integrated block for reads; 15: 15 or more.
    input  wire [3:0]   pcie_tfc_nph_av,

    // Requester requests.
    output wire [511:0] m_axis_rq_tdata,
    output wire [15:0]  m_axis_rq_tkeep,
    output wire         m_axis_rq_tlast,
    output wire [136:0] m_axis_rq_tuser,
    output wire         m_axis_rq_tvalid,
    input  wire         m_axis_rq_tready,

    // Requester completions.
    input  wire [511:0] s_axis_rc_tdata,
    input  wire [15:0]  s_axis_rc_tkeep,
    input  wire         s_axis_rc_tlast,
    input  wire [160:0] s_axis_rc_tuser,
    input  wire         s_axis_rc_tvalid,
    output wire         s_axis_rc_tready,

    // Completer requests.
    input  wire [511:0] s_axis_cq_tdata,
    input  wire [15:0]  s_axis_cq_tkeep,
    input  wire         s_axis_cq_tlast,
    input  wire [182:0] s_axis_cq_tuser,
    input  wire         s_axis_cq_tvalid,
    output wire         s_axis_cq_tready,

    // Completer completions.
    output wire [511:0] m_axis_cc_tdata,
    output wire [15:0]  m_axis_cc_tkeep,
    output wire         m_axis_cc_tlast,
    output wire [80:0]  m_axis_cc_tuser,
    output wire         m_axis_cc_tvalid,
    input  wire         m_axis_cc_tready,

    // Interrupts: a clock of `interrupt_valid` for each, after its report.
    output wire         interrupt_valid,
    output wire [CHANNELS_LOG2-1:0] interrupt_channel
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8, "shotline_card: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(rows, ROWS_LOG2 >= 5 && ROWS_LOG2 <= 12, "shotline_card: ROWS_LOG2 must be 5 to 12")
    `SHOTLINE_REQUIRE(lane, LANE_LOG2 >= 6 && LANE_LOG2 <= 12, "shotline_card: LANE_LOG2 must be 6 to 12")

    wire dma_rst;
    wire [15:0] axil_awaddr, axil_araddr;
    wire [31:0] axil_wdata, axil_rdata;
    wire [3:0] axil_wstrb;
    wire [1:0] axil_bresp, axil_rresp;
    wire axil_awvalid, axil_awready, axil_wvalid, axil_wready, axil_bvalid, axil_bready;
    wire axil_arvalid, axil_arready, axil_rvalid, axil_rready;
    wire data_valid, data_ready, slot_ready, read_valid, read_ready, completion_valid, completion_error;
    wire [511:0] data;
    wire [7:0] data_keep;
    wire [1:0] slot_valid;
    wire [3:0] slot_kind;
    wire [127:0] slot_address;
    wire [21:0] slot_length;
    wire [5:0] slot_block;
    wire [15:0] slot_channel;
    wire [63:0] slot_report, read_address;
    wire [TAGS_LOG2-1:0] read_tag, completion_tag;
    wire [255:0] completion_data;
    wire notice_valid, notice_kind;
    wire [CHANNELS_LOG2-1:0] notice_channel;

    shotline_card_dma #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .TAGS_LOG2(TAGS_LOG2), .ROWS_LOG2(ROWS_LOG2),
        .BLOCKS_LOG2(3)
    ) dma (
        .clk, .rst(dma_rst),
        .s_axil_awaddr(axil_awaddr), .s_axil_awvalid(axil_awvalid), .s_axil_awready(axil_awready),
        .s_axil_wdata(axil_wdata), .s_axil_wstrb(axil_wstrb), .s_axil_wvalid(axil_wvalid),
        .s_axil_wready(axil_wready), .s_axil_bresp(axil_bresp), .s_axil_bvalid(axil_bvalid),
        .s_axil_bready(axil_bready), .s_axil_araddr(axil_araddr), .s_axil_arvalid(axil_arvalid),
        .s_axil_arready(axil_arready), .s_axil_rdata(axil_rdata), .s_axil_rresp(axil_rresp),
        .s_axil_rvalid(axil_rvalid), .s_axil_rready(axil_rready),
        .s_valid, .s_ready, .s_data, .s_first, .s_first_block, .s_length, .s_channel,
        .m_data_valid(data_valid), .m_data_ready(data_ready), .m_data(data), .m_data_keep(data_keep),
        .m_slot_valid(slot_valid), .m_slot_ready(slot_ready), .m_slot_kind(slot_kind), .m_slot_address(slot_address),
        .m_slot_length(slot_length), .m_slot_block(slot_block), .m_slot_channel(slot_channel),
        .m_slot_report(slot_report), .m_read_valid(read_valid), .m_read_ready(read_ready),
        .m_read_address(read_address), .m_read_tag(read_tag), .s_completion_valid(completion_valid),
        .s_completion_tag(completion_tag), .s_completion_data(completion_data), .s_completion_error(completion_error),
        .notice_valid, .notice_kind, .notice_channel
    );

    shotline_card_pcie #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .TAGS_LOG2(TAGS_LOG2), .LANE_LOG2(LANE_LOG2)
    ) pcie (
        .clk, .rst, .dma_rst, .window_base, .window_mask,
        .m_axil_awaddr(axil_awaddr), .m_axil_awvalid(axil_awvalid), .m_axil_awready(axil_awready),
        .m_axil_wdata(axil_wdata), .m_axil_wstrb(axil_wstrb), .m_axil_wvalid(axil_wvalid),
        .m_axil_wready(axil_wready), .m_axil_bresp(axil_bresp), .m_axil_bvalid(axil_bvalid),
        .m_axil_bready(axil_bready), .m_axil_araddr(axil_araddr), .m_axil_arvalid(axil_arvalid),
        .m_axil_arready(axil_arready), .m_axil_rdata(axil_rdata), .m_axil_rresp(axil_rresp),
        .m_axil_rvalid(axil_rvalid), .m_axil_rready(axil_rready),
        .s_data_valid(data_valid), .s_data_ready(data_ready), .s_data(data), .s_data_keep(data_keep),
        .s_slot_valid(slot_valid), .s_slot_ready(slot_ready), .s_slot_kind(slot_kind), .s_slot_address(slot_address),
        .s_slot_length(slot_length), .s_slot_block(slot_block), .s_slot_channel(slot_channel),
        .s_slot_report(slot_report), .s_read_valid(read_valid), .s_read_ready(read_ready),
        .s_read_address(read_address), .s_read_tag(read_tag), .m_completion_valid(completion_valid),
        .m_completion_tag(completion_tag), .m_completion_data(completion_data), .m_completion_error(completion_error),
        .notice_valid, .notice_kind, .notice_channel, .pcie_clk, .pcie_rst, .pcie_tfc_nph_av,
        .m_axis_rq_tdata, .m_axis_rq_tkeep, .m_axis_rq_tlast, .m_axis_rq_tuser, .m_axis_rq_tvalid, .m_axis_rq_tready,
        .s_axis_rc_tdata, .s_axis_rc_tkeep, .s_axis_rc_tlast, .s_axis_rc_tuser, .s_axis_rc_tvalid, .s_axis_rc_tready,
        .s_axis_cq_tdata, .s_axis_cq_tkeep, .s_axis_cq_tlast, .s_axis_cq_tuser, .s_axis_cq_tvalid, .s_axis_cq_tready,
        .m_axis_cc_tdata, .m_axis_cc_tkeep, .m_axis_cc_tlast, .m_axis_cc_tuser, .m_axis_cc_tvalid, .m_axis_cc_tready,
        .interrupt_valid, .interrupt_channel
    );
endmodule

`default_nettype wire
