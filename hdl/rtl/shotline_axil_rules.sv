// Protocol assertions for an AXI4-Lite subordinate: responses stay valid until accepted, and none is given without a
// request. Simulation only; synthesizes to nothing.

`default_nettype none

module shotline_axil_rules (
    // Clock and synchronous reset.
    input  wire        clk,
    input  wire        rst,

    // Handshakes and responses of the observed interface.
    input  wire        write_taken,
    input  wire        bvalid,
    input  wire        bready,
    input  wire [1:0]  bresp,
    input  wire        read_taken,
    input  wire        rvalid,
    input  wire        rready,
    input  wire [31:0] rdata
);
`ifdef VERILATOR
    logic writing, reading;
    always_ff @(posedge clk)
        if (rst) begin
            writing <= 1'b0;
            reading <= 1'b0;
        end else begin
            writing <= write_taken || (writing && !(bvalid && bready));
            reading <= read_taken || (reading && !(rvalid && rready));
        end
    bvalid_stays: assert property (@(posedge clk) disable iff (rst) bvalid && !bready |=> bvalid && $stable(bresp));
    rvalid_stays: assert property (@(posedge clk) disable iff (rst) rvalid && !rready |=> rvalid && $stable(rdata));
    bvalid_after_write: assert property (@(posedge clk) disable iff (rst) bvalid |-> writing);
    rvalid_after_read: assert property (@(posedge clk) disable iff (rst) rvalid |-> reading);
    one_write: assert property (@(posedge clk) disable iff (rst) write_taken |-> !writing);
    one_read: assert property (@(posedge clk) disable iff (rst) read_taken |-> !reading);
`else
    wire unused = &{clk, rst, write_taken, bvalid, bready, bresp, read_taken, rvalid, rready, rdata};
`endif
endmodule

`default_nettype wire
