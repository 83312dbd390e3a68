// Cuts the buffers of packets into PCIe writes, two a clock: a write never crosses 4 KiB, and is at most `max_write`
// long. Slot 0 is before slot 1; payload is before the report and the interrupt of a later entry.
//
// An entry has up to two parts, each the payload of one descriptor, or a report and an interrupt. The next part begins
// in the clock in which the last write of the part before is made, so that a packet in one write, or a header and a
// payload in one write each, take one clock.

`default_nettype none

module shotline_card_writes #(
    parameter int BLOCKS_LOG2 = 3  // log2 of the blocks (8 bytes) in a word, 3 or 4
) (
    // Clock and synchronous reset.
    input  wire                      clk,
    input  wire                      rst,

    // Maximum payload of a write: 128 bytes << max_write. It changes only while no entry is in progress.
    input  wire  [1:0]               max_write,

    // Entries. A part of 0 bytes is absent; an entry has a part, a report or an interrupt, and no part with the latter.
    input  wire                      s_valid,
    output wire                      s_ready,
    input  wire  [1:0][60:0]         s_address,    // of each part, or of the report in part 0, in units of 8 bytes
    input  wire  [1:0][13:0]         s_length,     // of each part, in bytes
    input  wire  [1:0][BLOCKS_LOG2-1:0] s_block,   // lane of the first block of each part
    input  wire  [7:0]               s_channel,
    input  wire                      s_report,
    input  wire                      s_interrupt,
    input  wire  [63:0]              s_data,       // contents of the report

    // Writes: kind 0 payload, 1 report (slot 0), 2 interrupt (slot 1).
    output logic [1:0]               m_valid,
    input  wire                      m_ready,
    output logic [1:0][1:0]          m_kind,
    output logic [1:0][60:0]         m_address,    // in units of 8 bytes
    output logic [1:0][10:0]         m_length,     // in bytes, 1 to 1024
    output logic [1:0][BLOCKS_LOG2-1:0] m_block,
    output logic [7:0]               m_channel,
    output logic [63:0]              m_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(blocks, BLOCKS_LOG2 == 3 || BLOCKS_LOG2 == 4,
                      "shotline_card_writes: BLOCKS_LOG2 must be 3 or 4")

    localparam logic [1:0] PAYLOAD = 2'd0, REPORT = 2'd1, INTERRUPT = 2'd2;

    // The entry in progress: what is left of each part, and the limit of its next write.
    logic [60:0] address_0, address_1;
    logic [13:0] left_0, left_1;
    logic [10:0] limit_0, limit_1;
    logic [BLOCKS_LOG2-1:0] block_0, block_1;
    logic [7:0] channel;
    logic [63:0] data;
    logic report, interrupt;

    // Bytes to the end of the page, or the maximum of a write if that is less.
    function automatic logic [10:0] limit(input logic [8:0] in_page, input logic [1:0] size);
        logic [9:0] page;
        logic [9:0] most;
        page  = 10'd512 - {1'b0, in_page};
        most  = 10'd16 << size;
        limit = page < most ? {page[7:0], 3'b0} : {most[7:0], 3'b0};
    endfunction

    wire part_0 = left_0 != '0;
    wire part_1 = left_1 != '0;
    wire end_0 = left_0 <= {3'b0, limit_0};
    wire end_1 = left_1 <= {3'b0, limit_1};
    wire [10:0] now_0 = end_0 ? left_0[10:0] : limit_0;
    wire [10:0] now_1 = end_1 ? left_1[10:0] : limit_1;
    wire take_0 = part_0;
    wire take_1 = part_1 && end_0;   // an absent part 0 has ended

    // Where a part goes on if it has not ended.
    wire [60:0] next_0 = address_0 + {53'b0, limit_0[10:3]};
    wire [60:0] next_1 = address_1 + {53'b0, limit_1[10:3]};

    wire free = m_valid == 2'b00 || m_ready;
    wire last = (!part_0 || end_0) && (!part_1 || (take_1 && end_1));
    assign s_ready = free && last;

    always_ff @(posedge clk) begin
        if (s_valid && s_ready) begin
            {address_1, address_0} <= s_address;
            {left_1, left_0}       <= s_length;
            limit_0                <= limit(s_address[0][8:0], max_write);
            limit_1                <= limit(s_address[1][8:0], max_write);
            {block_1, block_0}     <= s_block;
            channel                <= s_channel;
            data                   <= s_data;
        end else if (free) begin
            if (take_0) begin
                address_0 <= next_0;
                limit_0   <= limit(next_0[8:0], max_write);
                left_0    <= end_0 ? '0 : left_0 - {3'b0, limit_0};
                block_0   <= block_0 + limit_0[3+:BLOCKS_LOG2];
            end
            if (take_1) begin
                address_1 <= next_1;
                limit_1   <= limit(next_1[8:0], max_write);
                left_1    <= end_1 ? '0 : left_1 - {3'b0, limit_1};
                block_1   <= block_1 + limit_1[3+:BLOCKS_LOG2];
            end
        end
        if (free) begin
            m_channel    <= channel;
            m_data       <= data;
            m_kind[0]    <= report ? REPORT : PAYLOAD;
            m_kind[1]    <= interrupt ? INTERRUPT : PAYLOAD;
            m_address[0] <= take_0 || report ? address_0 : address_1;
            m_address[1] <= address_1;
            m_length[0]  <= report ? 11'd8 : take_0 ? now_0 : now_1;
            m_length[1]  <= now_1;
            m_block[0]   <= take_0 ? block_0 : block_1;
            m_block[1]   <= block_1;
        end
        if (rst) begin
            left_0 <= '0;
            left_1 <= '0;
        end
    end

    always_ff @(posedge clk)
        if (rst) begin
            report    <= 1'b0;
            interrupt <= 1'b0;
            m_valid   <= 2'b00;
        end else if (free) begin
            report     <= s_valid && s_ready && s_report;
            interrupt  <= s_valid && s_ready && s_interrupt;
            m_valid[0] <= take_0 || take_1 || report;
            m_valid[1] <= (take_0 && take_1) || interrupt;
        end

`ifdef FORMAL
    `include "shotline_card_writes_properties.svh"
`endif
endmodule

`default_nettype wire
