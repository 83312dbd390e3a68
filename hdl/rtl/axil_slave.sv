// The AXI-Lite side of a block of registers: one write and one read at a time, each answered once. What the registers are is
// the block's affair.
//
//   clock  write                                            read
//   0      address and data are taken, together             the address is taken
//   1      `write`: the block stores, unless it is `bad`    `read_addr` stands: the block looks it up
//   2      answered                                         `read_data`: what was found
//   3                                                       answered
//
// A counter has 48 bits and two addresses: with `read_keep` the upper bits of what was found are kept as `read_upper`, which
// the block gives for the second address, so that both halves are of one moment.
module axil_slave (
    input  wire         clk,
    input  wire         rst,

    input  wire [11:0]  s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [31:0]  s_axil_wdata,
    input  wire [3:0]   s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    output reg  [1:0]   s_axil_bresp,
    output reg          s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire [11:0]  s_axil_araddr,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    output reg  [31:0]  s_axil_rdata,
    output wire [1:0]   s_axil_rresp,
    output reg          s_axil_rvalid,
    input  wire         s_axil_rready,

    output wire         write,
    output reg  [11:0]  write_addr,
    output reg  [31:0]  write_data,
    input  wire         bad,         // of `write_addr` and `write_data`: refused, answered by an error (SLVERR)
    output reg  [11:0]  read_addr,
    input  wire [47:0]  read_data,
    input  wire         read_keep,   // with `read_data`
    output reg  [15:0]  read_upper
);
    reg  write_now, write_whole;
    wire refused    = bad | ~write_whole;
    wire write_take = s_axil_awvalid & s_axil_wvalid & ~write_now & ~s_axil_bvalid;
    assign write          = write_now & ~refused;
    assign s_axil_awready = write_take;
    assign s_axil_wready  = write_take;
    always @(posedge clk) begin
        write_addr  <= s_axil_awaddr;
        write_data  <= s_axil_wdata;
        write_whole <= s_axil_wstrb == 4'hF;
        if (rst) begin
            write_now     <= 1'b0;
            s_axil_bvalid <= 1'b0;
            s_axil_bresp  <= 2'b00;
        end else begin
            write_now <= write_take;
            if (write_now) begin
                s_axil_bvalid <= 1'b1;
                s_axil_bresp  <= {refused, 1'b0};
            end else if (s_axil_bready) s_axil_bvalid <= 1'b0;
        end
    end

    reg  read_look, read_found;
    wire read_take = s_axil_arvalid & ~read_look & ~read_found & ~s_axil_rvalid;
    assign s_axil_arready = read_take;
    assign s_axil_rresp   = 2'b00;
    always @(posedge clk) begin
        if (read_take) read_addr <= s_axil_araddr;
        if (read_found) begin
            s_axil_rdata <= read_data[31:0];
            if (read_keep) read_upper <= read_data[47:32];
        end
        if (rst) begin
            read_look     <= 1'b0;
            read_found    <= 1'b0;
            s_axil_rvalid <= 1'b0;
        end else begin
            read_look  <= read_take;
            read_found <= read_look;
            if (read_found) s_axil_rvalid <= 1'b1;
            else if (s_axil_rready) s_axil_rvalid <= 1'b0;
        end
    end

    axil_rules rules (
        .clk(clk), .rst(rst), .write_taken(write_take), .bvalid(s_axil_bvalid), .bready(s_axil_bready),
        .bresp(s_axil_bresp), .read_taken(read_take), .rvalid(s_axil_rvalid), .rready(s_axil_rready),
        .rdata(s_axil_rdata)
    );

`ifdef FORMAL
    `include "axil_slave_properties.svh"
`endif
endmodule
