// A counter of 48 bits in three slices, so that no carry runs further than 16 bits in a clock. `value` is a count that
// was right two clocks ago, never a mixture.
module counter48 (
    input  wire        clk,
    input  wire        clear,
    input  wire [6:0]  add,
    output wire [47:0] value
);
    reg [15:0] low, low_1, low_2;
    reg [15:0] middle, middle_1;
    reg [15:0] high;
    reg        carry_low, carry_middle;

    always @(posedge clk)
        if (clear) begin
            {low, low_1, low_2, middle, middle_1, high} <= 96'd0;
            {carry_low, carry_middle} <= 2'b00;
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
