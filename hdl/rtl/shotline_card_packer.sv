// Packed bus: header and data of each frame at the next block of 8 bytes after the end of the last packet.
//
// A header is two blocks, so data need only a shift by blocks. Three stages: a chunk (the header and the first word, ten
// blocks, or a further word), the chunk shifted to its place after the last one, then the store of blocks that are not yet
// sent, at most 17. The output is busy in each clock in which a chunk has to wait, so nothing limits the rate but the eight
// blocks of a word.
//
// An incomplete word leaves when no frame follows; its unused blocks are zero, as are the unused bytes of the last block
// of a packet.
//
// A packet has at least ten blocks because a frame has at least 64 bytes with FCS. So at most one packet begins in a word,
// and it begins among the first eight blocks of the store.

`default_nettype none

module shotline_card_packer #(
    parameter int CHANNELS_LOG2 = 7  // log2 of the number of channels, 3 to 8
) (
    // Clock and synchronous reset.
    input  wire                     clk,
    input  wire                     rst,

    // Metadata of the next frame; all of its words are there.
    input  wire                     frame_valid,
    output wire                     frame_ready,
    input  wire [13:0]              frame_length,  // bytes without FCS, with padding
    input  wire [3:0]               frame_flags,
    input  wire [31:0]              frame_hash,
    input  wire [63:0]              frame_time,
    input  wire [CHANNELS_LOG2-1:0] frame_channel,

    // Words of the frames.
    input  wire                     word_valid,
    output wire                     word_ready,
    input  wire [511:0]             word_data,

    // Packed bus.
    output wire                     m_valid,
    input  wire                     m_ready,
    output wire [511:0]             m_data,
    output wire                     m_first,        // a packet begins in this word
    output wire [2:0]               m_first_block,  // at this block
    output wire [13:0]              m_length,       // its bytes with header
    output wire [CHANNELS_LOG2-1:0] m_channel
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
        "shotline_card_packer: CHANNELS_LOG2 must be 3 to 8")

    localparam int STORE = 17;

    // Stage 1: a chunk.
    logic inside_frame;  // after its first word
    logic [13:0] left;   // bytes of it that are not read
    logic chunk_valid, chunk_first;
    logic [639:0] chunk;
    logic [3:0] chunk_blocks;
    logic [13:0] chunk_length;
    logic [CHANNELS_LOG2-1:0] chunk_channel;
    wire place;  // the chunk goes to stage 2

    wire first = !inside_frame;
    wire load = word_valid && (inside_frame || frame_valid) && (!chunk_valid || place);
    wire [13:0] remaining = first ? frame_length : left;
    wire last = remaining <= 14'd64;
    wire [6:0] bytes = last ? remaining[6:0] : 7'd64;
    wire [3:0] blocks = bytes[6:3] + {3'd0, bytes[2:0] != 3'd0};
    wire [13:0] packet_length = frame_length + 14'd16;
    wire [127:0] header = {frame_time, frame_hash, 12'd0, frame_flags, 2'd0, packet_length};
    logic [511:0] masked;
    always_comb begin
        for (int i = 0; i < 64; i++) masked[8*i +: 8] = 7'(i) < bytes ? word_data[8*i +: 8] : 8'd0;
    end

    assign word_ready  = load;
    assign frame_ready = load && first;

    always_ff @(posedge clk) if (load) begin
        chunk        <= first ? {masked, header} : {128'd0, masked};
        chunk_blocks <= first ? blocks + 4'd2 : blocks;
        chunk_first  <= first;
        left         <= remaining - 14'd64;
        if (first) begin
            chunk_length  <= packet_length;
            chunk_channel <= frame_channel;
        end
    end
    always_ff @(posedge clk) begin
        if (rst) begin
            chunk_valid  <= 1'b0;
            inside_frame <= 1'b0;
        end else begin
            if (load) chunk_valid <= 1'b1;
            else if (place) chunk_valid <= 1'b0;
            if (load) inside_frame <= !last;
        end
    end

    // Stage 2: the chunk in its place, which is after the chunk before it, or at block 0 after an incomplete word.
    logic [2:0] place_at;
    logic placed_valid, placed_first;
    logic placed_low;  // it ends among the first nine blocks, so there is space for it after another eight
    logic [64*STORE-1:0] placed;
    logic [2:0] placed_at;
    logic [4:0] placed_end;
    logic [13:0] placed_length;
    logic [CHANNELS_LOG2-1:0] placed_channel;
    wire taken, flushed;
    assign place = chunk_valid && (!placed_valid || taken);
    wire [4:0] place_end = {2'd0, place_at} + {1'b0, chunk_blocks};
    always_ff @(posedge clk) if (place) begin
        placed         <= {{64*(STORE - 10){1'b0}}, chunk} << {place_at, 6'd0};
        placed_at      <= place_at;
        placed_end     <= place_end;
        placed_low     <= place_end <= 5'd9;
        placed_first   <= chunk_first;
        placed_length  <= chunk_length;
        placed_channel <= chunk_channel;
    end
    always_ff @(posedge clk) begin
        if (rst) begin
            place_at     <= '0;
            placed_valid <= 1'b0;
        end else begin
            if (place) place_at <= place_end[2:0];
            else if (flushed) place_at <= '0;
            if (place) placed_valid <= 1'b1;
            else if (taken) placed_valid <= 1'b0;
        end
    end

    // Stage 3: the store. Blocks from `held` on are not defined.
    logic [64*STORE-1:0] store;
    logic [4:0] held;
    logic begins;  // a packet begins in the first eight blocks
    logic [2:0] begins_at;
    logic [13:0] length;
    logic [CHANNELS_LOG2-1:0] channel;

    logic out_valid, out_first;
    logic [511:0] out_data;
    logic [2:0] out_first_block;
    logic [13:0] out_length;
    logic [CHANNELS_LOG2-1:0] out_channel;

    wire whole = held[4] || held[3];
    wire none_follows = !placed_valid && !chunk_valid && !inside_frame && !frame_valid;
    wire free  = !out_valid || m_ready;
    wire flush = held != 5'd0 && !whole && none_follows;
    wire send  = (whole || flush) && free;
    assign flushed = flush && free;
    // A chunk is added when fewer than eight blocks are held or will be after the word that leaves now, or eight more of
    // them and it fits. It is never the first of its packet in the second case.
    wire high = held[4];
    assign taken = placed_valid && (high ? free && placed_low : !held[3] || free);

    logic [64*STORE-1:0] joined;
    logic [511:0] sent;
    always_comb begin
        joined = !taken ? store : high ? {placed[64*(STORE - 8)-1:0], 512'd0} : placed;
        for (int i = 0; i < 8; i++) begin
            if (!taken || high || 3'(i) < placed_at)
                joined[64*i +: 64] = whole && free ? store[64*(i + 8) +: 64] : store[64*i +: 64];
            sent[64*i +: 64] = whole || 3'(i) < held[2:0] ? store[64*i +: 64] : 64'd0;
        end
        if (free && (!taken || (high && placed_at[0]))) joined[64*8 +: 64] = store[64*16 +: 64];
    end

    always_ff @(posedge clk) begin
        store <= joined;
        if (taken && placed_first) begin
            begins_at <= placed_at;
            length    <= placed_length;
            channel   <= placed_channel;
        end
        if (send) begin
            out_data        <= sent;
            out_first       <= begins;
            out_first_block <= begins_at;
            out_length      <= length;
            out_channel     <= channel;
        end
    end
    always_ff @(posedge clk) begin
        if (rst) begin
            held      <= '0;
            begins    <= 1'b0;
            out_valid <= 1'b0;
        end else begin
            if (taken) held <= high ? placed_end + 5'd8 : placed_end;
            else if (send) held <= whole ? held - 5'd8 : 5'd0;
            if (taken && placed_first) begins <= 1'b1;
            else if (send) begins <= 1'b0;
            if (send) out_valid <= 1'b1;
            else if (m_ready) out_valid <= 1'b0;
        end
    end
    assign m_valid       = out_valid;
    assign m_data        = out_data;
    assign m_first       = out_first;
    assign m_first_block = out_first_block;
    assign m_length      = out_length;
    assign m_channel     = out_channel;

`ifdef VERILATOR
    one_begins_in_a_word: assert property (@(posedge clk) disable iff (rst)
        taken && placed_first |-> !high && (!begins || send));
    in_its_place: assert property (@(posedge clk) disable iff (rst) placed_valid |-> placed_at == held[2:0]);
    frames_are_whole: assert property (@(posedge clk) disable iff (rst) inside_frame |-> word_valid);
    at_least_ten_blocks: assert property (@(posedge clk) disable iff (rst) frame_valid |-> frame_length >= 14'd60);
`endif
endmodule

`default_nettype wire
