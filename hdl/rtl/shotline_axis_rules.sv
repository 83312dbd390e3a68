// Protocol assertions for a 64-byte AXI4-Stream: an offered word stays until it is accepted, `tkeep` is all ones except
// in a frame's last word and contiguous there. Simulation only; synthesizes to nothing.

`default_nettype none

module shotline_axis_rules (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // Observed interface.
    input  wire [511:0] tdata,
    input  wire [63:0]  tkeep,
    input  wire         tvalid,
    input  wire         tready,
    input  wire         tlast
);
`ifdef VERILATOR
    // The word offered but not accepted. Stored only then: copying every word would slow the simulation down.
    logic         waiting;
    logic [576:0] offer;
    always_ff @(posedge clk) begin
        waiting <= tvalid && !tready && !rst;
        if (tvalid && !tready) offer <= {tdata, tkeep, tlast};
        if (!rst && waiting) begin
            offer_stays: assert (tvalid);
            data_stays: assert (!tvalid || {tdata, tkeep, tlast} == offer);
        end
        if (!rst && tvalid) begin
            whole_words: assert (tlast || (&tkeep));
            no_gaps: assert (tkeep[0] && (tkeep & (tkeep + 64'd1)) == 64'd0);
        end
    end
`else
    wire unused = &{clk, rst, tdata, tkeep, tvalid, tready, tlast};
`endif
endmodule

`default_nettype wire
