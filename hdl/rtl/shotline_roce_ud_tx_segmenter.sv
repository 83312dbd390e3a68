// Segmentation: splits shots into payloads of at most the MTU, appends the end-of-shot record to each shot, and gives
// the framer a descriptor per packet.
//
// Words go to the payload memory at once. The descriptor follows DELAY clocks after the packet's last word, which is
// the latency of the record's CRC; meanwhile the lengths and the IP checksum are computed, one addition per clock.

`default_nettype none

module shotline_roce_ud_tx_segmenter (
    // Clock and synchronous reset.
    input  wire          clk,
    input  wire          rst,

    // Configuration, stable unless `idle` and not `open`.
    input  wire          open,                 // a new shot may start
    input  wire          cfg_packet_mode,
    input  wire          cfg_icrc,             // pad the payload to 4 bytes and append an ICRC
    input  wire  [6:0]   cfg_mtu_words,
    input  wire  [6:0]   cfg_udp_extra,        // UDP length minus the padded payload
    input  wire  [5:0]   cfg_udp_offset,       // bytes before the UDP header
    input  wire  [15:0]  cfg_ip_sum,           // ones' complement sum of the IPv4 header without its length
    input  wire          cfg_stream_override,
    input  wire  [31:0]  cfg_stream,
    input  wire  [7:0]   cfg_packing,
    input  wire  [7:0]   cfg_bits,
    input  wire  [15:0]  cfg_channels,
    input  wire  [31:0]  cfg_samples,
    input  wire  [31:0]  cfg_sample_rate,
    input  wire  [27:0]  cfg_sample_bytes,

    // AXI4-Stream sink and metadata of the shot.
    input  wire  [511:0] s_axis_tdata,
    input  wire  [63:0]  s_axis_tkeep,
    input  wire          s_axis_tvalid,
    output wire          s_axis_tready,
    input  wire          s_axis_tlast,
    input  wire          s_axis_tuser,   // with tlast: the shot is damaged
    input  wire  [63:0]  s_shot_number,
    input  wire  [63:0]  s_shot_time,
    input  wire  [31:0]  s_shot_stream,
    input  wire  [31:0]  s_shot_event,
    input  wire  [7:0]   s_shot_flags,

    // Payload words.
    output wire          word_valid,
    output wire  [511:0] word_data,
    input  wire          word_taken,  // the framer has read a word from the payload memory

    // Descriptors.
    output wire          packet_valid,
    output wire  [12:0]  packet_bytes,     // payload without padding
    output wire  [1:0]   packet_pad,
    output wire  [6:0]   packet_reads,     // payload words
    output wire  [6:0]   packet_words,     // words of the frame
    output wire  [5:0]   packet_tail,      // bytes of the frame's last word, 0 for 64
    output wire  [12:0]  packet_udp_len,
    output wire  [12:0]  packet_ip_len,
    output wire  [15:0]  packet_checksum,
    output wire          packet_last,      // last packet of the shot
    output wire          packet_record,    // its last payload word is a record: insert `packet_crc`
    output wire  [31:0]  packet_crc,
    output wire  [11:0]  packet_index,
    output wire  [27:0]  packet_offset,
    output wire  [63:0]  packet_shot,
    output wire  [31:0]  packet_stream,
    input  wire          packet_taken,     // the framer has read a descriptor

    // State and events for the counters.
    output wire          idle,                // between shots, and the framer has read all packets
    output logic         count_shot,
    output logic         count_length_error,
    output wire          count_full           // no space for the offered word
);
    localparam logic [1:0] FIRST = 2'd0, DATA = 2'd1, RECORD = 2'd2;
    localparam logic [7:0] WORDS = 8'd128;   // capacity of the payload memory
    // Capacity of the descriptor FIFO: 64 of the shortest packets (two words each) take longer to send than the longest
    // packet takes to arrive.
    localparam logic [6:0] PACKETS = 7'd64;

    // Free space: words in the pipeline count as stored. The counts lag by two clocks; the margin of 3 covers that.
    logic [7:0] words;
    logic [6:0] packets;
    logic       has_space;
    wire        step, packet_end;
    logic       valid_1, end_1;  // a word was accepted in the previous clock, and it ended a packet
    always_ff @(posedge clk)
        if (rst) begin
            words     <= 0;
            packets   <= 0;
            has_space <= 1'b0;
        end else begin
            words     <= words + {7'd0, valid_1} - {7'd0, word_taken};
            packets   <= packets + {6'd0, end_1} - {6'd0, packet_taken};
            has_space <= words <= WORDS - 8'd3 && packets <= PACKETS - 7'd3;
        end

    logic [1:0] state;
    assign s_axis_tready = has_space && (state == DATA || (state == FIRST && open));
    wire accept    = s_axis_tvalid && s_axis_tready;
    wire record    = state == RECORD && has_space;
    wire input_end = accept && s_axis_tlast;
    wire shot_end  = record || (input_end && cfg_packet_mode);
    assign step       = accept || record;
    assign count_full = s_axis_tvalid && !has_space && state != RECORD;
    assign idle       = state == FIRST && packets == 0 && !end_1;

    always_ff @(posedge clk)
        if (rst) state <= FIRST;
        else if (record) state <= FIRST;
        else if (input_end) state <= cfg_packet_mode ? FIRST : RECORD;
        else if (accept) state <= DATA;

    // Active shot.
    logic [63:0] shot, stamp;
    logic [31:0] stream, event_number;
    logic [7:0]  flags;
    always_ff @(posedge clk)
        if (accept && state == FIRST) begin
            shot         <= s_shot_number;
            stamp        <= s_shot_time;
            stream       <= cfg_stream_override ? cfg_stream : s_shot_stream;
            event_number <= s_shot_event;
            flags        <= s_shot_flags;
        end

    // The record of a damaged shot has the complement of its CRC, so no receiver accepts it.
    logic bad;
    always_ff @(posedge clk) if (input_end) bad <= s_axis_tuser;

    // Active packet.
    logic [6:0]  filled;      // words so far
    logic [11:0] index;
    logic [14:0] number;      // index + 1
    logic [27:0] offset;
    wire full = filled + 7'd1 == cfg_mtu_words;
    assign packet_end = step && (full || shot_end);
    always_ff @(posedge clk)
        if (rst || (step && shot_end)) begin
            filled <= 0;
            index  <= 0;
            number <= 1;
            offset <= 0;
        end else if (step) begin
            filled <= full ? 7'd0 : filled + 7'd1;
            if (full) begin
                index  <= number[11:0];
                number <= number + 15'd1;
                offset <= offset + {15'd0, cfg_mtu_words, 6'd0};
            end
        end

    // End-of-shot record without its CRC: big-endian, lane 0 is the first byte.
    wire [383:0] fields = {
        "SHOT", 8'd1, cfg_packing, cfg_bits, flags, shot, stamp, stream, event_number,
        4'd0, cfg_sample_bytes, cfg_samples, cfg_channels, 1'b0, number, cfg_sample_rate
    };

    // 1: the word and its position.
    logic [511:0] data_1;
    logic         first_1, record_1, input_end_1, last_1;
    logic [6:0]   filled_1;
    logic [11:0]  index_1;
    logic [27:0]  offset_1;
    logic [5:0]   kept_1;      // valid bytes of an input frame's last word, 0 for 64
    always_ff @(posedge clk) begin
        if (step) begin
            data_1 <= s_axis_tdata;
            if (record)
                for (int lane = 0; lane < 64; lane++)
                    data_1[8*lane +: 8] <= lane < 48 ? fields[8*(lane < 48 ? 47-lane : 0) +: 8] : 8'd0;
            else if (s_axis_tlast)
                for (int lane = 0; lane < 64; lane++)
                    if (!s_axis_tkeep[lane]) data_1[8*lane +: 8] <= 8'd0;
            first_1  <= state == FIRST;
            record_1 <= record;
            last_1   <= shot_end;
            filled_1 <= filled;
            index_1  <= index;
            offset_1 <= offset;
        end
        if (input_end) kept_1 <= valid_bytes(s_axis_tkeep);
        input_end_1 <= input_end && !rst;
        valid_1     <= step && !rst;
        end_1       <= packet_end && !rst;
    end
    // Number of valid bytes of a contiguous `tkeep`, 0 for 64.
    function automatic logic [5:0] valid_bytes(input logic [63:0] keep);
        valid_bytes = 6'd0;
        for (int i = 0; i < 63; i++) if (keep[i] && !keep[i+1]) valid_bytes |= i[5:0] + 6'd1;
    endfunction
    wire [5:0] tail_1 = input_end_1 && cfg_packet_mode ? kept_1 : 6'd0;
    assign word_valid = valid_1;
    assign word_data  = data_1;

    wire [31:0] crc;
    wire        crc_valid;
    shotline_crc32_words record_crc (
        .clk, .rst, .in_valid(valid_1 && !cfg_packet_mode), .in_data(data_1), .in_first(first_1), .in_last(record_1),
        .in_bytes(6'd60), .out_valid(crc_valid), .out_crc(crc)
    );

    // 2 to 5: lengths are delayed, because the CRC has the longer latency.
    localparam int LENGTHS = 7 + 6;
    logic  [4*LENGTHS-1:0] lengths;
    wire [6:0] filled_5;
    wire [5:0] tail_5;
    always_ff @(posedge clk) lengths <= {lengths[3*LENGTHS-1:0], filled_1, tail_1};
    assign {filled_5, tail_5} = lengths[4*LENGTHS-1 -: LENGTHS];
    // 6: payload bytes.
    logic [12:0] bytes_6;
    always_ff @(posedge clk) bytes_6 <= tail_5 == 0 ? {filled_5 + 7'd1, 6'd0} : {filled_5, tail_5};
    // 7: with padding.
    logic [12:0] bytes_7, padded_7;
    logic [1:0]  pad_7;
    always_ff @(posedge clk) begin
        bytes_7  <= bytes_6;
        pad_7    <= cfg_icrc ? 2'd0 - bytes_6[1:0] : 2'd0;
        padded_7 <= cfg_icrc ? {bytes_6[12:2] + {10'd0, bytes_6[1:0] != 0}, 2'd0} : bytes_6;
    end
    // 8: lengths.
    logic [12:0] udp_len_8;
    logic [12:0] ip_len_8;
    logic [12:0] bytes_8;
    logic [1:0]  pad_8;
    wire [6:0] ip_extra = cfg_udp_extra + 7'd20;
    always_ff @(posedge clk) begin
        bytes_8   <= bytes_7;
        pad_8     <= pad_7;
        udp_len_8 <= padded_7 + {6'd0, cfg_udp_extra};
        ip_len_8  <= padded_7 + {6'd0, ip_extra};
    end
    // 9: frame length; sum of the IPv4 checksum.
    logic [12:0] frame_9, udp_len_9, ip_len_9, bytes_9;
    logic [1:0]  pad_9;
    logic [16:0] sum_9;
    always_ff @(posedge clk) begin
        bytes_9   <= bytes_8;
        pad_9     <= pad_8;
        udp_len_9 <= udp_len_8;
        ip_len_9  <= ip_len_8;
        frame_9   <= udp_len_8 + {7'd0, cfg_udp_offset};
        sum_9     <= {1'b0, cfg_ip_sum} + {4'd0, ip_len_8};
    end
    // 10: words of the frame; end-around carry of the checksum. The delayed fields and the record's CRC join here.
    logic [6:0]  words_10;
    logic [5:0]  tail_10;
    logic [12:0] udp_len_10, ip_len_10, bytes_10;
    logic [1:0]  pad_10;
    logic [15:0] checksum_10;
    always_ff @(posedge clk) begin
        bytes_10    <= bytes_9;
        pad_10      <= pad_9;
        udp_len_10  <= udp_len_9;
        ip_len_10   <= ip_len_9;
        words_10    <= frame_9[12:6] + {6'd0, frame_9[5:0] != 0};
        tail_10     <= frame_9[5:0];
        checksum_10 <= ~(sum_9[15:0] + {15'd0, sum_9[16]});
    end
    localparam int DELAY = 9;  // latency of the record's CRC, in clocks
    localparam int FIELDS = 1 + 1 + 7 + 12 + 28 + 64 + 32;
    logic [DELAY-1:0]        ends;
    logic [DELAY*FIELDS-1:0] delayed;
    always_ff @(posedge clk) begin
        ends    <= rst ? {DELAY{1'b0}} : {ends[DELAY-2:0], end_1};
        delayed <= {delayed[(DELAY-1)*FIELDS-1:0], bad, last_1, filled_1 + 7'd1, index_1, offset_1, shot, stream};
    end
    assign packet_valid    = ends[DELAY-1];
    wire packet_bad;
    assign {packet_bad, packet_last, packet_reads, packet_index, packet_offset, packet_shot, packet_stream}
                           = delayed[DELAY*FIELDS-1 -: FIELDS];
    assign packet_bytes    = bytes_10;
    assign packet_pad      = pad_10;
    assign packet_words    = words_10;
    assign packet_tail     = tail_10;
    assign packet_udp_len  = udp_len_10;
    assign packet_ip_len   = ip_len_10;
    assign packet_checksum = checksum_10;
    assign packet_record   = crc_valid;
    assign packet_crc      = crc ^ {32{packet_bad}};

    // Length check: the shot against `sample_bytes`; in packet mode, the frame against the MTU.
    logic [21:0] shot_words, shot_words_1;
    logic        ended_2, words_wrong_2, tail_wrong_2;
    logic [21:0] expected;      // index of a shot's last word
    always_ff @(posedge clk) begin
        expected           <= cfg_sample_bytes[27:6] - {21'd0, cfg_sample_bytes[5:0] == 0};
        shot_words_1       <= shot_words;
        ended_2            <= input_end_1 && !rst;
        words_wrong_2      <= cfg_packet_mode ? shot_words_1 >= {15'd0, cfg_mtu_words} : shot_words_1 != expected;
        tail_wrong_2       <= !cfg_packet_mode && kept_1 != cfg_sample_bytes[5:0];
        count_shot         <= input_end && !rst;
        count_length_error <= ended_2 && (words_wrong_2 || tail_wrong_2) && !rst;
        if (rst || input_end) shot_words <= 22'd0;
        else if (accept) shot_words <= shot_words + 22'd1;
    end
endmodule

`default_nettype wire
