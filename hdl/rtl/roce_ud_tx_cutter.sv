// Payload in, packets out: cuts shots into payloads of at most the MTU, closes each shot with its record, and makes of
// each packet a description from which its frame is built.
//
// Words go straight to the payload memory. The description follows DELAY clocks behind the packet's last word: as long
// as the record's CRC takes, and meanwhile the lengths and the IP checksum are added up, one addition a clock.
module roce_ud_tx_cutter (
    input  wire         clk,
    input  wire         rst,

    // Configuration; it changes only while `idle` and not `open`.
    input  wire         open,             // a new shot may begin
    input  wire         cfg_packet_mode,
    input  wire         cfg_sealed,       // pad to 4 bytes, ICRC
    input  wire [6:0]   cfg_mtu_words,
    input  wire [6:0]   cfg_udp_extra,    // UDP length less the padded payload
    input  wire [5:0]   cfg_udp_offset,   // bytes of the frame in front of the UDP header
    input  wire [15:0]  cfg_ip_sum,       // ones' complement sum of the IPv4 header without its length
    input  wire         cfg_stream_here,
    input  wire [31:0]  cfg_stream,
    input  wire [7:0]   cfg_packing,
    input  wire [7:0]   cfg_bits,
    input  wire [15:0]  cfg_channels,
    input  wire [31:0]  cfg_samples,
    input  wire [31:0]  cfg_sample_rate,
    input  wire [27:0]  cfg_sample_bytes,

    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,     // with tlast: the shot is damaged
    input  wire [63:0]  s_shot_number,
    input  wire [63:0]  s_shot_time,
    input  wire [31:0]  s_shot_stream,
    input  wire [31:0]  s_shot_event,
    input  wire [7:0]   s_shot_flags,

    output wire         word_valid,
    output wire [511:0] word_data,
    input  wire         word_taken,       // a word was read from the payload memory

    output wire         packet_valid,
    output wire [12:0]  packet_bytes,     // payload without padding
    output wire [1:0]   packet_pad,
    output wire [6:0]   packet_reads,     // payload words
    output wire [6:0]   packet_words,     // words of the frame
    output wire [5:0]   packet_tail,      // bytes of its last word, 0 for 64
    output wire [12:0]  packet_udp_len,
    output wire [12:0]  packet_ip_len,
    output wire [15:0]  packet_checksum,
    output wire         packet_last,      // the shot's last
    output wire         packet_record,    // its last payload word is a record, and wants the CRC
    output wire [31:0]  packet_crc,
    output wire [11:0]  packet_index,
    output wire [27:0]  packet_offset,
    output wire [63:0]  packet_shot,
    output wire [31:0]  packet_stream,
    input  wire         packet_taken,     // a description was taken from the queue

    output wire         idle,             // between shots, and all packets were taken
    output reg          count_shot,
    output reg          count_misfit,
    output wire         count_full
);
    localparam [1:0] FIRST = 2'd0, DATA = 2'd1, RECORD = 2'd2;
    localparam WORDS = 8'd128;   // of the payload memory
    localparam PACKETS = 7'd64;  // of the queue of descriptions: the shortest last longer than the longest takes to come

    // Room: what is on its way counts as stored. The counts are two clocks late, which the margins make good.
    reg [7:0] words;
    reg [6:0] packets;
    reg       room;
    wire      step, packet_end;
    reg       valid_1, end_1;  // the word taken in the clock before, and whether it ended a packet
    always @(posedge clk)
        if (rst) begin
            words   <= 0;
            packets <= 0;
            room    <= 1'b0;
        end else begin
            words   <= words + {7'd0, valid_1} - {7'd0, word_taken};
            packets <= packets + {6'd0, end_1} - {6'd0, packet_taken};
            room    <= words <= WORDS - 8'd3 & packets <= PACKETS - 7'd3;
        end

    reg [1:0] state;
    assign s_axis_tready = room & (state == DATA | state == FIRST & open);
    wire accept    = s_axis_tvalid & s_axis_tready;
    wire record    = state == RECORD & room;
    wire input_end = accept & s_axis_tlast;
    wire shot_end  = record | input_end & cfg_packet_mode;
    assign step       = accept | record;
    assign count_full = s_axis_tvalid & ~room & state != RECORD;
    assign idle       = state == FIRST & packets == 0 & ~end_1;

    always @(posedge clk)
        if (rst) state <= FIRST;
        else if (record) state <= FIRST;
        else if (input_end) state <= cfg_packet_mode ? FIRST : RECORD;
        else if (accept) state <= DATA;

    // The shot under way.
    reg [63:0] shot, stamp;
    reg [31:0] stream, event_number;
    reg [7:0]  flags;
    always @(posedge clk)
        if (accept & state == FIRST) begin
            shot         <= s_shot_number;
            stamp        <= s_shot_time;
            stream       <= cfg_stream_here ? cfg_stream : s_shot_stream;
            event_number <= s_shot_event;
            flags        <= s_shot_flags;
        end

    // A damaged shot is closed by a record that no receiver takes for right: its CRC is the complement.
    reg bad;
    always @(posedge clk) if (input_end) bad <= s_axis_tuser;

    // The packet under way.
    reg [6:0]  filled;      // words of it so far
    reg [11:0] index;
    reg [14:0] number;      // index + 1
    reg [27:0] offset;
    wire full = filled + 7'd1 == cfg_mtu_words;
    assign packet_end = step & (full | shot_end);
    always @(posedge clk)
        if (rst | step & shot_end) begin
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

    // The record, without its CRC: numbers are big-endian, lane 0 is its first byte.
    wire [383:0] fields = {
        "SHOT", 8'd1, cfg_packing, cfg_bits, flags, shot, stamp, stream, event_number,
        4'd0, cfg_sample_bytes, cfg_samples, cfg_channels, 1'b0, number, cfg_sample_rate
    };

    // 1: the word, and what is known of its packet.
    reg [511:0] data_1;
    reg         first_1, record_1, input_end_1, last_1;
    reg [6:0]   filled_1;
    reg [11:0]  index_1;
    reg [27:0]  offset_1;
    reg [5:0]   kept_1;      // lanes that were kept of an input's last word, 0 for 64
    integer lane;
    always @(posedge clk) begin
        if (step) begin
            data_1 <= s_axis_tdata;
            if (record)
                for (lane = 0; lane < 64; lane = lane + 1)
                    data_1[8*lane +: 8] <= lane < 48 ? fields[8*(lane < 48 ? 47-lane : 0) +: 8] : 8'd0;
            else if (s_axis_tlast)
                for (lane = 0; lane < 64; lane = lane + 1)
                    if (~s_axis_tkeep[lane]) data_1[8*lane +: 8] <= 8'd0;
            first_1  <= state == FIRST;
            record_1 <= record;
            last_1   <= shot_end;
            filled_1 <= filled;
            index_1  <= index;
            offset_1 <= offset;
        end
        if (input_end) kept_1 <= lanes(s_axis_tkeep);
        input_end_1 <= input_end & ~rst;
        valid_1     <= step & ~rst;
        end_1       <= packet_end & ~rst;
    end
    // Strobes without gaps as a number: where they end.
    function automatic [5:0] lanes(input [63:0] keep);
        integer i;
        lanes = 6'd0;
        for (i = 0; i < 63; i = i + 1) if (keep[i] & ~keep[i+1]) lanes = lanes | (i[5:0] + 6'd1);
    endfunction
    wire [5:0] tail_1 = input_end_1 & cfg_packet_mode ? kept_1 : 6'd0;
    assign word_valid = valid_1;
    assign word_data  = data_1;

    wire [31:0] crc;
    wire        crc_valid;
    crc32_words record_crc (
        .clk, .rst, .in_valid(valid_1 & ~cfg_packet_mode), .in_data(data_1), .in_first(first_1), .in_last(record_1), .in_bytes(6'd60),
        .out_valid(crc_valid), .out_crc(crc)
    );

    // 2 to 5: lengths wait, because the CRC takes longer than they do.
    localparam EARLY = 7 + 6;
    reg  [4*EARLY-1:0] early;
    wire [6:0] filled_5;
    wire [5:0] tail_5;
    always @(posedge clk) early <= {early[3*EARLY-1:0], filled_1, tail_1};
    assign {filled_5, tail_5} = early[4*EARLY-1 -: EARLY];
    // 6: payload bytes.
    reg [12:0] bytes_6;
    always @(posedge clk) bytes_6 <= tail_5 == 0 ? {filled_5 + 7'd1, 6'd0} : {filled_5, tail_5};
    // 7: with padding.
    reg [12:0] bytes_7, padded_7;
    reg [1:0]  pad_7;
    always @(posedge clk) begin
        bytes_7  <= bytes_6;
        pad_7    <= cfg_sealed ? 2'd0 - bytes_6[1:0] : 2'd0;
        padded_7 <= cfg_sealed ? {bytes_6[12:2] + {10'd0, bytes_6[1:0] != 0}, 2'd0} : bytes_6;
    end
    // 8: lengths.
    reg [12:0] udp_len_8;
    reg [12:0] ip_len_8;
    reg [12:0] bytes_8;
    reg [1:0]  pad_8;
    wire [6:0] ip_extra = cfg_udp_extra + 7'd20;
    always @(posedge clk) begin
        bytes_8   <= bytes_7;
        pad_8     <= pad_7;
        udp_len_8 <= padded_7 + {6'd0, cfg_udp_extra};
        ip_len_8  <= padded_7 + {6'd0, ip_extra};
    end
    // 9: the frame's length; the checksum's sum.
    reg [12:0] frame_9, udp_len_9, ip_len_9, bytes_9;
    reg [1:0]  pad_9;
    reg [16:0] sum_9;
    always @(posedge clk) begin
        bytes_9   <= bytes_8;
        pad_9     <= pad_8;
        udp_len_9 <= udp_len_8;
        ip_len_9  <= ip_len_8;
        frame_9   <= udp_len_8 + {7'd0, cfg_udp_offset};
        sum_9     <= {1'b0, cfg_ip_sum} + {4'd0, ip_len_8};
    end
    // 10: its words; the carry goes around. What only waited and the record's CRC come now, too.
    reg [6:0]  words_10;
    reg [5:0]  tail_10;
    reg [12:0] udp_len_10, ip_len_10, bytes_10;
    reg [1:0]  pad_10;
    reg [15:0] checksum_10;
    always @(posedge clk) begin
        bytes_10    <= bytes_9;
        pad_10      <= pad_9;
        udp_len_10  <= udp_len_9;
        ip_len_10   <= ip_len_9;
        words_10    <= frame_9[12:6] + {6'd0, frame_9[5:0] != 0};
        tail_10     <= frame_9[5:0];
        checksum_10 <= ~(sum_9[15:0] + {15'd0, sum_9[16]});
    end
    localparam DELAY = 9;
    localparam WAITING = 1 + 1 + 7 + 12 + 28 + 64 + 32;
    reg [DELAY-1:0]         ends;
    reg [DELAY*WAITING-1:0] waiting;
    always @(posedge clk) begin
        ends    <= rst ? {DELAY{1'b0}} : {ends[DELAY-2:0], end_1};
        waiting <= {waiting[(DELAY-1)*WAITING-1:0], bad, last_1, filled_1 + 7'd1, index_1, offset_1, shot, stream};
    end
    assign packet_valid    = ends[DELAY-1];
    wire packet_bad;
    assign {packet_bad, packet_last, packet_reads, packet_index, packet_offset, packet_shot, packet_stream}
                           = waiting[DELAY*WAITING-1 -: WAITING];
    assign packet_bytes    = bytes_10;
    assign packet_pad      = pad_10;
    assign packet_words    = words_10;
    assign packet_tail     = tail_10;
    assign packet_udp_len  = udp_len_10;
    assign packet_ip_len   = ip_len_10;
    assign packet_checksum = checksum_10;
    assign packet_record   = crc_valid;
    assign packet_crc      = crc ^ {32{packet_bad}};

    // Whether the shot was what the registers say; in packet mode, whether it was one packet.
    reg [21:0] shot_words, shot_words_1;
    reg        ended_2, words_wrong_2, tail_wrong_2;
    reg  [21:0] expected;
    always @(posedge clk) begin
        expected      <= cfg_sample_bytes[27:6] - {21'd0, cfg_sample_bytes[5:0] == 0};
        shot_words_1  <= shot_words;
        ended_2       <= input_end_1 & ~rst;
        words_wrong_2 <= cfg_packet_mode ? shot_words_1 >= {15'd0, cfg_mtu_words} : shot_words_1 != expected;
        tail_wrong_2  <= ~cfg_packet_mode & kept_1 != cfg_sample_bytes[5:0];
        count_shot    <= input_end & ~rst;
        count_misfit  <= ended_2 & (words_wrong_2 | tail_wrong_2) & ~rst;
        if (rst | input_end) shot_words <= 22'd0;
        else if (accept) shot_words <= shot_words + 22'd1;
    end
endmodule
