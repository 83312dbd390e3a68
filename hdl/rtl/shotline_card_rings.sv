// Descriptor rings of the card: fetches descriptors ahead of their use, and starts and stops channels.
//
// One channel is visited at a time, in three clocks: one whose read has ended, or one of those marked in `pending`
// because something has happened to it. A visit looks at all that is known of the channel and does all that it can:
// `filled` advances over groups that have come, the next group is requested, a start or a stop is passed on.
//
//   stopped --(run = 1)--> running --(run = 0 or an error)--> stopping --(final report on the bus, no read left)--> stopped
//
// Descriptors are in groups of 16. Group g is held at place g modulo the number of groups held.

`default_nettype none

module shotline_card_rings #(
    parameter int CHANNELS_LOG2 = 7,  // 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6       // log2 of the reads in flight, 2 to 8
) (
    // Clock and synchronous reset, after which all channels are cleared; `ready` when that is done.
    input  wire                      clk,
    input  wire                      rst,
    output logic                     ready,

    // Registers of the channels, and the state of two of them: 0 stopped, 1 starting, 2 running, 3 stopping.
    input  wire                      config_write,
    input  wire  [CHANNELS_LOG2-1:0] config_channel,
    input  wire  [6:0]               config_register,
    input  wire  [31:0]              config_data,
    input  wire  [1:0][CHANNELS_LOG2-1:0] state_channel,
    output wire  [1:0][1:0]          state,
    output wire  [3:0]               state_error,     // of the second

    // Scheduler: a group of descriptors was used; descriptors used; descriptors that it may use; commands.
    input  wire                      used_valid,
    input  wire  [CHANNELS_LOG2-1:0] used_channel,
    output wire  [CHANNELS_LOG2-1:0] head_channel,
    input  wire  [15:0]              head,
    output wire                      filled_write,
    output wire  [CHANNELS_LOG2-1:0] filled_channel,
    output wire  [11:0]              filled_group,
    output logic                     command_valid,
    input  wire                      command_ready,
    output logic [1:0]               command,         // 0 clear, 1 start, 2 stop
    output logic [CHANNELS_LOG2-1:0] command_channel,
    output logic [3:0]               command_error,

    // Reads of groups.
    output wire                      start_valid,
    input  wire                      start_ready,
    output wire  [CHANNELS_LOG2-1:0] start_channel,
    output wire  [11:0]              start_group,
    output wire  [63:0]              start_address,
    input  wire                      done_valid,
    output wire                      done_take,
    input  wire  [CHANNELS_LOG2-1:0] done_channel,
    input  wire  [PREFETCH_LOG2-5:0] done_slot,
    input  wire  [1:0]               done_error,

    // Notices of the bus side: 0 the final report of a channel is on the bus, 1 a write was refused.
    input  wire                      notice_valid,
    input  wire                      notice_kind,
    input  wire  [CHANNELS_LOG2-1:0] notice_channel
);
    `include "shotline_require.svh"
    `include "card_registers.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_rings: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_rings: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_rings: TAGS_LOG2 must be 2 to 8")

    localparam int CHANNELS = 1 << CHANNELS_LOG2;
    localparam int SLOT = PREFETCH_LOG2 - 4;
    localparam int GROUPS = 1 << SLOT;
    localparam logic [1:0] STOPPED = 2'd0, STARTING = 2'd1, RUNNING = 2'd2, STOPPING = 2'd3;
    localparam logic [1:0] CLEAR = 2'd0, START = 2'd1, STOP = 2'd2;
    localparam logic [3:0] NONE = 4'd0, REFUSED = 4'd4;
    localparam logic [1:0] SWEEP = 2'd0, PICK = 2'd1, LOOK = 2'd2, ACT = 2'd3;

    // ---------------------------------------------------------------- the channel of a visit
    logic [1:0] step;
    logic [CHANNELS_LOG2-1:0] channel;
    logic is_done;  // a read of the channel has ended
    logic [SLOT-1:0] slot;
    logic [1:0] error;

    // Channels to visit, in sixteens. Of those, the ones after the last visited come first.
    localparam int WINDOW_LOG2 = CHANNELS_LOG2 < 4 ? CHANNELS_LOG2 : 4;
    localparam int WINDOW = 1 << WINDOW_LOG2;
    logic [CHANNELS-1:0] pending;
    logic [CHANNELS_LOG2-1:0] window;  // first channel of the sixteen
    logic [WINDOW-1:0] after;
    wire [WINDOW-1:0] candidates = pending[window+:WINDOW] & after;
    logic [WINDOW_LOG2-1:0] pick;
    always_comb begin
        pick = '0;
        for (int place = WINDOW - 1; place >= 0; place--) if (candidates[place]) pick = WINDOW_LOG2'(place);
    end
    wire picked = step == PICK && !done_valid && candidates != '0;
    wire [CHANNELS_LOG2-1:0] picked_channel = window | CHANNELS_LOG2'(pick);
    assign done_take = step == PICK && done_valid;

    wire control  = config_write && config_register == REG_CARD_CHANNEL_CONTROL;
    wire software = config_write && config_register == REG_CARD_CHANNEL_SOFTWARE_POINTER;
    logic again;  // the visit has left something to do
    always_ff @(posedge clk)
        if (rst) pending <= '0;
        else begin
            if (picked) pending[picked_channel] <= 1'b0;
            if (again) pending[channel] <= 1'b1;
            if (control || software) pending[config_channel] <= 1'b1;
            if (used_valid) pending[used_channel] <= 1'b1;
            if (notice_valid) pending[notice_channel] <= 1'b1;
        end

    // Events that a visit sees once. One that comes in the same clock is left to the next visit.
    // A stop that comes with the start before it is seen again.
    logic [CHANNELS-1:0] run_requests, stop_requests, finals, refusals;
    logic stop_later;
    always_ff @(posedge clk)
        if (rst) begin
            run_requests  <= '0;
            stop_requests <= '0;
            finals        <= '0;
            refusals      <= '0;
        end else begin
            if (step == LOOK) begin
                run_requests[channel]  <= 1'b0;
                stop_requests[channel] <= 1'b0;
                finals[channel]        <= 1'b0;
                refusals[channel]      <= 1'b0;
            end
            if (stop_later) stop_requests[channel] <= 1'b1;
            if (control && config_data[0]) run_requests[config_channel] <= 1'b1;
            if (control) stop_requests[config_channel] <= !config_data[0];
            if (notice_valid && !notice_kind) finals[notice_channel] <= 1'b1;
            if (notice_valid && notice_kind) refusals[notice_channel] <= 1'b1;
        end

    // ---------------------------------------------------------------- LOOK: all that is known of the channel
    localparam int RECORD = 1 + 12 + 12 + (TAGS_LOG2 + 1) + GROUPS;
    logic [RECORD-1:0] record, record_next, record_found;
    logic [5:0] state_now, state_next, state_found;  // error and state
    logic [1:0][5:0] state_read;
    wire record_write;
    shotline_lut_ram #(.WIDTH(6), .DEPTH_LOG2(CHANNELS_LOG2), .READS(3)) states (
        .clk, .write(record_write), .write_addr(channel), .write_data(state_next),
        .read_addr({state_channel, channel}), .read_data({state_read, state_found})
    );
    shotline_lut_ram #(.WIDTH(RECORD), .DEPTH_LOG2(CHANNELS_LOG2)) records (
        .clk, .write(record_write), .write_addr(channel), .write_data(record_next),
        .read_addr(channel), .read_data(record_found)
    );

    // A start makes the pointer 0.
    logic [11:0] given_found, given;
    shotline_lut_ram #(.WIDTH(12), .DEPTH_LOG2(CHANNELS_LOG2)) givens (
        .clk, .write(software || (control && config_data[0])), .write_addr(config_channel),
        .write_data(control ? 12'd0 : config_data[15:4]), .read_addr(channel), .read_data(given_found)
    );
    logic [19:0] low_found;
    logic [31:0] high_found;
    logic [3:0] size_found, size;
    logic [51:0] ring;
    shotline_lut_ram #(.WIDTH(20), .DEPTH_LOG2(CHANNELS_LOG2)) lows (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_RING_LOW), .write_addr(config_channel),
        .write_data(config_data[31:12]), .read_addr(channel), .read_data(low_found)
    );
    shotline_lut_ram #(.WIDTH(32), .DEPTH_LOG2(CHANNELS_LOG2)) highs (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_RING_HIGH), .write_addr(config_channel),
        .write_data(config_data), .read_addr(channel), .read_data(high_found)
    );
    shotline_lut_ram #(.WIDTH(4), .DEPTH_LOG2(CHANNELS_LOG2)) sizes (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_RING), .write_addr(config_channel),
        .write_data(config_data[3:0]), .read_addr(channel), .read_data(size_found)
    );

    logic run, stop, final_seen, refused;
    logic [11:0] used_group;
    assign head_channel = channel;
    always_ff @(posedge clk)
        if (step == LOOK) begin
            record        <= record_found;
            state_now     <= state_found;
            given         <= given_found;
            ring          <= {high_found, low_found};
            size          <= size_found;
            used_group    <= head[15:4];
            run           <= run_requests[channel];
            stop          <= stop_requests[channel];
            final_seen    <= finals[channel];
            refused       <= refusals[channel];
        end

    // ---------------------------------------------------------------- ACT
    logic [1:0] now, next;
    logic [3:0] fault, fault_next;
    logic ended;                  // the final report is on the bus
    logic [11:0] filled, filled_next, requested, requested_next;
    logic [TAGS_LOG2:0] reading, reading_next;
    logic [GROUPS-1:0] marks, marked, marks_next;  // groups that have come, and are not counted in `filled`
    assign {fault, now} = state_now;
    assign {ended, filled, requested, reading, marks} = record;

    wire act = step == ACT;
    wire [3:0] error_now = is_done && error != '0 ? {2'b00, error} : refused ? REFUSED : NONE;
    wire starts  = now == STOPPED && run;
    wire stops   = now == RUNNING && (stop || error_now != NONE);
    wire runs_on = now == RUNNING && !stops;
    wire leave   = act && !((starts || stops) && command_valid);  // a command waits for its place
    wire is_ended = ended || final_seen;

    // Up to two groups at a time: those that come in order need one.
    assign marked = marks | (is_done && error == '0 ? GROUPS'(1) << slot : '0);
    wire [SLOT-1:0] place_0 = filled[SLOT-1:0];
    wire [SLOT-1:0] place_1 = filled[SLOT-1:0] + 1'b1;
    wire one = runs_on && marked[place_0];
    wire two = one && marked[place_1];

    function automatic logic free(input logic [11:0] group, input logic [11:0] used_to, input logic [11:0] given_to);
        free = 12'(group - used_to) < 12'(GROUPS) && group != given_to;
    endfunction
    wire fetch = runs_on && free(requested, used_group, given);
    assign start_valid   = leave && fetch;
    assign start_channel = channel;
    assign start_group   = requested;
    logic [10:0] mask;  // of a group in a ring of 2^size descriptors
    always_comb for (int place = 0; place < 11; place++) mask[place] = size > 4'(place + 4);
    wire [10:0] in_ring = requested[10:0] & mask;
    assign start_address = {ring + {45'd0, in_ring[10:4]}, in_ring[3:0], 8'd0};
    wire fetched = start_valid && start_ready;

    always_comb begin
        next           = now;
        fault_next     = fault;
        filled_next    = filled + {11'd0, one} + {11'd0, two};
        requested_next = requested + {11'd0, fetched};
        reading_next   = reading + {{TAGS_LOG2{1'b0}}, fetched} - {{TAGS_LOG2{1'b0}}, is_done};
        marks_next     = marked & ~(one ? GROUPS'(1) << place_0 : '0) & ~(two ? GROUPS'(1) << place_1 : '0);
        if (starts) begin
            next           = RUNNING;
            fault_next     = NONE;
            filled_next    = '0;
            requested_next = '0;
            marks_next     = '0;
        end else if (now == RUNNING || now == STOPPING) begin
            if (fault == NONE) fault_next = error_now;
            if (stops) next = STOPPING;
            if (now == STOPPING && is_ended && reading_next == '0) next = STOPPED;
        end
    end
    assign stop_later = leave && starts && stop;
    assign again = stop_later || (leave && runs_on && (two || free(requested_next, used_group, given)));
    assign record_write   = step == SWEEP || leave;
    assign state_next     = step == SWEEP ? '0 : {fault_next, next};
    assign record_next    = step == SWEEP ? '0 :
        {now == STOPPING && is_ended, filled_next, requested_next, reading_next, marks_next};
    assign filled_write   = record_write;
    assign filled_channel = channel;
    assign filled_group   = step == SWEEP ? '0 : filled_next;

    // A channel that a write of its register has started is not stopped any more.
    for (genvar port = 0; port < 2; port++) begin : g_state
        wire [CHANNELS_LOG2-1:0] of = state_channel[port];
        wire [1:0] recorded = state_read[port][1:0];
        wire starting = run_requests[of] || (act && starts && channel == of);
        assign state[port] = recorded == STOPPED && starting ? STARTING : recorded;
    end
    assign state_error = state_read[1][5:2];
    wire unused = &{head[3:0], state_read[0][5:2], 1'b0};

    always_ff @(posedge clk)
        if (rst) begin
            step          <= SWEEP;
            channel       <= '0;
            window        <= '0;
            after         <= '1;
            ready         <= 1'b0;
            command_valid <= 1'b0;
        end else begin
            if (command_ready) command_valid <= 1'b0;
            case (step)
                SWEEP:
                    if (!command_valid) begin
                        command_valid   <= 1'b1;
                        command         <= CLEAR;
                        command_channel <= channel;
                    end else if (command_ready) begin
                        channel <= channel + 1'b1;
                        if (channel == '1) begin
                            step  <= PICK;
                            ready <= 1'b1;
                        end
                    end
                PICK: begin
                    is_done <= done_valid;
                    slot    <= done_slot;
                    error   <= done_error;
                    channel <= done_valid ? done_channel : picked_channel;
                    if (done_valid || picked) step <= LOOK;
                    if (picked) after <= ~((WINDOW'(2) << pick) - 1'b1);
                    else if (!done_valid) begin
                        after  <= '1;
                        window <= window + CHANNELS_LOG2'(WINDOW);
                    end
                end
                LOOK: step <= ACT;
                default: begin
                    if (leave) step <= PICK;
                    if (leave && (starts || stops)) begin
                        command_valid   <= 1'b1;
                        command         <= starts ? START : STOP;
                        command_channel <= channel;
                        command_error   <= fault_next;
                    end
                end
            endcase
        end

`ifdef FORMAL
    `include "shotline_card_rings_properties.svh"
`endif
endmodule

`default_nettype wire
