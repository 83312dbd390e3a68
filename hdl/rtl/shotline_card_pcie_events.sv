// Puts the events of accepted beats in order: interrupts, and notices to the DMA module.

`default_nettype none

module shotline_card_pcie_events (
    // Clock and synchronous reset.
    input  wire              clk,
    input  wire              rst,

    // Events of both halves of a beat: interrupt, final report, refused, channel. While `room` is set, there are places
    // for the events of all beats on their way and of the TLPs that have begun.
    input  wire              s_valid,
    input  wire  [1:0][10:0] s_events,
    output logic             room,

    // Interrupts: one clock each.
    output logic             interrupt_valid,
    output logic [7:0]       interrupt_channel,

    // Notices: kind 0 the final report has left, 1 a write was refused.
    output wire              notice_valid,
    input  wire              notice_ready,
    output wire              notice_kind,
    output wire  [7:0]       notice_channel
);
    localparam int DEPTH_LOG2 = 6;
    // At most 33 entries in the FIFO of beats, and one for each of fewer than 10 clocks on their way to it.
    localparam logic [DEPTH_LOG2:0] LIMIT = 7'd16;

    wire next_valid;
    wire [1:0][10:0] next;
    wire [DEPTH_LOG2:0] level;
    wire ready;
    logic next_ready;
    shotline_fifo_sync #(.WIDTH(22), .DEPTH_LOG2(DEPTH_LOG2)) waiting (
        .clk, .rst, .s_data(s_events), .s_valid, .s_ready(ready), .m_data(next), .m_valid(next_valid),
        .m_ready(next_ready), .level
    );

    // Events of the entry in progress that are left, each in its order: refused, final, interrupt of half 0, then half 1.
    logic [5:0] left;
    logic [1:0][7:0] channel;
    wire [5:0] now = left & (~left + 6'd1);
    wire [7:0] now_channel = now[2:0] != 3'd0 ? channel[0] : channel[1];
    wire interrupt = now[2] || now[5];
    assign notice_valid   = left != '0 && !interrupt;
    assign notice_kind    = now[0] || now[3];
    assign notice_channel = now_channel;
    wire done = left == '0 || interrupt || notice_ready;
    assign next_ready = (left & ~now) == '0 && done;

    always_ff @(posedge clk) begin
        interrupt_channel <= now_channel;
        if (rst) begin
            left            <= '0;
            room            <= 1'b0;
            interrupt_valid <= 1'b0;
        end else begin
            room            <= level <= LIMIT;
            interrupt_valid <= interrupt;
            if (next_ready && next_valid)
                left <= {next[1][10], next[1][9], next[1][8], next[0][10], next[0][9], next[0][8]};
            else if (done) left <= left & ~now;
        end
        if (next_ready && next_valid) channel <= {next[1][7:0], next[0][7:0]};
    end

`ifdef VERILATOR
    events_fit: assert property (@(posedge clk) disable iff (rst) s_valid |-> ready);
`endif
    wire unused = &{ready, 1'b0};
endmodule

`default_nettype wire
