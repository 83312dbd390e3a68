// FIFO in one clock domain, first word falls through: the oldest word stands on `m_data` while `m_valid` is set.
//
// Any depth of a power of two. A word that is written can be read two clocks later (one to store it, one to fetch it
// from the memory into the output register), and a full FIFO takes and gives one word every clock. The memory has a
// synchronous read, so synthesis puts it into block RAM or, when it is small, into LUT RAM.
//
// `level` counts the words held, in the memory and in the output register. `s_ready` is a register of its own: it
// depends on nothing that happens in the same clock.
module fifo_sync #(
    parameter int WIDTH = 8,
    parameter int DEPTH_LOG2 = 4
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire  [WIDTH-1:0]    s_data,
    input  wire                 s_valid,
    output wire                 s_ready,
    output wire  [WIDTH-1:0]    m_data,
    output wire                 m_valid,
    input  wire                 m_ready,
    output wire  [DEPTH_LOG2:0] level
);
    localparam logic [DEPTH_LOG2:0] FULL = {1'b1, {DEPTH_LOG2{1'b0}}};
    localparam logic [DEPTH_LOG2:0] ONE = {{DEPTH_LOG2{1'b0}}, 1'b1};

    logic [WIDTH-1:0] memory[2**DEPTH_LOG2];
    // One bit more than an address needs: equal pointers are empty, pointers a whole turn apart are full.
    logic [DEPTH_LOG2:0] write_pointer;
    logic [DEPTH_LOG2:0] read_pointer;
    logic [WIDTH-1:0] out_data;
    logic out_valid;

    // The words between the pointers are in the memory, and the output register has one more.
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
    `include "fifo_sync_properties.svh"
`endif
endmodule
