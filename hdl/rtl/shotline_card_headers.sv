// Parser of Ethernet frames for receive side scaling: addresses and ports of IPv4 and IPv6 behind up to two VLAN tags.
//
// All headers are in the first two words: those of IPv4 with all options behind two tags end at byte 22 + 60, ports at 86.
// The result is valid three clocks after the second word of a frame, or four after its only word, whose second is whatever
// comes next: bytes after the end of a frame decide nothing.
//
// `out_tuple` is the data of the Toeplitz hash: source address, destination address, and the two ports of TCP and UDP,
// zero after them; all zero if the frame is not IP. There are no ports in a fragment (only the first would have them, so
// the fragments of a packet would go to different channels), behind an extension header of IPv6, or after the end of the
// frame.

`default_nettype none

module shotline_card_headers (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // Words of frames with their FCS.
    input  wire         in_valid,
    input  wire [511:0] in_data,   // byte lane 0 (bits 7:0) is the first
    input  wire         in_first,
    input  wire         in_last,
    input  wire [6:0]   in_bytes,  // 1 to 64

    // One result for each frame.
    output wire         out_valid,
    output wire [287:0] out_tuple,
    output wire [3:0]   out_flags  // 0: IPv4, 1: IPv6, 2: the tuple has ports, 3: at least one VLAN tag
);
    localparam logic [15:0] VLAN = 16'h8100;
    localparam logic [15:0] SERVICE_VLAN = 16'h88A8;

    function automatic logic is_tag(input logic [7:0] high, input logic [7:0] low);
        is_tag = {high, low} == VLAN || {high, low} == SERVICE_VLAN;
    endfunction

    // The first word, its tags, and the number of whole 4-byte words behind an Ethernet header of 14 bytes, without the FCS.
    logic [511:96] head;
    logic [1:0] tags;
    logic [4:0] head_words;
    logic second, single;
    wire tag_1 = is_tag(in_data[103:96], in_data[111:104]);
    wire tag_2 = tag_1 && is_tag(in_data[135:128], in_data[143:136]);
    wire [6:0] head_bytes = in_bytes - 7'd18;
    always_ff @(posedge clk) if (in_valid && in_first) begin
        head       <= in_data[511:96];
        tags       <= {tag_2, tag_1 && !tag_2};
        head_words <= in_bytes < 7'd18 ? 5'd0 : head_bytes[6:2];
    end
    always_ff @(posedge clk) begin
        single <= in_valid && in_first && in_last && !rst;
        if (rst) second <= 1'b0;
        else if (in_valid) second <= in_first && !in_last;
    end

    // Stage 1: from the EtherType before the IP header, in bytes 12 to 85 of the frame. With more than two words the FCS
    // may begin in the second, so it is not counted either.
    wire [591:0] window = {in_data[175:0], head};
    wire [6:0] second_bytes = in_last ? in_bytes + 7'd46 : 7'd110;
    logic valid_1;
    logic [1:0] tags_1;
    logic [527:0] packet_1;
    logic [4:0] words_1;
    always_ff @(posedge clk) begin
        valid_1  <= single || (in_valid && second && !rst);
        tags_1   <= tags;
        packet_1 <= tags[1] ? window[591:64] : tags[0] ? window[559:32] : window[527:0];
        words_1  <= single ? head_words : second_bytes[6:2];
    end

    // Stage 2: what the headers are. If a packet is IP then bit 5 tells its version.
    wire [15:0] ethertype = {packet_1[7:0], packet_1[15:8]};
    wire [511:0] ip = packet_1[527:16];
    wire [3:0] ip_words = ip[3:0];
    wire is_v6 = ip[5];
    wire [7:0] protocol = is_v6 ? ip[55:48] : ip[79:72];
    // More fragments, or an offset that is not zero.
    wire fragment = !is_v6 && (ip[53] || ip[52:48] != 5'd0 || ip[63:56] != 8'd0);
    // Place of the ports in units of 4 bytes.
    wire [3:0] ports_at = is_v6 ? 4'd10 : ip_words;
    logic valid_2, tagged_2, v4_2, v6_2, ports_2;
    logic [319:64] ip_2;
    logic [31:0] port_bytes, port_bytes_2;
    always_comb begin
        port_bytes = ip[32*5 +: 32];
        for (int i = 6; i < 16; i++) if (ports_at == 4'(i)) port_bytes = ip[32*i +: 32];
    end
    always_ff @(posedge clk) begin
        valid_2  <= valid_1 && !rst;
        tagged_2 <= tags_1 != 2'd0;
        v4_2     <= ethertype == 16'h0800 && ip[7:4] == 4'd4 && ip_words >= 4'd5 && words_1 >= 5'd5 + {3'd0, tags_1};
        v6_2     <= ethertype == 16'h86DD && ip[7:4] == 4'd6 && words_1 >= 5'd10 + {3'd0, tags_1};
        ports_2  <= (protocol == 8'd6 || protocol == 8'd17) && !fragment
            && words_1 > {1'b0, ports_at} + {3'd0, tags_1};
        ip_2         <= ip[319:64];
        port_bytes_2 <= port_bytes;
    end

    // Stage 3: the tuple.
    wire has_ports = (v4_2 || v6_2) && ports_2;
    wire [31:0] ports = has_ports ? port_bytes_2 : 32'd0;
    logic valid_3;
    logic [287:0] tuple_3;
    logic [3:0] flags_3;
    always_ff @(posedge clk) begin
        valid_3 <= valid_2 && !rst;
        flags_3 <= {tagged_2, has_ports, v6_2, v4_2};
        if (v4_2) tuple_3 <= {192'd0, ports, ip_2[159:96]};
        else if (v6_2) tuple_3 <= {ports, ip_2};
        else tuple_3 <= '0;
    end
    assign out_valid = valid_3;
    assign out_tuple = tuple_3;
    assign out_flags = flags_3;

    // Lengths and other fields that no decision needs.
    wire unused = &{ip[47:8], head_bytes[1:0], second_bytes[1:0], 1'b0};
endmodule

`default_nettype wire
