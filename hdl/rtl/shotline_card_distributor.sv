// Packet card between a 100G Ethernet MAC and the DMA module: frames in, packets of channels on a packed bus out.
//
//   s_axis -> frames: store, drop bad ones -> packer: header, 8-byte blocks -> m_*
//          -> classifier: headers, Toeplitz hash, table of channels --^
//
// A frame is delivered whole, without FCS, or is counted once as dropped: `error` (tuser), `runt` (less than 64 bytes),
// `giant` (longer than max_length), `overflow` (no space in the buffer); the first of these that applies.
//
// A packet begins with a header of 16 bytes, little-endian:
//
//   bytes  contents
//   0..1   length of the packet with this header
//   2..3   flags: bit 0: IPv4, 1: IPv6, 2: TCP or UDP ports are in the hash, 3: VLAN tag
//   4..7   Toeplitz hash, 0 if the frame is not IP
//   8..15  TAI time of its first word
//
// With `pad` two bytes of 0 come between header and frame and count in the length: what follows an Ethernet header of
// 14 bytes, and others of multiples of 4, can then begin at a multiple of 8.
//
// At 200 MHz the packed bus has 64 bytes per clock and 100G Ethernet 62.5 with 20 bytes between frames. A packet has 12
// bytes more than its frame, 19 with the unused bytes of its last block, so every length has the full rate. With `pad`
// these are 14 and 21; the slowest is a frame of 67 bytes, 88 on the bus for 87 on the wire: 101.2 Gbit/s. The input
// has one frame in a word, so at 200 MHz it is slower than the wire for lengths just above a multiple of 64 (a frame of
// 65 bytes takes two clocks, 1.36 on the wire): it needs the clock of the MAC, or a MAC with several frames in a word.
//
// The MAC must not be within a frame when `rst` falls. The key and the table are written before the first frame.

`default_nettype none

module shotline_card_distributor #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the number of channels, 3 to 8
    parameter int TABLE_LOG2 = 7,     // log2 of the entries of the table of channels, 1 to 12
    parameter int BUFFER_LOG2 = 10    // log2 of the words of the frame buffer, 2 to 16; a longer frame overflows it
) (
    // Clock and synchronous reset.
    input  wire                     clk,
    input  wire                     rst,

    // TAI time in the unit that the header of packets is to have.
    input  wire [63:0]              time_tai,

    // Configuration: longest frame with FCS (at most 16371, with padding 16369), padding (from the next frame on), key
    // (byte 0 in bits 7:0), entries of the table of channels.
    input  wire [13:0]              max_length,
    input  wire                     pad,
    input  wire [319:0]             key,
    input  wire                     table_write,
    input  wire [TABLE_LOG2-1:0]    table_index,
    input  wire [CHANNELS_LOG2-1:0] table_channel,

    // AXI4-Stream sink without tready: frames with FCS; tuser with tlast marks a damaged one.
    input  wire [511:0]             s_axis_tdata,
    input  wire [63:0]              s_axis_tkeep,
    input  wire                     s_axis_tvalid,
    input  wire                     s_axis_tlast,
    input  wire                     s_axis_tuser,

    // Packed bus: at most one packet begins in a word, at any block that is not before the end of the last.
    output wire                     m_valid,
    input  wire                     m_ready,
    output wire [511:0]             m_data,         // byte 0 in bits 7:0
    output wire                     m_first,        // a packet begins in this word
    output wire [2:0]               m_first_block,  // at this block of 8 bytes
    output wire [13:0]              m_length,       // its bytes with header and padding
    output wire [CHANNELS_LOG2-1:0] m_channel,

    // Frames by what became of them. Delivered ones count when their first word leaves.
    output wire [47:0]              count_delivered,
    output wire [47:0]              count_error,
    output wire [47:0]              count_runt,
    output wire [47:0]              count_giant,
    output wire [47:0]              count_overflow
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
        "shotline_card_distributor: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(entries, TABLE_LOG2 >= 1 && TABLE_LOG2 <= 12,
        "shotline_card_distributor: TABLE_LOG2 must be 1 to 12")
    `SHOTLINE_REQUIRE(buffer, BUFFER_LOG2 >= 2 && BUFFER_LOG2 <= 16,
        "shotline_card_distributor: BUFFER_LOG2 must be 2 to 16")

    // Input register.
    logic in_valid, in_first, in_last, in_error, in_pad;
    logic [511:0] in_data;
    logic [6:0] in_bytes;
    logic [63:0] in_time;
    logic next_first;
    logic [6:0] bytes;
    // The number of ones of `tkeep`, which is contiguous from lane 0. A number has bit i if the ones end in the upper half
    // of a group of 2^(i+1) lanes.
    always_comb begin
        bytes = {s_axis_tkeep[63], 6'd0};
        for (int i = 0; i < 6; i++)
            for (int lane = 1 << i; lane < 64; lane += 2 << i)
                bytes[i] = bytes[i] | (s_axis_tkeep[lane - 1] & ~s_axis_tkeep[lane + (1 << i) - 1]);
    end
    always_ff @(posedge clk) begin
        in_data  <= s_axis_tdata;
        in_bytes <= bytes;
        in_last  <= s_axis_tlast;
        in_error <= s_axis_tuser;
        in_time  <= time_tai;
        in_first <= next_first;
        in_valid <= s_axis_tvalid && !rst;
        if (next_first) in_pad <= pad;  // never changes within a frame
        if (rst) next_first <= 1'b1;
        else if (s_axis_tvalid) next_first <= s_axis_tlast;
    end

    wire [3:0] class_flags, frame_flags, dropped;
    wire [31:0] class_hash, frame_hash;
    wire [CHANNELS_LOG2-1:0] class_channel, frame_channel;
    wire frame_valid, frame_ready, word_valid, word_ready;
    wire [13:0] frame_length;
    wire [63:0] frame_time;
    wire [511:0] word_data;

    shotline_card_classifier #(.CHANNELS_LOG2(CHANNELS_LOG2), .TABLE_LOG2(TABLE_LOG2)) classifier (
        .clk, .rst, .key, .table_write, .table_index, .table_channel,
        .in_valid, .in_data, .in_first, .in_last, .in_bytes,
        .out_flags(class_flags), .out_hash(class_hash), .out_channel(class_channel));

    shotline_card_frames #(.CHANNELS_LOG2(CHANNELS_LOG2), .BUFFER_LOG2(BUFFER_LOG2)) frames (
        .clk, .rst, .max_length,
        .in_valid, .in_data, .in_first, .in_last, .in_bytes, .in_error, .in_time, .in_pad,
        .class_flags, .class_hash, .class_channel, .dropped,
        .frame_valid, .frame_ready, .frame_length, .frame_flags, .frame_hash, .frame_time, .frame_channel,
        .word_valid, .word_ready, .word_data);

    shotline_card_packer #(.CHANNELS_LOG2(CHANNELS_LOG2)) packer (
        .clk, .rst,
        .frame_valid, .frame_ready, .frame_length, .frame_flags, .frame_hash, .frame_time, .frame_channel,
        .word_valid, .word_ready, .word_data,
        .m_valid, .m_ready, .m_data, .m_first, .m_first_block, .m_length, .m_channel);

    logic delivered;
    always_ff @(posedge clk) delivered <= m_valid && m_ready && m_first;
    shotline_counter48 counter_delivered (.clk, .clear(rst), .add({6'd0, delivered}), .value(count_delivered));
    shotline_counter48 counter_error (.clk, .clear(rst), .add({6'd0, dropped[0]}), .value(count_error));
    shotline_counter48 counter_runt (.clk, .clear(rst), .add({6'd0, dropped[1]}), .value(count_runt));
    shotline_counter48 counter_giant (.clk, .clear(rst), .add({6'd0, dropped[2]}), .value(count_giant));
    shotline_counter48 counter_overflow (.clk, .clear(rst), .add({6'd0, dropped[3]}), .value(count_overflow));

`ifdef VERILATOR
    keep_is_contiguous: assert property (@(posedge clk) disable iff (rst) s_axis_tvalid |->
        s_axis_tkeep[0] && (s_axis_tkeep & (s_axis_tkeep + 64'd1)) == 64'd0 && (s_axis_tlast || (&s_axis_tkeep)));
`endif
endmodule

`default_nettype wire
