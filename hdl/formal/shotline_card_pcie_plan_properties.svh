// Properties of shotline_card_pcie_plan: each record and each read becomes its halves, once and in order, with no half of
// another between them; its details are in the memory then. Half 1 is not valid alone, and halves that need the same lane
// are not in one clock. The solver chooses an arbitrary record.

(* anyconst *) logic [3:0] f_index;

logic f_started = 1'b0;
// Records that came, and those that began at the output before this clock; whether the last of those goes on.
logic [3:0] f_in, f_out;
logic f_open;
// The chosen record: plan, place, details; halves and blocks of it at the output before this clock.
logic f_silent, f_clash, f_new;
logic [5:0] f_halves, f_place, f_done;
logic [2:0] f_lane, f_tail, f_eop;
logic [1:0] f_head;
logic [83:0] f_detail;
logic [64:0] f_report;
logic [7:0] f_blocks;

wire [3:0] f_second = f_in + 4'd1;
wire [3:0] f_read_number = f_in + 4'(slot);
wire f_take = (slot && (f_in == f_index || (s_two && f_second == f_index))) || (read && f_read_number == f_index);

// The halves at the output: the record of each, halves and blocks of the chosen record before it; in entry 2, behind both.
logic [2:0] f_goes_on;
logic [2:0][3:0] f_begun;
logic [2:0][5:0] f_before;
logic [2:0][7:0] f_blocks_before;
logic [1:0] f_chosen;
always_comb begin
    {f_goes_on[0], f_begun[0], f_before[0], f_blocks_before[0]} = {f_open, f_out, f_done, f_blocks};
    for (int i = 0; i < 2; i++) begin
        f_chosen[i] = half_valid[i] && f_begun[i] - 4'(!half_first[i]) == f_index;
        f_goes_on[i+1] = half_valid[i] ? !half_last[i] : f_goes_on[i];
        f_begun[i+1]   = f_begun[i] + 4'(half_valid[i] && half_first[i]);
        f_before[i+1]  = !f_chosen[i] ? f_before[i] : half_first[i] ? 6'd1 : f_before[i] + 6'd1;
        f_blocks_before[i+1] = !f_chosen[i] ? f_blocks_before[i] :
                               (half_first[i] ? 8'd0 : f_blocks_before[i]) + 8'(half_count[i]);
    end
end
wire [3:0] f_ahead = f_index - f_begun[2];
wire [3:0] f_waiting = f_in - f_begun[2];
wire f_is_open = f_goes_on[2] && f_begun[2] - 4'd1 == f_index;
wire f_live = f_ahead < f_waiting || f_is_open || f_chosen != 2'b00;
wire [4:0] f_entries = write_entry - f_place[5:1];  // that came after the chosen record
wire [RECORD-1:0] f_record = {f_silent, f_clash, f_halves, f_lane, f_head, f_tail, f_eop, f_place};

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    // Records of shotline_card_pcie_slots.
    for (int i = 0; i < 2; i++)
        if (s_valid) begin
            assume (s_plan[i][16:11] != '0 && s_plan[i][16:11] <= 6'd33 && s_plan[i][7:6] <= 2'd2);
            if (s_plan[i][16:11] != 6'd1) assume (s_plan[i][7:6] == 2'd2 && s_plan[i][5:3] <= 3'd4);
        end
    if (rst) begin
        {f_in, f_out, f_open, f_new} <= '0;
    end else begin
        f_in <= f_in + (slot ? (s_two ? 4'd2 : 4'd1) : 4'd0) + 4'(read);
        f_new <= f_take;
        if (slot && f_in == f_index) begin
            {f_silent, f_clash, f_halves, f_lane, f_head, f_tail, f_eop} <= s_plan[0];
            {f_place, f_detail, f_report} <= {write_entry + 5'd1, 1'b0, 1'b0, s_detail[0], s_report, s_report_data};
        end else if (slot && s_two && f_second == f_index) begin
            {f_silent, f_clash, f_halves, f_lane, f_head, f_tail, f_eop} <= s_plan[1];
            {f_place, f_detail} <= {write_entry + 5'd1, 1'b1, 1'b0, s_detail[1]};
        end
        // A read has one half, of which its header takes dwords 0 to 3, and no block.
        if (read && f_read_number == f_index) begin
            {f_silent, f_clash, f_halves, f_lane, f_head, f_tail, f_eop} <= {2'd0, 6'd1, 3'd0, 2'd0, 3'd1, 3'd3};
            {f_place, f_report} <= {write_entry + 5'd1, slot, 65'(s_report_data)};
            f_detail <= {4'b1000, 8'(s_read_tag), 11'd256, s_read_address, 5'd0};
        end
        {f_open, f_out, f_done, f_blocks} <= {f_goes_on[2], f_begun[2], f_before[2], f_blocks_before[2]};
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // Halves: in order, none of another record between those of one.
        assert (half_valid != 2'b10 && !half_silent[1]);
        for (int i = 0; i < 2; i++) if (half_valid[i]) assert (half_first[i] == !f_goes_on[i]);
        if (half_valid[1]) assert (!half_silent[0]);
        // The chosen record's.
        for (int i = 0; i < 2; i++)
            if (f_chosen[i]) begin
                assert (half_first[i] || f_before[i] != '0);
                assert (half_last[i] == (f_before[i+1] == f_halves) && f_before[i+1] <= f_halves);
                assert (half_silent[i] == f_silent && half_place[i] == f_place && half_eop[i] == f_eop);
                assert (half_lane[i] == f_lane + (half_first[i] ? 3'd0 : f_blocks_before[i][2:0]));
                if (half_first[i]) assert (half_count[i] == {1'b0, f_head} && !(i == 1 && f_clash));
                else assert (half_count[i] == (half_last[i] ? f_tail : 3'd4));
                if (half_last[i]) assert (f_blocks_before[i+1] == 8'(f_head) +
                    (f_halves == 6'd1 ? 8'd0 : 8'd4 * 8'(f_halves - 6'd2) + 8'(f_tail)));
                // Its details are in the memory, and are not replaced.
                assert (!(write && write_entry == f_place[5:1]) && f_entries <= 5'd9);
            end
        if (f_new) begin
            assert (write && write_entry == f_place[5:1] && write_detail[f_place[0]] == f_detail);
            if (!f_place[0]) assert (write_report == f_report);
        end
        // Halves come when they may, a record that has begun goes on when it may, two a clock but for its last.
        if ($past(f_started && !rst)) begin
            if (!$past(room)) assert (half_valid == 2'b00);
            if (!$past(room_begin)) assert ((half_valid & half_first) == 2'b00);
            if ($past(room) && f_open) assert (half_valid[0]);
            if ($past(room && room_begin) && $past(waiting != '0)) assert (half_valid[0]);
        end
        if (half_valid == 2'b01) assert (half_last[0] || half_silent[0]);
        // A read and an entry are taken together only if there is a place for both.
        if (slot && read) assert (!s_two);
        if (f_waiting == '0) assert (s_ready || s_read_ready || (!s_valid && !s_read_valid));

        // Induction invariants.
        assert (waiting <= 3'd5 && f_waiting == 4'(waiting) + (in_valid ? 4'd1 + 4'(in_two) : 4'd0));
        assert (f_goes_on[2] == (left != '0));
        if (f_ahead < 4'(waiting)) begin
            for (int i = 0; i < 5; i++) if (f_ahead == 4'(i)) assert (queue[i] == f_record);
        end else if (f_ahead < f_waiting)
            assert (f_record == {in_plan[f_ahead != 4'(waiting)], in_entry, f_ahead != 4'(waiting)});
        if (in_valid) assert (in_entry == write_entry);
        if (f_live) begin
            assert (f_halves != '0 && f_halves <= 6'd33 && f_head <= 2'd2 && f_entries <= 5'(4'(f_in - f_index - 4'd1)));
            if (f_halves != 6'd1) assert (f_head == 2'd2 && f_tail <= 3'd4);
        end
        if (f_is_open) begin
            assert ({silent, tail, eop, place} == {f_silent, f_tail, f_eop, f_place});
            assert (f_before[2] != '0 && f_before[2] < f_halves && left == f_halves - f_before[2]);
            assert (f_blocks_before[2] == 8'd4 * 8'(f_before[2]) - 8'd2 && lane == f_lane + f_blocks_before[2][2:0]);
        end
        if (f_open && f_out - 4'd1 == f_index) begin
            assert (f_done != '0 && f_done < f_halves && f_blocks == 8'd4 * 8'(f_done) - 8'd2);
        end

        cover (f_chosen == 2'b11 && half_last[1] && f_halves == 6'd4);
        cover (f_chosen[1] && half_first == 2'b11 && half_last == 2'b11 && f_detail[83] && f_out == 4'd2);
    end
end
