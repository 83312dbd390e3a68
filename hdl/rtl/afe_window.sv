// Cuts shots out of the stream of samples, in the clock domain of the converters: what lies between is never stored.
//
// A start (of so many instants, at least one) opens the window at the next whole instant. Its time and whether the clock is
// locked to its reference then go to `head`, once, and all beats of the instants to `beat`.
//
// A converter does not wait. If the FIFO behind `beat` has no room, or octets are missing, the samples that follow would
// stand in wrong places; so nothing more is written of the shot but a mark that says why (`beat_mark`, the cause in
// the lowest bits of `beat_data`), for which the last place of the FIFO is kept free. Whoever reads it fills the shot to its
// length and has it sent as damaged. If no samples come at all before the first one, the shot is refused (`head_refused`).
module afe_window #(
    parameter int BEAT = 384,        // bits of a beat
    parameter int LEVEL = 10,        // bits of `beat_level`; the FIFO has 2^(LEVEL-1) places
    parameter int TIMEOUT_LOG2 = 12  // clocks without an instant that end a shot
) (
    input  wire             clk,
    input  wire             rst,

    input  wire [BEAT-1:0]  s_data,
    input  wire             s_valid,
    input  wire             s_first,
    input  wire             s_last,
    input  wire [63:0]      s_time,
    input  wire             s_error,
    input  wire             locked,

    input  wire [31:0]      start_samples,
    input  wire             start,

    output wire [63:0]      head_time,
    output wire             head_locked,
    output wire             head_refused,
    output wire             head_valid,

    output wire [BEAT-1:0]  beat_data,
    output wire             beat_mark,
    output wire             beat_valid,
    input  wire [LEVEL-1:0] beat_level
);
    localparam logic [1:0] IDLE = 2'd0;   // no shot
    localparam logic [1:0] ARMED = 2'd1;  // waits for an instant to begin
    localparam logic [1:0] OPEN = 2'd2;   // writes
    localparam logic [1:0] CUT = 2'd3;    // writes the mark

    localparam logic [1:0] CAUSE_FULL = 2'd1;
    localparam logic [1:0] CAUSE_LINK = 2'd2;
    localparam logic [1:0] CAUSE_SILENT = 2'd3;

    // With one place left there is none for a beat. (`beat_level` may say too much, never too little.)
    localparam logic [LEVEL-1:0] LIMIT = {1'b0, {LEVEL - 1{1'b1}}};

    logic [1:0] state;
    logic [1:0] cause;
    logic [31:0] instants_left;
    logic [TIMEOUT_LOG2-1:0] silence;

    wire begins = state == ARMED && s_valid && s_first;
    wire in_shot = begins || state == OPEN;
    wire room = beat_level < LIMIT;
    wire silent = silence == '1;
    wire refuse = state == ARMED && !begins && silent;

    assign head_time    = s_time;
    assign head_locked  = locked;
    assign head_refused = refuse;
    assign head_valid   = begins || refuse;

    assign beat_mark    = state == CUT;
    assign beat_data    = beat_mark ? {{BEAT - 2{1'b0}}, cause} : s_data;
    assign beat_valid   = beat_mark || (in_shot && s_valid && room && !s_error);

    always_ff @(posedge clk) begin
        if (state == IDLE || s_valid) silence <= '0;
        else silence <= silence + 1'b1;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            state         <= IDLE;
            cause         <= '0;
            instants_left <= '0;
        end else if (state == IDLE) begin
            instants_left <= start_samples;
            if (start) state <= ARMED;
        end else if (state == CUT || refuse) begin
            state <= IDLE;
        end else if (in_shot) begin
            state <= OPEN;
            if (s_error || silent || (s_valid && !room)) begin
                state <= CUT;
                cause <= s_error ? CAUSE_LINK : silent ? CAUSE_SILENT : CAUSE_FULL;
            end else if (s_valid && s_last) begin
                instants_left <= instants_left - 32'd1;
                if (instants_left == 32'd1) state <= IDLE;
            end
        end
    end
endmodule
