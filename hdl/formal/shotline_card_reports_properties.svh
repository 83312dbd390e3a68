// Properties of shotline_card_reports: of one arbitrary channel, that the solver chooses, each visit makes a report or an
// interrupt exactly if it is due, and nothing that is due is forgotten; a report is offered until it is taken or the
// channel stops; a stopped channel has no report; an interrupt comes with a report or after one.
//
// Times are modulo 65536 units, as in the module: what is due is judged in each clock of a visit, so a visit that comes
// when the time has wrapped finds nothing due.

(* anyconst *) logic [CHANNELS_LOG2-1:0] f_channel;

// The memories' own properties. Attribute hierconn joins a wire with the one of that name in the flattened module.
(* hierconn *) wire [CHANNELS_LOG2-1:0] \records.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \reports.f_address ;
(* hierconn *) wire [CHANNELS_LOG2-1:0] \moderations.f_address ;
(* hierconn *) wire \records.f_known ;
(* hierconn *) wire \reports.f_known ;
(* hierconn *) wire \moderations.f_known ;
(* hierconn *) wire [RECORD-1:0] \records.f_word ;
(* hierconn *) wire [31:0] \reports.f_word ;
(* hierconn *) wire [16:0] \moderations.f_word ;

logic f_started = 1'b0;
logic f_turns;              // the scan is one channel ahead of the visits
logic f_runs, f_begun;      // the channel runs; a visit of the run has ended
// What was used at the last report; whether more is, and since when; the last interrupt; whether its interval is over,
// as a visit has seen; whether a report has had no interrupt.
logic [15:0] f_reported, f_since, f_last;
logic f_more, f_old, f_owed;
// What the visit in progress has read.
logic [15:0] f_used;
logic [31:0] f_limits;
logic [16:0] f_moderation;

wire f_starts = started && changed_channel == f_channel;
wire f_stops = stopped && changed_channel == f_channel;
wire f_reads = !hold && scan == f_channel;
wire f_visit = channel == f_channel;
wire f_ends = f_visit && !hold;

// What is due in the visit: nothing in the first of a run and when the channel stops.
wire f_may = f_visit && f_runs && f_begun && !f_stops;
wire [15:0] f_new = f_used - f_reported;
wire [15:0] f_waited = f_more ? now - f_since : '0;
wire f_report_due = f_may && f_new != '0 && (f_waited >= f_limits[31:16] ||
                                             (f_limits[15:0] != '0 && f_new >= f_limits[15:0]));
wire f_is_old = f_old || now - f_last >= f_moderation[15:0];
wire f_interrupt_due = f_may && f_moderation[16] && f_is_old && (f_report_due || f_owed);

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    assume (\records.f_address == f_channel && \reports.f_address == f_channel && \moderations.f_address == f_channel);
    // Starts and stops alternate; a channel that starts has used no descriptor, and its registers were written.
    assume (!started || !stopped);
    if (f_starts) assume (!f_runs && \reports.f_known && \moderations.f_known );
    if (f_stops) assume (f_runs);
    if (f_starts && head_channel == f_channel) assume (head == '0);
    if (rst) begin
        {f_turns, f_runs, f_begun} <= '0;
    end else begin
        if (f_starts || f_stops) f_runs <= f_starts;
        // The first visit of a run is that which reads when the channel starts, or the next.
        if (f_starts) f_begun <= 1'b0;
        else if (f_ends && f_runs) f_begun <= 1'b1;
        f_turns <= 1'b1;
        if (f_ends && f_runs) begin
            if (!f_begun)
                {f_reported, f_more, f_since, f_last, f_old, f_owed} <= {16'd0, 1'b0, now, now, 1'b1, 1'b0};
            else begin
                if (f_report_due) f_reported <= f_used;
                f_more <= f_new != '0 && !f_report_due;
                if (!f_more) f_since <= now;
                if (f_interrupt_due) f_last <= now;
                f_old  <= f_is_old && !f_interrupt_due;
                f_owed <= f_moderation[16] && (f_owed || f_report_due) && !f_interrupt_due;
            end
        end
    end
    if (f_reads) {f_used, f_limits, f_moderation} <= {head, \reports.f_word , \moderations.f_word };
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // A visit ends with what is due, and with nothing else.
        if (f_ends) assert (due == f_report_due && interrupt == f_interrupt_due);
        if (f_visit && hold) assert ((f_report_due || f_interrupt_due) && !due && !interrupt);
        if ($past(f_started && !rst && f_ends)) begin
            if ($past(f_report_due || f_interrupt_due)) begin
                assert (report_valid && report_channel == f_channel);
                assert (report_wanted == $past(f_report_due) && report_interrupt == $past(f_interrupt_due));
            end
        end else if ($past(f_started && !rst) && report_channel == f_channel && report_valid)
            assert ($past(report_valid && report_channel == f_channel));
        // It is offered until it is taken or the channel stops.
        if ($past(f_started && !rst && report_valid)) begin
            if (report_valid) assert ($stable(report_channel) && $stable(report_wanted) && $stable(report_interrupt));
            assert (report_valid == $past(!report_ready && !(stopped && changed_channel == report_channel)));
        end
        if (report_valid && report_channel == f_channel) assert (f_runs && (report_wanted || report_interrupt));
        // The turn waits only for a report that is due while the last is offered or less than 8 clocks ago.
        if (hold) assert (report_valid || pause != '0);
        if (report_valid && $past(f_started && !rst && !report_valid)) assert (pause == '1);

        // Induction invariants.
        assert (running[f_channel] == f_runs && (f_turns ? scan == channel + 1'b1 : running == '0));
        if (f_runs) assert (\reports.f_known && \moderations.f_known && (!f_begun || \records.f_known ));
        if (f_runs) assert (starts[f_channel] == (!f_begun && !f_visit));
        if (f_runs && f_visit) begin
            assert (fresh == !f_begun && {used, limits, moderation} == {f_used, f_limits, f_moderation});
            if (f_begun) assert (record == {f_reported, f_more, f_since, f_last, f_old, f_owed});
        end else if (f_runs && f_begun)
            assert (\records.f_word == {f_reported, f_more, f_since, f_last, f_old, f_owed});

        cover (report_valid && report_channel == f_channel && report_interrupt && report_wanted);
    end
end
