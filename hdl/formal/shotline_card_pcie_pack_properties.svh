// Properties of shotline_card_pcie_pack: each half leaves in one beat, in order, with its events; tvalid does not fall
// within a TLP. The solver chooses an arbitrary half, and an arbitrary entry of the FIFO.

(* anyconst *) logic [7:0] f_half;

// The FIFO's own properties. Attribute hierconn joins a wire with the one of that name in the flattened module.
localparam int F_NUMBER = DEPTH_LOG2 + 2;
(* hierconn *) wire [F_NUMBER-1:0] \beats.f_in ;
(* hierconn *) wire [F_NUMBER-1:0] \beats.f_out ;
(* hierconn *) wire [F_NUMBER-1:0] \beats.f_index ;
(* hierconn *) wire [512+36+22+3-1:0] \beats.f_word ;
(* hierconn *) wire \beats.f_good ;
wire [F_NUMBER-1:0] f_held = \beats.f_in - \beats.f_out ;
wire f_inside = \beats.f_index - \beats.f_out < f_held;
wire f_is_next = f_inside && \beats.f_out == \beats.f_index ;

logic f_started = 1'b0;
// Halves come four clocks after `room` let them; f_boot marks values of `room`, from now on back, that the reset gave.
logic [3:0] f_room;
logic [4:0] f_boot;
logic f_open;  // a TLP has begun at the input
// Halves that came, are in beats that were made, and are in the FIFO or have left.
logic [7:0] f_in, f_packed, f_pushed;
// Of the beats in clocks 1 and 2 and the chosen one: the first half, how many, and whether the TLP before goes on in it
// and the last goes on after it. The last two also tell of the beat before if there is none.
logic [7:0] f_from_1, f_from_2, f_from;
logic [1:0] f_count_1, f_count_2, f_count;
logic f_after_1, f_after_2, f_after, f_mid_1, f_mid_2, f_mid, f_mid_last;
// The chosen half.
logic [255:0] f_data;
logic [13:0] f_control;
logic [10:0] f_event;

wire f_silent = f_control[13];
wire f_make = pair || alone;
wire f_makes_mid = pair ? !(held ? (silent ? held_last : s_control[0][11]) : s_control[1][11]) :
                          !(held ? held_last : s_control[0][11]);

// Whether an entry has the chosen half at `slot` (PG213: up to two starts and ends of TLPs, each with its place).
function automatic logic f_has(input logic [512+36+22+3-1:0] entry, input logic slot);
    logic [511:0] words;
    logic [35:0] marks;
    logic [1:0][10:0] event_bits;
    logic [1:0] reals, starts, ends_here;
    logic end_bit;
    {words, marks, event_bits, reals, end_bit} = entry;
    starts    = {marks[21] && marks[25:24] == {slot, 1'b0}, marks[20] && marks[23:22] == {slot, 1'b0}};
    ends_here = {marks[27] && marks[35] == slot, marks[26] && marks[31] == slot};
    f_has = reals[slot] == !f_silent && event_bits[slot] == f_event;
    if (!f_silent) begin
        if (words[256*slot+:256] != f_data) f_has = 1'b0;
        if (f_control[12] ? starts != 2'b01 && starts != 2'b10 : starts != 2'b00) f_has = 1'b0;
        if (starts[0] && {marks[3:0], marks[11:8]} != f_control[7:0]) f_has = 1'b0;
        if (starts[1] && {marks[7:4], marks[15:12]} != f_control[7:0]) f_has = 1'b0;
        if (f_control[11] ? ends_here != 2'b01 && ends_here != 2'b10 : ends_here != 2'b00) f_has = 1'b0;
        if (ends_here[0] && marks[30:28] != f_control[10:8]) f_has = 1'b0;
        if (ends_here[1] && marks[34:32] != f_control[10:8]) f_has = 1'b0;
        if ((marks[21] && !marks[20]) || (marks[27] && !marks[26])) f_has = 1'b0;
    end
endfunction

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (!rst) begin
        // shotline_card_pcie_plan: a TLP goes on while there is room; only its last half comes alone. A silent half comes
        // between TLPs and has an event.
        assume (s_valid != 2'b10);
        if (s_valid != 2'b00) assume (f_room[3]);
        if (f_open && f_room[3]) assume (s_valid[0]);
        if (s_valid[0] && silent) assume (!s_valid[1] && !f_open && s_control[0][11] && s_event[0][10:8] != '0);
        else if (s_valid[0]) begin
            assume (s_control[0][12] == !f_open && (s_valid[1] || s_control[0][11]));
            if (!s_control[0][11]) assume (s_event[0] == '0);
        end
        if (s_valid[1]) assume (!s_control[1][13] && s_control[1][12] == s_control[0][11]);
        if (s_valid[1] && !s_control[1][11]) assume (s_event[1] == '0);
    end
    if (rst) begin
        {f_room, f_open, f_in, f_packed, f_pushed, f_mid_1, f_mid_2, f_mid_last} <= '0;
        f_boot <= '1;
    end else begin
        f_room <= {f_room[2:0], room};
        f_boot <= {f_boot[3:0], 1'b0};
        if (s_valid[1]) f_open <= !s_control[1][11];
        else if (s_valid[0]) f_open <= !s_control[0][11];
        f_in <= f_in + 8'(s_valid[0]) + 8'(s_valid[1]);
        if (s_valid[0] && f_in == f_half) {f_data, f_control, f_event} <= {s_data[0], s_control[0], s_event[0]};
        if (s_valid[1] && 8'(f_in + 8'd1) == f_half) {f_data, f_control, f_event} <= {s_data[1], s_control[1], s_event[1]};
        if (f_make) begin
            f_packed <= f_packed + 8'd1 + 8'(pair);
            {f_from_1, f_count_1, f_after_1} <= {f_packed, pair ? 2'd2 : 2'd1, f_mid_1};
            f_mid_1 <= f_makes_mid;
        end
        if (beat) {f_from_2, f_count_2, f_after_2, f_mid_2} <= {f_from_1, f_count_1, f_after_1, f_mid_1};
        if (push) begin
            f_mid_last <= f_mid_2;
            f_pushed   <= f_from_2 + 8'(f_count_2);
            if (\beats.f_in == \beats.f_index )
                {f_from, f_count, f_after, f_mid} <= {f_from_2, f_count_2, f_after_2, f_mid_2};
        end
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // The chosen half leaves in its beat, in its place, and the place behind the last is empty.
        if (f_is_next && out_valid) begin
            for (int i = 0; i < 2; i++)
                if (8'(f_from + 8'(i)) == f_half && 2'(i) < f_count) begin
                    assert (f_has({m_axis_rq_tdata, m_axis_rq_tuser[35:0], events, real_out, ends}, i == 1));
                    assert (m_axis_rq_tkeep[8*i+:8] == ((i == 0 || !f_silent) ? 8'hFF : 8'h00));
                end
            if (f_count == 2'd1) assert (m_axis_rq_tkeep == 16'h00FF && events[1] == '0);
            assert (m_axis_rq_tlast == !f_mid && m_axis_rq_tuser[136:36] == '0);
        end
        if (m_axis_rq_tvalid) assert (m_axis_rq_tkeep[7:0] == 8'hFF);
        // Beats hold consecutive halves.
        if (push) assert (f_from_2 == f_pushed && (f_count_2 == 2'd1 || f_count_2 == 2'd2));
        // Within a TLP tvalid does not fall: the next beat is at the output, or, if it is not in the FIFO, the last beat is
        // not the one that leaves.
        if (f_is_next && f_after) assert (m_axis_rq_tvalid);
        if (f_held == '0 || (f_held == F_NUMBER'(1) && out_valid)) assert (!f_mid_last);
        if ($past(f_started && !rst && m_axis_rq_tvalid && !m_axis_rq_tready))
            assert (m_axis_rq_tvalid && $stable({m_axis_rq_tdata, m_axis_rq_tkeep, m_axis_rq_tlast, m_axis_rq_tuser}));
        // Events leave with their beat, when it is accepted or has nothing to send.
        if (event_valid) assert (m_axis_rq_tvalid ? m_axis_rq_tready : out_valid);
        if (out_valid && (m_axis_rq_tready || !m_axis_rq_tvalid))
            assert (pop && event_valid == (events[0][10:8] != '0 || events[1][10:8] != '0));
        // No beat is lost.
        assert (\beats.f_good );

        // Induction invariants.
        assert (F_NUMBER'(level) == f_held);
        assert (8'(level) + 8'(push) + 8'(beat) + 8'(held) + 8'($countones(f_room)) + 8'(room) <= 8'd25);
        // Levels that the values of `room` and `deep` tell.
        for (int i = 0; i < 4; i++) begin
            assert (!f_boot[i] || f_boot[i+1]);
            if (f_boot[i+1]) assert (!f_room[i]);
            else if (!f_room[i]) assert (level >= 6'(15 - i));
        end
        if (f_boot[0]) assert (!room);
        else if (!room) assert (level >= 6'd16);
        if (deep) assert (level >= 6'd5);
        if (f_boot[4]) assert (!f_open && !held && !beat && !push && level == '0 && !f_mid_1);
        // Beats of a TLP follow each other, or enough wait.
        if (f_mid_1 && !beat) assert (level >= 6'd4);
        if (f_mid_2 && !push) assert (level >= 6'd3);
        if (!beat) assert (f_mid_1 == f_mid_2);
        if (!push) assert (f_mid_2 == f_mid_last);
        else assert (f_after_2 == f_mid_last && ends_2 == !f_mid_2);
        if (beat) assert (f_after_1 == f_mid_2);
        assert (f_mid_1 == (held ? !held_control[12] : f_open));
        if (held) assert (f_open == !held_last && !held_control[13]);
        // The chosen half, and the chosen beat, on their way.
        assert (f_in == f_packed + 8'(held));
        assert (f_packed == (beat ? f_from_1 + 8'(f_count_1) : push ? f_from_2 + 8'(f_count_2) : f_pushed));
        if (beat) assert (f_from_1 == (push ? f_from_2 + 8'(f_count_2) : f_pushed));
        if (beat) assert ((f_count_1 == 2'd1 || f_count_1 == 2'd2) && (!f_after_1 || real_1[0]));
        if (beat) assert (f_mid_1 == !(real_1[1] ? control_1[1][11] : control_1[0][11]));
        if (beat && f_count_1 == 2'd1) assert (!real_1[1] && event_1[1] == '0);
        if (push) assert (!f_after_2 || real_2[0]);
        if (push && f_count_2 == 2'd1) assert (!real_2[1] && event_2[1] == '0);
        if (held && f_packed == f_half) assert ({held_data, held_control, held_event} == {f_data, f_control, f_event});
        for (int i = 0; i < 2; i++) begin
            if (beat && 8'(f_from_1 + 8'(i)) == f_half && 2'(i) < f_count_1) begin
                assert ({data_1[i], control_1[i], event_1[i]} == {f_data, f_control, f_event});
                assert (real_1[i] == !f_silent);
            end
            if (push && 8'(f_from_2 + 8'(i)) == f_half && 2'(i) < f_count_2)
                assert (f_has({data_2, user_2, event_2, real_2, ends_2}, i == 1));
            if (f_inside && 8'(f_from + 8'(i)) == f_half && 2'(i) < f_count) assert (f_has(\beats.f_word , i == 1));
        end
        if (f_inside) begin
            assert (\beats.f_word [0] == !f_mid && (!f_after || \beats.f_word [1]));
            assert ((f_count == 2'd1 && !\beats.f_word [2] && \beats.f_word [24:14] == '0) || f_count == 2'd2);
            assert (8'(f_pushed - f_from) <= 8'd2 * 8'(F_NUMBER'(\beats.f_in - \beats.f_index )));
            assert (8'(f_pushed - f_from) >= 8'(f_count));
        end

        cover (held && f_packed == f_half && s_valid[0] && s_control[0][12]);
        cover (f_is_next && out_valid && f_count == 2'd2 && f_half == 8'd1 && f_from == '0 && f_silent == 1'b0 &&
               m_axis_rq_tuser[21:20] == 2'b11);
    end
end
