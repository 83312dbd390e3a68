// Lets a read pass while the integrated block has a credit for it (PG213, Avoiding Head-of-Line Blocking for Posted
// Requests: pcie_tfc_nph_av), so that no write waits behind a read without one.
//
// The block's number comes late: it still counts the credits of requests that are in its pipeline. So the reads on their
// way to the stream, and those that it accepted in the last 32 clocks, are subtracted.

`default_nettype none

module shotline_card_pcie_credits (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // Credits of the integrated block for reads; 15: 15 or more.
    input  wire  [3:0]  available,

    // Reads in, and those that pass.
    input  wire         s_valid,
    output wire         s_ready,
    output wire         m_valid,
    input  wire         m_ready,

    // Requester stream.
    input  wire [511:0] m_axis_rq_tdata,
    input  wire [136:0] m_axis_rq_tuser,
    input  wire         m_axis_rq_tvalid,
    input  wire         m_axis_rq_tready
);
    localparam int PIPELINE = 32;
    localparam logic [3:0] READ = 4'd0;

    logic [3:0] shown, pending;
    assign m_valid = s_valid && pending < shown;
    assign s_ready = m_ready && pending < shown;

    // Reads that begin in a beat: at byte 0 or 32, one of each half.
    wire [1:0] sop = m_axis_rq_tuser[21:20];
    wire at_32 = m_axis_rq_tuser[23:22] == 2'd2;
    wire begins_0 = sop[0] && !at_32 && m_axis_rq_tdata[78:75] == READ;
    wire begins_1 = (sop[1] || (sop[0] && at_32)) && m_axis_rq_tdata[256+78 -: 4] == READ;
    wire accepted = m_axis_rq_tvalid && m_axis_rq_tready;
    logic [PIPELINE-1:0][1:0] sent;
    wire [1:0] ended = {1'b0, sent[PIPELINE-1][0]} + {1'b0, sent[PIPELINE-1][1]};

    always_ff @(posedge clk) begin
        shown <= available;
        if (rst) begin
            sent    <= '0;
            pending <= '0;
        end else begin
            sent    <= {sent[PIPELINE-2:0], {2{accepted}} & {begins_1, begins_0}};
            pending <= pending + 4'(m_valid && m_ready) - 4'(ended);
        end
    end

`ifdef VERILATOR
    none_too_many: assert property (@(posedge clk) disable iff (rst) pending >= 4'(ended));
`endif
    wire unused = &{m_axis_rq_tdata, m_axis_rq_tuser, 1'b0};
endmodule

`default_nettype wire
