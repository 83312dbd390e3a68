// Holds the words of packets until it is known whether each packet is kept, and marks the blocks of those that are.
// Blocks stay in their lanes; a word without a kept block is not sent.

`default_nettype none

module shotline_card_gate #(
    parameter int CHANNELS_LOG2 = 7,  // 3 to 8
    parameter int ROWS_LOG2 = 9,      // log2 of the words held, 5 to 12
    parameter int BLOCKS_LOG2 = 3     // log2 of the blocks (8 bytes) in a word, 3 or 4
) (
    // Clock and synchronous reset.
    input  wire                           clk,
    input  wire                           rst,

    // Packets: at most one begins in a word, at `s_first_block`, not before the end of the last packet.
    input  wire                           s_valid,
    output wire                           s_ready,
    input  wire  [64*(1<<BLOCKS_LOG2)-1:0] s_data,
    input  wire                           s_first,
    input  wire  [BLOCKS_LOG2-1:0]        s_first_block,
    input  wire  [13:0]                   s_length,   // bytes, at least 1
    input  wire  [CHANNELS_LOG2-1:0]      s_channel,

    // Metadata of each packet, and the decision on it: one for each, in order.
    output wire                           packet_valid,
    input  wire                           packet_ready,
    output wire  [CHANNELS_LOG2-1:0]      packet_channel,
    output wire  [13:0]                   packet_length,
    output wire  [BLOCKS_LOG2-1:0]        packet_block,
    input  wire                           decision_valid,
    input  wire                           decision_keep,

    // Kept blocks.
    output logic                          m_data_valid,
    input  wire                           m_data_ready,
    output logic [64*(1<<BLOCKS_LOG2)-1:0] m_data,
    output logic [(1<<BLOCKS_LOG2)-1:0]   m_data_keep
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_gate: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(rows, ROWS_LOG2 >= 5 && ROWS_LOG2 <= 12, "shotline_card_gate: ROWS_LOG2 must be 5 to 12")
    `SHOTLINE_REQUIRE(blocks, BLOCKS_LOG2 == 3 || BLOCKS_LOG2 == 4, "shotline_card_gate: BLOCKS_LOG2 must be 3 or 4")

    localparam int BLOCKS = 1 << BLOCKS_LOG2;
    localparam int WIDTH = 64 * BLOCKS;

    // The blocks of a word below a number of them.
    function automatic logic [BLOCKS-1:0] below(input logic [11:0] count);
        for (int block = 0; block < BLOCKS; block++) below[block] = 12'(block) < count;
    endfunction

    // ---------------------------------------------------------------- blocks of the packet before and of the new one
    logic [11:0] left;  // blocks of the packet in progress that have not come
    wire  [11:0] first_block = 12'(s_first_block);
    wire  [11:0] blocks = {1'b0, s_length[13:3]} + {11'd0, s_length[2:0] != 3'd0};
    wire  [11:0] ends   = blocks + first_block;
    wire  [BLOCKS-1:0] in_old = below(left);
    wire  [BLOCKS-1:0] in_new = s_first ? below(ends) & ~below(first_block) : '0;

    logic rows_ready, names_ready;
    logic [ROWS_LOG2:0] rows_level;
    logic [5:0] names_level;
    logic [ROWS_LOG2+1:0] decisions_level;
    wire  take = s_valid && s_ready;
    assign s_ready = rows_ready && names_ready;
    always_ff @(posedge clk)
        if (rst) left <= '0;
        else if (take) begin
            if (s_first) left <= ends > 12'(BLOCKS) ? ends - 12'(BLOCKS) : '0;
            else left <= left > 12'(BLOCKS) ? left - 12'(BLOCKS) : '0;
        end

    // ---------------------------------------------------------------- words and metadata
    logic row_valid, row_first;
    logic [WIDTH-1:0] row_data;
    logic [BLOCKS-1:0] row_old, row_new;
    wire row_ready;
    shotline_fifo_sync #(.WIDTH(WIDTH + 2 * BLOCKS + 1), .DEPTH_LOG2(ROWS_LOG2)) rows (
        .clk, .rst, .s_data({s_first, in_new, in_old, s_data}), .s_valid(s_valid && names_ready), .s_ready(rows_ready),
        .m_data({row_first, row_new, row_old, row_data}), .m_valid(row_valid), .m_ready(row_ready), .level(rows_level)
    );
    shotline_fifo_sync #(.WIDTH(CHANNELS_LOG2 + 14 + BLOCKS_LOG2), .DEPTH_LOG2(5)) names (
        .clk, .rst, .s_data({s_channel, s_length, s_first_block}), .s_valid(s_valid && s_first && rows_ready),
        .s_ready(names_ready), .m_data({packet_channel, packet_length, packet_block}), .m_valid(packet_valid),
        .m_ready(packet_ready), .level(names_level)
    );

    // ---------------------------------------------------------------- decisions
    // A decision waits for the first word of its packet, so there are never more of them than words, and this FIFO,
    // twice as deep, never overflows.
    logic decisions_ready, keep_valid, keep, kept;
    shotline_fifo_sync #(.WIDTH(1), .DEPTH_LOG2(ROWS_LOG2 + 1)) decisions (
        .clk, .rst, .s_data(decision_keep), .s_valid(decision_valid), .s_ready(decisions_ready),
        .m_data(keep), .m_valid(keep_valid), .m_ready(row_valid && row_first && row_ready), .level(decisions_level)
    );

    // `kept`: the packet in progress is kept.
    assign row_ready = (!row_first || keep_valid) && (!m_data_valid || m_data_ready);
    wire [BLOCKS-1:0] row_keep = (kept ? row_old : '0) | (row_first && keep ? row_new : '0);
    always_ff @(posedge clk) begin
        if (row_valid && row_ready) begin
            m_data      <= row_data;
            m_data_keep <= row_keep;
            if (row_first) kept <= keep;
        end
        if (rst) m_data_valid <= 1'b0;
        else if (row_valid && row_ready) m_data_valid <= row_keep != '0;
        else if (m_data_ready) m_data_valid <= 1'b0;
    end

`ifdef VERILATOR
    decisions_fit: assert property (@(posedge clk) disable iff (rst) decision_valid |-> decisions_ready);
    one_at_a_time: assert property (@(posedge clk) disable iff (rst) take && s_first |-> left <= first_block);
    none_before_its_packet: assert property (@(posedge clk) disable iff (rst)
        take && !s_first |-> left != '0);
`endif
    wire unused = &{decisions_ready, rows_level, names_level, decisions_level, 1'b0};

`ifdef FORMAL
    `include "shotline_card_gate_properties.svh"
`endif
endmodule

`default_nettype wire
