// Store-and-forward buffer of received frames: words without FCS, and one entry of metadata for each frame.
//
// The source cannot wait. The words of a frame are written as they come and belong to the reader only when the last one
// is there and the frame is good; else the write pointer returns to the end of the frame before, so a bad frame is never
// seen. `dropped` counts each such frame once: an error reported by the MAC, else too short, else too long, else no space.
//
// A last word with nothing but bytes of the FCS is not stored: a frame of n bytes takes (n - 4) / 64 words, rounded up.
// With padding two bytes of 0 come before the frame and belong to it; because they are fewer than those of the FCS it
// never has more words than it came in.
// All words of a frame can be read when its metadata are valid.

`default_nettype none

module shotline_card_frames #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the number of channels, 3 to 8
    parameter int BUFFER_LOG2 = 10    // log2 of the words of the buffer, 2 to 16
) (
    // Clock and synchronous reset.
    input  wire                     clk,
    input  wire                     rst,

    // Longest frame in bytes, with FCS; 16371 if it is larger, with padding 16369, because a packet's length has 14 bits.
    input  wire [13:0]              max_length,

    // Words of frames with their FCS.
    input  wire                     in_valid,
    input  wire [511:0]             in_data,
    input  wire                     in_first,
    input  wire                     in_last,
    input  wire [6:0]               in_bytes,  // 1 to 64
    input  wire                     in_error,  // with in_last
    input  wire [63:0]              in_time,   // with in_first
    input  wire                     in_pad,    // put two bytes before the frame; the same for all of its words

    // Result of the classifier, valid nine clocks after in_last.
    input  wire [3:0]               class_flags,
    input  wire [31:0]              class_hash,
    input  wire [CHANNELS_LOG2-1:0] class_channel,

    // A frame was dropped: 0: error, 1: runt (less than 64 bytes), 2: giant, 3: overflow.
    output wire [3:0]               dropped,

    // Metadata of the oldest frame.
    output wire                     frame_valid,
    input  wire                     frame_ready,   // only with word_ready, for the first word
    output wire [13:0]              frame_length,  // bytes without FCS, with padding
    output wire [3:0]               frame_flags,
    output wire [31:0]              frame_hash,
    output wire [63:0]              frame_time,
    output wire [CHANNELS_LOG2-1:0] frame_channel,

    // The next word.
    output wire                     word_valid,
    input  wire                     word_ready,
    output wire [511:0]             word_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
        "shotline_card_frames: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(buffer, BUFFER_LOG2 >= 2 && BUFFER_LOG2 <= 16,
        "shotline_card_frames: BUFFER_LOG2 must be 2 to 16")

    localparam int P = BUFFER_LOG2 + 1;  // pointers: equal means empty, one wrap apart means full
    localparam logic [P-1:0] FULL = {1'b1, {BUFFER_LOG2{1'b0}}};
    localparam logic [P-1:0] ONE = {{P - 1{1'b0}}, 1'b1};
    localparam int DELAY = 7;  // clocks from the decision on a frame to the result of the classifier
    localparam int META = CHANNELS_LOG2 + 114;

    // Stage 1: the padding, the length so far. `words` stops at 256, which is longer than any limit.
    logic [8:0] words;
    wire [8:0] whole = in_first ? 9'd0 : words;
    wire [14:0] longest = in_pad ? 15'd16369 : 15'd16371;
    logic valid_1, first_1, last_1, error_1, fcs_only_1, pad_1;
    logic [15:0] carry;  // the last two bytes of the word before
    logic [511:0] data_1;
    logic [63:0] time_1;
    logic [14:0] length_1;
    logic [14:0] limit;
    always_ff @(posedge clk) begin
        if (in_valid) begin
            words <= whole[8] ? whole : whole + 9'd1;
            if (in_first) time_1 <= in_time;
            carry      <= in_data[511:496];
            data_1     <= in_pad ? {in_data[495:0], in_first ? 16'd0 : carry} : in_data;
            pad_1      <= in_pad;
            first_1    <= in_first;
            last_1     <= in_last;
            error_1    <= in_error;
            fcs_only_1 <= in_last && !in_first && in_bytes <= (in_pad ? 7'd2 : 7'd4);
            length_1   <= {whole, 6'd0} + {8'd0, in_bytes};
        end
        valid_1 <= in_valid && !rst;
        limit   <= {1'b0, max_length} > longest ? longest : {1'b0, max_length};
    end

    // Stage 2: what is wrong with the frame, except that it has no space.
    logic valid_2, first_2, last_2, fcs_only_2;
    logic [511:0] data_2;
    logic [63:0] time_2;
    logic [13:0] length_2;  // without FCS, with padding
    logic [2:0] bad_2;      // causes of a drop: error, runt, giant
    wire runt  = length_1 < 15'd64;
    wire giant = length_1 > limit;
    always_ff @(posedge clk) begin
        data_2     <= data_1;
        first_2    <= first_1;
        last_2     <= last_1;
        fcs_only_2 <= fcs_only_1;
        time_2     <= time_1;
        length_2   <= length_1[13:0] - (pad_1 ? 14'd2 : 14'd4);
        bad_2      <= {giant && !runt && !error_1, runt && !error_1, error_1};
        valid_2    <= valid_1 && !rst;
    end

    // Stage 3: store the word, decide on the frame.
    logic [511:0] memory[2**BUFFER_LOG2];
    logic [P-1:0] write_pointer;  // of the frame that comes in
    logic [P-1:0] end_pointer;    // end of the last good frame
    logic [P-1:0] read_pointer;
    logic lost;                   // a word of this frame had no space

    wire full     = write_pointer == (read_pointer ^ FULL);
    wire lost_now = (lost && !first_2) || (full && !fcs_only_2);
    wire store    = valid_2 && !fcs_only_2 && !lost_now;
    wire ends     = valid_2 && last_2;
    wire good     = ends && bad_2 == 3'd0 && !lost_now;
    wire [P-1:0] written = store ? write_pointer + ONE : write_pointer;

    always_ff @(posedge clk) if (store) memory[write_pointer[BUFFER_LOG2-1:0]] <= data_2;

    logic [3:0] dropped_3;
    always_ff @(posedge clk) begin
        if (rst) begin
            write_pointer <= '0;
            end_pointer   <= '0;
            lost          <= 1'b0;
            dropped_3     <= '0;
        end else begin
            if (valid_2) lost <= lost_now;
            write_pointer <= ends && !good ? end_pointer : written;
            if (good) end_pointer <= written;
            dropped_3 <= ends ? {bad_2 == 3'd0 && lost_now, bad_2} : 4'd0;
        end
    end
    assign dropped = dropped_3;

    // Metadata, when the classifier has the rest of them. A frame has at least one word, and its metadata come after its
    // words and leave with the first of them; so as many entries as words are always enough.
    logic [DELAY-1:0] waits;
    logic [DELAY*78-1:0] kept;
    always_ff @(posedge clk) begin
        waits <= rst ? '0 : {waits[DELAY-2:0], good};
        kept  <= {kept[(DELAY-1)*78-1:0], time_2, length_2};
    end

    wire meta_ready;
    wire [META-1:0] meta;
    wire [BUFFER_LOG2:0] meta_level;
    shotline_fifo_sync #(.WIDTH(META), .DEPTH_LOG2(BUFFER_LOG2)) metadata (
        .clk, .rst,
        .s_data({class_channel, class_hash, class_flags, kept[DELAY*78-1 -: 78]}), .s_valid(waits[DELAY-1]),
        .s_ready(meta_ready),
        .m_data(meta), .m_valid(frame_valid), .m_ready(frame_ready), .level(meta_level));
    assign {frame_channel, frame_hash, frame_flags, frame_time, frame_length} = meta;

    // Read side: the next word in an output register.
    logic out_valid;
    logic [511:0] out_data;
    wire fetch = read_pointer != end_pointer && (!out_valid || word_ready);
    always_ff @(posedge clk) if (fetch) out_data <= memory[read_pointer[BUFFER_LOG2-1:0]];
    always_ff @(posedge clk) begin
        if (rst) begin
            read_pointer <= '0;
            out_valid    <= 1'b0;
        end else begin
            if (fetch) read_pointer <= read_pointer + ONE;
            if (fetch) out_valid <= 1'b1;
            else if (word_ready) out_valid <= 1'b0;
        end
    end
    assign word_valid = out_valid;
    assign word_data  = out_data;

`ifdef VERILATOR
    metadata_have_space: assert property (@(posedge clk) disable iff (rst) waits[DELAY-1] |-> meta_ready);
    words_before_metadata: assert property (@(posedge clk) disable iff (rst) frame_valid |-> word_valid);
`endif
    wire unused = &{meta_ready, meta_level, 1'b0};

`ifdef FORMAL
    `include "shotline_card_frames_properties.svh"
`endif
endmodule

`default_nettype wire
