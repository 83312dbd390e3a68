// Single-clock FIFO, first word fall-through: the oldest word is on `m_data` while `m_valid` is set.
//
// Any power-of-two depth. A word can be read two clocks after it was written (one to store it, one to load it into the
// output register), and a full FIFO accepts and delivers one word per clock. The memory has a synchronous read, so
// synthesis maps it to block RAM, or to LUT RAM if it is small.
//
// `level` counts all words, in the memory and in the output register. `s_ready` depends only on registers, not on
// inputs of the same clock.

`default_nettype none

module shotline_fifo_sync #(
    parameter int WIDTH = 8,      // bits of a word, at least 1
    parameter int DEPTH_LOG2 = 4  // log2 of the depth in words, at least 1
) (
    // Clock and synchronous reset.
    input  wire                clk,
    input  wire                rst,

    // Write side.
    input  wire [WIDTH-1:0]    s_data,
    input  wire                s_valid,
    output wire                s_ready,

    // Read side.
    output wire [WIDTH-1:0]    m_data,
    output wire                m_valid,
    input  wire                m_ready,

    // Fill level.
    output wire [DEPTH_LOG2:0] level
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_fifo_sync: WIDTH must be at least 1")
    `SHOTLINE_REQUIRE(depth, DEPTH_LOG2 >= 1, "shotline_fifo_sync: DEPTH_LOG2 must be at least 1")

    localparam logic [DEPTH_LOG2:0] FULL = {1'b1, {DEPTH_LOG2{1'b0}}};
    localparam logic [DEPTH_LOG2:0] ONE = {{DEPTH_LOG2{1'b0}}, 1'b1};

    logic [WIDTH-1:0] memory[2**DEPTH_LOG2];
    // One bit wider than an address: equal pointers mean empty, pointers one wrap apart mean full.
    logic [DEPTH_LOG2:0] write_pointer;
    logic [DEPTH_LOG2:0] read_pointer;
    logic [WIDTH-1:0] out_data;
    logic out_valid;

    // Words in the memory; the output register may hold one more.
    wire [DEPTH_LOG2:0] stored = write_pointer - read_pointer;
    wire write = s_valid && s_ready;
    wire fetch = stored != '0 && (!out_valid || m_ready);

    assign s_ready = stored != FULL;
    assign m_data  = out_data;
    assign m_valid = out_valid;
    assign level   = stored + {{DEPTH_LOG2{1'b0}}, out_valid};

    always_ff @(posedge clk) begin
        if (write) memory[write_pointer[DEPTH_LOG2-1:0]] <= s_data;
        if (fetch) out_data <= memory[read_pointer[DEPTH_LOG2-1:0]];
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            write_pointer <= '0;
            read_pointer  <= '0;
            out_valid     <= 1'b0;
        end else begin
            if (write) write_pointer <= write_pointer + ONE;
            if (fetch) read_pointer <= read_pointer + ONE;
            if (fetch) out_valid <= 1'b1;
            else if (m_ready) out_valid <= 1'b0;
        end
    end

`ifdef FORMAL
    `include "shotline_fifo_sync_properties.svh"
`endif
endmodule

`default_nettype wire
