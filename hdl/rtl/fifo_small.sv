// A first-in first-out queue in distributed memory with its oldest entry in a register. Whoever pushes keeps count of
// the room; 2^LOG2_DEPTH entries fit.
module fifo_small #(
    parameter WIDTH = 32,
    parameter LOG2_DEPTH = 5
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             push,
    input  wire [WIDTH-1:0] push_data,
    input  wire             pop,
    output reg              out_valid,
    output reg  [WIDTH-1:0] out_data
);
    (* ram_style = "distributed" *)
    reg [WIDTH-1:0] entries [0:(1<<LOG2_DEPTH)-1];
    reg [LOG2_DEPTH:0] write, read;

    wire stored = write != read;
    wire load   = stored & (~out_valid | pop);

    always @(posedge clk) if (push) entries[write[LOG2_DEPTH-1:0]] <= push_data;
    always @(posedge clk) if (load) out_data <= entries[read[LOG2_DEPTH-1:0]];

    always @(posedge clk)
        if (rst) begin
            write     <= 0;
            read      <= 0;
            out_valid <= 1'b0;
        end else begin
            if (push) write <= write + 1'b1;
            if (load) read <= read + 1'b1;
            if (load | pop) out_valid <= load;
        end

`ifdef VERILATOR
    room_for_what_is_pushed: assert property (@(posedge clk) disable iff (rst)
        push |-> write - read != {1'b1, {LOG2_DEPTH{1'b0}}});
    only_what_is_there_is_popped: assert property (@(posedge clk) disable iff (rst) pop |-> out_valid);
`endif
endmodule
