// Registers of the card's DMA module. Writes of the channels' registers are passed on in the clock in which they are
// accepted; each module keeps what it needs of them.

`default_nettype none

module shotline_card_registers #(
    parameter int CHANNELS_LOG2 = 7,  // 3 to 8
    parameter int PREFETCH_LOG2 = 8,  // log2 of the descriptors held for each channel, 5 to 10
    parameter int TAGS_LOG2 = 6,      // log2 of the reads in flight, 2 to 8
    parameter int BLOCKS_LOG2 = 3     // log2 of the blocks (8 bytes) in a word, 3 or 4
) (
    // Clock and synchronous reset; `ready` when the channels have been cleared after it.
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      ready,

    // AXI4-Lite subordinate: registers.
    input  wire  [15:0]              s_axil_awaddr,
    input  wire                      s_axil_awvalid,
    output wire                      s_axil_awready,
    input  wire  [31:0]              s_axil_wdata,
    input  wire  [3:0]               s_axil_wstrb,
    input  wire                      s_axil_wvalid,
    output wire                      s_axil_wready,
    output wire  [1:0]               s_axil_bresp,
    output wire                      s_axil_bvalid,
    input  wire                      s_axil_bready,
    input  wire  [15:0]              s_axil_araddr,
    input  wire                      s_axil_arvalid,
    output wire                      s_axil_arready,
    output wire  [31:0]              s_axil_rdata,
    output wire  [1:0]               s_axil_rresp,
    output wire                      s_axil_rvalid,
    input  wire                      s_axil_rready,

    // Registers of the card, and an event to count.
    output logic [1:0]               max_write,
    output logic [23:0]              read_timeout,
    input  wire                      unexpected,

    // A write of a channel's register.
    output wire                      config_write,
    output wire  [CHANNELS_LOG2-1:0] config_channel,
    output wire  [6:0]               config_register,
    output wire  [31:0]              config_data,

    // State of the channels that are written (0) and read (1). Of the one that is read: error, descriptors used, and, one
    // clock later, counters.
    output wire  [1:0][CHANNELS_LOG2-1:0] state_channel,
    input  wire  [1:0][1:0]          state,
    input  wire  [3:0]               state_error,
    output wire  [CHANNELS_LOG2-1:0] read_channel,
    input  wire  [15:0]              head,
    output wire  [1:0]               count_cause,
    input  wire  [47:0]              count_packets,
    input  wire  [47:0]              count_bytes
);
    `include "shotline_require.svh"
    `include "card_registers.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_registers: CHANNELS_LOG2 must be 3 to 8")
    `SHOTLINE_REQUIRE(prefetch, PREFETCH_LOG2 >= 5 && PREFETCH_LOG2 <= 10,
                      "shotline_card_registers: PREFETCH_LOG2 must be 5 to 10")
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_registers: TAGS_LOG2 must be 2 to 8")
    `SHOTLINE_REQUIRE(blocks, BLOCKS_LOG2 == 3 || BLOCKS_LOG2 == 4,
                      "shotline_card_registers: BLOCKS_LOG2 must be 3 or 4")

    localparam logic [1:0] STOPPED = 2'd0;

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
    function automatic logic exists(input logic [7:0] channel);
        exists = 9'(channel) < 9'd1 << CHANNELS_LOG2;
    endfunction
    assign config_write    = write && write_addr[15];
    assign config_channel  = write_addr[7+:CHANNELS_LOG2];
    assign config_register = write_addr[6:0];
    assign config_data     = write_data;
    assign state_channel   = {read_channel, config_channel};

    // Rings, buffers and reports of a channel that is not stopped cannot be changed.
    wire locked = state[0] != STOPPED;
    wire in_channel = write_addr[15];
    wire no_channel = !ready || !exists(write_addr[14:7]);
    wire bad_ring   = write_data[11:0] != '0;
    wire bad_size   = write_data[31:4] != '0 || write_data[3:2] == '0;
    wire bad_buffer = write_data[2:0] != '0 || write_data[13:3] == '0 || write_data[18:16] != '0;
    wire bad_report = write_data[2:0] != '0;
    wire run        = write_data[0];
    always_comb
        if (!in_channel) bad = write_addr != REG_CARD_MAX_WRITE && write_addr != REG_CARD_READ_TIMEOUT;
        else if (no_channel) bad = 1'b1;
        else
            case (config_register)
                REG_CARD_CHANNEL_CONTROL: bad = run && locked;
                REG_CARD_CHANNEL_RING_LOW: bad = locked || bad_ring;
                REG_CARD_CHANNEL_RING_HIGH, REG_CARD_CHANNEL_REPORT_HIGH: bad = locked;
                REG_CARD_CHANNEL_RING: bad = locked || bad_size;
                REG_CARD_CHANNEL_BUFFER: bad = locked || bad_buffer;
                REG_CARD_CHANNEL_REPORT_LOW: bad = locked || bad_report;
                REG_CARD_CHANNEL_SOFTWARE_POINTER, REG_CARD_CHANNEL_REPORT, REG_CARD_CHANNEL_INTERRUPT: bad = 1'b0;
                default: bad = 1'b1;
            endcase

    always_ff @(posedge clk)
        if (rst) begin
            max_write    <= RESET_CARD_MAX_WRITE[1:0];
            read_timeout <= RESET_CARD_READ_TIMEOUT[23:0];
        end else if (write) begin
            if (write_addr == REG_CARD_MAX_WRITE) max_write <= write_data[1:0];
            if (write_addr == REG_CARD_READ_TIMEOUT) read_timeout <= write_data[23:0];
        end

    // ---------------------------------------------------------------- reads
    // The channels' registers as they were written: the first sixteen words of each channel.
    (* ram_style = "block" *)
    logic [31:0] written [0:(1<<(CHANNELS_LOG2+4))-1];
    logic [31:0] found;
    logic [3:0]  found_error;
    logic [1:0]  found_state;
    logic [15:0] found_head;
    assign read_channel = read_addr[7+:CHANNELS_LOG2];
    assign count_cause  = read_addr[5:4];
    always_ff @(posedge clk) begin
        if (config_write) written[{config_channel, config_register[5:2]}] <= write_data;
        found       <= written[{read_channel, read_addr[5:2]}];
        found_error <= state_error;
        found_state <= state[1];
        found_head  <= head;
    end

    wire [47:0] unexpected_count;
    shotline_counter48 unexpected_counter (.clk, .clear(rst), .add({6'd0, unexpected}), .value(unexpected_count));

    wire upper      = read_addr[2];
    wire is_channel = read_addr[15] && exists(read_addr[14:7]);
    wire is_counter = read_addr[6];
    wire is_bytes   = read_addr[3];
    wire [6:0] read_register = read_addr[6:0];
    assign read_keep = !upper && (read_addr[15] ? is_counter : read_addr == REG_CARD_UNEXPECTED);
    always_comb begin
        read_data = '0;
        if (is_channel && is_counter) read_data = upper ? 48'(read_upper) : is_bytes ? count_bytes : count_packets;
        else if (is_channel)
            case (read_register)
                REG_CARD_CHANNEL_CONTROL, REG_CARD_CHANNEL_RING_LOW, REG_CARD_CHANNEL_RING_HIGH, REG_CARD_CHANNEL_RING,
                REG_CARD_CHANNEL_SOFTWARE_POINTER, REG_CARD_CHANNEL_BUFFER, REG_CARD_CHANNEL_REPORT_LOW,
                REG_CARD_CHANNEL_REPORT_HIGH, REG_CARD_CHANNEL_REPORT, REG_CARD_CHANNEL_INTERRUPT:
                    read_data = 48'(found);
                REG_CARD_CHANNEL_STATE: read_data = {40'd0, found_error, 2'b00, found_state};
                REG_CARD_CHANNEL_HARDWARE_POINTER: read_data = 48'(found_head);
                default: read_data = '0;
            endcase
        else
            case (read_addr)
                REG_CARD_ID: read_data = 48'(RESET_CARD_ID);
                REG_CARD_VERSION: read_data = 48'(RESET_CARD_VERSION);
                REG_CARD_PARAMETERS:
                    read_data = {32'd0, 4'(BLOCKS_LOG2), 4'(TAGS_LOG2), 4'(PREFETCH_LOG2), 4'(CHANNELS_LOG2)};
                REG_CARD_STATUS: read_data = 48'(ready);
                REG_CARD_MAX_WRITE: read_data = 48'(max_write);
                REG_CARD_READ_TIMEOUT: read_data = 48'(read_timeout);
                REG_CARD_UNEXPECTED: read_data = unexpected_count;
                REG_CARD_UNEXPECTED_HIGH: read_data = 48'(read_upper);
                default: read_data = '0;
            endcase
    end
endmodule

`default_nettype wire
