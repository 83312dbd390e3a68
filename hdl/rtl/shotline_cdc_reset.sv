// Reset synchronizer: `rst` asserts asynchronously with `async_rst` and deasserts STAGES clocks later, synchronously to
// `clk`, so that everything it resets leaves reset in the same clock.

`default_nettype none

module shotline_cdc_reset #(
    parameter int STAGES = 3
) (
    // Destination clock, asynchronous reset in, synchronized reset out.
    input  wire clk,
    input  wire async_rst,
    output wire rst
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(stages, STAGES >= 2, "shotline_cdc_reset: STAGES must be at least 2")

    (* ASYNC_REG = "TRUE" *) logic [STAGES-1:0] cdc_reset_chain;

    assign rst = cdc_reset_chain[STAGES-1];

    always_ff @(posedge clk or posedge async_rst) begin
        if (async_rst) cdc_reset_chain <= '1;
        else cdc_reset_chain <= {cdc_reset_chain[STAGES-2:0], 1'b0};
    end
endmodule

`default_nettype wire
