// Word synchronizer: carries single words between clock domains with a two-phase (toggle) handshake.
//
// A word is accepted when `s_valid` and `s_ready` are set. Some clocks later it appears on `m_data` with one clock of
// `m_valid`, and stays there until the next word. `s_ready` returns when the destination has the word. For rare words
// (a command, a configuration); streams use shotline_fifo_async.
//
// Only the two toggles are synchronized. `cdc_word_hold` is stable from before its toggle leaves until the toggle has
// returned, so its bits may arrive up to two periods of `m_clk` after the toggle (set_max_delay -datapath_only).

`default_nettype none

module shotline_cdc_word #(
    parameter int WIDTH = 8  // bits of a word, at least 1
) (
    // Source clock domain.
    input  wire             s_clk,
    input  wire             s_rst,
    input  wire [WIDTH-1:0] s_data,
    input  wire             s_valid,
    output wire             s_ready,

    // Destination clock domain.
    input  wire             m_clk,
    input  wire             m_rst,
    output wire [WIDTH-1:0] m_data,
    output wire             m_valid
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_cdc_word: WIDTH must be at least 1")

    logic [WIDTH-1:0] cdc_word_hold;
    logic req;
    (* ASYNC_REG = "TRUE" *) logic req_1, req_m;
    logic ack;
    (* ASYNC_REG = "TRUE" *) logic ack_1, ack_s;
    logic [WIDTH-1:0] word;
    logic fresh;

    assign s_ready = req == ack_s;
    assign m_data  = word;
    assign m_valid = fresh;

    always_ff @(posedge s_clk) begin
        if (s_rst) begin
            req   <= 1'b0;
            ack_1 <= 1'b0;
            ack_s <= 1'b0;
        end else begin
            ack_1 <= ack;
            ack_s <= ack_1;
            if (s_valid && s_ready) req <= !req;
        end
        if (s_valid && s_ready) cdc_word_hold <= s_data;
    end

    always_ff @(posedge m_clk) begin
        if (m_rst) begin
            req_1 <= 1'b0;
            req_m <= 1'b0;
            ack   <= 1'b0;
            fresh <= 1'b0;
        end else begin
            req_1 <= req;
            req_m <= req_1;
            ack   <= req_m;
            fresh <= req_m != ack;
        end
        if (req_m != ack) word <= cdc_word_hold;
    end

`ifdef FORMAL
    `include "shotline_cdc_word_properties.svh"
`endif
endmodule

`default_nettype wire
