// Pulse synchronizer: each clock with `s_pulse` set in the source domain gives one clock of `m_pulse` in the
// destination domain.
//
// Pulses must be at least two periods of `m_clk` plus one of `s_clk` apart; closer ones cancel in pairs. A source that
// cannot guarantee this distance uses shotline_cdc_word, which has a handshake, or a Gray-coded counter.

`default_nettype none

module shotline_cdc_pulse (
    // Source clock domain.
    input  wire s_clk,
    input  wire s_rst,
    input  wire s_pulse,

    // Destination clock domain.
    input  wire m_clk,
    input  wire m_rst,
    output wire m_pulse
);
    // A pulse toggles a level, because a level can be synchronized.
    logic level;
    wire level_m;
    logic seen;

    always_ff @(posedge s_clk) begin
        if (s_rst) level <= 1'b0;
        else if (s_pulse) level <= !level;
    end

    shotline_cdc_sync sync (.clk(m_clk), .rst(m_rst), .d(level), .q(level_m));

    always_ff @(posedge m_clk) begin
        if (m_rst) seen <= 1'b0;
        else seen <= level_m;
    end

    assign m_pulse = level_m != seen;
endmodule

`default_nettype wire
