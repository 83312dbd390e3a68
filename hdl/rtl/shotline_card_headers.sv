// Parser of Ethernet frames for receive side scaling: addresses and ports of IPv4 and IPv6 behind up to two VLAN tags.
//
// All headers are in the first two words: those of IPv4 with all options behind two tags end at byte 22 + 60, ports at 86.
// The result is valid two clocks after the second word of a frame, or after its only word.
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

    // The first word, until the second comes.
    logic [511:96] head;
    logic second;
    always_ff @(posedge clk) if (in_valid && in_first) head <= in_data[511:96];
    always_ff @(posedge clk)
        if (rst) second <= 1'b0;
        else if (in_valid) second <= in_first && !in_last;

    // Bytes 12 to 85 of the frame; those after the end of a frame are excluded by `available`.
    wire [591:0] window = in_first ? {176'd0, in_data[511:96]} : {in_data[175:0], head};
    // Bytes of the frame in the window and before it, without the FCS. With more than two words the FCS may begin in the
    // second, so it is not counted either.
    wire [6:0] available = !in_first ? (in_last ? in_bytes + 7'd60 : 7'd124) : in_bytes > 7'd4 ? in_bytes - 7'd4 : 7'd0;
    wire tag_1 = is_tag(window[7:0], window[15:8]);
    wire tag_2 = tag_1 && is_tag(window[39:32], window[47:40]);

    // Stage 1: from the EtherType before the IP header.
    logic valid_1, tagged_1;
    logic [527:0] packet_1;
    logic [6:0] available_1;
    always_ff @(posedge clk) begin
        valid_1     <= in_valid && !rst && (second || (in_first && in_last));
        tagged_1    <= tag_1;
        packet_1    <= tag_2 ? window[591:64] : tag_1 ? window[559:32] : window[527:0];
        // Bytes of the IP packet; a frame that ends in its Ethernet header has none.
        available_1 <= available < 7'd22 ? 7'd0 : available - (tag_2 ? 7'd22 : tag_1 ? 7'd18 : 7'd14);
    end

    wire [15:0] ethertype = {packet_1[7:0], packet_1[15:8]};
    wire [511:0] ip = packet_1[527:16];
    wire [3:0] ip_words = ip[3:0];
    wire v4 = ethertype == 16'h0800 && ip[7:4] == 4'd4 && ip_words >= 4'd5 && available_1 >= 7'd20;
    wire v6 = ethertype == 16'h86DD && ip[7:4] == 4'd6 && available_1 >= 7'd40;
    wire [7:0] protocol = v4 ? ip[79:72] : ip[55:48];
    // More fragments, or an offset that is not zero.
    wire fragment = v4 && (ip[53] || ip[52:48] != 5'd0 || ip[63:56] != 8'd0);
    // Place of the ports in units of 4 bytes.
    wire [3:0] ports_at = v4 ? ip_words : 4'd10;
    wire ports = (v4 || v6) && (protocol == 8'd6 || protocol == 8'd17) && !fragment
        && available_1 >= {1'b0, ports_at, 2'd0} + 7'd4;
    logic [31:0] port_bytes;
    always_comb begin
        port_bytes = '0;
        for (int i = 5; i < 16; i++) if (ports && ports_at == 4'(i)) port_bytes = ip[32*i +: 32];
    end

    // Stage 2: the tuple.
    logic valid_2;
    logic [287:0] tuple_2;
    logic [3:0] flags_2;
    always_ff @(posedge clk) begin
        valid_2 <= valid_1 && !rst;
        flags_2 <= {tagged_1, ports, v6, v4};
        if (v4) tuple_2 <= {192'd0, port_bytes, ip[159:96]};
        else if (v6) tuple_2 <= {port_bytes, ip[319:64]};
        else tuple_2 <= '0;
    end
    assign out_valid = valid_2;
    assign out_tuple = tuple_2;
    assign out_flags = flags_2;

    // Lengths, addresses of headers and other fields that no decision needs.
    wire unused = &{ip[47:8], ip[71:64], ip[95:80], 1'b0};
endmodule

`default_nettype wire
