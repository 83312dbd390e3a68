// Synchroniser: brings level signals into the domain of `clk` through STAGES flip-flops.
//
// More than one bit only where at most one of them changes at a time (a Gray code), or where it does not matter which
// of them arrives first. `d` must come straight from a flip-flop: a glitch would be taken for a change.
module cdc_sync #(
    parameter int WIDTH = 1,
    parameter int STAGES = 2
) (
    input  wire              clk,
    input  wire              rst,
    input  wire  [WIDTH-1:0] d,
    output wire  [WIDTH-1:0] q
);
    // ASYNC_REG keeps the flip-flops of a chain next to each other; constraints/cdc.xdc finds them by this name.
    (* ASYNC_REG = "TRUE" *) logic [STAGES*WIDTH-1:0] cdc_chain;

    assign q = cdc_chain[STAGES*WIDTH-1 -: WIDTH];

    always_ff @(posedge clk) begin
        if (rst) cdc_chain <= '0;
        else cdc_chain <= {cdc_chain[(STAGES-1)*WIDTH-1:0], d};
    end
endmodule
