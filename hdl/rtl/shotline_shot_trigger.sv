// Trigger controller: decides when a shot starts and counts the triggers that start none.
//
// `start` is set only while neither a run nor a shot is active. A run lasts from `start` to `stop`, or until its number
// of shots is reached. Mode 0 starts shots back to back, mode 1 one every `cfg_period` clocks, mode 2 on rising edges
// of `pin` and on trigger commands. A trigger that arrives while no shot can start (`ready` clear, or a shot active) is
// missed and counted.
//
// Commands carry sequence numbers (docs/wire-formats.md, section 7). Each number triggers once: one within WINDOW
// before the newest, or equal to it, is a repetition and is ignored. Skipped numbers, up to WINDOW of them, were lost
// on the network and count as missed; a larger step is a restarted sender. A command with the command-only flag does
// not trigger.
//
// A shot number is never used twice; a shot rejected by the window (no samples arrived) does not use one.

`default_nettype none

module shotline_shot_trigger (
    // Clock and synchronous reset.
    input  wire        clk,
    input  wire        rst,

    // Commands and configuration of the run.
    input  wire        start,
    input  wire        stop,
    input  wire [1:0]  cfg_mode,
    input  wire        cfg_pin,      // enable the trigger input
    input  wire        cfg_command,  // enable trigger commands
    input  wire [31:0] cfg_period,   // clocks between shots in mode 1, at least 1
    input  wire [47:0] cfg_shots,    // 0: until stop
    input  wire        load_number,  // with `start`: set the next shot's number
    input  wire [47:0] cfg_number,

    // Triggers.
    input  wire        pin,               // synchronized to `clk`
    input  wire        command_valid,
    output wire        command_ready,     // clear for one clock after a command, until its sequence number is stored
    input  wire [31:0] command_sequence,
    input  wire        command_only,

    // Shots.
    input  wire        ready,    // the pipeline can accept a shot
    output wire        fire,
    input  wire        begun,    // its first sample has arrived
    input  wire        refused,  // no sample has arrived
    input  wire        done,     // it has been sent completely

    // State of the run and events for the counters.
    output wire        running,
    output wire        busy,
    output wire [47:0] number,           // of the active shot, or of the next
    output wire [47:0] taken,            // shots started since `start`
    output wire [47:0] missed,           // triggers since `start` that started none
    output wire        count_repeated,
    output wire        count_unexpected  // a command or an edge while no run accepts it
);
    localparam logic [31:0] WINDOW = 32'd65536;

    logic run;
    logic shot_active;
    logic [47:0] number_next;
    logic [47:0] shots;
    logic [47:0] misses;
    logic [31:0] period_left;
    logic pin_last;

    // 1: register the triggers.
    logic edge_1, command_1;
    logic [31:0] sequence_1;
    logic [31:0] ahead_1;
    logic [31:0] newest;
    logic newest_known;
    wire by_trigger = run && cfg_mode == 2'd2;
    assign command_ready = !command_1;

    always_ff @(posedge clk) begin
        pin_last   <= pin;
        edge_1     <= !rst && pin && !pin_last;
        command_1  <= !rst && command_valid && command_ready && !command_only;
        sequence_1 <= command_sequence;
        ahead_1    <= command_sequence - newest;
    end

    // 2: decide.
    wire takes_command = by_trigger && cfg_command;
    wire repeated = newest_known && (32'd0 - ahead_1) <= WINDOW;
    wire skipped = newest_known && ahead_1 - 32'd1 < WINDOW;
    wire command_trigger = command_1 && takes_command && !repeated;
    wire pin_trigger = edge_1 && by_trigger && cfg_pin;
    wire tick = run && cfg_mode == 2'd1 && period_left == 32'd0;
    wire back_to_back = run && cfg_mode == 2'd0;
    wire can_start = ready && !shot_active;
    wire all_started = cfg_shots != '0 && shots >= cfg_shots;

    assign fire = can_start && !all_started && (command_trigger || pin_trigger || tick || back_to_back);
    assign running = run;
    assign busy = shot_active;
    assign number = number_next;
    assign taken = shots;
    assign missed = misses;
    assign count_repeated = command_1 && takes_command && repeated;
    assign count_unexpected = (command_1 && !takes_command) || (edge_1 && !(by_trigger && cfg_pin));

    // An edge and a command in the same clock are two triggers, only one of which can start a shot.
    wire [1:0] triggers = {1'b0, command_trigger} + {1'b0, pin_trigger} + {1'b0, tick};
    wire [1:0] failed = triggers - {1'b0, fire && !back_to_back};
    wire [16:0] lost = command_trigger && skipped ? ahead_1[16:0] - 17'd1 : 17'd0;

    always_ff @(posedge clk) begin
        if (rst) begin
            run          <= 1'b0;
            shot_active  <= 1'b0;
            newest_known <= 1'b0;
            number_next  <= '0;
            shots        <= '0;
            misses       <= '0;
            period_left  <= '0;
        end else begin
            if (start) run <= 1'b1;
            else if (stop || (all_started && !shot_active)) run <= 1'b0;

            if (fire) shot_active <= 1'b1;
            else if (refused || done) shot_active <= 1'b0;

            if (start && load_number) number_next <= cfg_number;
            else if (done) number_next <= number_next + 48'd1;

            if (start) shots <= '0;
            else if (begun) shots <= shots + 48'd1;

            if (start) misses <= '0;
            else misses <= misses + {31'd0, lost} + {46'd0, failed} + {47'd0, refused};

            if (start) newest_known <= 1'b0;
            else if (command_trigger) newest_known <= 1'b1;
            if (command_trigger) newest <= sequence_1;

            if (start || !run) period_left <= '0;
            else period_left <= tick ? cfg_period - 32'd1 : period_left - 32'd1;
        end
    end
endmodule

`default_nettype wire
