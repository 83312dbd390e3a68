// Adapter of a packet card: between shotline_card_dma and the PCIe integrated block of the UltraScale+ (PG213), whose
// streams have 512 bits at 250 MHz.
//
// Set the block up with straddle on the requester request stream and on no other, dword-aligned mode on all, client tags,
// extended tags if TAGS_LOG2 is more than 5, and BAR 0 of at least 64 KiB. `pcie_cq_np_req` is constant 1. The DMA
// module's `max_write` must not be more than the maximum payload size, and the maximum read request size must be at least
// 256 bytes.
//
// A write outside the window is not sent: its blocks are dropped, and the DMA module stops the channel. The adapter and,
// through `dma_rst`, the DMA module are reset when either reset is set. `rst` alone may cut a TLP that is being sent, so
// set it only together with the reset of the integrated block.

`default_nettype none

module shotline_card_pcie #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the channels, 3 to 8
    parameter int TAGS_LOG2 = 6,      // log2 of the reads in flight, 2 to 8
    parameter int LANE_LOG2 = 6       // log2 of the blocks of payload held in each lane, 6 to 12
) (
    // Clock and synchronous reset of the DMA module, and the reset it must have.
    input  wire         clk,
    input  wire         rst,
    output wire         dma_rst,

    // Addresses that writes may have: those that equal the base in the bits of the mask. Stable while channels run.
    input  wire [63:12] window_base,
    input  wire [63:12] window_mask,

    // AXI4-Lite manager: registers.
    output wire [15:0]  m_axil_awaddr,
    output wire         m_axil_awvalid,
    input  wire         m_axil_awready,
    output wire [31:0]  m_axil_wdata,
    output wire [3:0]   m_axil_wstrb,
    output wire         m_axil_wvalid,
    input  wire         m_axil_wready,
    input  wire [1:0]   m_axil_bresp,
    input  wire         m_axil_bvalid,
    output wire         m_axil_bready,
    output wire [15:0]  m_axil_araddr,
    output wire         m_axil_arvalid,
    input  wire         m_axil_arready,
    input  wire [31:0]  m_axil_rdata,
    input  wire [1:0]   m_axil_rresp,
    input  wire         m_axil_rvalid,
    output wire         m_axil_rready,

    // Payload: blocks of packets, each in its lane.
    input  wire         s_data_valid,
    output wire         s_data_ready,
    input  wire [511:0] s_data,
    input  wire [7:0]   s_data_keep,

    // Writes: kind 0 payload, 1 report, 2 interrupt.
    input  wire [1:0]   s_slot_valid,
    output wire         s_slot_ready,
    input  wire [3:0]   s_slot_kind,
    input  wire [127:0] s_slot_address,
    input  wire [21:0]  s_slot_length,
    input  wire [5:0]   s_slot_block,
    input  wire [15:0]  s_slot_channel,
    input  wire [63:0]  s_slot_report,

    // Descriptor reads, completions and notices.
    input  wire         s_read_valid,
    output wire         s_read_ready,
    input  wire [63:0]  s_read_address,
    input  wire [TAGS_LOG2-1:0] s_read_tag,
    output wire         m_completion_valid,
    output wire [TAGS_LOG2-1:0] m_completion_tag,
    output wire [255:0] m_completion_data,
    output wire         m_completion_error,
    output wire         notice_valid,
    output wire         notice_kind,
    output wire [CHANNELS_LOG2-1:0] notice_channel,

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
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_pcie: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_pcie: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(lane, LANE_LOG2 >= 6 && LANE_LOG2 <= 12, "shotline_card_pcie: LANE_LOG2 must be 6 to 12")

    // Registered, because each reset is synchronous to a clock of its own and the sum may have no glitch.
    logic reset_clk, reset_pcie;
    wire stream_rst;
    wire async_rst = reset_clk || reset_pcie;
    always_ff @(posedge clk) reset_clk <= rst;
    always_ff @(posedge pcie_clk) reset_pcie <= pcie_rst;
    shotline_cdc_reset reset (.clk, .async_rst, .rst(dma_rst));
    shotline_cdc_reset reset_stream (.clk(pcie_clk), .async_rst, .rst(stream_rst));

    shotline_card_pcie_requests #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .TAGS_LOG2(TAGS_LOG2), .LANE_LOG2(LANE_LOG2)
    ) requests (
        .clk, .rst(dma_rst), .window_base, .window_mask, .s_data_valid, .s_data_ready, .s_data, .s_data_keep,
        .s_slot_valid, .s_slot_ready, .s_slot_kind, .s_slot_address, .s_slot_length, .s_slot_block, .s_slot_channel,
        .s_slot_report, .s_read_valid, .s_read_ready, .s_read_address, .s_read_tag, .notice_valid, .notice_kind,
        .notice_channel, .pcie_clk, .pcie_rst(stream_rst), .pcie_tfc_nph_av, .m_axis_rq_tdata, .m_axis_rq_tkeep,
        .m_axis_rq_tlast, .m_axis_rq_tuser, .m_axis_rq_tvalid, .m_axis_rq_tready, .interrupt_valid, .interrupt_channel
    );

    wire beat_valid, beat_ready, beat_error;
    wire [TAGS_LOG2-1:0] beat_tag;
    wire [255:0] beat_data;
    wire [5:0] level;
    shotline_card_pcie_completions #(.TAGS_LOG2(TAGS_LOG2)) completions (
        .clk(pcie_clk), .rst(stream_rst), .s_axis_rc_tdata, .s_axis_rc_tlast, .s_axis_rc_tuser, .s_axis_rc_tvalid,
        .s_axis_rc_tready, .m_valid(beat_valid), .m_ready(beat_ready), .m_error(beat_error), .m_tag(beat_tag),
        .m_data(beat_data)
    );
    shotline_fifo_async #(.WIDTH(1 + TAGS_LOG2 + 256), .DEPTH_LOG2(5)) beats (
        .s_clk(pcie_clk), .s_rst(stream_rst), .s_data({beat_error, beat_tag, beat_data}), .s_valid(beat_valid),
        .s_ready(beat_ready), .s_level(level), .m_clk(clk), .m_rst(dma_rst),
        .m_data({m_completion_error, m_completion_tag, m_completion_data}), .m_valid(m_completion_valid),
        .m_ready(1'b1)
    );

    shotline_card_pcie_host host (
        .pcie_clk, .pcie_rst(stream_rst), .s_axis_cq_tdata, .s_axis_cq_tlast, .s_axis_cq_tuser, .s_axis_cq_tvalid,
        .s_axis_cq_tready, .m_axis_cc_tdata, .m_axis_cc_tkeep, .m_axis_cc_tlast, .m_axis_cc_tuser, .m_axis_cc_tvalid,
        .m_axis_cc_tready, .clk, .rst(dma_rst), .m_axil_awaddr, .m_axil_awvalid, .m_axil_awready, .m_axil_wdata,
        .m_axil_wstrb, .m_axil_wvalid, .m_axil_wready, .m_axil_bvalid, .m_axil_bready, .m_axil_araddr, .m_axil_arvalid,
        .m_axil_arready, .m_axil_rdata, .m_axil_rvalid, .m_axil_rready
    );

    wire unused = &{m_axil_bresp, m_axil_rresp, s_axis_rc_tkeep, s_axis_cq_tkeep, level, 1'b0};
endmodule

`default_nettype wire
