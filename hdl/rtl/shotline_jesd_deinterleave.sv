// JESD204B sample de-interleaver: octets of the lanes to samples in channel order.
//
// Input: the octets after the link layer of a JESD204B receiver, lanes aligned to each other. Each lane carries two
// 12-bit channels in a frame of three octets (F = 3): a[11:4], then a[3:0] b[11:8], then b[7:0]. Lane `l` of front end
// `a` is at bits 8 (LANES a + l) and up. `lane_sof` marks the first octet of a frame. At 120 MHz this is 40 MS/s per
// channel.
//
// Output: an instant (one sample of every channel) as AFES beats of 2 LANES samples, one front end per beat, channel by
// channel from bit 0 up. There is no back-pressure. `m_time` is the value of `tai` at the first octet of the frame,
// valid for all beats of the instant.
//
// `m_error` is set for one clock if octets do not come in threes: a short frame, or a missing start of frame. The
// partial frame is discarded, and output resumes at the next `lane_sof`.

`default_nettype none

module shotline_jesd_deinterleave #(
    parameter int AFES = 3,     // front ends, 1 to 3: one beat per octet of a frame
    parameter int LANES = 16,   // lanes of a front end
    parameter int ADJACENT = 1  // 1: lane l carries channels 2l and 2l+1; 0: channels l and LANES + l
) (
    // Clock and synchronous reset.
    input  wire                    clk,
    input  wire                    rst,

    // Octets of all lanes, and the time in TAI ns since 1970.
    input  wire [AFES*LANES*8-1:0] lane_data,
    input  wire                    lane_valid,
    input  wire                    lane_sof,
    input  wire [63:0]             tai,

    // Samples, without back-pressure.
    output wire [LANES*24-1:0]     m_data,
    output wire                    m_valid,
    output wire                    m_first,
    output wire                    m_last,
    output wire [63:0]             m_time,
    output wire                    m_error
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(afes, AFES >= 1 && AFES <= 3, "shotline_jesd_deinterleave: AFES must be 1 to 3")
    `SHOTLINE_REQUIRE(lanes, LANES >= 1, "shotline_jesd_deinterleave: LANES must be at least 1")
    `SHOTLINE_REQUIRE(adjacent, ADJACENT == 0 || ADJACENT == 1, "shotline_jesd_deinterleave: ADJACENT must be 0 or 1")

    localparam int N = AFES * LANES;
    localparam int BEAT = LANES * 24;
    localparam logic [1:0] LAST_BEAT = 2'(AFES - 1);

    // Index of the next octet in its frame; at 0 a start of frame is expected.
    logic [1:0] octet;
    logic [N*8-1:0] first_octets;
    logic [N*8-1:0] second_octets;
    logic [63:0] frame_time;
    logic error;

    // Instant being output: the current beat in the lowest bits, shifted down by one beat per clock.
    logic [AFES*BEAT-1:0] instant;
    logic [63:0] instant_time;
    logic [1:0] beat;
    logic busy;

    wire in_sequence = lane_sof == (octet == 2'd0);
    wire complete = lane_valid && in_sequence && octet == 2'd2;

    // Wiring: the samples of a frame in channel order.
    logic [AFES*BEAT-1:0] samples;
    always_comb begin
        samples = '0;
        for (int afe = 0; afe < AFES; afe++) begin
            for (int lane = 0; lane < LANES; lane++) begin
                samples[afe*BEAT + 12*(ADJACENT != 0 ? 2*lane : lane) +: 12] = {
                    first_octets[8*(afe*LANES + lane) +: 8], second_octets[8*(afe*LANES + lane) + 4 +: 4]};
                samples[afe*BEAT + 12*(ADJACENT != 0 ? 2*lane + 1 : LANES + lane) +: 12] = {
                    second_octets[8*(afe*LANES + lane) +: 4], lane_data[8*(afe*LANES + lane) +: 8]};
            end
        end
    end

    assign m_data  = instant[BEAT-1:0];
    assign m_valid = busy;
    assign m_first = beat == 2'd0;
    assign m_last  = beat == LAST_BEAT;
    assign m_time  = instant_time;
    assign m_error = error;

    always_ff @(posedge clk) begin
        if (lane_valid && lane_sof) begin
            first_octets <= lane_data;
            frame_time   <= tai;
        end
        if (lane_valid && octet == 2'd1) second_octets <= lane_data;
        if (complete) begin
            instant      <= samples;
            instant_time <= frame_time;
        end else begin
            instant <= instant >> BEAT;
        end
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            octet <= 2'd0;
            beat  <= 2'd0;
            busy  <= 1'b0;
            error <= 1'b0;
        end else begin
            error <= lane_valid && !in_sequence;
            if (lane_valid) begin
                if (lane_sof) octet <= 2'd1;
                else if (octet == 2'd1) octet <= 2'd2;
                else octet <= 2'd0;
            end
            if (complete) begin
                beat <= 2'd0;
                busy <= 1'b1;
            end else if (busy) begin
                beat <= beat + 2'd1;
                busy <= !m_last;
            end
        end
    end
endmodule

`default_nettype wire
