// Registers of the card's distributor: the bus is in the domain of `clk`, the distributor in that of `mac_clk`.
//
// A write passes through a FIFO to the domain of `mac_clk`. All counters come back as one word, again and again, so that
// they are of one moment.

`default_nettype none

module shotline_card_distributor_registers #(
    parameter int CHANNELS_LOG2 = 7,  // log2 of the number of channels, 3 to 8
    parameter int TABLE_LOG2 = 7,     // log2 of the entries of the table of channels, 1 to 12
    parameter int BUFFER_LOG2 = 10    // log2 of the words of the frame buffer, 2 to 16
) (
    // Clock and synchronous reset of the registers.
    input  wire                     clk,
    input  wire                     rst,

    // AXI4-Lite subordinate: registers.
    input  wire  [15:0]             s_axil_awaddr,
    input  wire                     s_axil_awvalid,
    output wire                     s_axil_awready,
    input  wire  [31:0]             s_axil_wdata,
    input  wire  [3:0]              s_axil_wstrb,
    input  wire                     s_axil_wvalid,
    output wire                     s_axil_wready,
    output wire  [1:0]              s_axil_bresp,
    output wire                     s_axil_bvalid,
    input  wire                     s_axil_bready,
    input  wire  [15:0]             s_axil_araddr,
    input  wire                     s_axil_arvalid,
    output wire                     s_axil_arready,
    output wire  [31:0]             s_axil_rdata,
    output wire  [1:0]              s_axil_rresp,
    output wire                     s_axil_rvalid,
    input  wire                     s_axil_rready,

    // Clock and synchronous reset of the distributor.
    input  wire                     mac_clk,
    input  wire                     mac_rst,

    // Configuration and counters of the distributor, in the domain of `mac_clk`.
    output logic [13:0]             max_length,
    output logic                    pad,
    output logic [319:0]            key,
    output wire                     table_write,
    output wire  [TABLE_LOG2-1:0]   table_index,
    output wire  [CHANNELS_LOG2-1:0] table_channel,
    input  wire  [47:0]             count_delivered,
    input  wire  [47:0]             count_error,
    input  wire  [47:0]             count_runt,
    input  wire  [47:0]             count_giant,
    input  wire  [47:0]             count_overflow
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
        "shotline_card_distributor_registers: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(entries, TABLE_LOG2 >= 1 && TABLE_LOG2 <= 12,
        "shotline_card_distributor_registers: TABLE_LOG2 must be 1 to 12")
    `SHOTLINE_REQUIRE(buffer, BUFFER_LOG2 >= 2 && BUFFER_LOG2 <= 16,
        "shotline_card_distributor_registers: BUFFER_LOG2 must be 2 to 16")

    `include "card_distributor_registers.svh"

    localparam logic [31:0] LONGEST = 32'd16371;
    // The registers of the configuration by their words in the block.
    localparam logic [3:0] MAX_LENGTH = REG_CARD_DISTRIBUTOR_MAX_LENGTH[5:2];
    localparam logic [3:0] PAD = REG_CARD_DISTRIBUTOR_PAD[5:2];
    localparam logic [3:0] TABLE = REG_CARD_DISTRIBUTOR_TABLE[5:2];
    localparam logic [3:0] KEY = REG_CARD_DISTRIBUTOR_KEY_0[5:2];

    wire write, read_keep;
    wire [15:0] write_addr, read_addr, read_upper;
    wire [31:0] write_data;
    logic bad;
    logic [47:0] read_data;
    shotline_axil_slave #(.ADDRESS_BITS(16)) slave (
        .clk, .rst, .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid,
        .s_axil_wready, .s_axil_bresp, .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid,
        .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr, .write_data, .bad, .read_addr, .read_data, .read_keep, .read_upper
    );

    // ---------------------------------------------------------------- writes
    wire crossing_ready;
    wire [11:0] index   = write_data[11:0];
    wire [7:0]  channel = write_data[23:16];
    wire no_entry   = 13'(index) >= 13'd1 << TABLE_LOG2;
    wire no_channel = 9'(channel) >= 9'd1 << CHANNELS_LOG2;
    wire is_key     = write_addr >= REG_CARD_DISTRIBUTOR_KEY_0 && write_addr <= REG_CARD_DISTRIBUTOR_KEY_9;
    always_comb
        case (write_addr)
            REG_CARD_DISTRIBUTOR_MAX_LENGTH: bad = !crossing_ready || write_data > LONGEST;
            REG_CARD_DISTRIBUTOR_TABLE:
                bad = !crossing_ready || no_entry || no_channel || write_data[31:24] != '0 || write_data[15:12] != '0;
            REG_CARD_DISTRIBUTOR_PAD: bad = !crossing_ready || write_data[31:1] != '0;
            default: bad = !crossing_ready || !is_key || write_addr[1:0] != 2'd0;
        endcase

    wire put;
    wire [3:0] place;
    wire [31:0] value;
    wire [2:0] crossing_level;
    shotline_fifo_async #(.WIDTH(36), .DEPTH_LOG2(2)) crossing (
        .s_clk(clk), .s_rst(rst), .s_data({write_addr[5:2], write_data}), .s_valid(write), .s_ready(crossing_ready),
        .s_level(crossing_level), .m_clk(mac_clk), .m_rst(mac_rst), .m_data({place, value}), .m_valid(put), .m_ready(1'b1)
    );
    assign table_write   = put && place == TABLE;
    assign table_index   = value[TABLE_LOG2-1:0];
    assign table_channel = value[16+:CHANNELS_LOG2];
    always_ff @(posedge mac_clk)
        if (mac_rst) begin
            max_length <= RESET_CARD_DISTRIBUTOR_MAX_LENGTH[13:0];
            pad        <= RESET_CARD_DISTRIBUTOR_PAD[0];
        end else if (put) begin
            if (place == MAX_LENGTH) max_length <= value[13:0];
            if (place == PAD) pad <= value[0];
        end
    always_ff @(posedge mac_clk)
        for (int i = 0; i < 10; i++) if (put && place == KEY + 4'(i)) key[32*i +: 32] <= value;

    // ---------------------------------------------------------------- reads
    // The last value of each register, and whether those with a reset value were written since the reset.
    logic [31:0] last, found;
    logic written_length, written_pad;
    shotline_lut_ram #(.WIDTH(32), .DEPTH_LOG2(4)) values (
        .clk, .write, .write_addr(write_addr[5:2]), .write_data, .read_addr(read_addr[5:2]), .read_data(last)
    );
    always_ff @(posedge clk) begin
        found <= read_addr[5:2] == MAX_LENGTH && !written_length ? RESET_CARD_DISTRIBUTOR_MAX_LENGTH
            : read_addr[5:2] == PAD && !written_pad ? RESET_CARD_DISTRIBUTOR_PAD : last;
        if (rst) {written_length, written_pad} <= '0;
        else if (write) begin
            if (write_addr == REG_CARD_DISTRIBUTOR_MAX_LENGTH) written_length <= 1'b1;
            if (write_addr == REG_CARD_DISTRIBUTOR_PAD) written_pad <= 1'b1;
        end
    end

    wire counts_ready, counts_valid;
    wire [47:0] delivered, error, runt, giant, overflow;
    shotline_cdc_word #(.WIDTH(240)) counts (
        .s_clk(mac_clk), .s_rst(mac_rst),
        .s_data({count_delivered, count_error, count_runt, count_giant, count_overflow}),
        .s_valid(1'b1), .s_ready(counts_ready),
        .m_clk(clk), .m_rst(rst), .m_data({delivered, error, runt, giant, overflow}), .m_valid(counts_valid)
    );

    assign read_keep = read_addr[6] && !read_addr[2];
    always_comb
        case (read_addr)
            REG_CARD_DISTRIBUTOR_PARAMETERS: read_data = {39'd0, 5'(BUFFER_LOG2), 4'(TABLE_LOG2)};
            REG_CARD_DISTRIBUTOR_MAX_LENGTH, REG_CARD_DISTRIBUTOR_TABLE, REG_CARD_DISTRIBUTOR_PAD,
            REG_CARD_DISTRIBUTOR_KEY_0, REG_CARD_DISTRIBUTOR_KEY_1, REG_CARD_DISTRIBUTOR_KEY_2,
            REG_CARD_DISTRIBUTOR_KEY_3, REG_CARD_DISTRIBUTOR_KEY_4, REG_CARD_DISTRIBUTOR_KEY_5,
            REG_CARD_DISTRIBUTOR_KEY_6, REG_CARD_DISTRIBUTOR_KEY_7, REG_CARD_DISTRIBUTOR_KEY_8,
            REG_CARD_DISTRIBUTOR_KEY_9:
                read_data = 48'(found);
            REG_CARD_DISTRIBUTOR_DELIVERED: read_data = delivered;
            REG_CARD_DISTRIBUTOR_ERROR:     read_data = error;
            REG_CARD_DISTRIBUTOR_RUNT:      read_data = runt;
            REG_CARD_DISTRIBUTOR_GIANT:     read_data = giant;
            REG_CARD_DISTRIBUTOR_OVERFLOW:  read_data = overflow;
            REG_CARD_DISTRIBUTOR_DELIVERED_HIGH, REG_CARD_DISTRIBUTOR_ERROR_HIGH, REG_CARD_DISTRIBUTOR_RUNT_HIGH,
            REG_CARD_DISTRIBUTOR_GIANT_HIGH, REG_CARD_DISTRIBUTOR_OVERFLOW_HIGH: read_data = 48'(read_upper);
            default: read_data = '0;
        endcase

    wire unused = &{crossing_level, counts_ready, counts_valid, 1'b0};
endmodule

`default_nettype wire
