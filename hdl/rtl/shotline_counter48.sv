// 48-bit counter in three 16-bit slices, so that no carry chain is longer than 16 bits. `value` lags by two clocks and
// is always consistent: its slices are of the same clock.

`default_nettype none

module shotline_counter48 (
    // Clock; `clear` is a synchronous reset.
    input  wire        clk,
    input  wire        clear,

    // Increment of each clock, and the count.
    input  wire [6:0]  add,
    output wire [47:0] value
);
    logic [15:0] low, low_1, low_2;
    logic [15:0] middle, middle_1;
    logic [15:0] high;
    logic        carry_low, carry_middle;

    always_ff @(posedge clk)
        if (clear) begin
            {low, low_1, low_2, middle, middle_1, high} <= 96'd0;
            {carry_low, carry_middle}                   <= 2'b00;
        end else begin
            {carry_low, low}       <= {1'b0, low} + {10'd0, add};
            {carry_middle, middle} <= {1'b0, middle} + {16'd0, carry_low};
            high                   <= high + {15'd0, carry_middle};
            low_1                  <= low;
            low_2                  <= low_1;
            middle_1               <= middle;
        end

    assign value = {high, middle_1, low_2};
endmodule

`default_nettype wire
