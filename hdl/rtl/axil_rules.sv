// The rules of an AXI-Lite slave's answers, as assertions: they stay until they are taken, and nothing is answered that
// was not asked. Nothing of it is synthesized.
module axil_rules (
    input wire        clk,
    input wire        rst,
    input wire        write_taken,
    input wire        bvalid,
    input wire        bready,
    input wire [1:0]  bresp,
    input wire        read_taken,
    input wire        rvalid,
    input wire        rready,
    input wire [31:0] rdata
);
`ifdef VERILATOR
    reg writing, reading;
    always @(posedge clk)
        if (rst) begin
            writing <= 1'b0;
            reading <= 1'b0;
        end else begin
            writing <= write_taken | writing & ~(bvalid & bready);
            reading <= read_taken | reading & ~(rvalid & rready);
        end
    write_answer_stays: assert property (@(posedge clk) disable iff (rst) bvalid && !bready |=> bvalid && $stable(bresp));
    read_answer_stays: assert property (@(posedge clk) disable iff (rst) rvalid && !rready |=> rvalid && $stable(rdata));
    write_was_asked: assert property (@(posedge clk) disable iff (rst) bvalid |-> writing);
    read_was_asked: assert property (@(posedge clk) disable iff (rst) rvalid |-> reading);
    one_write: assert property (@(posedge clk) disable iff (rst) write_taken |-> !writing);
    one_read: assert property (@(posedge clk) disable iff (rst) read_taken |-> !reading);
`else
    wire unused = &{clk, rst, write_taken, bvalid, bready, bresp, read_taken, rvalid, rready, rdata};
`endif
endmodule
