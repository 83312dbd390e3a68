// Carries words from one clock domain to another, one at a time: four-wire handshake without the return to zero.
//
// A word is taken with `s_valid` and `s_ready`, appears some clocks later on `m_data` with `m_valid` for one clock of the
// other domain, and stays on `m_data` until the next. `s_ready` comes back when the other side has it. For rare words (a
// command, a configuration); for streams there is fifo_async.
//
// Only the two toggles are synchronised. `s_word` holds still from before its toggle leaves until the toggle has come
// back, so its bits may take up to a period of `s_clk` longer than the toggle (set_max_delay -datapath_only).
module cdc_word #(
    parameter int WIDTH = 8
) (
    input  wire              s_clk,
    input  wire              s_rst,
    input  wire  [WIDTH-1:0] s_data,
    input  wire              s_valid,
    output wire              s_ready,
    input  wire              m_clk,
    input  wire              m_rst,
    output wire  [WIDTH-1:0] m_data,
    output wire              m_valid
);
    logic [WIDTH-1:0] cdc_word_hold;
    logic asked;
    (* ASYNC_REG = "TRUE" *) logic asked_1, asked_m;
    logic done;
    (* ASYNC_REG = "TRUE" *) logic done_1, done_s;
    logic [WIDTH-1:0] word;
    logic fresh;

    assign s_ready = asked == done_s;
    assign m_data  = word;
    assign m_valid = fresh;

    always_ff @(posedge s_clk) begin
        if (s_rst) begin
            asked  <= 1'b0;
            done_1 <= 1'b0;
            done_s <= 1'b0;
        end else begin
            done_1 <= done;
            done_s <= done_1;
            if (s_valid && s_ready) asked <= !asked;
        end
        if (s_valid && s_ready) cdc_word_hold <= s_data;
    end

    always_ff @(posedge m_clk) begin
        if (m_rst) begin
            asked_1 <= 1'b0;
            asked_m <= 1'b0;
            done    <= 1'b0;
            fresh   <= 1'b0;
        end else begin
            asked_1 <= asked;
            asked_m <= asked_1;
            done    <= asked_m;
            fresh   <= asked_m != done;
        end
        if (asked_m != done) word <= cdc_word_hold;
    end

`ifdef FORMAL
    `include "cdc_word_properties.svh"
`endif
endmodule
