// AXI4-Lite subordinate of a register block: one outstanding write and one outstanding read. The block decodes
// addresses and holds the registers.
//
//   clock  write                                            read
//   0      address and data accepted in one clock           address accepted
//   1      `write`: the block stores unless `bad` is set    `read_addr` valid: the block looks the register up
//   2      response                                         `read_data` valid
//   3                                                       response
//
// A counter has 48 bits at two addresses. With `read_keep` the upper 16 bits of `read_data` are latched in
// `read_upper`, which the block returns for the second address, so that both halves are of one sample of the counter.

`default_nettype none

module shotline_axil_slave #(
    parameter int ADDRESS_BITS = 12  // width of the byte addresses, 3 to 32
) (
    // Clock and synchronous reset.
    input  wire                     clk,
    input  wire                     rst,

    // AXI4-Lite subordinate: registers.
    input  wire  [ADDRESS_BITS-1:0] s_axil_awaddr,
    input  wire                     s_axil_awvalid,
    output wire                     s_axil_awready,
    input  wire  [31:0]             s_axil_wdata,
    input  wire  [3:0]              s_axil_wstrb,
    input  wire                     s_axil_wvalid,
    output wire                     s_axil_wready,
    output logic [1:0]              s_axil_bresp,
    output logic                    s_axil_bvalid,
    input  wire                     s_axil_bready,
    input  wire  [ADDRESS_BITS-1:0] s_axil_araddr,
    input  wire                     s_axil_arvalid,
    output wire                     s_axil_arready,
    output logic [31:0]             s_axil_rdata,
    output wire  [1:0]              s_axil_rresp,
    output logic                    s_axil_rvalid,
    input  wire                     s_axil_rready,

    // Register block.
    output wire                     write,
    output logic [ADDRESS_BITS-1:0] write_addr,
    output logic [31:0]             write_data,
    input  wire                     bad,         // reject `write_addr` or `write_data`: the response is SLVERR
    output logic [ADDRESS_BITS-1:0] read_addr,
    input  wire  [47:0]             read_data,
    input  wire                     read_keep,   // latch the upper 16 bits of `read_data`
    output logic [15:0]             read_upper
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(address_bits, ADDRESS_BITS >= 3 && ADDRESS_BITS <= 32,
                      "shotline_axil_slave: ADDRESS_BITS must be 3 to 32")

    logic write_now, write_whole;
    wire refused      = bad || !write_whole;
    wire write_accept = s_axil_awvalid && s_axil_wvalid && !write_now && !s_axil_bvalid;
    assign write          = write_now && !refused;
    assign s_axil_awready = write_accept;
    assign s_axil_wready  = write_accept;
    always_ff @(posedge clk) begin
        write_addr  <= s_axil_awaddr;
        write_data  <= s_axil_wdata;
        write_whole <= s_axil_wstrb == 4'hF;
        if (rst) begin
            write_now     <= 1'b0;
            s_axil_bvalid <= 1'b0;
            s_axil_bresp  <= 2'b00;
        end else begin
            write_now <= write_accept;
            if (write_now) begin
                s_axil_bvalid <= 1'b1;
                s_axil_bresp  <= {refused, 1'b0};
            end else if (s_axil_bready) s_axil_bvalid <= 1'b0;
        end
    end

    logic read_lookup, read_found;
    wire read_accept = s_axil_arvalid && !read_lookup && !read_found && !s_axil_rvalid;
    assign s_axil_arready = read_accept;
    assign s_axil_rresp   = 2'b00;
    always_ff @(posedge clk) begin
        if (read_accept) read_addr <= s_axil_araddr;
        if (read_found) begin
            s_axil_rdata <= read_data[31:0];
            if (read_keep) read_upper <= read_data[47:32];
        end
        if (rst) begin
            read_lookup   <= 1'b0;
            read_found    <= 1'b0;
            s_axil_rvalid <= 1'b0;
        end else begin
            read_lookup <= read_accept;
            read_found  <= read_lookup;
            if (read_found) s_axil_rvalid <= 1'b1;
            else if (s_axil_rready) s_axil_rvalid <= 1'b0;
        end
    end

    shotline_axil_rules rules (
        .clk, .rst, .write_taken(write_accept), .bvalid(s_axil_bvalid), .bready(s_axil_bready),
        .bresp(s_axil_bresp), .read_taken(read_accept), .rvalid(s_axil_rvalid), .rready(s_axil_rready),
        .rdata(s_axil_rdata)
    );

`ifdef FORMAL
    `include "shotline_axil_slave_properties.svh"
`endif
endmodule

`default_nettype wire
