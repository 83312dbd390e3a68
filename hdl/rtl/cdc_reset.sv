// Reset synchroniser: `rst` rises at once with `async_rst`, clock or no clock, and falls STAGES clocks after it, at a
// clock edge. So that all that it resets leaves reset in the same clock.
module cdc_reset #(
    parameter int STAGES = 3
) (
    input  wire clk,
    input  wire async_rst,
    output wire rst
);
    (* ASYNC_REG = "TRUE" *) logic [STAGES-1:0] cdc_reset_chain;

    assign rst = cdc_reset_chain[STAGES-1];

    always_ff @(posedge clk or posedge async_rst) begin
        if (async_rst) cdc_reset_chain <= '1;
        else cdc_reset_chain <= {cdc_reset_chain[STAGES-2:0], 1'b0};
    end
endmodule
