// DMA module of a packet card: packets of up to 256 channels go to descriptor rings in host memory as PCIe writes.
//
//   packets ==> gate ================================================> m_data   blocks of kept packets, in their lanes
//                 | metadata     ^ decision
//                 v              |
//              scheduler --------+--> entries --> writes ------------> m_slot   up to two PCIe writes a clock
//              ^   ^   ^         `--> counters
//         reports  |   | descriptors
//                rings --> reads ------------------------------------> m_read   reads of 16 descriptors
//
// The data is moved once and never rotated: block n of a word stays in lane n. Each lane is a FIFO for the bus side: a
// write takes its blocks from one lane after the other, beginning with `m_slot_block`. The writes of a report follow
// those of the payload that it counts.
//
// Formats of descriptors and reports, and what software does: docs/packet-card.md.

`default_nettype none

module shotline_card_dma #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the channels, 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6,      // log2 of the descriptor reads in flight, 2 to 8
    parameter int ROWS_LOG2 = 9,      // log2 of the words of payload held, 5 to 12
    parameter int BLOCKS_LOG2 = 3     // log2 of the blocks (8 bytes) in a word, 3 or 4
) (
    // Clock and synchronous reset.
    input  wire                      clk,
    input  wire                      rst,

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

    // Packets, packed: at most one begins in a word, at block `s_first_block`, not before the end of the last packet.
    input  wire                      s_valid,
    output wire                      s_ready,
    input  wire  [64*(1<<BLOCKS_LOG2)-1:0] s_data,
    input  wire                      s_first,
    input  wire  [BLOCKS_LOG2-1:0]   s_first_block,
    input  wire  [13:0]              s_length,        // bytes, at least 1
    input  wire  [CHANNELS_LOG2-1:0] s_channel,

    // Payload of the writes.
    output wire                      m_data_valid,
    input  wire                      m_data_ready,
    output wire  [64*(1<<BLOCKS_LOG2)-1:0] m_data,
    output wire  [(1<<BLOCKS_LOG2)-1:0] m_data_keep,

    // Writes; slot 0 is before slot 1. Kind 0 payload, 1 report (slot 0), 2 interrupt (slot 1).
    output wire  [1:0]               m_slot_valid,
    input  wire                      m_slot_ready,
    output wire  [3:0]               m_slot_kind,
    output wire  [127:0]             m_slot_address,  // multiples of 8
    output wire  [21:0]              m_slot_length,   // bytes, 1 to 1024
    output wire  [2*BLOCKS_LOG2-1:0] m_slot_block,    // lane of the first block of payload
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
                      "shotline_card_dma: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_dma: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_dma: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(rows, ROWS_LOG2 >= 5 && ROWS_LOG2 <= 12, "shotline_card_dma: ROWS_LOG2 must be 5 to 12")
    `SHOTLINE_REQUIRE(blocks, BLOCKS_LOG2 == 3 || BLOCKS_LOG2 == 4, "shotline_card_dma: BLOCKS_LOG2 must be 3 or 4")

    localparam int SLOT = PREFETCH_LOG2 - 4;

    // ---------------------------------------------------------------- registers and counters
    // Until the channels are cleared after a reset, no packet is accepted and no report is sent.
    wire ready_rings, ready_counters, gate_ready, unexpected;
    logic ready;
    always_ff @(posedge clk) ready <= !rst && ready_rings && ready_counters;
    assign s_ready = gate_ready && ready;
    wire [1:0] max_write;
    wire [23:0] read_timeout;
    wire config_write;
    wire [CHANNELS_LOG2-1:0] config_channel;
    wire [6:0] config_register;
    wire [31:0] config_data;
    wire [1:0][CHANNELS_LOG2-1:0] state_channel;
    wire [1:0][1:0] state;
    wire [3:0] state_error;
    wire [CHANNELS_LOG2-1:0] read_channel, visit_channel, scan_channel;
    wire [15:0] read_head, visit_head, scan_head;
    wire [1:0] read_cause;
    wire [47:0] read_packets, read_bytes;
    shotline_card_registers #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .TAGS_LOG2(TAGS_LOG2), .BLOCKS_LOG2(BLOCKS_LOG2)
    ) registers (
        .clk, .rst, .ready, .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready,
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready,
        .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .max_write, .read_timeout, .unexpected, .config_write, .config_channel, .config_register, .config_data,
        .state_channel, .state, .state_error, .read_channel, .head(read_head), .count_cause(read_cause),
        .count_packets(read_packets), .count_bytes(read_bytes)
    );

    wire counted;
    wire [CHANNELS_LOG2-1:0] count_channel;
    wire [1:0] count_cause;
    wire [13:0] count_bytes;
    shotline_card_counters #(.CHANNELS_LOG2(CHANNELS_LOG2)) counters (
        .clk, .rst, .ready(ready_counters), .add(counted), .add_channel(count_channel), .add_cause(count_cause),
        .add_bytes(count_bytes), .read_channel, .read_cause, .read_packets, .read_bytes
    );

    // ---------------------------------------------------------------- payload
    wire packet_valid, packet_ready, keep;
    wire [CHANNELS_LOG2-1:0] packet_channel;
    wire [13:0] packet_length;
    wire [BLOCKS_LOG2-1:0] packet_block;
    shotline_card_gate #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .ROWS_LOG2(ROWS_LOG2), .BLOCKS_LOG2(BLOCKS_LOG2)
    ) gate (
        .clk, .rst, .s_valid(s_valid && ready), .s_ready(gate_ready), .s_data, .s_first, .s_first_block, .s_length, .s_channel,
        .packet_valid, .packet_ready, .packet_channel, .packet_length, .packet_block,
        .decision_valid(counted), .decision_keep(keep), .m_data_valid, .m_data_ready, .m_data, .m_data_keep
    );

    // ---------------------------------------------------------------- descriptors
    wire used_valid, used_started, used_stopped, filled_write, command_valid, command_ready;
    wire [CHANNELS_LOG2-1:0] used_channel, filled_channel, command_channel;
    wire [11:0] filled_group;
    wire [1:0] command;
    wire [3:0] command_error;
    wire start_valid, start_ready, done_valid, done_take;
    wire [CHANNELS_LOG2-1:0] start_channel, done_channel;
    wire [11:0] start_group;
    wire [63:0] start_address;
    wire [SLOT-1:0] done_slot;
    wire [1:0] done_error;
    shotline_card_rings #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .TAGS_LOG2(TAGS_LOG2)
    ) rings (
        .clk, .rst, .ready(ready_rings), .config_write, .config_channel, .config_register, .config_data,
        .state_channel, .state, .state_error, .used_valid, .used_channel, .head_channel(visit_channel),
        .head(visit_head), .filled_write, .filled_channel, .filled_group, .command_valid, .command_ready, .command,
        .command_channel, .command_error, .start_valid, .start_ready, .start_channel, .start_group, .start_address,
        .done_valid, .done_take, .done_channel, .done_slot, .done_error, .notice_valid, .notice_kind, .notice_channel
    );

    wire store;
    wire [CHANNELS_LOG2+PREFETCH_LOG2-2:0] store_place;
    wire [1:0][60:0] store_address;
    shotline_card_reads #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .TAGS_LOG2(TAGS_LOG2)
    ) reads (
        .clk, .rst, .read_timeout, .config_write, .config_channel, .config_register, .config_data,
        .start_valid, .start_ready, .start_channel, .start_group, .start_address,
        .done_valid, .done_take, .done_channel, .done_slot, .done_error, .store, .store_place, .store_address,
        .m_read_valid, .m_read_ready, .m_read_address, .m_read_tag,
        .s_completion_valid, .s_completion_tag, .s_completion_data, .s_completion_error, .unexpected
    );

    // ---------------------------------------------------------------- decisions
    wire report_valid, report_ready, report_wanted, report_interrupt;
    wire [CHANNELS_LOG2-1:0] report_channel;
    shotline_card_reports #(.CHANNELS_LOG2(CHANNELS_LOG2)) reports (
        .clk, .rst(!ready), .config_write, .config_channel, .config_register, .config_data,
        .started(used_started), .stopped(used_stopped), .changed_channel(used_channel), .head_channel(scan_channel),
        .head(scan_head),
        .report_valid, .report_ready, .report_channel, .report_wanted, .report_interrupt
    );

    wire entry_valid, entry_ready, entry_report, entry_interrupt;
    wire [1:0][60:0] entry_address;
    wire [1:0][13:0] entry_length;
    wire [1:0][BLOCKS_LOG2-1:0] entry_block;
    wire [7:0] entry_channel;
    wire [63:0] entry_data;
    shotline_card_scheduler #(
        .CHANNELS_LOG2(CHANNELS_LOG2), .PREFETCH_LOG2(PREFETCH_LOG2), .BLOCKS_LOG2(BLOCKS_LOG2)
    ) scheduler (
        .clk, .rst, .config_write, .config_channel, .config_register, .config_data,
        .packet_valid, .packet_ready, .packet_channel, .packet_length, .packet_block,
        .decision_valid(counted), .decision_keep(keep), .count_channel, .count_cause, .count_bytes,
        .command_valid, .command_ready, .command, .command_channel, .command_error,
        .report_valid, .report_ready, .report_channel, .report_wanted, .report_interrupt,
        .store, .store_place, .store_address, .filled_write, .filled_channel, .filled_group,
        .used_valid, .used_started, .used_stopped, .used_channel,
        .head_channel({read_channel, scan_channel, visit_channel}), .head({read_head, scan_head, visit_head}),
        .m_valid(entry_valid), .m_ready(entry_ready), .m_address(entry_address), .m_length(entry_length),
        .m_block(entry_block), .m_channel(entry_channel), .m_report(entry_report), .m_interrupt(entry_interrupt),
        .m_data(entry_data)
    );

    // ---------------------------------------------------------------- writes
    wire [1:0][60:0] slot_address;
    wire [7:0] slot_channel;
    shotline_card_writes #(.BLOCKS_LOG2(BLOCKS_LOG2)) writes (
        .clk, .rst, .max_write, .s_valid(entry_valid), .s_ready(entry_ready), .s_address(entry_address),
        .s_length(entry_length), .s_block(entry_block), .s_channel(entry_channel), .s_report(entry_report),
        .s_interrupt(entry_interrupt), .s_data(entry_data), .m_valid(m_slot_valid), .m_ready(m_slot_ready),
        .m_kind(m_slot_kind), .m_address(slot_address), .m_length(m_slot_length), .m_block(m_slot_block),
        .m_channel(slot_channel), .m_data(m_slot_report)
    );
    assign m_slot_address = {slot_address[1], 3'd0, slot_address[0], 3'd0};
    assign m_slot_channel = {2{slot_channel}};
endmodule

`default_nettype wire
