// CRC-32 (IEEE 802.3 polynomial) of messages on a 64-byte bus: any length, one word per clock, no bubble between
// messages.
//
// Latency: `out_valid` is set 9 clocks after the word with `in_last`.
//
//   clock  operation                                                         logic
//   1      fold the word to 24 bytes (scripts/crc_tables.py)                 about 13 inputs a bit
//   2      remainder of the 24 bytes, as three partial sums a bit            about 32 inputs a bit
//   3      state <= state advanced by 64 zero bytes + the partial sums       about 21 inputs a bit
//   4..9   undo the zero bytes after the message: 32, 16, 8, 4, 2, 1         about 18 inputs a bit
//
// The initial state is XORed into the first four bytes of a message, which is equivalent. Bytes of the last word after
// the end of the message must be zero.

`default_nettype none

module shotline_crc32_words #(
    parameter logic [31:0] START = 32'hFFFFFFFF  // initial state
) (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // Message words.
    input  wire         in_valid,
    input  wire [511:0] in_data,   // byte lane 0 (bits 7:0) is the first
    input  wire         in_first,
    input  wire         in_last,
    input  wire [5:0]   in_bytes,  // with in_last: bytes of the message in this word, 0 for 64

    // CRC of each message.
    output wire         out_valid,
    output wire [31:0]  out_crc     // complemented; least significant byte first on the wire
);
    `include "crc_tables.svh"

    logic [2:1] first, valid;
    logic [9:1] ended;
    // Unused bytes of the last word.
    logic [5:0] spare_1, spare_2, spare_3;
    logic [4:0] spare_4;
    logic [3:0] spare_5;
    logic [2:0] spare_6;
    logic [1:0] spare_7;
    logic       spare_8;

    always_ff @(posedge clk) begin
        if (rst) begin
            valid <= 0;
            ended <= 0;
        end else begin
            valid <= {valid[1], in_valid};
            ended <= {ended[8:1], in_valid && in_last};
        end
        first   <= {first[1], in_first};
        spare_1 <= 6'd0 - in_bytes;
        spare_2 <= spare_1;
        spare_3 <= spare_2;
        spare_4 <= spare_3[4:0];
        spare_5 <= spare_4[3:0];
        spare_6 <= spare_5[2:0];
        spare_7 <= spare_6[1:0];
        spare_8 <= spare_7[0];
    end

    // 1: fold.
    logic [191:0] folded;
    always_ff @(posedge clk)
        if (in_valid) folded <= crc_fold({in_data[511:32], in_data[31:0] ^ (START & {32{in_first}})});

    // 2: three partial sums of 64 columns each.
    logic [31:0] sum_0, sum_1, sum_2;
    always_ff @(posedge clk)
        if (valid[1]) begin
            sum_0 <= crc_sum_0(folded[63:0]);
            sum_1 <= crc_sum_1(folded[127:64]);
            sum_2 <= crc_sum_2(folded[191:128]);
        end

    // 3: CRC state.
    logic [31:0] state;
    always_ff @(posedge clk)
        if (valid[2]) state <= (first[2] ? 32'd0 : crc_step(state)) ^ sum_0 ^ sum_1 ^ sum_2;

    // 4 to 9: undo the zero bytes.
    logic [31:0] state_4, state_5, state_6, state_7, state_8, result;
    always_ff @(posedge clk) begin
        if (ended[3]) state_4 <= spare_3[5] ? crc_back_32(state) : state;
        if (ended[4]) state_5 <= spare_4[4] ? crc_back_16(state_4) : state_4;
        if (ended[5]) state_6 <= spare_5[3] ? crc_back_8(state_5) : state_5;
        if (ended[6]) state_7 <= spare_6[2] ? crc_back_4(state_6) : state_6;
        if (ended[7]) state_8 <= spare_7[1] ? crc_back_2(state_7) : state_7;
        if (ended[8]) result  <= ~(spare_8 ? crc_back_1(state_8) : state_8);
    end

    assign out_valid = ended[9];
    assign out_crc   = result;
endmodule

`default_nettype wire
