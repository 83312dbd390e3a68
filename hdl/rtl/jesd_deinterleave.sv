// From the octets of JESD204B lanes to the samples of channels in their order.
//
// Input: what a JESD204B receiver gives behind its link layer, lanes aligned to each other. Each lane carries two channels
// of 12 bits in a frame of three octets (F = 3): a[11:4], then a[3:0] b[11:8], then b[7:0]. Lane `l` of front end `a` is
// at bits 8 (LANES a + l) and up. `lane_sof` marks the first octet of a frame. At 120 MHz this is 40 million samples a
// second of every channel.
//
// Output: an instant (one sample of every channel) as AFES beats of 2 LANES samples, one front end a beat, channel by
// channel from bit 0 on. There is no back-pressure: a converter does not wait. `m_time` is what `tai` was at the first
// octet of the frame, and holds for the beats of the instant.
//
// `m_error` is set for a clock when octets do not come in threes: a frame cut short, or none where one is due. What there
// was of it is thrown away, and nothing is given until the next `lane_sof`.
module jesd_deinterleave #(
    parameter int AFES = 3,     // front ends: 1 to 3, one beat for each octet of a frame
    parameter int LANES = 16,   // of each
    parameter int ADJACENT = 1  // 1: lane l carries channels 2l and 2l+1; 0: l and LANES + l
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire [AFES*LANES*8-1:0] lane_data,
    input  wire                    lane_valid,
    input  wire                    lane_sof,
    input  wire [63:0]             tai,
    output wire [LANES*24-1:0]     m_data,
    output wire                    m_valid,
    output wire                    m_first,
    output wire                    m_last,
    output wire [63:0]             m_time,
    output wire                    m_error
);
    localparam int N = AFES * LANES;
    localparam int BEAT = LANES * 24;
    localparam logic [1:0] LAST_BEAT = 2'(AFES - 1);

    // Which octet comes next; 0 waits for a start of frame.
    logic [1:0] octet;
    logic [N*8-1:0] first_octets;
    logic [N*8-1:0] second_octets;
    logic [63:0] frame_time;
    logic error;

    // The instant that is being given: beat 0 in the lowest bits, shifted down beat by beat.
    logic [AFES*BEAT-1:0] instant;
    logic [63:0] instant_time;
    logic [1:0] beat;
    logic busy;

    wire in_place = lane_sof == (octet == 2'd0);
    wire complete = lane_valid && in_place && octet == 2'd2;

    // Wiring: the samples of a whole frame, in the order of channels.
    logic [AFES*BEAT-1:0] samples;
    always_comb begin
        samples = '0;
        for (int afe = 0; afe < AFES; afe = afe + 1) begin
            for (int lane = 0; lane < LANES; lane = lane + 1) begin
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
            error <= lane_valid && !in_place;
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
