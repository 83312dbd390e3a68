// Carries pulses of one clock from one clock domain to another, each as one pulse of one clock there.
//
// Every clock in which `s_pulse` is set is a pulse. They must be far enough apart to be told apart on the other side: two
// periods of `m_clk` and one of `s_clk`. Closer ones are lost in pairs, so a source that cannot promise the distance
// uses cdc_word, which says when it is ready, or counts in a Gray code.
module cdc_pulse (
    input  wire s_clk,
    input  wire s_rst,
    input  wire s_pulse,
    input  wire m_clk,
    input  wire m_rst,
    output wire m_pulse
);
    // A pulse becomes a change of level: levels can be synchronised.
    logic level;
    wire level_m;
    logic seen;

    always_ff @(posedge s_clk) begin
        if (s_rst) level <= 1'b0;
        else if (s_pulse) level <= !level;
    end

    cdc_sync sync (.clk(m_clk), .rst(m_rst), .d(level), .q(level_m));

    always_ff @(posedge m_clk) begin
        if (m_rst) seen <= 1'b0;
        else seen <= level_m;
    end

    assign m_pulse = level_m != seen;
endmodule
