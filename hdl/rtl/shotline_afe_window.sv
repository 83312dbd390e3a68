// Capture window: passes the samples of one shot from the converter clock domain to the AFE FIFO and drops all others.
//
// An instant is one sample of every channel. `start` (of `start_samples` instants, at least 1) opens the window at the
// next complete instant. The instant's timestamp and the clock's lock status are then written once to `head`, and all
// beats of the shot's instants to `beat`.
//
// Converters have no back-pressure. If the FIFO at `beat` is full, or octets are missing, later samples would land at
// wrong offsets. The window then stops writing the shot and writes one mark (`beat_mark`, with the cause in the lowest
// bits of `beat_data`), for which the FIFO's last entry is reserved. shotline_shot_assembler pads such a shot to its
// full length and flags it as damaged. If no sample arrives within the timeout, the shot is rejected (`head_refused`).

`default_nettype none

module shotline_afe_window #(
    parameter int BEAT = 384,        // width of a beat in bits
    parameter int LEVEL = 10,        // width of `beat_level`; the FIFO has 2^(LEVEL-1) entries
    parameter int TIMEOUT_LOG2 = 12  // log2 of the clocks without a sample after which a shot ends
) (
    // Clock and synchronous reset.
    input  wire             clk,
    input  wire             rst,

    // Samples from shotline_jesd_deinterleave, without back-pressure.
    input  wire [BEAT-1:0]  s_data,
    input  wire             s_valid,
    input  wire             s_first,
    input  wire             s_last,
    input  wire [63:0]      s_time,   // TAI ns since 1970
    input  wire             s_error,  // octets are missing
    input  wire             locked,   // the converter clock is locked to its reference

    // Start of a shot.
    input  wire [31:0]      start_samples,
    input  wire             start,

    // Description of the shot, once per shot.
    output wire [63:0]      head_time,
    output wire             head_locked,
    output wire             head_refused,
    output wire             head_valid,

    // Beats of the shot, to a FIFO.
    output wire [BEAT-1:0]  beat_data,
    output wire             beat_mark,
    output wire             beat_valid,
    input  wire [LEVEL-1:0] beat_level
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(beat, BEAT >= 3, "shotline_afe_window: BEAT must be at least 3 bits")
    `SHOTLINE_REQUIRE(level, LEVEL >= 2, "shotline_afe_window: LEVEL must be at least 2")
    `SHOTLINE_REQUIRE(timeout, TIMEOUT_LOG2 >= 1, "shotline_afe_window: TIMEOUT_LOG2 must be at least 1")

    localparam logic [1:0] IDLE = 2'd0;   // no shot
    localparam logic [1:0] ARMED = 2'd1;  // waits for the start of an instant
    localparam logic [1:0] OPEN = 2'd2;   // writes beats
    localparam logic [1:0] MARK = 2'd3;   // writes the mark

    localparam logic [1:0] CAUSE_FULL = 2'd1;
    localparam logic [1:0] CAUSE_LINK = 2'd2;
    localparam logic [1:0] CAUSE_TIMEOUT = 2'd3;

    // The last entry is reserved for the mark. (`beat_level` may be too high, never too low.)
    localparam logic [LEVEL-1:0] LIMIT = {1'b0, {LEVEL - 1{1'b1}}};

    logic [1:0] state;
    logic [1:0] cause;
    logic [31:0] instants_left;
    logic [TIMEOUT_LOG2-1:0] idle_clocks;

    wire first_beat = state == ARMED && s_valid && s_first;
    wire in_shot = first_beat || state == OPEN;
    wire has_space = beat_level < LIMIT;
    wire timed_out = idle_clocks == '1;
    wire refuse = state == ARMED && !first_beat && timed_out;

    assign head_time    = s_time;
    assign head_locked  = locked;
    assign head_refused = refuse;
    assign head_valid   = first_beat || refuse;

    assign beat_mark    = state == MARK;
    assign beat_data    = beat_mark ? {{BEAT - 2{1'b0}}, cause} : s_data;
    assign beat_valid   = beat_mark || (in_shot && s_valid && has_space && !s_error);

    always_ff @(posedge clk) begin
        if (state == IDLE || s_valid) idle_clocks <= '0;
        else idle_clocks <= idle_clocks + 1'b1;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            state         <= IDLE;
            cause         <= '0;
            instants_left <= '0;
        end else if (state == IDLE) begin
            instants_left <= start_samples;
            if (start) state <= ARMED;
        end else if (state == MARK || refuse) begin
            state <= IDLE;
        end else if (in_shot) begin
            state <= OPEN;
            if (s_error || timed_out || (s_valid && !has_space)) begin
                state <= MARK;
                cause <= s_error ? CAUSE_LINK : timed_out ? CAUSE_TIMEOUT : CAUSE_FULL;
            end else if (s_valid && s_last) begin
                instants_left <= instants_left - 32'd1;
                if (instants_left == 32'd1) state <= IDLE;
            end
        end
    end
endmodule

`default_nettype wire
