// Decides when shots begin, and keeps the books of those that do not.
//
// `start` comes only while neither a run nor a shot is under way.
// A run lasts from `start` to `stop`, or until its shots are taken. In mode 0 a shot follows the last one, in mode 1 every
// `cfg_period` clocks one is due, in mode 2 rising edges of `pin` and trigger commands ask for them. What comes while a
// shot cannot be taken (`ready` is not set, or one is under way) is missed, and counted.
//
// Commands are numbered (docs/wire-formats.md, section 7). A number is obeyed once: one that is among the last WINDOW + 1
// before and with the newest is a repetition, and changes nothing. Numbers left out, up to WINDOW of them, were lost on
// the way, and count as missed; a larger step is a sender that began anew. A command with the flag command only changes
// nothing.
//
// A number of a shot is never used twice, and one that was refused by the window (no samples came) uses none.
module shot_trigger (
    input  wire         clk,
    input  wire         rst,

    input  wire         start,
    input  wire         stop,
    input  wire [1:0]   cfg_mode,
    input  wire         cfg_pin,          // the input is obeyed
    input  wire         cfg_command,      // commands are obeyed
    input  wire [31:0]  cfg_period,
    input  wire [47:0]  cfg_shots,        // 0: until stop
    input  wire         load_number,      // with `start`: the next shot's number
    input  wire [47:0]  cfg_number,

    input  wire         pin,              // in this clock domain
    input  wire         command_valid,
    output wire         command_ready,    // not in the clock behind one: its number must be known first
    input  wire [31:0]  command_sequence,
    input  wire         command_only,

    input  wire         ready,            // everything behind could take a shot
    output wire         fire,
    input  wire         begun,            // its first sample is there
    input  wire         refused,          // or there were none
    input  wire         done,             // everything of it has been sent

    output wire         running,
    output wire         busy,
    output wire [47:0]  number,           // of the shot under way, or the next
    output wire [47:0]  taken,            // shots that began since `start`
    output wire [47:0]  missed,           // triggers since `start` that began none
    output wire         count_repeated,
    output wire         count_idle        // a command or an edge outside a run that takes it
);
    localparam logic [31:0] WINDOW = 32'd65536;

    logic run;
    logic under_way;
    logic [47:0] number_next;
    logic [47:0] shots;
    logic [47:0] misses;
    logic [31:0] due;
    logic pin_last;

    // 1: what was asked for, in registers.
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

    // 2: what becomes of it.
    wire obeys_command = by_trigger && cfg_command;
    wire repeated = newest_known && (32'd0 - ahead_1) <= WINDOW;
    wire left_out = newest_known && ahead_1 - 32'd1 < WINDOW;
    wire asked_command = command_1 && obeys_command && !repeated;
    wire asked_pin = edge_1 && by_trigger && cfg_pin;
    wire tick = run && cfg_mode == 2'd1 && due == 32'd0;
    wire free = run && cfg_mode == 2'd0;
    wire able = ready && !under_way;
    wire enough = cfg_shots != '0 && shots >= cfg_shots;

    assign fire = able && !enough && (asked_command || asked_pin || tick || free);
    assign running = run;
    assign busy = under_way;
    assign number = number_next;
    assign taken = shots;
    assign missed = misses;
    assign count_repeated = command_1 && obeys_command && repeated;
    assign count_idle = (command_1 && !obeys_command) || (edge_1 && !(by_trigger && cfg_pin));

    // An edge and a command in one clock are two triggers, of which one can begin a shot.
    wire [1:0] asked = {1'b0, asked_command} + {1'b0, asked_pin} + {1'b0, tick};
    wire [1:0] failed = asked - {1'b0, fire && !free};
    wire [16:0] lost = asked_command && left_out ? ahead_1[16:0] - 17'd1 : 17'd0;

    always_ff @(posedge clk) begin
        if (rst) begin
            run          <= 1'b0;
            under_way    <= 1'b0;
            newest_known <= 1'b0;
            number_next  <= '0;
            shots        <= '0;
            misses       <= '0;
            due          <= '0;
        end else begin
            if (start) run <= 1'b1;
            else if (stop || (enough && !under_way)) run <= 1'b0;

            if (fire) under_way <= 1'b1;
            else if (refused || done) under_way <= 1'b0;

            if (start && load_number) number_next <= cfg_number;
            else if (done) number_next <= number_next + 48'd1;

            if (start) shots <= '0;
            else if (begun) shots <= shots + 48'd1;

            if (start) misses <= '0;
            else misses <= misses + {31'd0, lost} + {46'd0, failed} + {47'd0, refused};

            if (start) newest_known <= 1'b0;
            else if (asked_command) newest_known <= 1'b1;
            if (asked_command) newest <= sequence_1;

            if (start || !run) due <= '0;
            else due <= tick ? cfg_period - 32'd1 : due - 32'd1;
        end
    end
endmodule
