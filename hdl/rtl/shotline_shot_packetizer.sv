// Shot packetizer: samples of AFES front ends in, RoCEv2 frames out; everything between the JESD204B receivers and a
// 100G MAC, in three clock domains (hdl/README-packetizer.md).
//
//   afe_clk 120 MHz      : de-interleaver -> window -> AFE FIFO ----,
//   clk     160-200 MHz  :      ,------- trigger      assembler -> packer -> sender -> CMAC FIFO --,
//   mac_clk 322.27 MHz   : trigger decoder <- rx                                               MAC <-'

`default_nettype none

module shotline_shot_packetizer #(
    parameter int AFES = 3,             // front ends, 1 to 3
    parameter int LANES = 16,           // lanes of a front end, two channels each
    parameter int ADJACENT = 1,         // assignment of channels to lanes: see shotline_jesd_deinterleave
    parameter int AFE_FIFO_LOG2 = 9,    // log2 of the AFE FIFO's beats: 512 are 4.3 us of 96 channels
    parameter int CMAC_FIFO_LOG2 = 9,   // log2 of the CMAC FIFO's words: 512 are seven frames of 4096 bytes
    parameter int TIMEOUT_LOG2 = 12     // log2 of the clocks of afe_clk without samples after which a shot ends
) (
    // Asynchronous reset of all three clock domains, of any length.
    input  wire                    async_rst,

    // Converter clock domain.
    input  wire                    afe_clk,
    input  wire [AFES*LANES*8-1:0] afe_data,    // one octet of every lane
    input  wire                    afe_valid,
    input  wire                    afe_sof,     // first octet of a frame
    input  wire                    afe_locked,  // the clock is locked to its reference
    input  wire [63:0]             afe_tai,     // current time, TAI ns since 1970

    // Processing clock domain. AXI4-Lite subordinate: registers.
    input  wire                    clk,
    input  wire [11:0]             s_axil_awaddr,
    input  wire                    s_axil_awvalid,
    output wire                    s_axil_awready,
    input  wire [31:0]             s_axil_wdata,
    input  wire [3:0]              s_axil_wstrb,
    input  wire                    s_axil_wvalid,
    output wire                    s_axil_wready,
    output wire [1:0]              s_axil_bresp,
    output wire                    s_axil_bvalid,
    input  wire                    s_axil_bready,
    input  wire [11:0]             s_axil_araddr,
    input  wire                    s_axil_arvalid,
    output wire                    s_axil_arready,
    output wire [31:0]             s_axil_rdata,
    output wire [1:0]              s_axil_rresp,
    output wire                    s_axil_rvalid,
    input  wire                    s_axil_rready,
    output wire                    busy,            // a shot is active

    // Asynchronous trigger input: rising edge. High and low for at least two periods of `clk` each.
    input  wire                    trigger,

    // MAC clock domain. AXI4-Stream source and sink: frames without FCS.
    input  wire                    mac_clk,
    output wire [511:0]            m_axis_tdata,
    output wire [63:0]             m_axis_tkeep,
    output wire                    m_axis_tvalid,
    input  wire                    m_axis_tready,
    output wire                    m_axis_tlast,
    input  wire [511:0]            s_axis_rx_tdata,
    input  wire [63:0]             s_axis_rx_tkeep,
    input  wire                    s_axis_rx_tvalid,
    input  wire                    s_axis_rx_tlast,
    input  wire                    s_axis_rx_tuser    // with tlast: bad frame
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(afes, AFES >= 1 && AFES <= 3, "shotline_shot_packetizer: AFES must be 1 to 3")
    `SHOTLINE_REQUIRE(lanes, LANES >= 1 && LANES <= 21, "shotline_shot_packetizer: LANES must be 1 to 21")
    `SHOTLINE_REQUIRE(adjacent, ADJACENT == 0 || ADJACENT == 1, "shotline_shot_packetizer: ADJACENT must be 0 or 1")
    `SHOTLINE_REQUIRE(afe_fifo, AFE_FIFO_LOG2 >= 2, "shotline_shot_packetizer: AFE_FIFO_LOG2 must be at least 2")
    `SHOTLINE_REQUIRE(cmac_fifo, CMAC_FIFO_LOG2 >= 7,
        "shotline_shot_packetizer: CMAC_FIFO_LOG2 must be at least 7: a frame of 4096 bytes has 66 words")
    `SHOTLINE_REQUIRE(timeout, TIMEOUT_LOG2 >= 1, "shotline_shot_packetizer: TIMEOUT_LOG2 must be at least 1")

    localparam int BEAT = LANES * 24;

    wire rst, afe_rst, mac_rst;
    shotline_cdc_reset reset (.clk, .async_rst, .rst);
    shotline_cdc_reset reset_afe (.clk(afe_clk), .async_rst, .rst(afe_rst));
    shotline_cdc_reset reset_mac (.clk(mac_clk), .async_rst, .rst(mac_rst));

    // Registers.
    wire [1:0] awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;
    wire [3:0] bresp, rresp;
    wire [63:0] rdata;
    shotline_axil_split split (
        .clk, .rst, .s_axil_aw_block(s_axil_awaddr[11]), .s_axil_awvalid,
        .s_axil_awready, .s_axil_wvalid, .s_axil_wready,
        .s_axil_bresp, .s_axil_bvalid, .s_axil_bready,
        .s_axil_ar_block(s_axil_araddr[11]), .s_axil_arvalid, .s_axil_arready,
        .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid,
        .s_axil_rready,
        .m_axil_awvalid(awvalid), .m_axil_awready(awready), .m_axil_wvalid(wvalid), .m_axil_wready(wready),
        .m_axil_bresp(bresp), .m_axil_bvalid(bvalid), .m_axil_bready(bready), .m_axil_arvalid(arvalid),
        .m_axil_arready(arready), .m_axil_rdata(rdata), .m_axil_rresp(rresp), .m_axil_rvalid(rvalid),
        .m_axil_rready(rready)
    );

    wire start, stop, load_number, cfg_pin, cfg_command, cfg_any_address, decoder_changed;
    wire [1:0] cfg_mode, cause;
    wire [31:0] cfg_samples, cfg_period;
    wire [47:0] cfg_shots, cfg_number, cfg_mac, number, taken, missed;
    wire [15:0] cfg_port, shot_event;
    wire [127:0] cfg_ip;
    wire running, shot_active, begun, refused, done, damaged, count_repeated, count_unexpected;
    shotline_packetizer_registers #(.CHANNELS(2 * AFES * LANES)) registers (
        .clk, .rst,
        .s_axil_awaddr, .s_axil_awvalid(awvalid[1]), .s_axil_awready(awready[1]),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(wvalid[1]), .s_axil_wready(wready[1]),
        .s_axil_bresp(bresp[3:2]), .s_axil_bvalid(bvalid[1]), .s_axil_bready(bready[1]),
        .s_axil_araddr, .s_axil_arvalid(arvalid[1]), .s_axil_arready(arready[1]),
        .s_axil_rdata(rdata[63:32]), .s_axil_rresp(rresp[3:2]), .s_axil_rvalid(rvalid[1]), .s_axil_rready(rready[1]),
        .start, .load_number, .stop, .cfg_mode, .cfg_pin,
        .cfg_command, .cfg_any_address, .cfg_samples,
        .cfg_period, .cfg_shots, .cfg_number, .cfg_port,
        .cfg_mac, .cfg_ip, .decoder_changed,
        .running, .busy(shot_active), .number, .taken, .missed, .begun,
        .count_repeated, .count_unexpected, .count_refused(refused),
        .count_damaged(done && damaged), .cause, .shot_event
    );

    // Triggers: the pin, and commands from the network.
    wire mac_enable, mac_any_address;
    wire [15:0] mac_port;
    wire [47:0] mac_mac;
    wire [127:0] mac_ip;
    wire mac_valid, decoder_ready;
    logic decoder_stale;
    logic mac_configured;
    always_ff @(posedge clk) begin
        if (rst) decoder_stale <= 1'b0;
        else decoder_stale <= decoder_changed || (decoder_stale && !decoder_ready);
    end
    always_ff @(posedge mac_clk) begin
        if (mac_rst) mac_configured <= 1'b0;
        else if (mac_valid) mac_configured <= 1'b1;
    end
    shotline_cdc_word #(.WIDTH(194)) to_decoder (
        .s_clk(clk), .s_rst(rst), .s_data({cfg_command, cfg_any_address, cfg_port, cfg_mac, cfg_ip}),
        .s_valid(decoder_stale), .s_ready(decoder_ready), .m_clk(mac_clk), .m_rst(mac_rst),
        .m_data({mac_enable, mac_any_address, mac_port, mac_mac, mac_ip}), .m_valid(mac_valid)
    );

    wire found, found_only, command_valid, command_ready, command_only;
    wire [31:0] found_sequence, command_sequence;
    /* verilator lint_off PINCONNECTEMPTY */
    shotline_trigger_decoder decoder (
        .clk(mac_clk), .rst(mac_rst), .s_axis_tdata(s_axis_rx_tdata), .s_axis_tkeep(s_axis_rx_tkeep),
        .s_axis_tvalid(s_axis_rx_tvalid), .s_axis_tlast(s_axis_rx_tlast), .s_axis_tuser(s_axis_rx_tuser),
        .cfg_enable(mac_enable && mac_configured), .cfg_any_address(mac_any_address), .cfg_port(mac_port),
        .cfg_mac(mac_mac), .cfg_ip(mac_ip), .trigger_valid(found), .trigger_sequence(found_sequence),
        .trigger_acknowledge(), .trigger_command_only(found_only)
    );
    // On overflow a command is lost, and the trigger controller counts its sequence number as missed.
    shotline_fifo_async #(.WIDTH(33), .DEPTH_LOG2(3)) commands (
        .s_clk(mac_clk), .s_rst(mac_rst), .s_data({found_only, found_sequence}), .s_valid(found), .s_ready(),
        .s_level(), .m_clk(clk), .m_rst(rst), .m_data({command_only, command_sequence}), .m_valid(command_valid),
        .m_ready(command_ready)
    );
    /* verilator lint_on PINCONNECTEMPTY */

    wire pin, fire, start_ready, assembler_idle, sender_busy, sender_ready;
    shotline_cdc_sync pin_sync (.clk, .rst, .d(trigger), .q(pin));
    shotline_shot_trigger trigger_control (
        .clk, .rst, .start, .stop, .cfg_mode, .cfg_pin,
        .cfg_command, .cfg_period, .cfg_shots, .load_number,
        .cfg_number, .pin, .command_valid, .command_ready,
        .command_sequence, .command_only,
        // No shot starts while the sender accepts no payload (disabled, or an apply is pending).
        .ready(start_ready && assembler_idle && !sender_busy && sender_ready),
        .fire, .begun, .refused, .done, .running, .busy(shot_active),
        .number, .taken, .missed, .count_repeated, .count_unexpected
    );
    assign busy = shot_active;

    // Start of a shot, to the converter clock domain.
    wire afe_start;
    wire [31:0] afe_samples;
    shotline_cdc_word #(.WIDTH(32)) to_window (
        .s_clk(clk), .s_rst(rst), .s_data(cfg_samples), .s_valid(fire), .s_ready(start_ready), .m_clk(afe_clk),
        .m_rst(afe_rst), .m_data(afe_samples), .m_valid(afe_start)
    );

    wire [BEAT-1:0] sample_data, window_data, beat_data;
    wire [63:0] sample_time, window_time, head_time, shot_time;
    wire sample_valid, sample_first, sample_last, sample_error;
    shotline_jesd_deinterleave #(.AFES(AFES), .LANES(LANES), .ADJACENT(ADJACENT)) deinterleave (
        .clk(afe_clk), .rst(afe_rst), .lane_data(afe_data), .lane_valid(afe_valid), .lane_sof(afe_sof), .tai(afe_tai),
        .m_data(sample_data), .m_valid(sample_valid), .m_first(sample_first), .m_last(sample_last),
        .m_time(sample_time), .m_error(sample_error)
    );
    wire window_locked, window_refused, window_head, window_mark, window_valid;
    wire [AFE_FIFO_LOG2:0] window_level;
    shotline_afe_window #(.BEAT(BEAT), .LEVEL(AFE_FIFO_LOG2 + 1), .TIMEOUT_LOG2(TIMEOUT_LOG2)) window (
        .clk(afe_clk), .rst(afe_rst), .s_data(sample_data), .s_valid(sample_valid), .s_first(sample_first),
        .s_last(sample_last), .s_time(sample_time), .s_error(sample_error), .locked(afe_locked),
        .start_samples(afe_samples), .start(afe_start),
        .head_time(window_time), .head_locked(window_locked), .head_refused(window_refused), .head_valid(window_head),
        .beat_data(window_data), .beat_mark(window_mark), .beat_valid(window_valid), .beat_level(window_level)
    );

    // Only one shot is active at a time, so the head FIFO never overflows; for beats, the window checks the fill level.
    wire head_valid, head_ready, head_refused, head_locked, beat_valid, beat_ready, beat_mark;
    wire head_fifo_ready, beat_fifo_ready;
    /* verilator lint_off PINCONNECTEMPTY */
    shotline_fifo_async #(.WIDTH(66), .DEPTH_LOG2(2)) head_fifo (
        .s_clk(afe_clk), .s_rst(afe_rst), .s_data({window_refused, window_locked, window_time}), .s_valid(window_head),
        .s_ready(head_fifo_ready), .s_level(), .m_clk(clk), .m_rst(rst),
        .m_data({head_refused, head_locked, head_time}), .m_valid(head_valid), .m_ready(head_ready)
    );
    shotline_fifo_async #(.WIDTH(BEAT + 1), .DEPTH_LOG2(AFE_FIFO_LOG2)) afe_fifo (
        .s_clk(afe_clk), .s_rst(afe_rst), .s_data({window_mark, window_data}), .s_valid(window_valid),
        .s_ready(beat_fifo_ready), .s_level(window_level), .m_clk(clk), .m_rst(rst), .m_data({beat_mark, beat_data}),
        .m_valid(beat_valid), .m_ready(beat_ready)
    );
    /* verilator lint_on PINCONNECTEMPTY */

    // Complete shots, as words.
    wire [BEAT-1:0] pack_data;
    wire pack_valid, pack_ready, pack_last, pack_bad, shot_locked;
    logic samples_sent;
    shotline_shot_assembler #(.BEAT(BEAT), .AFES(AFES)) assembler (
        .clk, .rst, .fire, .samples(cfg_samples), .head_valid, .head_ready,
        .head_refused, .head_locked, .head_time, .beat_valid,
        .beat_ready, .beat_mark, .beat_data, .m_data(pack_data), .m_valid(pack_valid),
        .m_ready(pack_ready), .m_last(pack_last), .m_bad(pack_bad), .m_sent(samples_sent && !sender_busy),
        .shot_time, .shot_locked, .begun, .refused, .done,
        .idle(assembler_idle), .damaged, .cause
    );

    wire [511:0] word_data;
    wire [63:0] word_keep;
    wire word_valid, word_ready, word_last, word_bad;
    shotline_sample_packer #(.SAMPLES(2 * LANES)) packer (
        .clk, .rst, .s_data(pack_data), .s_valid(pack_valid), .s_ready(pack_ready), .s_last(pack_last),
        .s_bad(pack_bad), .m_axis_tdata(word_data), .m_axis_tkeep(word_keep), .m_axis_tvalid(word_valid),
        .m_axis_tready(word_ready), .m_axis_tlast(word_last), .m_axis_tuser(word_bad)
    );
    assign sender_ready = word_ready;
    // The sender has accepted the shot's last word; it is busy until the last packet has left.
    always_ff @(posedge clk) begin
        if (rst || fire) samples_sent <= 1'b0;
        else if (word_valid && word_ready && word_last) samples_sent <= 1'b1;
    end

    // Frames.
    wire [511:0] frame_data;
    wire [63:0] frame_keep;
    wire frame_valid, frame_ready, frame_last;
    shotline_roce_ud_tx sender (
        .clk, .rst, .s_axis_tdata(word_data), .s_axis_tkeep(word_keep), .s_axis_tvalid(word_valid),
        .s_axis_tready(word_ready), .s_axis_tlast(word_last), .s_axis_tuser(word_bad),
        .s_shot_number({16'd0, number}), .s_shot_time(shot_time), .s_shot_stream(32'd0),
        .s_shot_event({16'd0, shot_event}), .s_shot_flags({6'd0, cfg_mode == 2'd2, shot_locked}),
        .m_axis_tdata(frame_data), .m_axis_tkeep(frame_keep), .m_axis_tvalid(frame_valid),
        .m_axis_tready(frame_ready), .m_axis_tlast(frame_last), .busy(sender_busy),
        .s_axil_awaddr, .s_axil_awvalid(awvalid[0]), .s_axil_awready(awready[0]),
        .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid(wvalid[0]), .s_axil_wready(wready[0]),
        .s_axil_bresp(bresp[1:0]), .s_axil_bvalid(bvalid[0]), .s_axil_bready(bready[0]),
        .s_axil_araddr, .s_axil_arvalid(arvalid[0]), .s_axil_arready(arready[0]),
        .s_axil_rdata(rdata[31:0]), .s_axil_rresp(rresp[1:0]), .s_axil_rvalid(rvalid[0]), .s_axil_rready(rready[0])
    );

    // To the MAC.
    shotline_frame_fifo_async #(.DEPTH_LOG2(CMAC_FIFO_LOG2)) cmac_fifo (
        .s_clk(clk), .s_rst(rst), .s_axis_tdata(frame_data), .s_axis_tkeep(frame_keep), .s_axis_tvalid(frame_valid),
        .s_axis_tready(frame_ready), .s_axis_tlast(frame_last),
        .m_clk(mac_clk), .m_rst(mac_rst), .m_axis_tdata, .m_axis_tkeep,
        .m_axis_tvalid, .m_axis_tready, .m_axis_tlast
    );

    shotline_axis_rules words_rules (
        .clk, .rst, .tdata(word_data), .tkeep(word_keep), .tvalid(word_valid), .tready(word_ready),
        .tlast(word_last)
    );
    shotline_axis_rules frames_rules (
        .clk(mac_clk), .rst(mac_rst), .tdata(m_axis_tdata), .tkeep(m_axis_tkeep), .tvalid(m_axis_tvalid),
        .tready(m_axis_tready), .tlast(m_axis_tlast)
    );
`ifdef VERILATOR
    // The FIFOs never overflow, and are empty between shots.
    no_head_overflow: assert property (@(posedge afe_clk) disable iff (afe_rst) window_head |-> head_fifo_ready);
    no_beat_overflow: assert property (@(posedge afe_clk) disable iff (afe_rst) window_valid |-> beat_fifo_ready);
    empty_between_shots: assert property (@(posedge clk) disable iff (rst)
        assembler_idle |-> !beat_valid && !head_valid);
`else
    wire unused = &{head_fifo_ready, beat_fifo_ready};
`endif
endmodule

`default_nettype wire
