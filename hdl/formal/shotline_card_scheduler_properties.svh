// Properties of shotline_card_scheduler: each packet has one decision, in order; of one arbitrary channel, that the
// solver chooses, only descriptors that have come are used, each once; a report counts those whose entries are before
// it; and between a stop, with its final report, and the next start there is no entry.

(* anyconst *) logic [CHANNELS_LOG2-1:0] f_channel;
(* anyconst *) logic [2:0] f_index;  // of a packet

// The memories' and the FIFO's own properties. Attribute hierconn joins a wire with the one of that name in the
// flattened module.
(* hierconn *) wire [CHANNELS_LOG2-1:0] \buffers.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \heads.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \actives.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \filleds.f_address ;
(* hierconn *) wire \buffers.f_known ;
(* hierconn *) wire \heads.f_known ;
(* hierconn *) wire \actives.f_known ;
(* hierconn *) wire \filleds.f_known ;
(* hierconn *) wire [15:0] \buffers.f_word ;
(* hierconn *) wire [15:0] \heads.f_word ;
(* hierconn *) wire \actives.f_word ;
(* hierconn *) wire [11:0] \filleds.f_word ;
(* hierconn *) wire [ENTRIES_LOG2+1:0] \waiting.f_in ;
(* hierconn *) wire [ENTRIES_LOG2+1:0] \waiting.f_out ;
(* hierconn *) wire \waiting.f_good ;

localparam logic [15:0] F_MOST = 16'(1 << PREFETCH_LOG2);  // descriptors held
logic f_cleared;  // since the reset
wire f_active = f_cleared && \actives.f_word ;
wire [15:0] f_used = \heads.f_word ;
wire [11:0] f_filled = \filleds.f_word ;
wire [15:0] f_available = {f_filled, 4'd0} - f_used;
wire [15:0] f_next = {filled_group, 4'd0} - f_used;
wire f_split = \buffers.f_word [15:11] != '0;

logic f_started = 1'b0;
logic f_runs;               // the last command that was accepted is a start
logic [15:0] f_emitted;     // descriptors of the entries since the start
logic [2:0] f_in, f_decided, f_number_1, f_number_2, f_number_3;
logic [CHANNELS_LOG2+13:0] f_meta;
logic [5:0] f_steps;        // COUNT: buffers that were counted; EMIT: those of the packet
logic [5:0] f_done;         // EMIT: those behind
logic [16:0] f_sum;         // sizes of the buffers that were counted, less those behind, in units of 8 bytes
logic [16:0] f_total;       // EMIT: of all

wire f_at_1 = valid_1 && channel_1 == f_channel;
wire f_at_2 = valid_2 && channel_2 == f_channel;
wire f_at_3 = valid_3 && channel_3 == f_channel;
wire f_offered = command_valid && command_channel == f_channel;
wire f_start_in = (f_at_1 && kind_1 == START) || (f_at_2 && kind_2 == START) || (f_at_3 && kind_3 == START);
wire f_stop_in  = (f_at_1 && kind_1 == STOP) || (f_at_2 && kind_2 == STOP) || (f_at_3 && kind_3 == STOP);
wire f_clear_in = (f_at_1 && kind_1 == CLEAR) || (f_at_2 && kind_2 == CLEAR) || (f_at_3 && kind_3 == CLEAR);
wire f_start = f_start_in || (f_offered && {1'b0, command} == START);
wire f_take_packet = packet_valid && packet_ready;
wire f_decide = keep || drop;
wire [5:0] f_ahead = f_steps - f_done;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    assume (\buffers.f_address == f_channel && \heads.f_address == f_channel);
    assume (\actives.f_address == f_channel && \filleds.f_address == f_channel);
    // Rings: after the reset a channel is cleared; then starts and stops alternate, a start being after all that the
    // stop has done. A command waits. Groups that may be used come in order, as many as are held at most.
    if (f_offered) begin
        assume (command != 2'd3);
        assume (({1'b0, command} == STOP) == f_runs);
        if ({1'b0, command} == CLEAR) assume (!f_cleared && !f_clear_in);
        else assume (f_cleared);
        if ({1'b0, command} == START) assume (!f_active && !f_stop_in && \buffers.f_known && \filleds.f_known );
        if ({1'b0, command} == START) assume (f_filled <= 12'(F_MOST >> 4));
    end
    if (f_started && $past(!rst && command_valid && !command_ready))
        assume (command_valid && $stable(command) && $stable(command_channel));
    if (filled_write && filled_channel == f_channel) begin
        if (f_start) assume (filled_group <= 12'(F_MOST >> 4) && filled_group >= f_filled);
        else if (f_active) assume (f_next <= F_MOST && f_next >= f_available);
    end
    // Registers: a buffer is changed while the channel is stopped. Packets and reports come when channels are cleared.
    if (config_write && config_channel == f_channel && config_register == REG_CARD_CHANNEL_BUFFER)
        assume (!f_active && !f_start && !f_stop_in && !f_runs);
    if (packet_valid && packet_channel == f_channel) assume (f_cleared);
    if (report_valid && report_channel == f_channel) assume (f_cleared);
    if (rst) begin
        {f_cleared, f_runs, f_in, f_decided} <= '0;
    end else begin
        if (f_offered && command_ready) f_runs <= {1'b0, command} == START;
        if (order && f_at_3 && kind_3 == CLEAR) f_cleared <= 1'b1;
        if (f_take_packet) f_in <= f_in + 1'b1;
        if (f_take_packet && f_in == f_index) f_meta <= {packet_channel, packet_length};
        if (f_decide) f_decided <= f_decided + 1'b1;
        if (order && f_at_3 && kind_3 == START) f_emitted <= '0;
        else if (f_at_3 && (simple || emit)) f_emitted <= f_emitted + each;
        if (free_1) f_number_1 <= f_in;
        if (free_2) f_number_2 <= f_number_1;
        if (free_3) f_number_3 <= f_number_2;
        if (first) {f_steps, f_sum} <= {6'd1, 17'(size_3)};
        else if (count && !several) {f_steps, f_sum} <= {f_steps + 6'd1, f_sum + 17'(size_3)};
        else if (emit) f_sum <= f_sum - 17'(size_3);
        if (several) f_total <= f_sum;
        f_done <= emit ? f_done + 1'b1 : mode == EMIT ? f_done : '0;
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // Each packet has one decision, in order, and is counted with it.
        if (f_decide) assert (f_number_3 == f_decided && (keep != drop) && mode != EMIT);
        if (f_decide && f_decided == f_index) assert ({channel_3, length_3} == f_meta);
        assert (3'(f_in - f_decided) == 3'(valid_1 && kind_1 == PACKET) + 3'(valid_2 && kind_2 == PACKET) +
                3'(valid_3 && kind_3 == PACKET && mode != EMIT));
        if ($past(f_started && !rst)) begin
            assert (decision_valid == $past(f_decide));
            if (decision_valid) begin
                assert (decision_keep == $past(keep) && {count_channel, count_bytes} == $past({channel_3, length_3}));
                assert ((count_cause == RECEIVED) == decision_keep);
                if (count_channel == f_channel) assert (!decision_keep || $past(f_active));
            end
        end
        // Descriptors are used once and only after they have come.
        if (f_active) assert (f_available <= F_MOST);
        if (f_at_3 && (simple || emit)) begin
            assert (f_active && 16'((emit ? index : used) - used) + each <= f_available);
            assert ((emit ? index : used) == f_emitted && (!split_3 || !f_emitted[0]));
        end
        if ($past(f_started && !rst && f_at_3 && (simple || emit)))
            assert (valid_4 && !report_4 && place_4 == $past({f_channel, f_emitted[PREFETCH_LOG2-1:1]}));
        // A report counts the descriptors of the entries before it. A stop has the last one.
        if (f_active && !(f_at_3 && mode == EMIT)) assert (f_used == f_emitted);
        if (emits && f_at_3) assert (f_active);
        if ($past(f_started && !rst && order && f_at_3 && (kind_3 == REPORT || kind_3 == STOP) && f_active)) begin
            assert (valid_4 && channel_4 == f_channel && data_4[15:0] == $past(f_emitted) && length_4 == '0);
            assert (data_4[24] == $past(kind_3 == STOP) && (report_4 || !data_4[24]));
            if (data_4[24]) assert (!f_active);
        end
        if (order && f_at_3 && kind_3 == STOP) assert (f_active);
        // No entry is lost.
        assert (\waiting.f_good );

        // Induction invariants.
        assert (places <= 5'd16 && 6'(places) + (\waiting.f_in - \waiting.f_out ) + 6'(valid_4) + 6'(valid_5) == 6'd16);
        if (valid_1 && kind_1 == PACKET && f_number_1 == f_index) assert ({channel_1, length_1} == f_meta);
        if (valid_2 && kind_2 == PACKET && f_number_2 == f_index) assert ({channel_2, length_2} == f_meta);
        if (valid_3 && kind_3 == PACKET && mode != EMIT && f_number_3 == f_index)
            assert ({channel_3, length_3} == f_meta);
        if (valid_1 && kind_1 == PACKET) assert (f_number_1 == f_in - 3'd1);
        if (valid_2 && kind_2 == PACKET)
            assert (f_number_2 == 3'(f_in - 3'd1 - 3'(valid_1 && kind_1 == PACKET)));
        if (valid_3 && kind_3 == PACKET && mode != EMIT) assert (f_number_3 == f_decided);
        if (mode != DECIDE) assert (valid_3 && kind_3 == PACKET);
        assert (mode <= EMIT && (!valid_1 || kind_1 <= PACKET));
        assert ((!valid_2 || kind_2 <= PACKET) && (!valid_3 || kind_3 <= PACKET));
        if (f_cleared) assert (\heads.f_known && \actives.f_known );
        if (f_active && f_cleared) assert (\filleds.f_known && \buffers.f_known );
        if (f_start_in) assert (f_cleared && !f_active && \filleds.f_known && \buffers.f_known );
        if (f_start) assert (f_filled <= 12'(F_MOST >> 4));
        if (!f_cleared) assert (!f_runs && !f_start_in && !f_stop_in);
        if (!f_cleared) begin
            assert (!(f_at_1 && kind_1 >= REPORT) && !(f_at_2 && kind_2 >= REPORT));
            assert (!(f_at_3 && kind_3 >= REPORT));
        end
        assert (2'(f_at_1 && kind_1 == CLEAR) + 2'(f_at_2 && kind_2 == CLEAR) + 2'(f_at_3 && kind_3 == CLEAR) <= 2'd1);
        assert (2'(f_at_1 && kind_1 == START) + 2'(f_at_2 && kind_2 == START) + 2'(f_at_3 && kind_3 == START) <= 2'd1);
        assert (2'(f_at_1 && kind_1 == STOP) + 2'(f_at_2 && kind_2 == STOP) + 2'(f_at_3 && kind_3 == STOP) <= 2'd1);
        if (f_cleared) assert (!f_clear_in && (f_runs || f_stop_in) == (f_active || f_start_in));
        if (f_runs) assert (!f_stop_in);
        if (f_at_1 && kind_1 == START) assert (!f_stop_in);
        if (f_at_2 && kind_2 == START) assert (!(f_at_3 && kind_3 == STOP));
        // A packet that finds the channel running has come after the start, with the buffers as they are.
        if (f_at_2 && kind_2 == PACKET && (f_active || (f_at_3 && kind_3 == START)))
            assert ((header_2 != '0) == f_split);
        if (f_at_3 && kind_3 == PACKET && f_active) assert (split_3 == f_split);
        if (f_active && f_split) assert (!f_used[0]);
        // What was counted is what is emitted.
        if (mode == COUNT) assert (room);
        if (mode == COUNT && f_at_3) begin
            assert (f_active && f_steps != '0 && f_steps <= 6'd33 && !fits_3);
            assert (needed == (split_3 ? {9'd0, f_steps, 1'b0} : {10'd0, f_steps}));
            assert (20'(left) + {f_sum, 3'd0} == 20'(rest_3) + 20'(size_bytes));
        end
        if (mode != DECIDE && f_at_3) assert (f_sum == 17'(mode == COUNT ? f_steps : f_ahead) * 17'(size_3));
        if (mode == EMIT && f_at_3) begin
            assert (f_active && f_steps != '0 && f_steps <= 6'd32 && f_done < f_steps);
            assert ((split_3 ? {9'd0, f_steps, 1'b0} : {10'd0, f_steps}) <= f_available);
            assert (index - used == (split_3 ? {9'd0, f_done, 1'b0} : {10'd0, f_done}) && index == f_emitted);
            assert (f_sum <= f_total && f_total <= 17'd65536);
            assert (20'(left) + {f_total, 3'd0} == 20'(rest_3) + {f_sum, 3'd0} && {f_total, 3'd0} >= 20'(rest_3));
        end

        cover (f_at_3 && emit && last && f_emitted == 16'd2);
        cover (order && f_at_3 && kind_3 == STOP && f_emitted == 16'd1);
    end
end
