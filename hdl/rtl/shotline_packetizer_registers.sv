// Register block of the packetizer (registers.toml), in the processing clock domain.

`default_nettype none

module shotline_packetizer_registers #(
    parameter int CHANNELS = 96  // value of `status.channels`
) (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // AXI4-Lite subordinate: registers.
    input  wire [11:0]  s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [31:0]  s_axil_wdata,
    input  wire [3:0]   s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    output wire [1:0]   s_axil_bresp,
    output wire         s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire [11:0]  s_axil_araddr,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    output wire [31:0]  s_axil_rdata,
    output wire [1:0]   s_axil_rresp,
    output wire         s_axil_rvalid,
    input  wire         s_axil_rready,

    // Commands, one clock each.
    output wire         start,
    output wire         load_number,
    output wire         stop,

    // Configuration.
    output wire [1:0]   cfg_mode,
    output wire         cfg_pin,
    output wire         cfg_command,
    output wire         cfg_any_address,
    output wire [31:0]  cfg_samples,
    output wire [31:0]  cfg_period,
    output wire [47:0]  cfg_shots,
    output wire [47:0]  cfg_number,
    output wire [15:0]  cfg_port,
    output wire [47:0]  cfg_mac,
    output wire [127:0] cfg_ip,
    output wire         decoder_changed,  // configuration of the trigger decoder was written

    // State of the run and events for the counters.
    input  wire         running,
    input  wire         busy,
    input  wire [47:0]  number,
    input  wire [47:0]  taken,
    input  wire [47:0]  missed,
    input  wire         begun,
    input  wire         count_repeated,
    input  wire         count_unexpected,
    input  wire         count_refused,
    input  wire         count_damaged,     // `number` is that of this shot
    input  wire [1:0]   cause,
    output wire [15:0]  shot_event         // event number of the active shot, or of the next
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS >= 1 && CHANNELS <= 65535,
        "shotline_packetizer_registers: CHANNELS must be 1 to 65535")

    `include "registers.svh"

    logic [8:0] mode;
    logic [31:0] samples, period;
    logic [47:0] shot_limit, first_number, own_mac;
    logic [127:0] own_ip;
    logic [15:0] trigger_port;
    logic [5:0] event_count;

    wire write;
    wire [11:0] write_addr, read_addr;
    wire [31:0] write_data;
    logic [47:0] read_value;
    logic read_is_counter;
    wire [15:0] read_upper;
    logic writable;
    wire start_requested = write_addr == REG_PACKETIZER_CONTROL && write_data[0];
    wire bad = !writable || (start_requested && (running || busy));
    wire control = write && write_addr == REG_PACKETIZER_CONTROL;
    shotline_axil_slave port (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready,
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid,
        .s_axil_wready, .s_axil_bresp, .s_axil_bvalid,
        .s_axil_bready, .s_axil_araddr, .s_axil_arvalid,
        .s_axil_arready, .s_axil_rdata, .s_axil_rresp,
        .s_axil_rvalid, .s_axil_rready,
        .write, .write_addr, .write_data, .bad,
        .read_addr, .read_data(read_value), .read_keep(read_is_counter), .read_upper
    );

    always_comb begin
        case (write_addr)
            REG_PACKETIZER_CONTROL, REG_PACKETIZER_MODE, REG_PACKETIZER_SAMPLES, REG_PACKETIZER_PERIOD,
            REG_PACKETIZER_SHOT_LIMIT_LOW, REG_PACKETIZER_SHOT_LIMIT_HIGH, REG_PACKETIZER_FIRST_NUMBER_LOW,
            REG_PACKETIZER_FIRST_NUMBER_HIGH, REG_PACKETIZER_TRIGGER_PORT, REG_PACKETIZER_OWN_MAC_HIGH,
            REG_PACKETIZER_OWN_MAC_LOW, REG_PACKETIZER_OWN_IP_0, REG_PACKETIZER_OWN_IP_1, REG_PACKETIZER_OWN_IP_2,
            REG_PACKETIZER_OWN_IP_3, REG_PACKETIZER_EVENT_COUNT, REG_PACKETIZER_EVENT: writable = 1'b1;
            default: writable = 1'b0;
        endcase
    end

    assign start           = control && write_data[0];
    assign stop            = control && write_data[1];
    assign load_number     = control && write_data[2];
    assign cfg_mode        = mode[1:0];
    assign cfg_pin         = mode[4];
    assign cfg_command     = mode[5];
    assign cfg_any_address = mode[8];
    assign cfg_samples     = samples;
    assign cfg_period      = period;
    assign cfg_shots       = shot_limit;
    assign cfg_number      = first_number;
    assign cfg_port        = trigger_port;
    assign cfg_mac         = own_mac;
    assign cfg_ip          = own_ip;
    assign decoder_changed = write && !control;

    always_ff @(posedge clk) begin
        if (rst) begin
            mode         <= '0;
            samples      <= RESET_PACKETIZER_SAMPLES;
            period       <= RESET_PACKETIZER_PERIOD;
            shot_limit   <= '0;
            first_number <= '0;
            trigger_port <= RESET_PACKETIZER_TRIGGER_PORT[15:0];
            own_mac      <= '0;
            own_ip       <= '0;
            event_count  <= '0;
        end else if (write) begin
            case (write_addr)
                // Only the defined bits.
                REG_PACKETIZER_MODE:              mode <= write_data[8:0] & 9'h133;
                // 0 would be an endless shot.
                REG_PACKETIZER_SAMPLES:           samples <= write_data == '0 ? 32'd1 : write_data;
                REG_PACKETIZER_PERIOD:            period <= write_data == '0 ? 32'd1 : write_data;
                REG_PACKETIZER_SHOT_LIMIT_LOW:    shot_limit[31:0] <= write_data;
                REG_PACKETIZER_SHOT_LIMIT_HIGH:   shot_limit[47:32] <= write_data[15:0];
                REG_PACKETIZER_FIRST_NUMBER_LOW:  first_number[31:0] <= write_data;
                REG_PACKETIZER_FIRST_NUMBER_HIGH: first_number[47:32] <= write_data[15:0];
                REG_PACKETIZER_TRIGGER_PORT:      trigger_port <= write_data[15:0];
                REG_PACKETIZER_OWN_MAC_HIGH:      own_mac[47:32] <= write_data[15:0];
                REG_PACKETIZER_OWN_MAC_LOW:       own_mac[31:0] <= write_data;
                REG_PACKETIZER_OWN_IP_0:          own_ip[127:96] <= write_data;
                REG_PACKETIZER_OWN_IP_1:          own_ip[95:64] <= write_data;
                REG_PACKETIZER_OWN_IP_2:          own_ip[63:32] <= write_data;
                REG_PACKETIZER_OWN_IP_3:          own_ip[31:0] <= write_data;
                REG_PACKETIZER_EVENT_COUNT:       event_count <= write_data[5:0];
                default: ;
            endcase
        end
    end

    // Transmit sequence: shot k of a run has event[k mod event_count]. A missed trigger does not advance it.
    logic [15:0] events[64];
    logic [5:0] event_index;
    logic [15:0] event_read;
    logic [15:0] event_now;
    always_ff @(posedge clk) begin
        if (write && write_addr == REG_PACKETIZER_EVENT) events[write_data[21:16]] <= write_data[15:0];
        event_read <= events[event_index];
        // `event_read` is prefetched: it is the event of the shot that begins.
        if (begun) event_now <= event_count == '0 ? '0 : event_read;
        if (rst || start) event_index <= '0;
        else if (begun) event_index <= event_index + 6'd1 >= event_count ? '0 : event_index + 6'd1;
    end
    assign shot_event = event_now;

    wire clear = rst || (control && write_data[3]);
    wire [47:0] repeated, unexpected, refused, damaged;
    logic [47:0] damaged_number;
    shotline_counter48 counter_repeated (.clk, .clear, .add({6'd0, count_repeated}), .value(repeated));
    shotline_counter48 counter_unexpected (.clk, .clear, .add({6'd0, count_unexpected}), .value(unexpected));
    shotline_counter48 counter_refused (.clk, .clear, .add({6'd0, count_refused}), .value(refused));
    shotline_counter48 counter_damaged (.clk, .clear, .add({6'd0, count_damaged}), .value(damaged));
    always_ff @(posedge clk) begin
        if (rst) damaged_number <= '0;
        else if (count_damaged) damaged_number <= number;
    end

    always_ff @(posedge clk) begin
        read_is_counter <= read_addr[7] && !read_addr[2];
        case (read_addr)
            REG_PACKETIZER_ID:                read_value <= {16'd0, RESET_PACKETIZER_ID};
            REG_PACKETIZER_VERSION:           read_value <= {16'd0, RESET_PACKETIZER_VERSION};
            REG_PACKETIZER_STATUS:            read_value <= {16'd0, 16'(CHANNELS), 10'd0, cause, 2'd0, busy, running};
            REG_PACKETIZER_MODE:              read_value <= {39'd0, mode};
            REG_PACKETIZER_SAMPLES:           read_value <= {16'd0, samples};
            REG_PACKETIZER_PERIOD:            read_value <= {16'd0, period};
            REG_PACKETIZER_SHOT_LIMIT_LOW:    read_value <= {16'd0, shot_limit[31:0]};
            REG_PACKETIZER_SHOT_LIMIT_HIGH:   read_value <= {32'd0, shot_limit[47:32]};
            REG_PACKETIZER_FIRST_NUMBER_LOW:  read_value <= {16'd0, first_number[31:0]};
            REG_PACKETIZER_FIRST_NUMBER_HIGH: read_value <= {32'd0, first_number[47:32]};
            REG_PACKETIZER_TRIGGER_PORT:      read_value <= {32'd0, trigger_port};
            REG_PACKETIZER_OWN_MAC_HIGH:      read_value <= {32'd0, own_mac[47:32]};
            REG_PACKETIZER_OWN_MAC_LOW:       read_value <= {16'd0, own_mac[31:0]};
            REG_PACKETIZER_OWN_IP_0:          read_value <= {16'd0, own_ip[127:96]};
            REG_PACKETIZER_OWN_IP_1:          read_value <= {16'd0, own_ip[95:64]};
            REG_PACKETIZER_OWN_IP_2:          read_value <= {16'd0, own_ip[63:32]};
            REG_PACKETIZER_OWN_IP_3:          read_value <= {16'd0, own_ip[31:0]};
            REG_PACKETIZER_EVENT_COUNT:       read_value <= {42'd0, event_count};
            REG_PACKETIZER_NEXT_NUMBER:       read_value <= number;
            REG_PACKETIZER_SHOTS:             read_value <= taken;
            REG_PACKETIZER_MISSED:            read_value <= missed;
            REG_PACKETIZER_REPEATED:          read_value <= repeated;
            REG_PACKETIZER_UNEXPECTED:        read_value <= unexpected;
            REG_PACKETIZER_REFUSED:           read_value <= refused;
            REG_PACKETIZER_DAMAGED:           read_value <= damaged;
            REG_PACKETIZER_DAMAGED_NUMBER:    read_value <= damaged_number;
            REG_PACKETIZER_NEXT_NUMBER_HIGH, REG_PACKETIZER_SHOTS_HIGH, REG_PACKETIZER_MISSED_HIGH,
            REG_PACKETIZER_REPEATED_HIGH, REG_PACKETIZER_UNEXPECTED_HIGH, REG_PACKETIZER_REFUSED_HIGH,
            REG_PACKETIZER_DAMAGED_HIGH, REG_PACKETIZER_DAMAGED_NUMBER_HIGH: read_value <= {32'd0, read_upper};
            default:                          read_value <= '0;
        endcase
    end

`ifdef FORMAL
    `include "shotline_packetizer_registers_properties.svh"
`endif
endmodule

`default_nettype wire
