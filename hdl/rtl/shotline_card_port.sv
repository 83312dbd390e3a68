// Receiving side of a packet card: frames of a 100G Ethernet MAC go to descriptor rings in host memory as PCIe writes.
//
//   mac_clk, 322.27 MHz                          clk, 200 MHz
//   s_axis => shotline_card_distributor =FIFO==> shotline_card_dma => m_data, m_slot, m_read
//               ^ configuration, counters          ^
//               '-- registers -------------------- s_axil
//
// The modules are described in their files; the registers are those of both (registers.toml, device `card`). The MAC must
// not be within a frame when the reset ends.

`default_nettype none

module shotline_card_port #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the channels, 3 to 8
    parameter int TABLE_LOG2 = 7,     // log2 of the entries of the table of channels, 1 to 12
    parameter int BUFFER_LOG2 = 10,   // log2 of the words of the frame buffer, 2 to 16; a longer frame overflows it
    parameter int CROSSING_LOG2 = 5,  // log2 of the words between the clock domains, at least 2
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6,      // log2 of the descriptor reads in flight, 2 to 8
    parameter int ROWS_LOG2 = 9       // log2 of the words of payload held, 5 to 12
) (
    // Asynchronous reset of both clock domains, of any length; it ends three clocks of each later.
    input  wire                      async_rst,

    // Clock of the registers, the DMA module and the bus side.
    input  wire                      clk,

    // Clock of the MAC. TAI time in the unit that the header of packets is to have.
    input  wire                      mac_clk,
    input  wire  [63:0]              time_tai,

    // AXI4-Stream sink in the domain of `mac_clk`, without tready: frames with FCS; tuser with tlast marks a damaged one.
    input  wire  [511:0]             s_axis_tdata,
    input  wire  [63:0]              s_axis_tkeep,
    input  wire                      s_axis_tvalid,
    input  wire                      s_axis_tlast,
    input  wire                      s_axis_tuser,

    // AXI4-Lite subordinate: registers.
    input  wire  [15:0]              s_axil_awaddr,
    input  wire                      s_axil_awvalid,
    output wire                      s_axil_awready,
    input  wire  [31:0]              s_axil_wdata,
    input  wire  [3:0]               s_axil_wstrb,
    input  wire                      s_axil_wvalid,
    output wire                      s_axil_wready,
    output wire  [1:0]               s_axil_bresp,
    output wire                      s_axil_bvalid,
    input  wire                      s_axil_bready,
    input  wire  [15:0]              s_axil_araddr,
    input  wire                      s_axil_arvalid,
    output wire                      s_axil_arready,
    output wire  [31:0]              s_axil_rdata,
    output wire  [1:0]               s_axil_rresp,
    output wire                      s_axil_rvalid,
    input  wire                      s_axil_rready,

    // Payload of the writes.
    output wire                      m_data_valid,
    input  wire                      m_data_ready,
    output wire  [511:0]             m_data,
    output wire  [7:0]               m_data_keep,

    // Writes; slot 0 is before slot 1. Kind 0 payload, 1 report (slot 0), 2 interrupt (slot 1).
    output wire  [1:0]               m_slot_valid,
    input  wire                      m_slot_ready,
    output wire  [3:0]               m_slot_kind,
    output wire  [127:0]             m_slot_address,  // multiples of 8
    output wire  [21:0]              m_slot_length,   // bytes, 1 to 1024
    output wire  [5:0]               m_slot_block,    // lane of the first block of payload
    output wire  [15:0]              m_slot_channel,
    output wire  [63:0]              m_slot_report,   // contents of a report

    // Descriptor reads of 256 bytes, and completions of two descriptors, always accepted.
    output wire                      m_read_valid,
    input  wire                      m_read_ready,
    output wire  [63:0]              m_read_address,
    output wire  [TAGS_LOG2-1:0]     m_read_tag,
    input  wire                      s_completion_valid,
    input  wire  [TAGS_LOG2-1:0]     s_completion_tag,
    input  wire  [255:0]             s_completion_data,
    input  wire                      s_completion_error,  // without data; the read has ended

    // Notices of the bus side: 0 the final report of a channel has left, or was refused; 1 a write was refused.
    input  wire                      notice_valid,
    input  wire                      notice_kind,
    input  wire  [CHANNELS_LOG2-1:0] notice_channel
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_port: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(entries, TABLE_LOG2 >= 1 && TABLE_LOG2 <= 12, "shotline_card_port: TABLE_LOG2 must be 1 to 12")
    `SHOTLINE_REQUIRE(buffer, BUFFER_LOG2 >= 2 && BUFFER_LOG2 <= 16,
                      "shotline_card_port: BUFFER_LOG2 must be 2 to 16")
    `SHOTLINE_REQUIRE(crossing, CROSSING_LOG2 >= 2, "shotline_card_port: CROSSING_LOG2 must be at least 2")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_port: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_port: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(rows, ROWS_LOG2 >= 5 && ROWS_LOG2 <= 12, "shotline_card_port: ROWS_LOG2 must be 5 to 12")

    wire rst, mac_rst;
    shotline_cdc_reset reset (.clk, .async_rst, .rst);
    shotline_cdc_reset reset_mac (.clk(mac_clk), .async_rst, .rst(mac_rst));

    // ---------------------------------------------------------------- registers
    // Block 1 is the distributor's, 0x1000 to 0x1FFF.
    wire [1:0] awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;
    wire [3:0] bresp, rresp;
    wire [63:0] rdata;
    shotline_axil_split split (
        .clk, .rst, .s_axil_aw_block(s_axil_awaddr[15:12] == 4'd1), .s_axil_awvalid, .s_axil_awready, .s_axil_wvalid,
        .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_ar_block(s_axil_araddr[15:12] == 4'd1),
        .s_axil_arvalid, .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .m_axil_awvalid(awvalid), .m_axil_awready(awready), .m_axil_wvalid(wvalid), .m_axil_wready(wready),
        .m_axil_bresp(bresp), .m_axil_bvalid(bvalid), .m_axil_bready(bready), .m_axil_arvalid(arvalid),
        .m_axil_arready(arready), .m_axil_rdata(rdata), .m_axil_rresp(rresp), .m_axil_rvalid(rvalid),
        .m_axil_rready(rready)
    );

    wire [13:0] max_length;
    wire pad;
    wire [319:0] key;
    wire table_write;
    wire [TABLE_LOG2-1:0] table_index;
    wire [CHANNELS_LOG2-1:0] table_channel;
    wire [47:0] count_delivered, count_error, count_runt, count_giant, count_overflow;
    shotline_card_distributor_registers #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .TABLE_LOG2(TABLE_LOG2), .BUFFER_LOG2(BUFFER_LOG2)
    ) registers (
        .clk, .rst, .s_axil_awaddr, .s_axil_awvalid(awvalid[1]), .s_axil_awready(awready[1]), .s_axil_wdata,
        .s_axil_wstrb, .s_axil_wvalid(wvalid[1]), .s_axil_wready(wready[1]), .s_axil_bresp(bresp[3:2]),
        .s_axil_bvalid(bvalid[1]), .s_axil_bready(bready[1]), .s_axil_araddr, .s_axil_arvalid(arvalid[1]),
        .s_axil_arready(arready[1]), .s_axil_rdata(rdata[63:32]), .s_axil_rresp(rresp[3:2]),
        .s_axil_rvalid(rvalid[1]), .s_axil_rready(rready[1]), .mac_clk, .mac_rst, .max_length, .pad, .key, .table_write,
        .table_index, .table_channel, .count_delivered, .count_error, .count_runt, .count_giant, .count_overflow
    );

    // ---------------------------------------------------------------- frames to packets
    wire packed_valid, packed_ready, packed_first, word_valid, word_ready, word_first;
    wire [511:0] packed_data, word_data;
    wire [2:0] packed_block, word_block;
    wire [13:0] packed_length, word_length;
    wire [CHANNELS_LOG2-1:0] packed_channel, word_channel;
    shotline_card_distributor #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .TABLE_LOG2(TABLE_LOG2), .BUFFER_LOG2(BUFFER_LOG2)
    ) distributor (
        .clk(mac_clk), .rst(mac_rst), .time_tai, .max_length, .pad, .key, .table_write, .table_index, .table_channel,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tlast, .s_axis_tuser, .m_valid(packed_valid),
        .m_ready(packed_ready), .m_data(packed_data), .m_first(packed_first), .m_first_block(packed_block),
        .m_length(packed_length), .m_channel(packed_channel), .count_delivered, .count_error, .count_runt, .count_giant,
        .count_overflow
    );

    wire [CROSSING_LOG2:0] crossing_level;
    shotline_fifo_async #(.WIDTH(512 + 1 + 3 + 14 + CHANNELS_LOG2), .DEPTH_LOG2(CROSSING_LOG2)) crossing (
        .s_clk(mac_clk), .s_rst(mac_rst),
        .s_data({packed_data, packed_first, packed_block, packed_length, packed_channel}), .s_valid(packed_valid),
        .s_ready(packed_ready), .s_level(crossing_level),
        .m_clk(clk), .m_rst(rst), .m_data({word_data, word_first, word_block, word_length, word_channel}),
        .m_valid(word_valid), .m_ready(word_ready)
    );

    // ---------------------------------------------------------------- packets to memory
    shotline_card_dma #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .TAGS_LOG2(TAGS_LOG2), .ROWS_LOG2(ROWS_LOG2)
    ) dma (
        .clk, .rst, .s_axil_awaddr, .s_axil_awvalid(awvalid[0]), .s_axil_awready(awready[0]), .s_axil_wdata,
        .s_axil_wstrb, .s_axil_wvalid(wvalid[0]), .s_axil_wready(wready[0]), .s_axil_bresp(bresp[1:0]),
        .s_axil_bvalid(bvalid[0]), .s_axil_bready(bready[0]), .s_axil_araddr, .s_axil_arvalid(arvalid[0]),
        .s_axil_arready(arready[0]), .s_axil_rdata(rdata[31:0]), .s_axil_rresp(rresp[1:0]), .s_axil_rvalid(rvalid[0]),
        .s_axil_rready(rready[0]), .s_valid(word_valid), .s_ready(word_ready), .s_data(word_data), .s_first(word_first),
        .s_first_block(word_block), .s_length(word_length), .s_channel(word_channel), .m_data_valid, .m_data_ready,
        .m_data, .m_data_keep, .m_slot_valid, .m_slot_ready, .m_slot_kind, .m_slot_address, .m_slot_length,
        .m_slot_block, .m_slot_channel, .m_slot_report, .m_read_valid, .m_read_ready, .m_read_address, .m_read_tag,
        .s_completion_valid, .s_completion_tag, .s_completion_data, .s_completion_error, .notice_valid, .notice_kind,
        .notice_channel
    );

    wire unused = &{crossing_level, 1'b0};
endmodule

`default_nettype wire
