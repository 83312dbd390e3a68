// Descriptor reads of the card: tags, completions, time-outs, and the check of each descriptor.
//
// A read fetches a group of 16 descriptors, 256 bytes. Completions of one tag come in order of addresses, those of
// different tags in any order. A read without all its completions fails when it is one to two time-outs old; its tag
// rests for as long again, so that a completion that comes after all is not taken for one of the next read.

`default_nettype none

module shotline_card_reads #(
    parameter int CHANNELS_LOG2 = 7,  // 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6       // log2 of the reads in flight, 2 to 8
) (
    // Clock and synchronous reset.
    input  wire                      clk,
    input  wire                      rst,

    // Configuration: time-out in units of 256 clocks (0: none), and the channels' registers.
    input  wire  [23:0]              read_timeout,
    input  wire                      config_write,
    input  wire  [CHANNELS_LOG2-1:0] config_channel,
    input  wire  [6:0]               config_register,
    input  wire  [31:0]              config_data,

    // Reads to start: a group of a channel, and its address.
    input  wire                      start_valid,
    output wire                      start_ready,
    input  wire  [CHANNELS_LOG2-1:0] start_channel,
    input  wire  [11:0]              start_group,
    input  wire  [63:0]              start_address,

    // Reads that have ended, and the error: 0 none, 1 descriptor, 2 completion, 3 time-out.
    output wire                      done_valid,
    input  wire                      done_take,
    output wire  [CHANNELS_LOG2-1:0] done_channel,
    output wire  [PREFETCH_LOG2-5:0] done_slot,      // place of the group among those held
    output wire  [1:0]               done_error,

    // Addresses of two descriptors, in units of 8 bytes, for their place in the memory.
    output wire                      store,
    output wire  [CHANNELS_LOG2+PREFETCH_LOG2-2:0] store_place,
    output wire  [1:0][60:0]         store_address,

    // Bus: reads of 256 bytes, and completions of two descriptors.
    output logic                     m_read_valid,
    input  wire                      m_read_ready,
    output logic [63:0]              m_read_address,
    output logic [TAGS_LOG2-1:0]     m_read_tag,
    input  wire                      s_completion_valid,
    input  wire  [TAGS_LOG2-1:0]     s_completion_tag,
    input  wire  [255:0]             s_completion_data,
    input  wire                      s_completion_error,
    output logic                     unexpected           // a completion of no read
);
    `include "shotline_require.svh"
    `include "card_registers.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_reads: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_reads: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_reads: TAGS_LOG2 must be 2 to 8")

    localparam int TAGS = 1 << TAGS_LOG2;
    localparam int SLOT = PREFETCH_LOG2 - 4;
    localparam logic [1:0] DESCRIPTOR = 2'd1, COMPLETION = 2'd2, TIMEOUT = 2'd3;

    // ---------------------------------------------------------------- tags
    logic [TAGS-1:0] busy, resting, old;  // `old`: at least one time-out has passed
    logic [TAGS-1:0][2:0] beats;
    logic [TAGS_LOG2-1:0] tag, scan;
    logic scanning;

    wire start = start_valid && start_ready;
    assign start_ready = !busy[tag] && !resting[tag] && (!m_read_valid || m_read_ready);

    // A clock looks at the tag of a completion, or else at the next one of a scan for time-outs.
    wire [TAGS_LOG2-1:0] look = s_completion_valid ? s_completion_tag : scan;
    wire known   = s_completion_valid && busy[look];
    wire last    = known && (s_completion_error || beats[look] == 3'd7);
    wire step    = scanning && !s_completion_valid;
    wire expired = step && busy[look] && old[look];

    always_ff @(posedge clk) begin
        if (start) beats[tag] <= '0;
        if (known) beats[look] <= beats[look] + 3'd1;
        if (rst) begin
            busy    <= '0;
            resting <= '0;
            tag     <= '0;
        end else begin
            if (last || expired) busy[look] <= 1'b0;
            if (expired) resting[look] <= 1'b1;
            if (step && resting[look] && old[look]) resting[look] <= 1'b0;
            if (start) busy[tag] <= 1'b1;
            if (start || busy[tag] || resting[tag]) tag <= tag + 1'b1;
        end
    end
    always_ff @(posedge clk) begin
        if (step) old[look] <= !expired;
        if (start) old[tag] <= 1'b0;
    end

    logic [7:0] clocks;
    logic [23:0] units;
    wire scan_due = clocks == '1 && units + 24'd1 >= read_timeout && read_timeout != '0;
    always_ff @(posedge clk)
        if (rst) begin
            clocks   <= '0;
            units    <= '0;
            scan     <= '0;
            scanning <= 1'b0;
        end else begin
            clocks <= clocks + 8'd1;
            if (scan_due || read_timeout == '0) units <= '0;
            else if (clocks == '1) units <= units + 24'd1;
            if (scan_due) scanning <= 1'b1;
            else if (step && scan == '1) scanning <= 1'b0;
            if (step) scan <= scan + 1'b1;
        end

    always_ff @(posedge clk) begin
        if (start) begin
            m_read_address <= start_address;
            m_read_tag     <= tag;
        end
        if (rst) m_read_valid <= 1'b0;
        else if (start) m_read_valid <= 1'b1;
        else if (m_read_ready) m_read_valid <= 1'b0;
        unexpected <= !rst && s_completion_valid && !known;
    end

    // ---------------------------------------------------------------- what a read is of
    logic [CHANNELS_LOG2-1:0] look_channel;
    logic [11:0] look_group;
    shotline_lut_ram #(.WIDTH(CHANNELS_LOG2 + 12), .DEPTH_LOG2(TAGS_LOG2)) reads (
        .clk, .write(start), .write_addr(tag), .write_data({start_channel, start_group}),
        .read_addr(look), .read_data({look_channel, look_group})
    );

    // Clock 1: channel and group of a completion, or of a read that failed.
    logic valid_1, last_1;
    logic [1:0] error_1;
    logic [TAGS_LOG2-1:0] tag_1;
    logic [2:0] beat_1;
    logic [CHANNELS_LOG2-1:0] channel_1;
    logic [11:0] group_1;
    logic [255:0] data_1;
    always_ff @(posedge clk) begin
        valid_1   <= !rst && (known || expired);
        last_1    <= last || expired;
        error_1   <= expired ? TIMEOUT : s_completion_error ? COMPLETION : '0;
        tag_1     <= look;
        beat_1    <= beats[look];
        channel_1 <= look_channel;
        group_1   <= look_group;
        data_1    <= s_completion_data;
    end

    // Clock 2: the generation that its channel has.
    logic [7:0] generation_1;
    shotline_lut_ram #(.WIDTH(8), .DEPTH_LOG2(CHANNELS_LOG2)) generations (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_CONTROL && config_data[0]),
        .write_addr(config_channel), .write_data(config_data[15:8]), .read_addr(channel_1), .read_data(generation_1)
    );
    logic valid_2, last_2;
    logic [1:0] error_2;
    logic [TAGS_LOG2-1:0] tag_2;
    logic [2:0] beat_2;
    logic [CHANNELS_LOG2-1:0] channel_2;
    logic [11:0] group_2;
    logic [255:0] data_2;
    logic [7:0] generation_2;
    always_ff @(posedge clk) begin
        valid_2      <= !rst && valid_1;
        last_2       <= last_1;
        error_2      <= error_1;
        tag_2        <= tag_1;
        beat_2       <= beat_1;
        channel_2    <= channel_1;
        group_2      <= group_1;
        data_2       <= data_1;
        generation_2 <= generation_1;
    end

    // ---------------------------------------------------------------- descriptors
    // The address of a block; then index, channel, generation and zero, which are known before.
    logic [1:0] is_good;
    for (genvar half = 0; half < 2; half++) begin : g_half
        wire [63:0] address  = data_2[128*half+:64];
        wire [63:0] expected = {32'd0, generation_2, 8'(channel_2), group_2, beat_2, 1'(half)};
        assign is_good[half] = data_2[128*half+64+:64] == expected && address[2:0] == 3'd0;
        assign store_address[half] = address[63:3];
    end

    logic [TAGS-1:0] bad;  // a descriptor of an earlier completion of the read was
    wire bad_2 = is_good != 2'b11 || (bad[tag_2] && beat_2 != '0);
    always_ff @(posedge clk) if (valid_2) bad[tag_2] <= bad_2;

    assign store         = valid_2 && error_2 == '0;
    assign store_place   = {channel_2, group_2[SLOT-1:0], beat_2};

    // Ended reads are taken before others are started, but for a few that are still in the clocks above. So twice the
    // number of tags is always enough.
    shotline_fifo_small #(.WIDTH(CHANNELS_LOG2 + SLOT + 2), .DEPTH_LOG2(TAGS_LOG2 + 1)) ended (
        .clk, .rst, .push(valid_2 && last_2),
        .push_data({channel_2, group_2[SLOT-1:0], error_2 != '0 ? error_2 : bad_2 ? DESCRIPTOR : 2'd0}),
        .pop(done_take), .out_valid(done_valid), .out_data({done_channel, done_slot, done_error})
    );
    wire unused = &{config_data[31:16], config_data[7:1], 1'b0};

`ifdef FORMAL
    `include "shotline_card_reads_properties.svh"
`endif
endmodule

`default_nettype wire
