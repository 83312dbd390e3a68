// The sender: shots in, RoCEv2 (or plain UDP) frames out, a 64-byte word every clock (hdl/README.md).
//
//   s_axis -> cutter -> payload memory -> framer -> queue --> ICRC put in -> m_axis
//               |  \___ descriptions ______/    \-> icrc ___/
//               \-> record CRC
module roce_ud_tx (
    input  wire         clk,
    input  wire         rst,

    // Payload: a frame is a shot's samples, or in packet mode a packet's payload.
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,  // with tlast: samples are missing, so the record's CRC must be wrong
    // What is known of the shot, taken with its first word.
    input  wire [63:0]  s_shot_number,
    input  wire [63:0]  s_shot_time,
    input  wire [31:0]  s_shot_stream,
    input  wire [31:0]  s_shot_event,
    input  wire [7:0]   s_shot_flags,

    // Frames, without FCS.
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire         m_axis_tlast,
    output wire         busy,          // a shot is under way, or packets have not left yet

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
    wire         cfg_ipv6, cfg_packet_mode, cfg_stream_here;
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

    wire         cutter_idle, framer_idle, seal_idle;
    wire         idle = cutter_idle & framer_idle & seal_idle;
    assign busy = ~idle;
    wire [23:0]  next_psn;
    wire         count_frame, count_shot, count_starved, count_blocked, count_full, count_misfit;
    wire [6:0]   count_bytes;
    roce_ud_tx_registers registers (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .idle, .open, .load_psn,
        .cfg_framing, .cfg_ipv6, .cfg_packet_mode, .cfg_stream_here, .cfg_mtu_words, .cfg_destination_mac,
        .cfg_source_mac, .cfg_source_port, .cfg_destination_port, .cfg_class, .cfg_hop_limit, .cfg_destination_ip,
        .cfg_source_ip, .cfg_destination_qp, .cfg_source_qp, .cfg_queue_key, .cfg_partition_key, .cfg_psn, .cfg_stream,
        .cfg_channels, .cfg_bits, .cfg_packing, .cfg_samples, .cfg_sample_rate, .cfg_sample_bytes,
        .next_psn, .count_frame, .count_bytes, .count_shot, .count_starved, .count_blocked, .count_full, .count_misfit
    );

    // Made from the configuration: all of it has settled before the first packet's lengths are needed.
    reg         sealed;
    reg  [6:0]  udp_extra;
    reg  [5:0]  udp_offset;
    reg  [27:0] shot_bytes;
    reg  [16:0] sum_0, sum_1, sum_2;
    reg  [17:0] sum_3, sum_4;
    reg  [18:0] sum_5;
    reg  [16:0] sum_6;
    reg  [15:0] ip_sum;
    always @(posedge clk) begin
        sealed     <= cfg_framing != 2'd2;
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
    roce_ud_tx_cutter cutter (
        .clk, .rst, .open, .cfg_packet_mode, .cfg_sealed(sealed), .cfg_mtu_words, .cfg_udp_extra(udp_extra),
        .cfg_udp_offset(udp_offset), .cfg_ip_sum(ip_sum), .cfg_stream_here, .cfg_stream, .cfg_packing, .cfg_bits,
        .cfg_channels, .cfg_samples, .cfg_sample_rate, .cfg_sample_bytes,
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tvalid, .s_axis_tready, .s_axis_tlast,
        .s_axis_tuser, .s_shot_number, .s_shot_time, .s_shot_stream, .s_shot_event, .s_shot_flags,
        .word_valid, .word_data, .word_taken,
        .packet_valid, .packet_bytes, .packet_pad, .packet_reads, .packet_words, .packet_tail, .packet_udp_len,
        .packet_ip_len, .packet_checksum, .packet_last, .packet_record, .packet_crc, .packet_index, .packet_offset,
        .packet_shot, .packet_stream, .packet_taken,
        .idle(cutter_idle), .count_shot, .count_misfit, .count_full
    );

    wire         issue, room, frame_valid, frame_first, frame_last, frame_split;
    wire [511:0] frame_data;
    wire [5:0]   frame_tail;
    roce_ud_tx_framer framer (
        .clk, .rst, .cfg_framing, .cfg_ipv6, .cfg_packet_mode, .cfg_destination_mac, .cfg_source_mac,
        .cfg_destination_ip, .cfg_source_ip, .cfg_destination_port, .cfg_source_port, .cfg_class, .cfg_hop_limit,
        .cfg_destination_qp, .cfg_source_qp, .cfg_queue_key, .cfg_partition_key, .cfg_shot_bytes(shot_bytes),
        .load_psn, .cfg_psn,
        .word_valid, .word_data, .word_taken,
        .packet_valid, .packet_bytes, .packet_pad, .packet_reads, .packet_words, .packet_tail, .packet_udp_len,
        .packet_ip_len, .packet_checksum, .packet_last, .packet_record, .packet_crc, .packet_index, .packet_offset,
        .packet_shot, .packet_stream, .packet_taken,
        .issue, .room, .frame_valid, .frame_data, .frame_first, .frame_last, .frame_split, .frame_tail,
        .idle(framer_idle), .count_starved, .next_psn
    );

    roce_ud_tx_seal seal (
        .clk, .rst, .cfg_sealed(sealed), .cfg_ipv6, .issue, .room, .frame_valid, .frame_data, .frame_first, .frame_last,
        .frame_split, .frame_tail, .m_axis_tdata, .m_axis_tkeep, .m_axis_tvalid, .m_axis_tready, .m_axis_tlast,
        .idle(seal_idle), .count_frame, .count_bytes, .count_blocked
    );

    axis_rules payload_rules (
        .clk, .rst, .tdata(s_axis_tdata), .tkeep(s_axis_tkeep), .tvalid(s_axis_tvalid), .tready(s_axis_tready),
        .tlast(s_axis_tlast)
    );
    axis_rules frame_rules (
        .clk, .rst, .tdata(m_axis_tdata), .tkeep(m_axis_tkeep), .tvalid(m_axis_tvalid), .tready(m_axis_tready),
        .tlast(m_axis_tlast)
    );
endmodule
