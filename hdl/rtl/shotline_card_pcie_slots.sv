// Prepares the card's writes for the requester stream, in the clock domain of the DMA module: how many halves of a beat
// (32 bytes) each takes, which lanes it reads, whether the host allows its address.
//
// Writes pass when all their blocks are in the lanes' FIFOs, so that the stream never pauses within a TLP. Blocks come in
// the order in which writes use them, so one count of blocks is enough.
//
// A first half holds the TLP's descriptor (16 bytes) and up to two blocks, the others up to four. Two halves are read in
// one clock if they need different lanes; halves of one TLP always do, and `clash` marks a write whose first half needs a
// lane of the half before it.

`default_nettype none

module shotline_card_pcie_slots #(
    parameter int LANE_LOG2 = 6  // log2 of the blocks held in each lane, 6 to 12
) (
    // Clock and synchronous reset.
    input  wire              clk,
    input  wire              rst,

    // Allowed addresses: those that equal the base in the bits of the mask. Stable while writes pass.
    input  wire  [63:12]     window_base,
    input  wire  [63:12]     window_mask,

    // Blocks that were stored in this clock.
    input  wire              stored,
    input  wire  [7:0]       stored_keep,

    // Writes of the DMA module: kind 0 payload, 1 report (slot 0), 2 interrupt (slot 1).
    input  wire  [1:0]       s_slot_valid,
    output wire              s_slot_ready,
    input  wire  [3:0]       s_slot_kind,
    input  wire  [127:0]     s_slot_address,
    input  wire  [21:0]      s_slot_length,
    input  wire  [5:0]       s_slot_block,
    input  wire  [15:0]      s_slot_channel,
    input  wire  [63:0]      s_slot_report,

    // Entries of one or two records. Plan: silent (nothing is sent), clash, halves, lane of the first block, blocks of the
    // first and of the last half, last dword of the last half. Detail: interrupt, final report, refused, channel, length
    // in bytes, address in units of 8 bytes.
    output wire              m_valid,
    input  wire              m_ready,
    output logic             m_two,
    output wire  [1:0][18:0] m_plan,
    output logic [1:0][82:0] m_detail,
    output logic             m_report,       // record 0 is a report
    output logic [63:0]      m_report_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(lane, LANE_LOG2 >= 6 && LANE_LOG2 <= 12, "shotline_card_pcie_slots: LANE_LOG2 must be 6 to 12")

    localparam logic [1:0] PAYLOAD = 2'd0, REPORT = 2'd1, INTERRUPT = 2'd2;

    // Lanes from `start` on, `count` of them, as a mask.
    function automatic logic [7:0] lanes(input logic [2:0] start, input logic [2:0] count);
        for (int lane = 0; lane < 8; lane++) lanes[lane] = 3'(lane) - start < count;
    endfunction

    // ---------------------------------------------------------------- clock 1: records
    wire interrupt = s_slot_valid[1] && s_slot_kind[3:2] == INTERRUPT;
    wire report    = s_slot_valid[0] && s_slot_kind[1:0] == REPORT;
    logic valid_1;
    logic [1:0] silent_1;
    logic [1:0][5:0] halves_1;
    logic [1:0][2:0] block_1, last_1, eop_1;
    logic [1:0][1:0] first_1;
    logic [1:0][7:0] blocks_1, first_lanes_1, last_lanes_1;
    wire take = s_slot_valid != 2'b00 && s_slot_ready;

    for (genvar i = 0; i < 2; i++) begin : g_record
        wire [10:0] length  = s_slot_length[11*i +: 11];
        wire [63:3] address = s_slot_address[64*i + 3 +: 61];
        wire payload = s_slot_valid[i] && s_slot_kind[2*i +: 2] == PAYLOAD;
        wire refused = s_slot_valid[i] && ((address[63:12] ^ window_base) & window_mask) != '0;
        wire [7:0] blocks = length[10:3] + {7'd0, length[2:0] != 3'd0};
        wire [8:0] dwords = length[10:2] + {8'd0, length[1:0] != 2'd0};
        wire [5:0] halves = 6'((dwords + 9'd11) >> 3);
        wire single = halves == 6'd1;
        wire [1:0] first = blocks == 8'd1 ? 2'd1 : 2'd2;
        wire [2:0] last  = {1'b0, blocks[1:0] + 2'd1} + 3'd1;
        wire [2:0] block = s_slot_block[3*i +: 3];
        wire [2:0] after = block + blocks[2:0];
        always_ff @(posedge clk)
            if (take) begin
                silent_1[i] <= refused || !s_slot_valid[i];
                halves_1[i] <= payload ? halves : 6'd1;
                block_1[i]  <= block;
                first_1[i]  <= payload ? first : 2'd0;
                last_1[i]   <= last;
                eop_1[i]    <= dwords[2:0] + 3'd3;
                blocks_1[i] <= payload ? blocks : '0;
                first_lanes_1[i] <= payload ? lanes(block, {1'b0, first}) : '0;
                last_lanes_1[i]  <= !payload ? '0 : single ? lanes(block, {1'b0, first}) : lanes(after - last, last);
                m_detail[i] <= {i == 0 && interrupt, i == 0 && report && s_slot_report[24], refused,
                                s_slot_valid[0] ? s_slot_channel[8*i +: 8] : s_slot_channel[15:8], length,
                                address};
            end
    end
    always_ff @(posedge clk)
        if (take) begin
            m_two         <= s_slot_valid == 2'b11 && !interrupt;
            m_report      <= report;
            m_report_data <= s_slot_report;
        end

    // ---------------------------------------------------------------- clock 2: blocks and lanes
    // `available`: blocks in the FIFOs that no earlier write uses.
    logic [LANE_LOG2+3:0] available;
    logic [3:0] came;
    logic [7:0] previous;  // lanes of the half before this entry
    wire [8:0] needed = {1'b0, blocks_1[0]} + (m_two ? {1'b0, blocks_1[1]} : 9'd0);
    wire enough = (LANE_LOG2+4)'(needed) <= available;
    wire leave  = m_valid && m_ready;
    assign m_valid      = valid_1 && enough;
    assign s_slot_ready = !valid_1 || leave;
    for (genvar i = 0; i < 2; i++) begin : g_plan
        wire clash = (first_lanes_1[i] & (i == 0 ? previous : last_lanes_1[0])) != '0;
        assign m_plan[i] = {silent_1[i], clash, halves_1[i], block_1[i], first_1[i], last_1[i], eop_1[i]};
    end

    always_ff @(posedge clk)
        if (rst) begin
            valid_1   <= 1'b0;
            available <= '0;
            came      <= '0;
            previous  <= '0;
        end else begin
            if (s_slot_ready) valid_1 <= s_slot_valid != 2'b00;
            came <= stored ? 4'($countones(stored_keep)) : '0;
            available <= available + (LANE_LOG2+4)'(came) - (leave ? (LANE_LOG2+4)'(needed) : '0);
            if (leave) previous <= last_lanes_1[m_two];
        end

`ifdef VERILATOR
    in_slot_0: assert property (@(posedge clk) disable iff (rst) s_slot_valid == 2'b10 |-> interrupt);
`endif
    wire unused = &{s_slot_address[66:64], s_slot_address[2:0], 1'b0};

`ifdef FORMAL
    `include "shotline_card_pcie_slots_properties.svh"
`endif
endmodule

`default_nettype wire
