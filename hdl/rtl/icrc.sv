// The invariant CRC of RoCEv2 packets on a 64-byte bus (IBTA annex A17): any packet, a word every clock, no bubble
// between packets. Frames are given as they leave, from the Ethernet header on and without the ICRC's own four bytes.
//
// Latency: `out_valid` comes 9 clocks after the word with `in_last`.
//
// The fields that routers may change count as ones. The Ethernet header does not count at all: it is replaced by zeros,
// and the register starts from the value which those 14 zero bytes turn into the one after eight bytes of ones.
module icrc (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    input  wire [511:0] in_data,   // byte lane 0 (bits 7:0) is the first of the frame
    input  wire         in_first,  // the word with the Ethernet header
    input  wire         in_last,
    input  wire [5:0]   in_bytes,  // with in_last: covered bytes of this word, 0 for 64; the others are zero
    input  wire         in_ipv6,   // with the first two words: over IPv6, else over IPv4 without options
    output wire         out_valid,
    output wire [31:0]  out_icrc   // least significant byte first on the wire
);
    `include "crc_tables.svh"

    reg second;
    always @(posedge clk)
        if (rst) second <= 1'b0;
        else if (in_valid) second <= in_first & ~in_last;

    reg [511:0] masked;
    always @* begin
        masked = in_data;
        if (in_first) begin
            masked[8*14-1:0] = 0;
            masked[8*15 +: 8] = 8'hFF;       // type of service; over IPv6 traffic class and flow label
            if (in_ipv6) begin
                masked[8*14 +: 4] = 4'hF;    // traffic class; the version beside it stays
                masked[8*16 +: 16] = 16'hFFFF;  // flow label
                masked[8*21 +: 8] = 8'hFF;   // hop limit
                masked[8*60 +: 16] = 16'hFFFF;  // UDP checksum
            end else begin
                masked[8*22 +: 8] = 8'hFF;   // time to live
                masked[8*24 +: 16] = 16'hFFFF;  // header checksum
                masked[8*40 +: 16] = 16'hFFFF;  // UDP checksum
                masked[8*46 +: 8] = 8'hFF;   // BTH: FECN, BECN, reserved
            end
        end
        if (second & in_ipv6) masked[8*2 +: 8] = 8'hFF;  // BTH, likewise
    end

    crc32_words #(.START(ICRC_START)) crc (
        .clk, .rst, .in_valid, .in_data(masked), .in_first, .in_last, .in_bytes, .out_valid, .out_crc(out_icrc)
    );
endmodule
