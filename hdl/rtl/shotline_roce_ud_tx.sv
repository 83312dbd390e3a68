// RoCEv2 UD sender: shots in, RoCEv2 or plain UDP frames out, one 64-byte word per clock (hdl/README-sender.md).
//
//   s_axis -> segmenter -> payload memory -> framer -> word FIFO --> ICRC insertion -> m_axis
//               |  \___ descriptors _________/    \-> icrc ___/
//               \-> CRC of the record

`default_nettype none

module shotline_roce_ud_tx (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // AXI4-Stream sink: a frame is the samples of a shot, or in packet mode the payload of a packet.
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,   // with tlast: samples are missing, so the record gets a wrong CRC

    // Metadata of the shot, sampled with its first word.
    input  wire [63:0]  s_shot_number,
    input  wire [63:0]  s_shot_time,
    input  wire [31:0]  s_shot_stream,
    input  wire [31:0]  s_shot_event,
    input  wire [7:0]   s_shot_flags,

    // AXI4-Stream source: Ethernet frames without FCS.
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire         m_axis_tlast,
    output wire         busy,           // a shot is active, or packets are still in the pipeline

    // AXI4-Lite subordinate: registers.
    input  wire [11:0]  s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [31:0]  s_axil_wdata,
    input  wire [3:0]   s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    output wire [1:0]   s_axil_bresp,
    output wire         s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire [11:0]  s_axil_araddr,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    output wire [31:0]  s_axil_rdata,
    output wire [1:0]   s_axil_rresp,
    output wire         s_axil_rvalid,
    input  wire         s_axil_rready
);
    wire         open, load_psn;
    wire [1:0]   cfg_framing;
    wire         cfg_ipv6, cfg_packet_mode, cfg_stream_override;
    wire [6:0]   cfg_mtu_words;
    wire [47:0]  cfg_destination_mac, cfg_source_mac;
    wire [15:0]  cfg_source_port, cfg_destination_port;
    wire [7:0]   cfg_class, cfg_hop_limit;
    wire [127:0] cfg_destination_ip, cfg_source_ip;
    wire [23:0]  cfg_destination_qp, cfg_source_qp, cfg_psn;
    wire [31:0]  cfg_queue_key, cfg_stream;
    wire [15:0]  cfg_partition_key, cfg_channels;
    wire [7:0]   cfg_bits, cfg_packing;
    wire [31:0]  cfg_samples, cfg_sample_rate;
    wire [27:0]  cfg_sample_bytes;

    wire         segmenter_idle, framer_idle, insert_idle;
    wire         idle = segmenter_idle && framer_idle && insert_idle;
    assign busy = !idle;
    wire [23:0]  next_psn;
    wire         count_frame, count_shot, count_starved, count_blocked, count_full, count_length_error;
    wire [6:0]   count_bytes;
    shotline_roce_ud_tx_registers registers (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .idle, .open, .load_psn,
        .cfg_framing, .cfg_ipv6, .cfg_packet_mode, .cfg_stream_override, .cfg_mtu_words, .cfg_destination_mac,
        .cfg_source_mac, .cfg_source_port, .cfg_destination_port, .cfg_class, .cfg_hop_limit, .cfg_destination_ip,
        .cfg_source_ip, .cfg_destination_qp, .cfg_source_qp, .cfg_queue_key, .cfg_partition_key, .cfg_psn, .cfg_stream,
        .cfg_channels, .cfg_bits, .cfg_packing, .cfg_samples, .cfg_sample_rate, .cfg_sample_bytes,
        .next_psn, .count_frame, .count_bytes, .count_shot, .count_starved, .count_blocked, .count_full,
        .count_length_error
    );

    // Derived from the configuration; stable before the first packet's lengths are computed.
    logic         icrc_enabled;
    logic  [6:0]  udp_extra;    // UDP length minus the padded payload
    logic  [5:0]  udp_offset;   // bytes before the UDP header
    logic  [27:0] shot_bytes;   // samples padded to 64 bytes, and the record
    // Ones' complement sum of the IPv4 header without its length.
    logic  [16:0] sum_0, sum_1, sum_2;
    logic  [17:0] sum_3, sum_4;
    logic  [18:0] sum_5;
    logic  [16:0] sum_6;
    logic  [15:0] ip_sum;
    always_ff @(posedge clk) begin
        icrc_enabled <= cfg_framing != 2'd2;
        // ud: UDP 8, BTH 12, DETH 8, immediate data 4, ICRC 4; counted: without immediate data; udp: UDP 8, header 32.
        udp_extra  <= cfg_framing == 2'd0 ? 7'd36 : cfg_framing == 2'd1 ? 7'd32 : 7'd40;
        udp_offset <= cfg_ipv6 ? 6'd54 : 6'd34;
        shot_bytes <= {cfg_sample_bytes[27:6] + (cfg_sample_bytes[5:0] != 0 ? 22'd2 : 22'd1), 6'd0};
        sum_0      <= {1'b0, 8'h45, cfg_class} + 17'h04000;
        sum_1      <= {1'b0, cfg_source_ip[31:16]} + {1'b0, cfg_source_ip[15:0]};
        sum_2      <= {1'b0, cfg_destination_ip[31:16]} + {1'b0, cfg_destination_ip[15:0]};
        sum_3      <= {1'b0, sum_0} + {2'b00, cfg_hop_limit, 8'd17};
        sum_4      <= {1'b0, sum_1} + {1'b0, sum_2};
        sum_5      <= {1'b0, sum_3} + {1'b0, sum_4};
        sum_6      <= {1'b0, sum_5[15:0]} + {14'd0, sum_5[18:16]};
        ip_sum     <= sum_6[15:0] + {15'd0, sum_6[16]};
    end

    wire         word_valid, word_taken;
    wire [511:0] word_data;
    wire         packet_valid, packet_taken, packet_last, packet_record;
    wire [12:0]  packet_bytes, packet_udp_len, packet_ip_len;
    wire [1:0]   packet_pad;
    wire [6:0]   packet_reads, packet_words;
    wire [5:0]   packet_tail;
    wire [15:0]  packet_checksum;
    wire [31:0]  packet_crc, packet_stream;
    wire [11:0]  packet_index;
    wire [27:0]  packet_offset;
    wire [63:0]  packet_shot;
    shotline_roce_ud_tx_segmenter segmenter (
        .clk, .rst, .open, .cfg_packet_mode, .cfg_icrc(icrc_enabled), .cfg_mtu_words, .cfg_udp_extra(udp_extra),
        .cfg_udp_offset(udp_offset), .cfg_ip_sum(ip_sum), .cfg_stream_override, .cfg_stream, .cfg_packing, .cfg_bits,
        .cfg_channels, .cfg_samples, .cfg_sample_rate, .cfg_sample_bytes,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast,
        .s_axis_tuser, .s_shot_number, .s_shot_time, .s_shot_stream, .s_shot_event, .s_shot_flags,
        .word_valid, .word_data, .word_taken,
        .packet_valid, .packet_bytes, .packet_pad, .packet_reads, .packet_words, .packet_tail, .packet_udp_len,
        .packet_ip_len, .packet_checksum, .packet_last, .packet_record, .packet_crc, .packet_index, .packet_offset,
        .packet_shot, .packet_stream, .packet_taken,
        .idle(segmenter_idle), .count_shot, .count_length_error, .count_full
    );

    wire         reserve, slot_free, frame_valid, frame_first, frame_last, frame_split;
    wire [511:0] frame_data;
    wire [5:0]   frame_tail;
    shotline_roce_ud_tx_framer framer (
        .clk, .rst, .cfg_framing, .cfg_ipv6, .cfg_packet_mode, .cfg_destination_mac, .cfg_source_mac,
        .cfg_destination_ip, .cfg_source_ip, .cfg_destination_port, .cfg_source_port, .cfg_class, .cfg_hop_limit,
        .cfg_destination_qp, .cfg_source_qp, .cfg_queue_key, .cfg_partition_key, .cfg_shot_bytes(shot_bytes),
        .load_psn, .cfg_psn,
        .word_valid, .word_data, .word_taken,
        .packet_valid, .packet_bytes, .packet_pad, .packet_reads, .packet_words, .packet_tail, .packet_udp_len,
        .packet_ip_len, .packet_checksum, .packet_last, .packet_record, .packet_crc, .packet_index, .packet_offset,
        .packet_shot, .packet_stream, .packet_taken,
        .reserve, .slot_free, .frame_valid, .frame_data, .frame_first, .frame_last, .frame_split, .frame_tail,
        .idle(framer_idle), .count_starved, .next_psn
    );

    shotline_roce_ud_tx_icrc_insert icrc_insert (
        .clk, .rst, .cfg_icrc(icrc_enabled), .cfg_ipv6, .reserve, .slot_free, .frame_valid, .frame_data, .frame_first,
        .frame_last, .frame_split, .frame_tail,
        .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast,
        .idle(insert_idle), .count_frame, .count_bytes, .count_blocked
    );

    shotline_axis_rules payload_rules (
        .clk, .rst, .tdata(s_axis_tdata), .tkeep(s_axis_tkeep), .tvalid(s_axis_tvalid), .tready(s_axis_tready),
        .tlast(s_axis_tlast)
    );
    shotline_axis_rules frame_rules (
        .clk, .rst, .tdata(m_axis_tdata), .tkeep(m_axis_tkeep), .tvalid(m_axis_tvalid), .tready(m_axis_tready),
        .tlast(m_axis_tlast)
    );
endmodule

`default_nettype wire
