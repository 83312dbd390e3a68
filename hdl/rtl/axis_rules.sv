// The rules of an AXI-Stream, as assertions: what is offered stays until it is taken, strobes are whole up to a
// frame's last word and without gaps in it. Nothing of it is synthesized.
module axis_rules (
    input wire         clk,
    input wire         rst,
    input wire [511:0] tdata,
    input wire [63:0]  tkeep,
    input wire         tvalid,
    input wire         tready,
    input wire         tlast
);
`ifdef VERILATOR
    // What was offered and not taken. Looked at only then, so that a simulation does not keep a copy of every word.
    reg         waiting;
    reg [576:0] offer;
    always @(posedge clk) begin
        waiting <= tvalid & ~tready & ~rst;
        if (tvalid & ~tready) offer <= {tdata, tkeep, tlast};
        if (~rst & waiting) begin
            offer_stays: assert (tvalid);
            data_stays: assert (~tvalid | {tdata, tkeep, tlast} == offer);
        end
        if (~rst & tvalid) begin
            whole_words: assert (tlast | &tkeep);
            no_gaps: assert (tkeep[0] & (tkeep & (tkeep + 64'd1)) == 64'd0);
        end
    end
`else
    wire unused = &{clk, rst, tdata, tkeep, tvalid, tready, tlast};
`endif
endmodule
