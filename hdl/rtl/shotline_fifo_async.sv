// Dual-clock FIFO, first word fall-through.
//
// Pointers cross the domains as Gray codes: one bit changes at a time, so a synchronizer samples either the old or the
// new value, and neither side ever sees the other's pointer ahead of its real value. A stale pointer is safe: the write
// side sees the FIFO too full, the read side too empty. (C. Cummings, "Simulation and Synthesis Techniques for
// Asynchronous FIFO Design", SNUG 2002, style 1.)
//
// Both resets must be asserted together, each until both clocks have run; shotline_cdc_reset derives them from one.
// `s_ready` may be set during reset; a word accepted then is lost.
//
// Capacity: 2^DEPTH_LOG2 words, and one in the output register. Latency: `m_valid` is set at the third m_clk edge after
// the s_clk edge that stored the word, or at the fourth if the first m_clk edge is too close to that s_clk edge.
// `s_level` is the fill level of the memory seen by the write side, never less than the real one.

`default_nettype none

module shotline_fifo_async #(
    parameter int WIDTH = 8,      // bits of a word, at least 1
    parameter int DEPTH_LOG2 = 4  // log2 of the depth in words, at least 2
) (
    // Write clock domain.
    input  wire                     s_clk,
    input  wire                     s_rst,
    input  wire [WIDTH-1:0]         s_data,
    input  wire                     s_valid,
    output wire                     s_ready,
    output wire [DEPTH_LOG2:0]      s_level,

    // Read clock domain.
    input  wire                     m_clk,
    input  wire                     m_rst,
    output wire [WIDTH-1:0]         m_data,
    output wire                     m_valid,
    input  wire                     m_ready
`ifdef FORMAL_VIEW
    // Only for the proof of shotline_frame_fifo_async: the pointers seen by both sides, and the top bit of every word.
  , output wire [DEPTH_LOG2:0]      view_write,
    output wire [DEPTH_LOG2:0]      view_read,
    output wire [DEPTH_LOG2:0]      view_chain,
    output wire [DEPTH_LOG2:0]      view_synced,
    output wire [2**DEPTH_LOG2-1:0] view_top
`endif
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(width, WIDTH >= 1, "shotline_fifo_async: WIDTH must be at least 1")
    `SHOTLINE_REQUIRE(depth, DEPTH_LOG2 >= 2, "shotline_fifo_async: DEPTH_LOG2 must be at least 2")

    localparam int P = DEPTH_LOG2 + 1;  // width of a pointer: an address and a wrap bit
    localparam logic [P-1:0] ONE = {{P - 1{1'b0}}, 1'b1};

    logic [WIDTH-1:0] memory[2**DEPTH_LOG2];

    // Write side.
    logic [P-1:0] write_pointer;
    logic [P-1:0] cdc_write_gray;
    wire  [P-1:0] write_next = write_pointer + ONE;
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] cdc_chain_s;
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] read_gray_s;
    logic [P-1:0] read_pointer_s;
    wire write = s_valid && s_ready;

    // Read side.
    logic [P-1:0] read_pointer;
    logic [P-1:0] cdc_read_gray;
    wire  [P-1:0] read_next = read_pointer + ONE;
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] cdc_chain_m;
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] write_gray_m;
    logic [WIDTH-1:0] out_data;
    logic out_valid;
    wire fetch = cdc_read_gray != write_gray_m && (!out_valid || m_ready);

    // Full: the write pointer is one wrap ahead, which inverts the upper two bits of the Gray code.
    assign s_ready = cdc_write_gray != (read_gray_s ^ {2'b11, {P - 2{1'b0}}});
    assign s_level = write_pointer - read_pointer_s;
    assign m_data  = out_data;
    assign m_valid = out_valid;

    always_comb begin
        for (int i = 0; i < P; i++) read_pointer_s[i] = ^(read_gray_s >> i);
    end

    always_ff @(posedge s_clk) begin
        if (write) memory[write_pointer[DEPTH_LOG2-1:0]] <= s_data;
    end

    always_ff @(posedge s_clk) begin
        if (s_rst) begin
            write_pointer  <= '0;
            cdc_write_gray <= '0;
            cdc_chain_s    <= '0;
            read_gray_s    <= '0;
        end else begin
            if (write) begin
                write_pointer  <= write_next;
                cdc_write_gray <= write_next ^ (write_next >> 1);
            end
            cdc_chain_s <= cdc_read_gray;
            read_gray_s <= cdc_chain_s;
        end
    end

    always_ff @(posedge m_clk) begin
        if (fetch) out_data <= memory[read_pointer[DEPTH_LOG2-1:0]];
    end

    always_ff @(posedge m_clk) begin
        if (m_rst) begin
            read_pointer  <= '0;
            cdc_read_gray <= '0;
            out_valid     <= 1'b0;
            cdc_chain_m   <= '0;
            write_gray_m  <= '0;
        end else begin
            cdc_chain_m  <= cdc_write_gray;
            write_gray_m <= cdc_chain_m;
            if (fetch) begin
                read_pointer  <= read_next;
                cdc_read_gray <= read_next ^ (read_next >> 1);
            end
            if (fetch) out_valid <= 1'b1;
            else if (m_ready) out_valid <= 1'b0;
        end
    end

`ifdef FORMAL
    `include "shotline_fifo_async_properties.svh"
`endif
endmodule

`default_nettype wire
