// Decides which packets are kept, and into which descriptors they go: one packet a clock if a buffer holds it (or a
// header and a payload buffer with header split), else two clocks for each buffer.
//
//   clock  packet or command
//   1      registers of the channel are read
//   2      length of the header and of the rest
//   3      decision: the pointers of the channel are compared and advanced in this clock, so that the next packet, of
//          the same channel or not, sees them
//   4, 5   addresses of the descriptors are read; the entry waits for `shotline_card_writes`
//
// A packet is kept only if all its descriptors are there; else it uses none, and is counted. Commands take the same way,
// so that a report is behind the payload that it counts.

`default_nettype none

module shotline_card_scheduler #(
    parameter int CHANNELS_LOG2 = 7,  // 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int BLOCKS_LOG2 = 3     // log2 of the blocks (8 bytes) in a word, 3 or 4
) (
    // Clock and synchronous reset.
    input  wire                      clk,
    input  wire                      rst,

    // Registers of the channels.
    input  wire                      config_write,
    input  wire  [CHANNELS_LOG2-1:0] config_channel,
    input  wire  [6:0]               config_register,
    input  wire  [31:0]              config_data,

    // Packets, and the decisions: one for each, in order. With a decision, the packet is counted by its cause:
    // 0 received, 1 channel stopped, 2 no descriptor given, 3 descriptors late.
    input  wire                      packet_valid,
    output wire                      packet_ready,
    input  wire  [CHANNELS_LOG2-1:0] packet_channel,
    input  wire  [13:0]              packet_length,
    input  wire  [BLOCKS_LOG2-1:0]   packet_block,
    output logic                     decision_valid,
    output logic                     decision_keep,
    output logic [CHANNELS_LOG2-1:0] count_channel,
    output logic [1:0]               count_cause,
    output logic [13:0]              count_bytes,

    // Commands: 0 clear, 1 start, 2 stop. A stop sends the final report.
    input  wire                      command_valid,
    output wire                      command_ready,
    input  wire  [1:0]               command,
    input  wire  [CHANNELS_LOG2-1:0] command_channel,
    input  wire  [3:0]               command_error,
    input  wire                      report_valid,
    output wire                      report_ready,
    input  wire  [CHANNELS_LOG2-1:0] report_channel,
    input  wire                      report_wanted,
    input  wire                      report_interrupt,

    // Descriptors that came, and how many groups of a channel may be used.
    input  wire                      store,
    input  wire  [CHANNELS_LOG2+PREFETCH_LOG2-2:0] store_place,
    input  wire  [1:0][60:0]         store_address,
    input  wire                      filled_write,
    input  wire  [CHANNELS_LOG2-1:0] filled_channel,
    input  wire  [11:0]              filled_group,

    // Pointers: a channel has used a group, was started or stopped; the descriptors that a channel has used.
    output logic                     used_valid,
    output logic                     used_started,
    output logic                     used_stopped,
    output logic [CHANNELS_LOG2-1:0] used_channel,
    input  wire  [2:0][CHANNELS_LOG2-1:0] head_channel,
    output wire  [2:0][15:0]         head,

    // Entries for shotline_card_writes.
    output wire                      m_valid,
    input  wire                      m_ready,
    output wire  [1:0][60:0]         m_address,
    output wire  [1:0][13:0]         m_length,
    output wire  [1:0][BLOCKS_LOG2-1:0] m_block,
    output wire  [7:0]               m_channel,
    output wire                      m_report,
    output wire                      m_interrupt,
    output wire  [63:0]              m_data
);
    `include "shotline_require.svh"
    `include "card_registers.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_scheduler: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_scheduler: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(blocks, BLOCKS_LOG2 == 3 || BLOCKS_LOG2 == 4,
                      "shotline_card_scheduler: BLOCKS_LOG2 must be 3 or 4")

    localparam logic [1:0] RECEIVED = 2'd0, NOT_RUNNING = 2'd1, NO_DESCRIPTOR = 2'd2, LATE = 2'd3;
    localparam logic [2:0] CLEAR = 3'd0, START = 3'd1, STOP = 3'd2, REPORT = 3'd3, PACKET = 3'd4;
    localparam logic [1:0] DECIDE = 2'd0, COUNT = 2'd1, EMIT = 2'd2;

    // ---------------------------------------------------------------- clocks 1 to 3: commands before packets
    logic valid_1, valid_2, valid_3;
    wire done_3;
    wire free_3 = !valid_3 || done_3;
    wire free_2 = !valid_2 || free_3;
    wire free_1 = !valid_1 || free_2;
    assign command_ready = free_1;
    assign report_ready  = free_1 && !command_valid;
    assign packet_ready  = free_1 && !command_valid && !report_valid;

    logic [2:0] kind_1, kind_2, kind_3;
    logic [CHANNELS_LOG2-1:0] channel_1, channel_2, channel_3;
    logic [13:0] length_1, length_2, length_3;
    logic [BLOCKS_LOG2-1:0] block_1, block_2, block_3;
    logic [3:0] error_1, error_2, error_3;
    logic [1:0] wanted_1, wanted_2, wanted_3;  // interrupt, report

    logic [10:0] size_found, size_2, size_3;      // of a buffer, in units of 8 bytes
    logic [4:0]  header_found, header_2;          // part of a packet for the header's buffer, in units of 8 bytes
    logic [28:0] low_found;
    logic [31:0] high_found;
    logic [60:0] report_2, report_3;
    logic [7:0]  generation_found, generation_2, generation_3;
    logic        interrupts_found, interrupts_2, interrupts_3;
    shotline_lut_ram #(.WIDTH(16), .DEPTH_LOG2(CHANNELS_LOG2)) buffers (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_BUFFER), .write_addr(config_channel),
        .write_data({config_data[23:19], config_data[13:3]}), .read_addr(channel_1),
        .read_data({header_found, size_found})
    );
    shotline_lut_ram #(.WIDTH(29), .DEPTH_LOG2(CHANNELS_LOG2)) lows (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_REPORT_LOW), .write_addr(config_channel),
        .write_data(config_data[31:3]), .read_addr(channel_1), .read_data(low_found)
    );
    shotline_lut_ram #(.WIDTH(32), .DEPTH_LOG2(CHANNELS_LOG2)) highs (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_REPORT_HIGH), .write_addr(config_channel),
        .write_data(config_data), .read_addr(channel_1), .read_data(high_found)
    );
    wire control = config_write && config_register == REG_CARD_CHANNEL_CONTROL;
    shotline_lut_ram #(.WIDTH(8), .DEPTH_LOG2(CHANNELS_LOG2)) generations (
        .clk, .write(control && config_data[0]), .write_addr(config_channel), .write_data(config_data[15:8]),
        .read_addr(channel_1), .read_data(generation_found)
    );
    shotline_lut_ram #(.WIDTH(1), .DEPTH_LOG2(CHANNELS_LOG2)) interrupts (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_INTERRUPT), .write_addr(config_channel),
        .write_data(config_data[31]), .read_addr(channel_1), .read_data(interrupts_found)
    );

    wire [13:0] header_bytes_2 = length_2 < {6'd0, header_2, 3'd0} ? length_2 : {6'd0, header_2, 3'd0};
    wire [13:0] rest_2 = length_2 - header_bytes_2;
    logic split_3, fits_3;
    logic [7:0]  header_bytes_3;
    logic [13:0] rest_3;
    always_ff @(posedge clk) begin
        if (free_1) begin
            kind_1    <= command_valid ? {1'b0, command} : report_valid ? REPORT : PACKET;
            channel_1 <= command_valid ? command_channel : report_valid ? report_channel : packet_channel;
            length_1  <= packet_length;
            block_1   <= packet_block;
            error_1   <= command_error;
            wanted_1  <= {report_interrupt, report_wanted};
        end
        if (free_2) begin
            {kind_2, channel_2, length_2} <= {kind_1, channel_1, length_1};
            {block_2, error_2, wanted_2}  <= {block_1, error_1, wanted_1};
            {header_2, size_2, report_2}  <= {header_found, size_found, high_found, low_found};
            {generation_2, interrupts_2}  <= {generation_found, interrupts_found};
        end
        if (free_3) begin
            {kind_3, channel_3, length_3} <= {kind_2, channel_2, length_2};
            {block_3, error_3, wanted_3}  <= {block_2, error_2, wanted_2};
            {size_3, report_3}            <= {size_2, report_2};
            {generation_3, interrupts_3}  <= {generation_2, interrupts_2};
            split_3        <= header_2 != '0;
            header_bytes_3 <= header_bytes_2[7:0];
            rest_3         <= rest_2;
            fits_3         <= rest_2 <= {size_2, 3'd0};
        end
    end
    always_ff @(posedge clk)
        if (rst) {valid_1, valid_2, valid_3} <= 3'b000;
        else begin
            if (free_1) valid_1 <= command_valid || report_valid || packet_valid;
            if (free_2) valid_2 <= valid_1;
            if (free_3) valid_3 <= valid_2;
        end

    // ---------------------------------------------------------------- pointers of the channel
    logic [15:0] used;            // descriptors used
    logic [11:0] filled, given;   // groups that have come, groups that software has given
    logic        active;
    wire         used_write, active_write;
    wire  [15:0] used_next;
    shotline_lut_ram #(.WIDTH(16), .DEPTH_LOG2(CHANNELS_LOG2), .READS(4)) heads (
        .clk, .write(used_write), .write_addr(channel_3), .write_data(used_next),
        .read_addr({head_channel, channel_3}), .read_data({head, used})
    );
    shotline_lut_ram #(.WIDTH(1), .DEPTH_LOG2(CHANNELS_LOG2)) actives (
        .clk, .write(active_write), .write_addr(channel_3), .write_data(kind_3 == START),
        .read_addr(channel_3), .read_data(active)
    );
    shotline_lut_ram #(.WIDTH(12), .DEPTH_LOG2(CHANNELS_LOG2)) filleds (
        .clk, .write(filled_write), .write_addr(filled_channel), .write_data(filled_group),
        .read_addr(channel_3), .read_data(filled)
    );
    shotline_lut_ram #(.WIDTH(12), .DEPTH_LOG2(CHANNELS_LOG2)) givens (
        .clk, .write((control && config_data[0]) ||
                     (config_write && config_register == REG_CARD_CHANNEL_SOFTWARE_POINTER)),
        .write_addr(config_channel), .write_data(control ? 12'd0 : config_data[15:4]),
        .read_addr(channel_3), .read_data(given)
    );

    // ---------------------------------------------------------------- clock 3: the decision
    logic [1:0]  mode;
    logic [15:0] needed;   // COUNT: descriptors needed so far
    logic [13:0] left;     // COUNT, EMIT: bytes not yet in a buffer
    logic [15:0] index;    // EMIT: next descriptor
    logic [BLOCKS_LOG2-1:0] at;  // EMIT: block of the next byte
    logic        begun;    // EMIT: the first buffers are behind

    wire room;  // for an entry
    wire [15:0] each      = split_3 ? 16'd2 : 16'd1;
    wire [15:0] available = {filled, 4'd0} - used;
    wire [15:0] provided  = {given, 4'd0} - used;
    wire [13:0] size_bytes = {size_3, 3'd0};
    wire packet  = valid_3 && room && kind_3 == PACKET;
    wire first   = packet && mode == DECIDE;
    wire count   = packet && mode == COUNT;
    wire emit    = packet && mode == EMIT;
    wire ends    = left <= size_bytes;
    wire missing = count ? needed > available : available == '0;
    wire simple  = first && active && fits_3 && !missing;          // one entry
    wire several = count && ends && !missing;                      // more will follow
    wire drop    = (first && (!active || missing)) || (count && missing);
    wire keep    = simple || several;
    wire last    = simple || (emit && ends);
    wire order   = valid_3 && room && kind_3 != PACKET;
    assign done_3 = order || last || drop;

    assign active_write = order && kind_3 != REPORT;
    assign used_write   = last || (order && (kind_3 == CLEAR || kind_3 == START));
    assign used_next    = order ? '0 : (emit ? index : used) + each;

    always_ff @(posedge clk)
        if (rst) mode <= DECIDE;
        else if (first && active && !fits_3 && !missing) mode <= COUNT;
        else if (several) mode <= EMIT;
        else if (done_3) mode <= DECIDE;
    always_ff @(posedge clk) begin
        if (first || several) begin
            left  <= rest_3;
            index <= used;
            at    <= block_3 + BLOCKS_LOG2'(header_bytes_3 >> 3);
            begun <= 1'b0;
        end else if (count || emit) begin
            left  <= left - size_bytes;
            index <= index + each;
            at    <= at + BLOCKS_LOG2'(size_3);
            begun <= 1'b1;
        end
        needed <= first ? each : needed + each;
    end

    always_ff @(posedge clk) begin
        decision_keep <= keep;
        count_channel <= channel_3;
        count_bytes   <= length_3;
        count_cause   <= keep ? RECEIVED : !active ? NOT_RUNNING :
                         provided < (count ? needed : each) ? NO_DESCRIPTOR : LATE;
        used_channel  <= channel_3;
        used_started  <= !rst && order && kind_3 == START;
        used_stopped  <= !rst && order && kind_3 == STOP;
        used_valid    <= !rst && ((last && used_next[15:4] != used[15:4]) || (order && kind_3 == START));
        decision_valid <= !rst && (keep || drop);
    end

    // ---------------------------------------------------------------- clocks 4 and 5: descriptors
    localparam int PLACE = CHANNELS_LOG2 + PREFETCH_LOG2 - 1;
    wire emits = simple || emit || (order && active && (kind_3 == STOP || kind_3 == REPORT));
    wire [PREFETCH_LOG2-1:0] index_3 = emit ? index[PREFETCH_LOG2-1:0] : used[PREFETCH_LOG2-1:0];
    wire has_header = split_3 && !(emit && begun);
    logic valid_4, report_4, interrupt_4, odd_4, valid_5, report_5, interrupt_5, odd_5;
    logic [PLACE-1:0] place_4;
    logic [1:0][13:0] length_4, length_5;
    logic [1:0][BLOCKS_LOG2-1:0] block_4, block_5;
    logic [CHANNELS_LOG2-1:0] channel_4, channel_5;
    logic [60:0] address_4, address_5;
    logic [31:0] data_4, data_5;
    always_ff @(posedge clk) begin
        valid_4     <= !rst && emits;
        report_4    <= order && (kind_3 == STOP || wanted_3[0]);
        interrupt_4 <= order && (kind_3 == STOP ? interrupts_3 : wanted_3[1]);
        odd_4       <= split_3 || index_3[0];
        place_4     <= {channel_3, index_3[PREFETCH_LOG2-1:1]};
        length_4[0] <= order || !has_header ? '0 : {6'd0, header_bytes_3};
        length_4[1] <= order ? '0 : !emit ? rest_3 : ends ? left : size_bytes;
        block_4[0]  <= block_3;
        block_4[1]  <= emit ? at : block_3 + BLOCKS_LOG2'(header_bytes_3 >> 3);
        channel_4   <= channel_3;
        address_4   <= report_3;
        data_4      <= {kind_3 == STOP ? error_3 : 4'd0, 3'd0, kind_3 == STOP, generation_3, used};
        valid_5     <= !rst && valid_4;
        {report_5, interrupt_5, odd_5, length_5} <= {report_4, interrupt_4, odd_4, length_4};
        {block_5, channel_5, address_5, data_5}  <= {block_4, channel_4, address_4, data_4};
    end

    (* ram_style = "block" *)
    logic [60:0] even [0:(1<<PLACE)-1];
    (* ram_style = "block" *)
    logic [60:0] odd [0:(1<<PLACE)-1];
    logic [60:0] even_5, odd_address_5;
    always_ff @(posedge clk) begin
        if (store) even[store_place] <= store_address[0];
        even_5 <= even[place_4];
    end
    always_ff @(posedge clk) begin
        if (store) odd[store_place] <= store_address[1];
        odd_address_5 <= odd[place_4];
    end

    // ---------------------------------------------------------------- entries
    localparam int ENTRY = 2 * 61 + 2 * 14 + 2 * BLOCKS_LOG2 + CHANNELS_LOG2 + 2 + 32;
    localparam int ENTRIES_LOG2 = 4;
    logic [CHANNELS_LOG2-1:0] channel_out;
    logic [31:0] data_out;
    wire take = m_valid && m_ready;
    shotline_fifo_small #(.WIDTH(ENTRY), .DEPTH_LOG2(ENTRIES_LOG2)) waiting (
        .clk, .rst, .push(valid_5),
        .push_data({odd_5 ? odd_address_5 : even_5, report_5 ? address_5 : even_5, length_5, block_5, channel_5,
                    report_5, interrupt_5, data_5}),
        .pop(take), .out_valid(m_valid),
        .out_data({m_address, m_length, m_block, channel_out, m_report, m_interrupt, data_out})
    );
    assign m_channel = 8'(channel_out);
    assign m_data    = {32'd0, data_out};

    // Free places of the FIFO, less the entries on their way to it.
    logic [ENTRIES_LOG2:0] places;
    assign room = places != '0;
    always_ff @(posedge clk)
        if (rst) places <= {1'b1, {ENTRIES_LOG2{1'b0}}};
        else places <= places + {{ENTRIES_LOG2{1'b0}}, take} - {{ENTRIES_LOG2{1'b0}}, emits};

`ifdef FORMAL
    `include "shotline_card_scheduler_properties.svh"
`endif
endmodule

`default_nettype wire
