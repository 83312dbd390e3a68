// Memory in distributed RAM with one write port and any number of read ports. A read is asynchronous and returns the
// word of before a write in the same clock.

`default_nettype none

module shotline_lut_ram #(
    parameter int WIDTH = 8,       // bits of a word, at least 1
    parameter int DEPTH_LOG2 = 5,  // log2 of the number of words, at least 1
    parameter int READS = 1        // read ports, at least 1
) (
    // Clock.
    input  wire                              clk,

    // Write port.
    input  wire                              write,
    input  wire  [DEPTH_LOG2-1:0]            write_addr,
    input  wire  [WIDTH-1:0]                 write_data,

    // Read ports.
    input  wire  [READS-1:0][DEPTH_LOG2-1:0] read_addr,
    output logic [READS-1:0][WIDTH-1:0]      read_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_lut_ram: WIDTH must be at least 1")
    `SHOTLINE_REQUIRE(depth, DEPTH_LOG2 >= 1, "shotline_lut_ram: DEPTH_LOG2 must be at least 1")
    `SHOTLINE_REQUIRE(reads, READS >= 1, "shotline_lut_ram: READS must be at least 1")

    (* ram_style = "distributed" *)
    logic [WIDTH-1:0] memory [0:(1<<DEPTH_LOG2)-1];

    always_ff @(posedge clk) if (write) memory[write_addr] <= write_data;

    for (genvar port = 0; port < READS; port++) begin : g_read
        assign read_data[port] = memory[read_addr[port]];
    end

`ifdef FORMAL
    `include "shotline_lut_ram_properties.svh"
`endif
endmodule

`default_nettype wire
