// Requests of the card: payload, writes and descriptor reads of the DMA module become TLPs on the requester stream.
//
//   blocks ==> lanes' FIFOs =========================================> halves => pack ==> m_axis_rq
//   writes --> slots --> FIFO --+--> plan: halves of beats, two a clock --^         |
//   reads  ------------> FIFO --'  if there is a credit                             `--> events: interrupts, notices
//          clk  |  pcie_clk
//
// TLPs begin at byte 0 or 32 of a beat, so each costs its length with descriptor, rounded up to 32 bytes, and no more
// while requests wait. A read may overtake writes; writes keep their order.

`default_nettype none

module shotline_card_pcie_requests #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the channels, 3 to 8
    parameter int TAGS_LOG2 = 6,      // log2 of the reads in flight, 2 to 8
    parameter int LANE_LOG2 = 6       // log2 of the blocks held in each lane, 6 to 12
) (
    // Clock and synchronous reset of the DMA module.
    input  wire         clk,
    input  wire         rst,

    // Allowed addresses of writes.
    input  wire [63:12] window_base,
    input  wire [63:12] window_mask,

    // Payload, writes and reads of the DMA module, and notices to it.
    input  wire         s_data_valid,
    output wire         s_data_ready,
    input  wire [511:0] s_data,
    input  wire [7:0]   s_data_keep,
    input  wire [1:0]   s_slot_valid,
    output wire         s_slot_ready,
    input  wire [3:0]   s_slot_kind,
    input  wire [127:0] s_slot_address,
    input  wire [21:0]  s_slot_length,
    input  wire [5:0]   s_slot_block,
    input  wire [15:0]  s_slot_channel,
    input  wire [63:0]  s_slot_report,
    input  wire         s_read_valid,
    output wire         s_read_ready,
    input  wire [63:0]  s_read_address,
    input  wire [TAGS_LOG2-1:0] s_read_tag,
    output wire         notice_valid,
    output wire         notice_kind,
    output wire [CHANNELS_LOG2-1:0] notice_channel,

    // Clock and synchronous reset of the stream.
    input  wire         pcie_clk,
    input  wire         pcie_rst,

    // Credits of the integrated block for reads; 15: 15 or more.
    input  wire [3:0]   pcie_tfc_nph_av,

    // Requester stream.
    output wire [511:0] m_axis_rq_tdata,
    output wire [15:0]  m_axis_rq_tkeep,
    output wire         m_axis_rq_tlast,
    output wire [136:0] m_axis_rq_tuser,
    output wire         m_axis_rq_tvalid,
    input  wire         m_axis_rq_tready,

    // Interrupts, in pcie_clk.
    output wire         interrupt_valid,
    output wire [CHANNELS_LOG2-1:0] interrupt_channel
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_pcie_requests: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_pcie_requests: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(lane, LANE_LOG2 >= 6 && LANE_LOG2 <= 12,
                      "shotline_card_pcie_requests: LANE_LOG2 must be 6 to 12")

    // ---------------------------------------------------------------- payload
    wire [7:0] lane_free, lane_valid, lane_ready;
    wire [7:0][63:0] lane_data;
    wire [7:0][LANE_LOG2:0] lane_level;
    wire stored = s_data_valid && s_data_ready;
    assign s_data_ready = &lane_free;
    for (genvar i = 0; i < 8; i++) begin : g_lane
        shotline_fifo_async #(.WIDTH(64), .DEPTH_LOG2(LANE_LOG2)) lane (
            .s_clk(clk), .s_rst(rst), .s_data(s_data[64*i +: 64]), .s_valid(stored && s_data_keep[i]),
            .s_ready(lane_free[i]), .s_level(lane_level[i]), .m_clk(pcie_clk), .m_rst(pcie_rst),
            .m_data(lane_data[i]), .m_valid(lane_valid[i]), .m_ready(lane_ready[i])
        );
    end

    // ---------------------------------------------------------------- writes and reads
    localparam int ENTRY = 1 + 2 * 19 + 2 * 83 + 1 + 64;
    wire slot_valid, slot_ready, slot_two, slot_report;
    wire [1:0][18:0] slot_plan;
    wire [1:0][82:0] slot_detail;
    wire [63:0] slot_data;
    shotline_card_pcie_slots #(.LANE_LOG2(LANE_LOG2)) slots (
        .clk, .rst, .window_base, .window_mask, .stored, .stored_keep(s_data_keep), .s_slot_valid, .s_slot_ready,
        .s_slot_kind, .s_slot_address, .s_slot_length, .s_slot_block, .s_slot_channel, .s_slot_report,
        .m_valid(slot_valid), .m_ready(slot_ready), .m_two(slot_two), .m_plan(slot_plan), .m_detail(slot_detail),
        .m_report(slot_report), .m_report_data(slot_data)
    );

    wire entry_valid, entry_ready, entry_two, entry_report;
    wire [1:0][18:0] entry_plan;
    wire [1:0][82:0] entry_detail;
    wire [63:0] entry_data;
    wire [4:0] entries_level, reads_level, notices_level;
    shotline_fifo_async #(.WIDTH(ENTRY), .DEPTH_LOG2(4)) entries (
        .s_clk(clk), .s_rst(rst), .s_data({slot_two, slot_plan, slot_detail, slot_report, slot_data}),
        .s_valid(slot_valid), .s_ready(slot_ready), .s_level(entries_level), .m_clk(pcie_clk), .m_rst(pcie_rst),
        .m_data({entry_two, entry_plan, entry_detail, entry_report, entry_data}), .m_valid(entry_valid),
        .m_ready(entry_ready)
    );

    wire read_valid, read_ready;
    wire [63:8] read_address;
    wire [TAGS_LOG2-1:0] read_tag;
    shotline_fifo_async #(.WIDTH(56 + TAGS_LOG2), .DEPTH_LOG2(4)) reads (
        .s_clk(clk), .s_rst(rst), .s_data({s_read_address[63:8], s_read_tag}), .s_valid(s_read_valid),
        .s_ready(s_read_ready), .s_level(reads_level), .m_clk(pcie_clk), .m_rst(pcie_rst),
        .m_data({read_address, read_tag}), .m_valid(read_valid), .m_ready(read_ready)
    );
    wire credit_valid, credit_ready;
    shotline_card_pcie_credits credits (
        .clk(pcie_clk), .rst(pcie_rst), .available(pcie_tfc_nph_av), .s_valid(read_valid), .s_ready(read_ready),
        .m_valid(credit_valid), .m_ready(credit_ready), .m_axis_rq_tdata, .m_axis_rq_tuser, .m_axis_rq_tvalid,
        .m_axis_rq_tready
    );

    // ---------------------------------------------------------------- halves and beats
    wire room, room_begin, write;
    wire [1:0] half_valid, half_first, half_last, half_silent;
    wire [1:0][2:0] half_lane, half_count, half_eop;
    wire [1:0][5:0] half_place;
    wire [4:0] write_entry;
    wire [1:0][83:0] write_detail;
    wire [64:0] write_report;
    shotline_card_pcie_plan #(.TAGS_LOG2(TAGS_LOG2)) plan (
        .clk(pcie_clk), .rst(pcie_rst), .s_valid(entry_valid), .s_ready(entry_ready), .s_two(entry_two),
        .s_plan(entry_plan), .s_detail(entry_detail), .s_report(entry_report), .s_report_data(entry_data),
        .s_read_valid(credit_valid), .s_read_ready(credit_ready), .s_read_address(read_address), .s_read_tag(read_tag),
        .room, .room_begin, .half_valid, .half_first, .half_last, .half_silent, .half_lane, .half_count, .half_eop,
        .half_place, .write, .write_entry, .write_detail, .write_report
    );

    wire [1:0] valid;
    wire [1:0][255:0] data;
    wire [1:0][13:0] control;
    wire [1:0][10:0] ends, events;
    shotline_card_pcie_halves halves (
        .clk(pcie_clk), .rst(pcie_rst), .half_valid, .half_first, .half_last, .half_silent, .half_lane, .half_count,
        .half_eop, .half_place, .write, .write_entry, .write_detail, .write_report, .lane_valid, .lane_data,
        .lane_ready, .m_valid(valid), .m_data(data), .m_control(control), .m_event(ends)
    );

    wire event_valid;
    shotline_card_pcie_pack pack (
        .clk(pcie_clk), .rst(pcie_rst), .s_valid(valid), .s_data(data), .s_control(control), .s_event(ends), .room,
        .m_axis_rq_tdata, .m_axis_rq_tkeep, .m_axis_rq_tlast, .m_axis_rq_tuser, .m_axis_rq_tvalid, .m_axis_rq_tready,
        .event_valid, .events
    );

    // ---------------------------------------------------------------- events
    wire notice_offered, notice_free, offered_kind;
    wire [7:0] offered_channel, interrupt_number;
    shotline_card_pcie_events order (
        .clk(pcie_clk), .rst(pcie_rst), .s_valid(event_valid), .s_events(events), .room(room_begin),
        .interrupt_valid, .interrupt_channel(interrupt_number), .notice_valid(notice_offered),
        .notice_ready(notice_free), .notice_kind(offered_kind), .notice_channel(offered_channel)
    );
    assign interrupt_channel = interrupt_number[CHANNELS_LOG2-1:0];
    shotline_fifo_async #(.WIDTH(1 + CHANNELS_LOG2), .DEPTH_LOG2(4)) notices (
        .s_clk(pcie_clk), .s_rst(pcie_rst), .s_data({offered_kind, offered_channel[CHANNELS_LOG2-1:0]}),
        .s_valid(notice_offered), .s_ready(notice_free), .s_level(notices_level), .m_clk(clk), .m_rst(rst),
        .m_data({notice_kind, notice_channel}), .m_valid(notice_valid), .m_ready(1'b1)
    );

    wire unused = &{s_read_address[7:0], lane_level, entries_level, reads_level, notices_level, offered_channel,
                    interrupt_number, 1'b0};
endmodule

`default_nettype wire
