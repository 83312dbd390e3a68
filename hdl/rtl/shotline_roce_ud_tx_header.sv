// Header: the first two words of a frame (Ethernet, IP, UDP and the header of the framing), each byte in its lane.
// Latency one clock. Bytes after the header are zero, so the payload is merged by OR.

`default_nettype none

module shotline_roce_ud_tx_header (
    // Clock; no reset.
    input  wire          clk,

    // Configuration.
    input  wire  [1:0]   cfg_framing,           // 0 ud, 1 counted, 2 udp
    input  wire          cfg_ipv6,
    input  wire          cfg_packet_mode,
    input  wire  [47:0]  cfg_destination_mac,
    input  wire  [47:0]  cfg_source_mac,
    input  wire  [127:0] cfg_destination_ip,
    input  wire  [127:0] cfg_source_ip,
    input  wire  [15:0]  cfg_destination_port,
    input  wire  [15:0]  cfg_source_port,
    input  wire  [7:0]   cfg_class,
    input  wire  [7:0]   cfg_hop_limit,
    input  wire  [23:0]  cfg_destination_qp,
    input  wire  [23:0]  cfg_source_qp,
    input  wire  [31:0]  cfg_queue_key,
    input  wire  [15:0]  cfg_partition_key,
    input  wire  [27:0]  cfg_shot_bytes,

    // Descriptor of the frame; `first` and `second` select the word, neither gives zeros.
    input  wire          first,
    input  wire          second,
    input  wire  [12:0]  bytes,
    input  wire  [1:0]   pad,
    input  wire  [12:0]  udp_len,
    input  wire  [12:0]  ip_len,
    input  wire  [15:0]  checksum,
    input  wire          last,
    input  wire  [11:0]  index,     // modulo 2^12
    input  wire  [27:0]  offset,
    input  wire  [63:0]  shot,
    input  wire  [31:0]  stream,
    input  wire  [23:0]  psn,

    // Header word.
    output logic [511:0] word
);
    wire with_immediate = cfg_framing == 2'd0;
    wire shotline_udp   = cfg_framing == 2'd2;

    wire [111:0] ethernet = {cfg_destination_mac, cfg_source_mac, cfg_ipv6 ? 16'h86DD : 16'h0800};
    // No options; identification 0, "don't fragment".
    wire [159:0] ipv4 = {
        8'h45, cfg_class, 3'd0, ip_len, 16'd0, 16'h4000, cfg_hop_limit, 8'd17, checksum,
        cfg_source_ip[31:0], cfg_destination_ip[31:0]
    };
    wire [319:0] ipv6 = {
        4'd6, cfg_class, 20'd0, 3'd0, udp_len, 8'd17, cfg_hop_limit, cfg_source_ip, cfg_destination_ip
    };
    // UDP checksum 0 (none): ud and counted have an ICRC; receivers of udp over IPv6 must allow it (README-sender.md).
    wire [63:0] udp = {cfg_source_port, cfg_destination_port, 3'd0, udp_len, 16'd0};

    wire [95:0] bth = {
        with_immediate ? 8'h65 : 8'h64, last, 1'b1, pad, 4'd0, cfg_partition_key,
        8'd0, cfg_destination_qp, 8'd0, psn
    };
    wire [63:0]  deth = {cfg_queue_key, 8'd0, cfg_source_qp};
    wire [31:0]  immediate = with_immediate ? {shot[19:0], index} : 32'd0;
    wire [27:0]  total_bytes = cfg_packet_mode ? {15'd0, bytes} : cfg_shot_bytes;
    wire [255:0] framing_header = shotline_udp
        ? {"SHPK", 8'd1, 7'd0, last, 16'd0, stream, shot, 4'd0, offset, 19'd0, bytes, 4'd0, total_bytes}
        : {bth, deth, immediate, 64'd0};

    // 94 bytes, the first one in the most significant byte.
    wire [751:0] header = cfg_ipv6
        ? {ethernet, ipv6, udp, framing_header}
        : {ethernet, ipv4, udp, framing_header, 160'd0};
    always_ff @(posedge clk)
        if (!first && !second) word <= 512'd0;
        else
            for (int lane = 0; lane < 64; lane++)
                if (first) word[8*lane +: 8] <= header[8*(93-lane) +: 8];
                else word[8*lane +: 8] <= lane < 30 ? header[8*(lane < 30 ? 29-lane : 0) +: 8] : 8'd0;
endmodule

`default_nettype wire
