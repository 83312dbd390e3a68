// CRC-32 (Ethernet's) of messages on a 64-byte bus: any length, a word every clock, no bubble between messages.
//
// Latency: `out_valid` comes LATENCY = 6 clocks after the word with `in_last`.
//
//   clock  what                                                              logic
//   1      the word is folded to 24 bytes (scripts/crc_tables.py)            about 13 inputs a bit
//   2      their remainder, as three sums a bit                              about 32 inputs a bit
//   3      register <= register over 64 zero bytes + the three sums          about 21 inputs a bit
//   4..6   the last word was filled up with zeros: take back 32 and 16, 8 and 4, 2 and 1 bytes of them
//
// The start of the register is added to the first four bytes of a message, which is the same. Bytes of the last word
// behind the message must be zero.
module crc32_words #(
    parameter [31:0] START = 32'hFFFFFFFF
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    input  wire [511:0] in_data,   // byte lane 0 (bits 7:0) is the first
    input  wire         in_first,
    input  wire         in_last,
    input  wire [5:0]   in_bytes,  // with in_last: bytes of the message in this word, 0 for 64
    output wire         out_valid,
    output wire [31:0]  out_crc    // inverted, as it is sent, least significant byte first
);
    `include "crc_tables.svh"

    reg [2:1] first, valid;
    reg [6:1] ended;
    reg [5:0] spare_1, spare_2, spare_3;
    reg [3:0] spare_4;
    reg [1:0] spare_5;

    always @(posedge clk) begin
        if (rst) begin
            valid <= 0;
            ended <= 0;
        end else begin
            valid <= {valid[1], in_valid};
            ended <= {ended[5:1], in_valid & in_last};
        end
        first   <= {first[1], in_first};
        spare_1 <= 6'd0 - in_bytes;
        spare_2 <= spare_1;
        spare_3 <= spare_2;
        spare_4 <= spare_3[3:0];
        spare_5 <= spare_4[1:0];
    end

    // 1: the fold.
    reg [191:0] folded;
    always @(posedge clk)
        if (in_valid) folded <= crc_fold({in_data[511:32], in_data[31:0] ^ (START & {32{in_first}})});

    // 2: three sums of 64 columns each.
    reg [31:0] sum_0, sum_1, sum_2;
    always @(posedge clk)
        if (valid[1]) begin
            sum_0 <= crc_sum_0(folded[63:0]);
            sum_1 <= crc_sum_1(folded[127:64]);
            sum_2 <= crc_sum_2(folded[191:128]);
        end

    // 3: the register's own path.
    reg [31:0] state;
    always @(posedge clk)
        if (valid[2]) state <= (first[2] ? 32'd0 : crc_step(state)) ^ sum_0 ^ sum_1 ^ sum_2;

    // 4 to 6: zeros taken back.
    reg [31:0] state_4, state_5, result;
    always @(posedge clk) begin
        if (ended[3]) state_4 <= back_4(spare_3[5:4], state);
        if (ended[4]) state_5 <= back_5(spare_4[3:2], state_4);
        if (ended[5]) result <= ~back_6(spare_5, state_5);
    end
    function automatic [31:0] back_4(input [1:0] by, input [31:0] from);
        reg [31:0] half;
        half   = by[1] ? crc_back_32(from) : from;
        back_4 = by[0] ? crc_back_16(half) : half;
    endfunction
    function automatic [31:0] back_5(input [1:0] by, input [31:0] from);
        reg [31:0] half;
        half   = by[1] ? crc_back_8(from) : from;
        back_5 = by[0] ? crc_back_4(half) : half;
    endfunction
    function automatic [31:0] back_6(input [1:0] by, input [31:0] from);
        reg [31:0] half;
        half   = by[1] ? crc_back_2(from) : from;
        back_6 = by[0] ? crc_back_1(half) : half;
    endfunction

    assign out_valid = ended[6];
    assign out_crc   = result;
endmodule
