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
    offer_stays: assert property (@(posedge clk) disable iff (rst) tvalid && !tready |=> tvalid);
    data_stays: assert property (@(posedge clk) disable iff (rst) tvalid && !tready |=> $stable({tdata, tkeep, tlast}));
    whole_words: assert property (@(posedge clk) disable iff (rst) tvalid && !tlast |-> &tkeep);
    no_gaps: assert property (@(posedge clk) disable iff (rst) tvalid |-> tkeep[0] && (tkeep & (tkeep + 64'd1)) == 64'd0);
`else
    wire unused = &{clk, rst, tdata, tkeep, tvalid, tready, tlast};
`endif
endmodule
