// Dual-clock FIFO of complete frames (store and forward): the CMAC FIFO.
//
// AXI4-Stream, BYTES bytes per word. A frame is delivered only when all of it is in the FIFO, so it leaves without a
// gap at any write clock and with any stalls: a 100G MAC aborts a frame that underruns. A frame must not be longer than
// the FIFO (2^DEPTH_LOG2 words), or it is never delivered.
//
// The number of complete frames crosses in Gray code like the FIFO's pointers, but leaves the write domain PUBLISH
// clocks after the pointer that covers the frame's last word. So the pointer has arrived when the count arrives, even
// if its bits are delayed by up to one clock more.
//
// Of `tkeep` only the index of the last valid byte is stored, six bits for 64 bytes: `tkeep` is contiguous from lane 0,
// and all ones except with tlast.

`default_nettype none

module shotline_frame_fifo_async #(
    parameter int DEPTH_LOG2 = 9,  // log2 of the depth in words, at least 2
    parameter int BYTES = 64       // bytes of a word, a power of two, at least 2
) (
    // Write clock domain: AXI4-Stream sink.
    input  wire               s_clk,
    input  wire               s_rst,
    input  wire [8*BYTES-1:0] s_axis_tdata,
    input  wire [BYTES-1:0]   s_axis_tkeep,
    input  wire               s_axis_tvalid,
    output wire               s_axis_tready,
    input  wire               s_axis_tlast,

    // Read clock domain: AXI4-Stream source.
    input  wire               m_clk,
    input  wire               m_rst,
    output wire [8*BYTES-1:0] m_axis_tdata,
    output wire [BYTES-1:0]   m_axis_tkeep,
    output wire               m_axis_tvalid,
    input  wire               m_axis_tready,
    output wire               m_axis_tlast
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(depth, DEPTH_LOG2 >= 2, "shotline_frame_fifo_async: DEPTH_LOG2 must be at least 2")
    `SHOTLINE_REQUIRE(bytes, BYTES >= 2 && (BYTES & (BYTES - 1)) == 0,
        "shotline_frame_fifo_async: BYTES must be a power of two, at least 2")

    localparam int P = DEPTH_LOG2 + 1;  // width of a frame count, like that of the FIFO's pointers
    localparam int PUBLISH = 2;         // clocks by which the count follows the pointer
    localparam logic [P-1:0] ONE = {{P - 1{1'b0}}, 1'b1};

    // Index of the last valid byte.
    localparam int INDEX = $clog2(BYTES);
    logic [INDEX-1:0] s_index;
    always_comb begin
        s_index = '0;
        for (int i = 1; i < BYTES; i++) if (s_axis_tkeep[i]) s_index = INDEX'(i);
    end

    wire [8*BYTES-1:0] data;
    wire [INDEX-1:0] index;
    wire last;
    wire valid;
    wire ready;
`ifdef FORMAL_VIEW
    wire [P-1:0] view_write, view_read, view_chain, view_synced;
    wire [2**DEPTH_LOG2-1:0] view_top;
`endif

    /* verilator lint_off PINCONNECTEMPTY */
    shotline_fifo_async #(
        .WIDTH(1 + INDEX + 8*BYTES),
        .DEPTH_LOG2(DEPTH_LOG2)
    ) words (
        .s_clk,
        .s_rst,
        .s_data({s_axis_tlast, s_index, s_axis_tdata}),
        .s_valid(s_axis_tvalid),
        .s_ready(s_axis_tready),
        .s_level(),
        .m_clk,
        .m_rst,
        .m_data({last, index, data}),
        .m_valid(valid),
        .m_ready(ready)
`ifdef FORMAL_VIEW
      , .view_write, .view_read, .view_chain, .view_synced,
        .view_top
`endif
    );
    /* verilator lint_on PINCONNECTEMPTY */

    // Complete frames written, published PUBLISH clocks later.
    logic [P-1:0] written;
    wire  [P-1:0] written_next = written + ONE;
    logic [P-1:0] written_gray;
    logic [PUBLISH*P-1:0] published;
    wire  [P-1:0] cdc_frames_gray = published[PUBLISH*P-1 -: P];
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] cdc_chain_m;
    (* ASYNC_REG = "TRUE" *) logic [P-1:0] frames_gray_m;

    always_ff @(posedge s_clk) begin
        if (s_rst) begin
            written      <= '0;
            written_gray <= '0;
            published    <= '0;
        end else begin
            if (s_axis_tvalid && s_axis_tready && s_axis_tlast) begin
                written      <= written_next;
                written_gray <= written_next ^ (written_next >> 1);
            end
            published <= {published[(PUBLISH-1)*P-1:0], written_gray};
        end
    end

    // Complete frames delivered.
    logic [P-1:0] delivered;
    wire  [P-1:0] delivered_next = delivered + ONE;
    logic [P-1:0] delivered_gray;
    wire frame_ready = delivered_gray != frames_gray_m;

    assign ready         = m_axis_tready && frame_ready;
    assign m_axis_tvalid = valid && frame_ready;
    assign m_axis_tdata  = data;
    assign m_axis_tlast  = last;
    assign m_axis_tkeep  = last ? {BYTES{1'b1}} >> (INDEX'(BYTES - 1) - index) : {BYTES{1'b1}};

    always_ff @(posedge m_clk) begin
        if (m_rst) begin
            delivered      <= '0;
            delivered_gray <= '0;
            cdc_chain_m    <= '0;
            frames_gray_m  <= '0;
        end else begin
            cdc_chain_m   <= cdc_frames_gray;
            frames_gray_m <= cdc_chain_m;
            if (m_axis_tvalid && m_axis_tready && m_axis_tlast) begin
                delivered      <= delivered_next;
                delivered_gray <= delivered_next ^ (delivered_next >> 1);
            end
        end
    end

`ifdef FORMAL
    `include "shotline_frame_fifo_async_properties.svh"
`endif
endmodule

`default_nettype wire
