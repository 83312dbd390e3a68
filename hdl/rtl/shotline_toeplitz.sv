// Toeplitz hash of receive side scaling (RSS) over 36 bytes: one hash a clock, three clocks after its data.
//
// Bit i of the data, counted from the most significant bit of byte 0, selects the 32 bits of the key from bit i; the
// hash is the XOR of the selected ones. Zeros select none, so shorter data are padded with zeros. Three bits of data and
// their three of the key fill a six-input LUT for each bit of the hash, so the sum of three terms is registered, then
// those of six sums: at most two levels of logic between registers.

`default_nettype none

module shotline_toeplitz (
    // Clock.
    input  wire         clk,

    // Key, byte 0 in bits 7:0; it changes only while no hash is computed.
    input  wire [319:0] key,

    // Data, byte 0 in bits 7:0, and their hash three clocks later.
    input  wire [287:0] in_data,
    output wire [31:0]  out_hash
);
    // In the order of the bits of the definition: the first one is the most significant.
    logic [319:0] key_bits;
    logic [287:0] data_bits;
    always_comb begin
        for (int i = 0; i < 40; i++) key_bits[312 - 8*i +: 8] = key[8*i +: 8];
        for (int i = 0; i < 36; i++) data_bits[280 - 8*i +: 8] = in_data[8*i +: 8];
    end

    logic [96*32-1:0] terms, terms_1;
    logic [16*32-1:0] sums, sums_2;
    logic [31:0] hash, hash_3;
    always_comb begin
        terms = '0;
        sums  = '0;
        hash  = '0;
        for (int i = 0; i < 288; i++)
            terms[32*(i / 3) +: 32] = terms[32*(i / 3) +: 32] ^ ({32{data_bits[287 - i]}} & key_bits[288 - i +: 32]);
        for (int i = 0; i < 96; i++) sums[32*(i / 6) +: 32] = sums[32*(i / 6) +: 32] ^ terms_1[32*i +: 32];
        for (int i = 0; i < 16; i++) hash = hash ^ sums_2[32*i +: 32];
    end
    always_ff @(posedge clk) begin
        terms_1 <= terms;
        sums_2  <= sums;
        hash_3  <= hash;
    end
    assign out_hash = hash_3;
endmodule

`default_nettype wire
