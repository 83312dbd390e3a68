// Framer: builds frames from payload words and descriptors, one word per clock while there are packets and space
// downstream. The first word of a frame follows the last word of the previous one without a gap.
//
//   clock  payload                                    header
//   0      select the frame's next word; read its payload word
//   1      memory                                     header fields of the frame
//   2      payload word, zero where there is none     assemble the first and second word
//   3      align after the header and merge with it
//
// Headers have six lengths, so the payload is shifted by one of six distances: each lane selects one of six bytes of
// the current and the previous word. The bytes of the ICRC are left zero.

`default_nettype none

module shotline_roce_ud_tx_framer (
    // Clock and synchronous reset.
    input  wire          clk,
    input  wire          rst,

    // Configuration, stable while packets are in the pipeline.
    input  wire  [1:0]   cfg_framing,          // 0 ud, 1 counted, 2 udp
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
    input  wire  [27:0]  cfg_shot_bytes,       // samples padded to 64 bytes, and the record
    input  wire          load_psn,             // continue at `cfg_psn`
    input  wire  [23:0]  cfg_psn,

    // Payload words.
    input  wire          word_valid,
    input  wire  [511:0] word_data,
    output wire          word_taken,  // a word was read from the payload memory

    // Descriptors (shotline_roce_ud_tx_segmenter).
    input  wire          packet_valid,
    input  wire  [12:0]  packet_bytes,     // payload without padding
    input  wire  [1:0]   packet_pad,
    input  wire  [6:0]   packet_reads,     // payload words
    input  wire  [6:0]   packet_words,     // words of the frame
    input  wire  [5:0]   packet_tail,      // bytes of the frame's last word, 0 for 64
    input  wire  [12:0]  packet_udp_len,
    input  wire  [12:0]  packet_ip_len,
    input  wire  [15:0]  packet_checksum,
    input  wire          packet_last,      // last packet of the shot
    input  wire          packet_record,    // its last payload word is a record: insert `packet_crc`
    input  wire  [31:0]  packet_crc,
    input  wire  [11:0]  packet_index,
    input  wire  [27:0]  packet_offset,
    input  wire  [63:0]  packet_shot,
    input  wire  [31:0]  packet_stream,
    output wire          packet_taken,     // a descriptor was read

    // Frame words, to shotline_roce_ud_tx_icrc_insert.
    output wire          reserve,      // reserve an entry of the word FIFO: a word enters the pipeline
    input  wire          slot_free,    // the word FIFO has a free entry
    output wire          frame_valid,
    output wire  [511:0] frame_data,
    output wire          frame_first,
    output wire          frame_last,
    output wire          frame_split,  // the ICRC starts in this word, the one before the last
    output wire  [5:0]   frame_tail,   // bytes of the frame's last word, 0 for 64

    // State and events for the counters.
    output wire          idle,           // no frame to continue, and none to start
    output wire          count_starved,  // a frame could start, but no packet is complete
    output logic [23:0]  next_psn
);
    // Payload memory: two packets of 4096 bytes, which need no more block RAM than one.
    (* ram_style = "block" *)
    logic [511:0] payload [0:127];
    logic [6:0]   write_at, read_at;
    wire          read;
    logic [511:0] stored;
    always_ff @(posedge clk) if (word_valid) payload[write_at] <= word_data;
    always_ff @(posedge clk) if (read) stored <= payload[read_at];
    always_ff @(posedge clk)
        if (rst) begin
            write_at <= 0;
            read_at  <= 0;
        end else begin
            if (word_valid) write_at <= write_at + 7'd1;
            if (read) read_at <= read_at + 7'd1;
        end
    assign word_taken = read;

    // Descriptors.
    localparam int WIDTH = 13 + 2 + 7 + 7 + 6 + 13 + 13 + 16 + 1 + 1 + 32 + 12 + 28 + 64 + 32;
    wire        head_valid;
    wire [12:0] head_bytes;
    wire [1:0]  head_pad;
    wire [6:0]  head_reads, head_words;
    wire [5:0]  head_tail;
    wire [12:0] head_udp_len, head_ip_len;
    wire [15:0] head_checksum;
    wire        head_last, head_record;
    wire [31:0] head_crc;
    wire [11:0] head_index;
    wire [27:0] head_offset;
    wire [63:0] head_shot;
    wire [31:0] head_stream;
    wire        start;
    shotline_fifo_small #(.WIDTH(WIDTH), .DEPTH_LOG2(6)) packets (
        .clk, .rst, .push(packet_valid),
        .push_data({packet_bytes, packet_pad, packet_reads, packet_words, packet_tail, packet_udp_len, packet_ip_len,
                    packet_checksum, packet_last, packet_record, packet_crc, packet_index, packet_offset, packet_shot,
                    packet_stream}),
        .pop(start), .out_valid(head_valid),
        .out_data({head_bytes, head_pad, head_reads, head_words, head_tail, head_udp_len, head_ip_len,
                   head_checksum, head_last, head_record, head_crc, head_index, head_offset, head_shot,
                   head_stream})
    );
    assign packet_taken = start;

    // 0: next word. A frame whose header is shorter than a word reads payload for its first word.
    wire with_icrc_field       = cfg_framing != 2'd2;
    wire payload_in_first_word = cfg_framing == 2'd1 && !cfg_ipv6;
    logic [6:0] words_left, reads_left;
    wire at_frame_start = words_left == 0;
    assign start   = slot_free && at_frame_start && head_valid;
    assign reserve = slot_free && (!at_frame_start || head_valid);
    assign read    = reserve && (at_frame_start ? payload_in_first_word : reads_left != 0);
    wire last_read = at_frame_start ? head_reads == 7'd1 : reads_left == 7'd1;
    always_ff @(posedge clk)
        if (rst) begin
            words_left <= 0;
            reads_left <= 0;
        end else if (start) begin
            words_left <= head_words - 7'd1;
            reads_left <= head_reads - {6'd0, payload_in_first_word};
        end else if (reserve) begin
            words_left <= words_left - 7'd1;
            reads_left <= reads_left - {6'd0, read};
        end
    assign count_starved = slot_free && at_frame_start && !head_valid;

    always_ff @(posedge clk)
        if (rst) next_psn <= 0;
        else if (load_psn) next_psn <= cfg_psn;
        else if (start) next_psn <= next_psn + 24'd1;

    // 1: current frame.
    logic         valid_1, first_1, second_1, last_1, split_1, read_1, insert_crc_1;
    logic [12:0]  bytes_1, udp_len_1, ip_len_1;
    logic [1:0]   pad_1;
    logic [5:0]   tail_1;
    logic [15:0]  checksum_1;
    logic         shot_last_1, record_1;
    logic [31:0]  crc_1, stream_1;
    logic [11:0]  index_1;
    logic [27:0]  offset_1;
    logic [63:0]  shot_1;
    logic [23:0]  psn_1;
    wire          record = at_frame_start ? head_record : record_1;
    always_ff @(posedge clk) begin
        valid_1      <= reserve && !rst;
        read_1       <= read;
        insert_crc_1 <= read && last_read && record;
        if (reserve) begin
            first_1  <= at_frame_start;
            second_1 <= !at_frame_start && first_1;
            last_1   <= words_left == 7'd1;
            split_1  <= words_left == 7'd2 && with_icrc_field && tail_1 == 6'd2;
        end
        if (start) begin
            {bytes_1, pad_1, tail_1}                   <= {head_bytes, head_pad, head_tail};
            {udp_len_1, ip_len_1}                      <= {head_udp_len, head_ip_len};
            {checksum_1, shot_last_1, record_1, crc_1} <= {head_checksum, head_last, head_record, head_crc};
            {index_1, offset_1}                        <= {head_index, head_offset};
            {shot_1, stream_1, psn_1}                  <= {head_shot, head_stream, next_psn};
        end
    end

    // 2: payload and header.
    logic         valid_2, first_2, last_2, split_2;
    logic [5:0]   tail_2;
    logic [511:0] current_word;
    wire  [511:0] header;
    always_ff @(posedge clk) begin
        valid_2 <= valid_1 && !rst;
        first_2 <= first_1;
        last_2  <= last_1;
        split_2 <= split_1;
        tail_2  <= tail_1;
        if (valid_1 && !read_1) current_word <= 512'd0;
        else if (valid_1) current_word <= {insert_crc_1 ? crc_1 : stored[511:480], stored[479:0]};
    end
    shotline_roce_ud_tx_header fields (
        .clk, .cfg_framing, .cfg_ipv6, .cfg_packet_mode, .cfg_destination_mac, .cfg_source_mac, .cfg_destination_ip,
        .cfg_source_ip, .cfg_destination_port, .cfg_source_port, .cfg_class, .cfg_hop_limit, .cfg_destination_qp,
        .cfg_source_qp, .cfg_queue_key, .cfg_partition_key, .cfg_shot_bytes,
        .first(first_1), .second(second_1), .bytes(bytes_1), .pad(pad_1), .udp_len(udp_len_1), .ip_len(ip_len_1),
        .checksum(checksum_1), .last(shot_last_1), .index(index_1), .offset(offset_1), .shot(shot_1),
        .stream(stream_1), .psn(psn_1), .word(header)
    );

    // 3: payload alignment. Header bytes modulo 64: ud 2, counted 62, udp 10; over IPv6 22, 18, 30. Two LUT6 per bit:
    // four distances in one, the other two and the header in the second.
    logic [511:16] previous;
    wire [991:0] both = {current_word[495:0], previous};
    wire [511:0] roce4 = cfg_framing[0] ? both[1007-8*62 -: 512] : both[1007-8*2 -: 512];
    wire [511:0] roce6 = cfg_framing[0] ? both[1007-8*18 -: 512] : both[1007-8*22 -: 512];
    wire [511:0] roce  = cfg_ipv6 ? roce6 : roce4;
    wire [511:0] plain = cfg_ipv6 ? both[1007-8*30 -: 512] : both[1007-8*10 -: 512];
    wire [511:0] aligned = cfg_framing[1] ? plain : roce;
    logic         valid_3, first_3, last_3, split_3;
    logic [5:0]   tail_3;
    logic [511:0] data_3;
    always_ff @(posedge clk) begin
        valid_3 <= valid_2 && !rst;
        first_3 <= first_2;
        last_3  <= last_2;
        split_3 <= split_2;
        tail_3  <= tail_2;
        if (valid_2) data_3 <= aligned | header;
        if (rst || (valid_2 && last_2)) previous <= 496'd0;
        else if (valid_2) previous <= current_word[511:16];
    end
    assign frame_valid = valid_3;
    assign frame_data  = data_3;
    assign frame_first = first_3;
    assign frame_last  = last_3;
    assign frame_split = split_3;
    assign frame_tail  = tail_3;
    assign idle        = at_frame_start && !head_valid;
endmodule

`default_nettype wire
