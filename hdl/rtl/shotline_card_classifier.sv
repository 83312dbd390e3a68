// Channel of each frame: its headers, their Toeplitz hash, and the table of channels that the hash selects.
//
// The result is on `out_*` from eight clocks after the second word of a frame, or nine after its only word, until that of
// the next frame. So nine clocks after the last word of any frame its own result is there.
//
// The table has no defined contents until it is written. A frame that is not IP has hash 0 and goes to the channel of
// entry 0.

`default_nettype none

module shotline_card_classifier #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the number of channels, 3 to 8
    parameter int TABLE_LOG2 = 7      // log2 of the entries of the table, 1 to 12
) (
    // Clock and synchronous reset.
    input  wire                     clk,
    input  wire                     rst,

    // Configuration: key (byte 0 in bits 7:0), entries of the table.
    input  wire [319:0]             key,
    input  wire                     table_write,
    input  wire [TABLE_LOG2-1:0]    table_index,
    input  wire [CHANNELS_LOG2-1:0] table_channel,

    // Words of frames with their FCS.
    input  wire                     in_valid,
    input  wire [511:0]             in_data,
    input  wire                     in_first,
    input  wire                     in_last,
    input  wire [6:0]               in_bytes,

    // Result.
    output wire [3:0]               out_flags,
    output wire [31:0]              out_hash,
    output wire [CHANNELS_LOG2-1:0] out_channel
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
        "shotline_card_classifier: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(entries, TABLE_LOG2 >= 1 && TABLE_LOG2 <= 12,
        "shotline_card_classifier: TABLE_LOG2 must be 1 to 12")

    wire valid_3;
    wire [287:0] tuple_3;
    wire [3:0] flags_3;
    wire [31:0] hash_6;

    shotline_card_headers headers (
        .clk, .rst, .in_valid, .in_data, .in_first, .in_last, .in_bytes,
        .out_valid(valid_3), .out_tuple(tuple_3), .out_flags(flags_3));

    shotline_toeplitz toeplitz (.clk, .key, .in_data(tuple_3), .out_hash(hash_6));

    logic [CHANNELS_LOG2-1:0] channels[2**TABLE_LOG2];
    logic [3:0] valid;
    logic [3:0] flags_4, flags_5, flags_6, flags_7, flags_8;
    logic [31:0] hash_7, hash_8;
    logic [CHANNELS_LOG2-1:0] channel_7, channel_8;

    always_ff @(posedge clk) begin
        if (table_write) channels[table_index] <= table_channel;
        channel_7 <= channels[hash_6[TABLE_LOG2-1:0]];
    end

    always_ff @(posedge clk) begin
        valid   <= rst ? 4'd0 : {valid[2:0], valid_3};
        flags_4 <= flags_3;
        flags_5 <= flags_4;
        flags_6 <= flags_5;
        flags_7 <= flags_6;
        hash_7  <= hash_6;
        if (valid[3]) begin
            flags_8   <= flags_7;
            hash_8    <= hash_7;
            channel_8 <= channel_7;
        end
    end
    assign out_flags   = flags_8;
    assign out_hash    = hash_8;
    assign out_channel = channel_8;
endmodule

`default_nettype wire
