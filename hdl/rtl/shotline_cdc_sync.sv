// Level synchronizer of STAGES flip-flops.
//
// Use more than one bit only if at most one bit changes at a time (Gray code) or if the order of arrival does not
// matter. `d` must be driven directly by a flip-flop: a glitch of combinational logic could be sampled as a change.

`default_nettype none

module shotline_cdc_sync #(
    parameter int WIDTH = 1,  // bits, at least 1
    parameter int STAGES = 2  // flip-flops of a bit, at least 2
) (
    // Destination clock and its reset.
    input  wire             clk,
    input  wire             rst,

    // Asynchronous input, synchronized output.
    input  wire [WIDTH-1:0] d,
    output wire [WIDTH-1:0] q
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_cdc_sync: WIDTH must be at least 1")
    `SHOTLINE_REQUIRE(stages, STAGES >= 2, "shotline_cdc_sync: STAGES must be at least 2")

    // ASYNC_REG places the flip-flops of a chain next to each other; the constraints match them by this name.
    (* ASYNC_REG = "TRUE" *) logic [STAGES*WIDTH-1:0] cdc_chain;

    assign q = cdc_chain[STAGES*WIDTH-1 -: WIDTH];

    always_ff @(posedge clk) begin
        if (rst) cdc_chain <= '0;
        else cdc_chain <= {cdc_chain[(STAGES-1)*WIDTH-1:0], d};
    end
endmodule

`default_nettype wire
