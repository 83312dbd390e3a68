// Invariant CRC (ICRC) of RoCEv2 packets on a 64-byte bus (IBTA annex A17): any packet, one word per clock, no bubble
// between packets. The input is the frame as transmitted, from the Ethernet header on, without the four ICRC bytes.
//
// Latency: `out_valid` is set 9 clocks after the word with `in_last`.
//
// Fields that routers may change are replaced by ones. The Ethernet header is not covered: its 14 bytes are replaced by
// zeros, and the initial state is the one that those 14 zero bytes turn into the state after the eight bytes of ones
// that the ICRC prepends.

`default_nettype none

module shotline_icrc (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // Frame words.
    input  wire         in_valid,
    input  wire [511:0] in_data,   // byte lane 0 (bits 7:0) is the first of the frame
    input  wire         in_first,  // word with the Ethernet header
    input  wire         in_last,
    input  wire [5:0]   in_bytes,  // with in_last: covered bytes of this word, 0 for 64; the rest must be zero
    input  wire         in_ipv6,   // valid in the first two words: IPv6, else IPv4 without options

    // ICRC of each frame.
    output wire         out_valid,
    output wire [31:0]  out_icrc    // least significant byte first on the wire
);
    `include "crc_tables.svh"

    logic second;
    always_ff @(posedge clk)
        if (rst) second <= 1'b0;
        else if (in_valid) second <= in_first && !in_last;

    logic [511:0] masked;
    always_comb begin
        masked = in_data;
        if (in_first) begin
            masked[8*14-1:0] = 0;
            masked[8*15 +: 8] = 8'hFF;       // type of service; IPv6: traffic class and flow label
            if (in_ipv6) begin
                masked[8*14 +: 4] = 4'hF;    // traffic class; the version nibble is covered
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
        if (second && in_ipv6) masked[8*2 +: 8] = 8'hFF;  // BTH: FECN, BECN, reserved
    end

    shotline_crc32_words #(.START(ICRC_START)) crc (
        .clk, .rst, .in_valid, .in_data(masked), .in_first, .in_last, .in_bytes, .out_valid, .out_crc(out_icrc)
    );
endmodule

`default_nettype wire
