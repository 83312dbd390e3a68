// Decides when the descriptors that a channel has used are reported, and when it interrupts.
//
// The channels are looked at in turn, one a clock. A report is due when enough descriptors were used since the last, or
// when some were and enough time has passed since the first of them was seen. Times are in units of 256 clocks. An
// interrupt follows a report, with it if the last one is old enough. A report is sent at most every 8 clocks, so that
// reports do not hold up payload; the turn waits for it, so that no channel is passed over.

`default_nettype none

module shotline_card_reports #(
    parameter int CHANNELS_LOG2 = 7  // 3 to 8
) (
    // Clock and synchronous reset.
    input  wire                      clk,
    input  wire                      rst,

    // Registers of the channels.
    input  wire                      config_write,
    input  wire  [CHANNELS_LOG2-1:0] config_channel,
    input  wire  [6:0]               config_register,
    input  wire  [31:0]              config_data,

    // A channel was started, and has used no descriptor, or was stopped.
    input  wire                      started,
    input  wire                      stopped,
    input  wire  [CHANNELS_LOG2-1:0] changed_channel,

    // Descriptors that a channel has used.
    output wire  [CHANNELS_LOG2-1:0] head_channel,
    input  wire  [15:0]              head,

    // Reports for the scheduler.
    output logic                     report_valid,
    input  wire                      report_ready,
    output logic [CHANNELS_LOG2-1:0] report_channel,
    output logic                     report_wanted,
    output logic                     report_interrupt
);
    `include "shotline_require.svh"
    `include "card_registers.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_reports: CHANNELS_LOG2 must be 3 to 8")

    logic [CHANNELS_LOG2-1:0] scan, channel;
    logic [23:0] clocks;
    wire  [15:0] now = clocks[23:8];
    assign head_channel = scan;

    // What is known of each channel: descriptors reported; when the first of the others was seen; when it interrupted;
    // whether that is long enough ago; whether a report waits for its interrupt.
    localparam int RECORD = 16 + 1 + 16 + 16 + 1 + 1;
    logic [RECORD-1:0] record_found, record, record_next;
    logic [31:0] limits_found, limits;
    logic [16:0] moderation_found, moderation;
    shotline_lut_ram #(.WIDTH(RECORD), .DEPTH_LOG2(CHANNELS_LOG2)) records (
        .clk, .write(1'b1), .write_addr(channel), .write_data(record_next), .read_addr(scan), .read_data(record_found)
    );
    shotline_lut_ram #(.WIDTH(32), .DEPTH_LOG2(CHANNELS_LOG2)) reports (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_REPORT), .write_addr(config_channel),
        .write_data(config_data), .read_addr(scan), .read_data(limits_found)
    );
    shotline_lut_ram #(.WIDTH(17), .DEPTH_LOG2(CHANNELS_LOG2)) moderations (
        .clk, .write(config_write && config_register == REG_CARD_CHANNEL_INTERRUPT), .write_addr(config_channel),
        .write_data({config_data[31], config_data[15:0]}), .read_addr(scan), .read_data(moderation_found)
    );

    // Running channels, and those that were started since they were looked at: what is known of them is of the run before.
    // A channel that is started in the clock of its look is taken as started by that look.
    logic [(1<<CHANNELS_LOG2)-1:0] running, starts;
    logic fresh, hold;
    logic [15:0] used;
    always_ff @(posedge clk) begin
        if (started) starts[changed_channel] <= 1'b1;
        if (!hold) starts[scan] <= 1'b0;
        if (rst) running <= '0;
        else if (started || stopped) running[changed_channel] <= started;
    end
    always_ff @(posedge clk) begin
        if (!hold) begin
            channel    <= scan;
            record     <= record_found;
            limits     <= limits_found;
            moderation <= moderation_found;
            fresh      <= starts[scan] || (started && changed_channel == scan);
            used       <= head;
        end
        if (rst) scan <= '0;
        else if (!hold) scan <= scan + 1'b1;
        if (rst) clocks <= '0;
        else clocks <= clocks + 24'd1;
    end

    logic [15:0] reported, since, last;
    logic waiting, allowed, owed;
    assign {reported, waiting, since, last, allowed, owed} = record;
    wire [15:0] count, time_limit, interval;
    wire enable;
    assign {time_limit, count} = limits;
    assign {enable, interval}  = moderation;

    logic [2:0] pause;
    wire runs = running[channel] && !fresh && !(stopped && changed_channel == channel);
    wire can  = !report_valid && pause == '0;
    wire [15:0] new_used = used - reported;
    wire is_new  = new_used != '0;
    wire waited  = (waiting ? now - since : 16'd0) >= time_limit;
    wire is_due  = runs && is_new && (waited || (count != '0 && new_used >= count));
    wire old     = allowed || now - last >= interval;
    wire is_owed = runs && enable && old && owed;
    wire due       = can && is_due;
    wire interrupt = can && ((is_due && enable && old) || is_owed);
    assign hold    = !can && (is_due || is_owed);
    assign record_next = fresh ? {16'd0, 1'b0, now, now, 1'b1, 1'b0} : {
        due ? used : reported, is_new && !due, waiting ? since : now, interrupt ? now : last, old && !interrupt,
        enable && (owed || due) && !interrupt};

    always_ff @(posedge clk) begin
        if (due || interrupt) begin
            report_channel   <= channel;
            report_wanted    <= due;
            report_interrupt <= interrupt;
        end
        if (rst) begin
            report_valid <= 1'b0;
            pause        <= '0;
        end else begin
            if (due || interrupt) report_valid <= 1'b1;
            else if (report_ready || (stopped && changed_channel == report_channel)) report_valid <= 1'b0;
            if (due || interrupt) pause <= '1;
            else if (pause != '0) pause <= pause - 3'd1;
        end
    end

`ifdef FORMAL
    `include "shotline_card_reports_properties.svh"
`endif
endmodule

`default_nettype wire
