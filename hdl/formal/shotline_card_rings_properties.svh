// Properties of shotline_card_rings: of one arbitrary channel, that the solver chooses, no group is requested that
// software has not given or for which there is no place, no more are counted as filled than were requested and have
// come, starts and stops alternate, and the channel is stopped after its final report and its last read.

(* anyconst *) logic [CHANNELS_LOG2-1:0] f_channel;

// The memories' own properties. Attribute hierconn joins a wire with the one of that name in the flattened module.
(* hierconn *) wire [CHANNELS_LOG2-1:0] \states.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \records.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \givens.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \lows.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \highs.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \sizes.f_address ;
(* hierconn *) wire \states.f_known ;
(* hierconn *) wire \records.f_known ;
(* hierconn *) wire \givens.f_known ;
(* hierconn *) wire \lows.f_known ;
(* hierconn *) wire \highs.f_known ;
(* hierconn *) wire \sizes.f_known ;
(* hierconn *) wire [5:0] \states.f_word ;
(* hierconn *) wire [RECORD-1:0] \records.f_word ;
(* hierconn *) wire [11:0] \givens.f_word ;
(* hierconn *) wire [19:0] \lows.f_word ;
(* hierconn *) wire [31:0] \highs.f_word ;
(* hierconn *) wire [3:0] \sizes.f_word ;

// The chosen channel, as it is recorded.
logic [11:0] f_filled, f_requested;
logic [TAGS_LOG2:0] f_reading;
logic [GROUPS-1:0] f_marks;
logic f_ended;
wire [1:0] f_state = \states.f_word [1:0];
wire [11:0] f_given = \givens.f_word ;
assign {f_ended, f_filled, f_requested, f_reading, f_marks} = \records.f_word ;

// What the world outside does, in any order that the interfaces allow.
(* anyseq *) logic f_do_start, f_do_stop;
(* anyseq *) logic [15:0] f_use;
logic f_started = 1'b0;
logic f_start_sent, f_stop_sent;     // commands that the scheduler has accepted and not done
logic f_active;                      // the scheduler uses descriptors
logic f_report;                      // the final report will be on the bus
logic [15:0] f_head;                 // descriptors used, by the scheduler
logic [GROUPS-1:0] f_flying;         // reads in flight
logic f_runs;                        // the last command was a start
logic f_swept;                       // the record of the channel was cleared after the reset
logic f_final;                       // the final report of this run was on the bus
wire [15:0] f_available = {f_filled, 4'd0} - f_head;

wire f_here = channel == f_channel;
wire f_in_slot = command_valid && command_channel == f_channel;
wire f_start_waits = (f_in_slot && command == START) || f_start_sent;
wire f_stop_waits  = (f_in_slot && command == STOP) || f_stop_sent;
// Groups used, once the scheduler has done the start.
wire [11:0] f_used = f_start_waits ? '0 : f_head[15:4];
wire [11:0] f_room = f_requested - f_used;
wire [11:0] f_seen_room = f_requested - f_head[15:4];
wire f_fetched = fetched && f_here;
wire f_taken = done_take && done_channel == f_channel;
wire f_finals = notice_valid && !notice_kind && notice_channel == f_channel;
wire f_config = config_write && config_channel == f_channel;
wire f_run = f_config && config_register == REG_CARD_CHANNEL_CONTROL && config_data[0];
wire f_ring_known = \lows.f_known && \highs.f_known && \sizes.f_known ;
// A write has started the channel, and its record says nothing of it yet.
wire f_starting = f_state == STOPPED &&
    (run_requests[f_channel] || (step == ACT && f_here && starts));
wire [11:0] f_base = f_starting ? '0 : f_used;
wire [11:0] f_more = config_data[15:4] - f_given;
wire [11:0] f_in_ring = f_requested & ((12'd1 << (\sizes.f_word - 4'd4)) - 12'd1);

always_ff @(posedge clk) begin
    f_started <= 1'b1;
`ifdef F_CLEARED
    assume (!rst);
    if (!f_started) begin
        assume (ready && step == PICK && after == '1 && !command_valid && pending == '0);
        assume (run_requests == '0 && stop_requests == '0 && finals == '0 && refusals == '0);
        assume (\states.f_known && \states.f_word == '0 && \records.f_known && \records.f_word == '0);
        assume ({f_start_sent, f_stop_sent, f_active, f_report, f_runs, f_final} == '0 && f_flying == '0 && f_swept);
        assume (f_ring_known && \sizes.f_word == 4'd4);
    end
`else
    if (!f_started) assume (rst);
`endif
    assume (\states.f_address == f_channel && \records.f_address == f_channel);
    assume (\givens.f_address == f_channel && \lows.f_address == f_channel && \highs.f_address == f_channel);
    assume (\sizes.f_address == f_channel);
    // Registers: shotline_card_registers lets no other writes through. Software gives descriptors as it has them: its
    // pointer advances, by no more than the largest ring from the last that was used.
    assume (state_channel[0] == config_channel);
    if (config_write) assume (ready);
    if (f_run) assume (state[0] == STOPPED && f_ring_known);
    if (f_config && (config_register == REG_CARD_CHANNEL_RING_LOW || config_register == REG_CARD_CHANNEL_RING_HIGH ||
        config_register == REG_CARD_CHANNEL_RING)) assume (state[0] == STOPPED);
    if (f_config && config_register == REG_CARD_CHANNEL_RING) assume (config_data[3:2] != '0);
    if (f_config && config_register == REG_CARD_CHANNEL_SOFTWARE_POINTER && (f_starting || f_state[1]))
        assume (12'(f_given - f_base) + {1'b0, f_more} <= 13'd2048);
    // Scheduler.
    if (head_channel == f_channel) assume (head == f_head);
    assume (!f_do_start || f_start_sent);
    assume (!f_do_stop || (f_stop_sent && !f_start_sent));
    assume (f_use <= (f_active ? f_available : '0));
    // Each read ends once; an ended read is offered until it is taken. The final report is on the bus once.
    if (done_valid && done_channel == f_channel) assume (f_flying[done_slot]);
    if (f_started && $past(!rst && done_valid && !done_take))
        assume (done_valid && $stable(done_channel) && $stable(done_slot) && $stable(done_error));
    if (f_finals) assume (f_report);
    if (rst) begin
        {f_start_sent, f_stop_sent, f_active, f_report, f_runs, f_final, f_swept} <= '0;
        f_flying <= '0;
    end else begin
        if (f_in_slot && command_ready) begin
            f_runs <= command == START;
            if (command == START) f_start_sent <= 1'b1;
            if (command == STOP) f_stop_sent <= 1'b1;
            if (command == CLEAR) f_head <= '0;
            if (command == START) f_final <= 1'b0;
        end
        if (step == SWEEP && f_here) f_swept <= 1'b1;
        if (f_do_start) {f_start_sent, f_active, f_head} <= {1'b0, 1'b1, 16'd0};
        else f_head <= f_head + f_use;
        if (f_do_stop) {f_stop_sent, f_active, f_report} <= 3'b001;
        if (f_finals) {f_report, f_final} <= 2'b01;
        for (int place = 0; place < GROUPS; place++)
            if (f_fetched && start_group[SLOT-1:0] == SLOT'(place)) f_flying[place] <= 1'b1;
            else if (f_taken && done_slot == SLOT'(place)) f_flying[place] <= 1'b0;
    end
end

// Places of the groups that were requested and are not filled.
logic [GROUPS-1:0] f_due, f_seen;
logic [TAGS_LOG2:0] f_flights;
always_comb begin
    f_due = '0;
    f_flights = (TAGS_LOG2+1)'(f_seen != '0);
    for (int place = 0; place < GROUPS; place++) begin
        if (place < 12'(f_requested - f_filled)) f_due[SLOT'(f_filled + 12'(place))] = 1'b1;
        f_flights = f_flights + (TAGS_LOG2+1)'(f_flying[place]);
    end
end
// The read that the visit has taken.
assign f_seen = (step == LOOK || step == ACT) && f_here && is_done ? GROUPS'(1) << slot : '0;
wire f_visit = step == ACT && f_here;

always_ff @(posedge clk) begin
    if (\sizes.f_known ) assert (\sizes.f_word >= 4'd4);
    if (f_started && !rst) begin
        if (start_valid && f_here) begin
            // A read is of the next group, which software has given, and for which there is a place.
            assert (start_channel == f_channel && start_group == f_requested);
            assert (12'(f_given - f_requested - 12'd1) < 12'd2048);
            assert (f_room < 12'(GROUPS) && !f_flying[start_group[SLOT-1:0]] && !f_marks[start_group[SLOT-1:0]]);
            assert (start_address == {\highs.f_word , \lows.f_word , 12'd0} + {44'd0, f_in_ring, 8'd0});
        end
        // Starts and stops alternate.
        if (f_in_slot) assert (command == (step == SWEEP ? CLEAR : f_runs ? STOP : START));
        // Stopped only after the final report, without a read.
        if ($past(f_started && !rst && ready) && f_state == STOPPED && $past(f_state) == STOPPING)
            assert (f_final && f_flying == '0 && !f_active);
        if (f_state == STOPPED && ready) assert (f_flying == '0 && f_seen == '0 && !f_active && !f_report);
        // What may be used has come.
        if (filled_write && filled_channel == f_channel && f_active)
            assert (12'(filled_group - f_used) <= f_room);
        if (ready && f_state[1]) begin
            assert (f_room <= 12'(GROUPS));
            assert (12'(f_filled - f_used) <= f_room && (!f_active || f_available <= 16'(16 * GROUPS)));
            assert (f_active || f_start_waits || f_state == STOPPING);
        end

        // Induction invariants: the sweep makes all channels stopped.
        assert (ready == (step != SWEEP));
        if (ready || channel > f_channel) assert (f_swept);
        if (f_swept) assert (\states.f_known && \records.f_known );
        if (!ready) begin
            assert (!f_start_sent && !f_stop_sent && !f_active && !f_report && f_flying == '0 && !f_runs);
            assert (run_requests[f_channel] == 1'b0 && finals[f_channel] == 1'b0);
            if (command_valid) assert (command == CLEAR && command_channel == channel);
            if (f_swept) assert (f_state == STOPPED && \records.f_word == '0);
        end else begin
            if (command_valid) assert (command == START || command == STOP);
            // Where the channel is in its life.
            assert (f_state != STARTING);
            if (f_state == STOPPED) assert (!f_start_waits && !f_stop_waits && !f_runs);
            if (f_state == RUNNING) begin
                assert (!f_stop_waits && !f_ended && f_start_waits != f_active);
                assert (f_runs == !(f_in_slot && command == START) && !(f_final && f_runs));
            end
            if (f_state == STOPPING) begin
                assert (f_runs == (f_in_slot && command == STOP));
                assert (3'(f_stop_waits) + 3'(f_report) + 3'(finals[f_channel]) + 3'(f_ended) +
                        3'(f_visit && final_seen) == 3'd1);
                assert (f_stop_waits ? f_start_waits != f_active : !f_start_waits && !f_active);
                assert (f_final == (finals[f_channel] || f_ended || (f_visit && final_seen)));
            end else assert (!f_report && !finals[f_channel] && !(f_visit && final_seen));
            assert (!(f_start_sent && f_in_slot && command == START) && !(f_stop_sent && f_in_slot));
            assert (f_state == STOPPED || (\givens.f_known && f_ring_known));
            if (run_requests[f_channel] || (f_visit && run)) assert (\givens.f_known && f_ring_known);
            // Reads.
            assert (f_reading == f_flights);
            if (f_state == RUNNING) assert ((f_flying | f_seen | f_marks) == f_due);
            assert (((f_flying | f_seen) & f_marks) == '0 && (f_flying & f_seen) == '0);
            assert (((f_flying | f_seen | f_marks) & ~f_due) == '0);
            if (f_starting) assert (f_given <= 12'd2048);
            if (f_state[1]) assert (12'(f_given - f_used) <= 12'd2048 && f_room <= 12'(f_given - f_used));
            // Before the start is done, the pointer of the run before is seen, which allows no more.
            if (f_start_waits && f_requested != '0)
                assert (f_seen_room <= 12'(GROUPS) && f_seen_room >= f_requested);
            if (f_visit) begin
                assert (record == \records.f_word && state_now == \states.f_word );
                if (now[1]) begin
                    assert (12'(given - used_group) <= 12'd4095);
                    if (12'(f_requested - used_group) < 12'(GROUPS)) assert (f_room < 12'(GROUPS));
                    assert (12'(given - f_requested) <= 12'(f_given - f_requested));
                end
                if (now != STOPPED) assert (size == \sizes.f_word && ring == {\highs.f_word , \lows.f_word });
            end
        end

        cover (start_valid && f_here && f_requested == 12'd1);
        cover (f_final && f_state == STOPPED);
    end
end
