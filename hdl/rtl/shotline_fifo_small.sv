// FIFO in distributed RAM with its oldest entry in an output register. It has 2^DEPTH_LOG2 entries and no full flag:
// the producer counts the free entries.

`default_nettype none

module shotline_fifo_small #(
    parameter int WIDTH = 32,     // bits of an entry, at least 1
    parameter int DEPTH_LOG2 = 5  // log2 of the number of entries, at least 1
) (
    // Clock and synchronous reset.
    input  wire              clk,
    input  wire              rst,

    // Write side.
    input  wire              push,
    input  wire  [WIDTH-1:0] push_data,

    // Read side.
    input  wire              pop,
    output logic             out_valid,
    output logic [WIDTH-1:0] out_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_fifo_small: WIDTH must be at least 1")
    `SHOTLINE_REQUIRE(depth, DEPTH_LOG2 >= 1, "shotline_fifo_small: DEPTH_LOG2 must be at least 1")

    (* ram_style = "distributed" *)
    logic [WIDTH-1:0] entries [0:(1<<DEPTH_LOG2)-1];
    logic [DEPTH_LOG2:0] write, read;

    wire stored = write != read;
    wire load   = stored && (!out_valid || pop);

    always_ff @(posedge clk) if (push) entries[write[DEPTH_LOG2-1:0]] <= push_data;
    always_ff @(posedge clk) if (load) out_data <= entries[read[DEPTH_LOG2-1:0]];

    always_ff @(posedge clk)
        if (rst) begin
            write     <= 0;
            read      <= 0;
            out_valid <= 1'b0;
        end else begin
            if (push) write <= write + 1'b1;
            if (load) read <= read + 1'b1;
            if (load || pop) out_valid <= load;
        end

`ifdef VERILATOR
    no_overflow: assert property (@(posedge clk) disable iff (rst)
        push |-> write - read != {1'b1, {DEPTH_LOG2{1'b0}}});
    no_underflow: assert property (@(posedge clk) disable iff (rst) pop |-> out_valid);
`endif

`ifdef FORMAL
    `include "shotline_fifo_small_properties.svh"
`endif
endmodule

`default_nettype wire
