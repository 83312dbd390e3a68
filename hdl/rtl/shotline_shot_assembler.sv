// Shot assembler: turns the output of shotline_afe_window into shots of exactly the configured length, so that every
// sample is at its offset. A shot that the window aborted is padded with zeros and its last beat is flagged as bad; the
// sender then gives its record a wrong CRC, and a receiver stores the shot as damaged.

`default_nettype none

module shotline_shot_assembler #(
    parameter int BEAT = 384,  // width of a beat in bits
    parameter int AFES = 3     // beats of an instant, 1 to 3
) (
    // Clock and synchronous reset.
    input  wire            clk,
    input  wire            rst,

    // Start of a shot of `samples` instants.
    input  wire            fire,
    input  wire [31:0]     samples,

    // Description of the shot, from shotline_afe_window.
    input  wire            head_valid,
    output wire            head_ready,
    input  wire            head_refused,
    input  wire            head_locked,
    input  wire [63:0]     head_time,

    // Beats, from shotline_afe_window.
    input  wire            beat_valid,
    output wire            beat_ready,
    input  wire            beat_mark,
    input  wire [BEAT-1:0] beat_data,

    // Beats of complete shots.
    output wire [BEAT-1:0] m_data,
    output wire            m_valid,
    input  wire            m_ready,
    output wire            m_last,
    output wire            m_bad,
    input  wire            m_sent,   // the sender has sent the whole shot

    // State of the shot.
    output wire [63:0]     shot_time,    // of its first sample, TAI ns since 1970
    output wire            shot_locked,
    output wire            begun,
    output wire            refused,
    output wire            done,
    output wire            idle,
    output wire            damaged,      // with `done`
    output wire [1:0]      cause         // cause of the last damaged shot: see shotline_afe_window
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(beat, BEAT >= 2, "shotline_shot_assembler: BEAT must be at least 2 bits")
    `SHOTLINE_REQUIRE(afes, AFES >= 1 && AFES <= 3, "shotline_shot_assembler: AFES must be 1 to 3")

    localparam logic [2:0] IDLE = 3'd0;
    localparam logic [2:0] HEAD = 3'd1;   // wait for the first sample
    localparam logic [2:0] DATA = 3'd2;   // pass beats on
    localparam logic [2:0] FILL = 3'd3;   // pad with zeros
    localparam logic [2:0] SEND = 3'd4;   // wait until the shot is sent
    localparam logic [1:0] LAST_BEAT = 2'(AFES - 1);

    logic [2:0] state;
    logic [31:0] instants_left;
    logic [1:0] beat;
    logic bad;
    logic [1:0] damage_cause;
    logic locked;
    logic [63:0] start_time;

    wire last_beat = instants_left == 32'd1 && beat == LAST_BEAT;
    wire mark = state == DATA && beat_valid && beat_mark;
    wire step = m_valid && m_ready;

    assign head_ready = state == HEAD;
    assign begun      = head_ready && head_valid && !head_refused;
    assign refused    = head_ready && head_valid && head_refused;
    assign beat_ready = state == DATA && (beat_mark || m_ready);
    assign m_data     = state == FILL ? '0 : beat_data;
    assign m_valid    = state == FILL || (state == DATA && beat_valid && !beat_mark);
    assign m_last     = last_beat;
    assign m_bad      = bad;
    assign done       = state == SEND && m_sent;
    assign idle       = state == IDLE;
    assign damaged    = bad;
    assign cause      = damage_cause;
    assign shot_time  = start_time;
    assign shot_locked = locked;

    always_ff @(posedge clk) begin
        if (begun) begin
            start_time <= head_time;
            locked     <= head_locked;
        end
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            state         <= IDLE;
            instants_left <= '0;
            beat          <= '0;
            bad           <= 1'b0;
            damage_cause  <= '0;
        end else begin
            if (step) begin
                beat <= beat == LAST_BEAT ? 2'd0 : beat + 2'd1;
                if (beat == LAST_BEAT) instants_left <= instants_left - 32'd1;
            end
            case (state)
                IDLE: begin
                    instants_left <= samples;
                    beat          <= '0;
                    bad           <= 1'b0;
                    if (fire) state <= HEAD;
                end
                HEAD: if (refused) state <= IDLE;
                    else if (begun) state <= DATA;
                DATA: if (mark) begin
                        state        <= FILL;
                        bad          <= 1'b1;
                        damage_cause <= beat_data[1:0];
                    end else if (step && last_beat) state <= SEND;
                FILL: if (step && last_beat) state <= SEND;
                default: if (m_sent) state <= IDLE;
            endcase
        end
    end
endmodule

`default_nettype wire
