// Register block of the sender (registers.toml): the written configuration, the active configuration, and the counters.
// Written values become active only by `control.apply`, all at once, when the sender is idle.

`default_nettype none

module shotline_roce_ud_tx_registers (
    // Clock and synchronous reset.
    input  wire          clk,
    input  wire          rst,

    // AXI4-Lite subordinate: registers.
    input  wire  [11:0]  s_axil_awaddr,
    input  wire          s_axil_awvalid,
    output wire          s_axil_awready,
    input  wire  [31:0]  s_axil_wdata,
    input  wire  [3:0]   s_axil_wstrb,
    input  wire          s_axil_wvalid,
    output wire          s_axil_wready,
    output wire  [1:0]   s_axil_bresp,
    output wire          s_axil_bvalid,
    input  wire          s_axil_bready,
    input  wire  [11:0]  s_axil_araddr,
    input  wire          s_axil_arvalid,
    output wire          s_axil_arready,
    output wire  [31:0]  s_axil_rdata,
    output wire  [1:0]   s_axil_rresp,
    output wire          s_axil_rvalid,
    input  wire          s_axil_rready,

    // State of the sender.
    input  wire          idle,      // no active shot, no packet in the pipeline
    output logic         open,      // shots may start
    output logic         load_psn,

    // Active configuration.
    output logic [1:0]   cfg_framing,
    output logic         cfg_ipv6,
    output logic         cfg_packet_mode,
    output logic         cfg_stream_override,
    output logic [6:0]   cfg_mtu_words,
    output logic [47:0]  cfg_destination_mac,
    output logic [47:0]  cfg_source_mac,
    output logic [15:0]  cfg_source_port,
    output logic [15:0]  cfg_destination_port,
    output logic [7:0]   cfg_class,
    output logic [7:0]   cfg_hop_limit,
    output logic [127:0] cfg_destination_ip,
    output logic [127:0] cfg_source_ip,
    output logic [23:0]  cfg_destination_qp,
    output logic [23:0]  cfg_source_qp,
    output logic [31:0]  cfg_queue_key,
    output logic [15:0]  cfg_partition_key,
    output logic [23:0]  cfg_psn,
    output logic [31:0]  cfg_stream,
    output logic [15:0]  cfg_channels,
    output logic [7:0]   cfg_bits,
    output logic [7:0]   cfg_packing,
    output logic [31:0]  cfg_samples,
    output logic [31:0]  cfg_sample_rate,
    output logic [27:0]  cfg_sample_bytes,

    // Next PSN, and events for the counters, one clock each.
    input  wire  [23:0]  next_psn,
    input  wire          count_frame,
    input  wire  [6:0]   count_bytes,
    input  wire          count_shot,
    input  wire          count_starved,
    input  wire          count_blocked,
    input  wire          count_full,
    input  wire          count_length_error
);
    `include "registers.svh"

    wire        write;
    wire [11:0] write_addr, read_addr;
    wire [31:0] write_data;
    logic        bad;
    logic [31:0] read_config;
    logic [47:0] read_counter;
    logic        read_is_high;
    wire [15:0]  read_upper;
    shotline_axil_slave port (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata,
        .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr, .write_data, .bad,
        .read_addr, .read_data(read_counter | {16'd0, read_config}), .read_keep(!read_is_high), .read_upper
    );

    // Written configuration.
    logic [31:0]  format_reg, ports_reg, ip_class_hop, queue_key, stream_reg, shape_reg, samples, sample_rate;
    logic [6:0]   mtu_words;
    logic [47:0]  destination_mac, source_mac;
    logic [127:0] destination_ip, source_ip;
    logic [23:0]  destination_qp, source_qp, psn;
    logic [15:0]  partition_key;
    logic [27:0]  sample_bytes;
    logic         enable;

    logic apply_pending, load_pending, clear;
    // After an apply, the values derived from the configuration need some clocks to settle.
    logic [3:0] settle;

    always_comb begin
        bad = 1'b0;
        case (write_addr)
            REG_SENDER_CONTROL, REG_SENDER_FORMAT, REG_SENDER_MTU, REG_SENDER_DESTINATION_MAC_HIGH,
            REG_SENDER_DESTINATION_MAC_LOW, REG_SENDER_SOURCE_MAC_HIGH, REG_SENDER_SOURCE_MAC_LOW, REG_SENDER_PORTS,
            REG_SENDER_IP_CLASS_HOP, REG_SENDER_DESTINATION_IP_0, REG_SENDER_DESTINATION_IP_1,
            REG_SENDER_DESTINATION_IP_2, REG_SENDER_DESTINATION_IP_3, REG_SENDER_SOURCE_IP_0, REG_SENDER_SOURCE_IP_1,
            REG_SENDER_SOURCE_IP_2, REG_SENDER_SOURCE_IP_3, REG_SENDER_DESTINATION_QP, REG_SENDER_SOURCE_QP,
            REG_SENDER_QUEUE_KEY, REG_SENDER_PARTITION, REG_SENDER_PSN, REG_SENDER_STREAM, REG_SENDER_SHAPE,
            REG_SENDER_SAMPLES, REG_SENDER_SAMPLE_RATE, REG_SENDER_SAMPLE_BYTES: ;
            default: bad = 1'b1;
        endcase
    end
    wire apply_now = apply_pending && idle && !open && settle == 0;

    always_ff @(posedge clk) begin
        load_psn <= apply_now && load_pending;
        clear    <= rst || (write && write_addr == REG_SENDER_CONTROL && write_data[2]);
        if (rst) begin
            apply_pending <= 1'b0;
            load_pending  <= 1'b0;
            settle        <= 4'd0;
            open          <= 1'b0;
            enable        <= 1'b0;
        end else begin
            if (write && write_addr == REG_SENDER_CONTROL && write_data[0]) begin
                apply_pending <= 1'b1;
                load_pending  <= write_data[1] || (load_pending && apply_pending);
            end else if (apply_now) apply_pending <= 1'b0;

            if (apply_now) begin
                settle <= 4'd15;
                enable <= format_reg[16];
            end else if (settle != 0) settle <= settle - 4'd1;
            open <= enable && !apply_pending && settle == 0;
        end
    end

    always_ff @(posedge clk)
        if (rst) begin
            format_reg      <= RESET_SENDER_FORMAT;
            mtu_words       <= RESET_SENDER_MTU[12:6];
            destination_mac <= 48'd0;
            source_mac      <= 48'd0;
            ports_reg       <= RESET_SENDER_PORTS;
            ip_class_hop    <= RESET_SENDER_IP_CLASS_HOP;
            destination_ip  <= 128'd0;
            source_ip       <= 128'd0;
            destination_qp  <= RESET_SENDER_DESTINATION_QP[23:0];
            source_qp       <= RESET_SENDER_SOURCE_QP[23:0];
            queue_key       <= RESET_SENDER_QUEUE_KEY;
            partition_key   <= RESET_SENDER_PARTITION[15:0];
            psn             <= RESET_SENDER_PSN[23:0];
            stream_reg      <= RESET_SENDER_STREAM;
            shape_reg       <= RESET_SENDER_SHAPE;
            samples         <= RESET_SENDER_SAMPLES;
            sample_rate     <= RESET_SENDER_SAMPLE_RATE;
            sample_bytes    <= RESET_SENDER_SAMPLE_BYTES[27:0];
        end else if (write)
            case (write_addr)
                // Only the defined bits.
                REG_SENDER_FORMAT:               format_reg <= write_data & 32'h00011113;
                // Clamped to 1 to 64 words.
                REG_SENDER_MTU:                  mtu_words <= write_data[12] ? 7'd64
                                                            : write_data[11:6] == 0 ? 7'd1 : {1'b0, write_data[11:6]};
                REG_SENDER_DESTINATION_MAC_HIGH: destination_mac[47:32] <= write_data[15:0];
                REG_SENDER_DESTINATION_MAC_LOW:  destination_mac[31:0] <= write_data;
                REG_SENDER_SOURCE_MAC_HIGH:      source_mac[47:32] <= write_data[15:0];
                REG_SENDER_SOURCE_MAC_LOW:       source_mac[31:0] <= write_data;
                REG_SENDER_PORTS:                ports_reg <= write_data;
                REG_SENDER_IP_CLASS_HOP:         ip_class_hop <= write_data & 32'h0000FFFF;
                REG_SENDER_DESTINATION_IP_0:     destination_ip[127:96] <= write_data;
                REG_SENDER_DESTINATION_IP_1:     destination_ip[95:64] <= write_data;
                REG_SENDER_DESTINATION_IP_2:     destination_ip[63:32] <= write_data;
                REG_SENDER_DESTINATION_IP_3:     destination_ip[31:0] <= write_data;
                REG_SENDER_SOURCE_IP_0:          source_ip[127:96] <= write_data;
                REG_SENDER_SOURCE_IP_1:          source_ip[95:64] <= write_data;
                REG_SENDER_SOURCE_IP_2:          source_ip[63:32] <= write_data;
                REG_SENDER_SOURCE_IP_3:          source_ip[31:0] <= write_data;
                REG_SENDER_DESTINATION_QP:       destination_qp <= write_data[23:0];
                REG_SENDER_SOURCE_QP:            source_qp <= write_data[23:0];
                REG_SENDER_QUEUE_KEY:            queue_key <= write_data;
                REG_SENDER_PARTITION:            partition_key <= write_data[15:0];
                REG_SENDER_PSN:                  psn <= write_data[23:0];
                REG_SENDER_STREAM:               stream_reg <= write_data;
                REG_SENDER_SHAPE:                shape_reg <= write_data;
                REG_SENDER_SAMPLES:              samples <= write_data;
                REG_SENDER_SAMPLE_RATE:          sample_rate <= write_data;
                REG_SENDER_SAMPLE_BYTES:         sample_bytes <= write_data[27:0];
                default: ;
            endcase

    // Active configuration. No reset: nothing is sent before the first apply.
    always_ff @(posedge clk)
        if (apply_now) begin
            cfg_framing          <= format_reg[1:0];
            cfg_ipv6             <= format_reg[4];
            cfg_packet_mode      <= format_reg[8];
            cfg_stream_override  <= format_reg[12];
            cfg_mtu_words        <= mtu_words;
            cfg_destination_mac  <= destination_mac;
            cfg_source_mac       <= source_mac;
            cfg_source_port      <= ports_reg[31:16];
            cfg_destination_port <= ports_reg[15:0];
            cfg_class            <= ip_class_hop[15:8];
            cfg_hop_limit        <= ip_class_hop[7:0];
            cfg_destination_ip   <= destination_ip;
            cfg_source_ip        <= source_ip;
            cfg_destination_qp   <= destination_qp;
            cfg_source_qp        <= source_qp;
            cfg_queue_key        <= queue_key;
            cfg_partition_key    <= partition_key;
            cfg_psn              <= psn;
            cfg_stream           <= stream_reg;
            cfg_channels         <= shape_reg[31:16];
            cfg_bits             <= shape_reg[15:8];
            cfg_packing          <= shape_reg[7:0];
            cfg_samples          <= samples;
            cfg_sample_rate      <= sample_rate;
            cfg_sample_bytes     <= sample_bytes;
        end

    // Counters.
    wire [47:0] frames, frame_bytes, shots, stall_payload, stall_mac, stall_fifo, length_errors;
    shotline_counter48 counter_0 (.clk, .clear, .add({6'd0, count_frame}), .value(frames));
    shotline_counter48 counter_1 (.clk, .clear, .add(count_bytes), .value(frame_bytes));
    shotline_counter48 counter_2 (.clk, .clear, .add({6'd0, count_shot}), .value(shots));
    shotline_counter48 counter_3 (.clk, .clear, .add({6'd0, count_starved && enable}), .value(stall_payload));
    shotline_counter48 counter_4 (.clk, .clear, .add({6'd0, count_blocked}), .value(stall_mac));
    shotline_counter48 counter_5 (.clk, .clear, .add({6'd0, count_full}), .value(stall_fifo));
    shotline_counter48 counter_6 (.clk, .clear, .add({6'd0, count_length_error}), .value(length_errors));

    // Reads: configuration and counters are decoded in parallel and merged one clock later.
    always_ff @(posedge clk) begin
        case (read_addr)
            REG_SENDER_ID:                   read_config <= RESET_SENDER_ID;
            REG_SENDER_VERSION:              read_config <= RESET_SENDER_VERSION;
            REG_SENDER_CONTROL:              read_config <= {30'd0, load_pending && apply_pending, apply_pending};
            REG_SENDER_STATUS:               read_config <= {30'd0, apply_pending, !idle};
            REG_SENDER_FORMAT:               read_config <= format_reg;
            REG_SENDER_MTU:                  read_config <= {19'd0, mtu_words, 6'd0};
            REG_SENDER_DESTINATION_MAC_HIGH: read_config <= {16'd0, destination_mac[47:32]};
            REG_SENDER_DESTINATION_MAC_LOW:  read_config <= destination_mac[31:0];
            REG_SENDER_SOURCE_MAC_HIGH:      read_config <= {16'd0, source_mac[47:32]};
            REG_SENDER_SOURCE_MAC_LOW:       read_config <= source_mac[31:0];
            REG_SENDER_PORTS:                read_config <= ports_reg;
            REG_SENDER_IP_CLASS_HOP:         read_config <= ip_class_hop;
            REG_SENDER_DESTINATION_IP_0:     read_config <= destination_ip[127:96];
            REG_SENDER_DESTINATION_IP_1:     read_config <= destination_ip[95:64];
            REG_SENDER_DESTINATION_IP_2:     read_config <= destination_ip[63:32];
            REG_SENDER_DESTINATION_IP_3:     read_config <= destination_ip[31:0];
            REG_SENDER_SOURCE_IP_0:          read_config <= source_ip[127:96];
            REG_SENDER_SOURCE_IP_1:          read_config <= source_ip[95:64];
            REG_SENDER_SOURCE_IP_2:          read_config <= source_ip[63:32];
            REG_SENDER_SOURCE_IP_3:          read_config <= source_ip[31:0];
            REG_SENDER_DESTINATION_QP:       read_config <= {8'd0, destination_qp};
            REG_SENDER_SOURCE_QP:            read_config <= {8'd0, source_qp};
            REG_SENDER_QUEUE_KEY:            read_config <= queue_key;
            REG_SENDER_PARTITION:            read_config <= {16'd0, partition_key};
            REG_SENDER_PSN:                  read_config <= {8'd0, psn};
            REG_SENDER_NEXT_PSN:             read_config <= {8'd0, next_psn};
            REG_SENDER_STREAM:               read_config <= stream_reg;
            REG_SENDER_SHAPE:                read_config <= shape_reg;
            REG_SENDER_SAMPLES:              read_config <= samples;
            REG_SENDER_SAMPLE_RATE:          read_config <= sample_rate;
            REG_SENDER_SAMPLE_BYTES:         read_config <= {4'd0, sample_bytes};
            default:                         read_config <= 32'd0;
        endcase
        read_is_high <= 1'b0;
        case (read_addr)
            REG_SENDER_FRAMES:        read_counter <= frames;
            REG_SENDER_FRAME_BYTES:   read_counter <= frame_bytes;
            REG_SENDER_SHOTS:         read_counter <= shots;
            REG_SENDER_STALL_PAYLOAD: read_counter <= stall_payload;
            REG_SENDER_STALL_MAC:     read_counter <= stall_mac;
            REG_SENDER_STALL_FIFO:    read_counter <= stall_fifo;
            REG_SENDER_LENGTH_ERRORS: read_counter <= length_errors;
            REG_SENDER_FRAMES_HIGH, REG_SENDER_FRAME_BYTES_HIGH, REG_SENDER_SHOTS_HIGH, REG_SENDER_STALL_PAYLOAD_HIGH,
            REG_SENDER_STALL_MAC_HIGH, REG_SENDER_STALL_FIFO_HIGH, REG_SENDER_LENGTH_ERRORS_HIGH: begin
                read_counter <= {32'd0, read_upper};
                read_is_high <= 1'b1;
            end
            default: read_counter <= 48'd0;
        endcase
    end
endmodule

`default_nettype wire
