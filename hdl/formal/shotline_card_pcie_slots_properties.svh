// Properties of shotline_card_pcie_slots: every entry that comes leaves once, in order, with what its TLPs need: halves of
// beats, blocks and lanes, and whether its address is refused; but not before its blocks are stored.

logic f_started = 1'b0;
// The entry inside, of which there is at most one, and the number of blocks that are stored and not used.
logic f_inside;
logic [1:0] f_valid;
logic [3:0] f_kind;
logic [127:0] f_address;
logic [21:0] f_length;
logic [5:0] f_block;
logic [15:0] f_channel;
logic [63:0] f_report;
logic [63:12] f_base, f_mask;
logic [LANE_LOG2+3:0] f_stored;
logic f_stored_now;  // a block was stored in the last clock, which is not seen yet
// The last half of the record before: its first lane and its number of blocks.
logic [2:0] f_lane_before, f_count_before;

wire f_leave = m_valid && m_ready;
wire f_interrupt = f_valid[1] && f_kind[3:2] == INTERRUPT;
wire f_two = f_valid == 2'b11 && !f_interrupt;

// What each record should be; record 1 counts only in an entry of two.
logic [1:0] f_payload;
logic [1:0][10:0] f_bytes, f_blocks, f_halves, f_end;
logic [1:0][2:0] f_first, f_last, f_last_lane;
always_comb
    for (int i = 0; i < 2; i++) begin
        f_payload[i] = f_valid[i] && f_kind[2*i+:2] == PAYLOAD;
        f_bytes[i]   = f_payload[i] ? f_length[11*i+:11] : f_valid[i] && f_kind[2*i+:2] == REPORT ? 11'd8 : 11'd0;
        f_blocks[i]  = f_payload[i] ? (f_bytes[i] + 11'd7) / 11'd8 : 11'd0;
        // Bytes of the TLP with its descriptor; each half has 32.
        f_end[i]     = 11'd16 + (f_bytes[i] + 11'd3) / 11'd4 * 11'd4;
        f_halves[i]  = (f_end[i] + 11'd31) / 11'd32;
        f_first[i]   = f_blocks[i] < 11'd2 ? f_blocks[i][2:0] : 3'd2;
        f_last[i]    = f_halves[i] == 11'd1 ? f_first[i] : 3'(f_blocks[i] - 11'd2 - 11'd4 * (f_halves[i] - 11'd2));
        f_last_lane[i] = f_block[3*i+:3] + 3'(f_blocks[i] - 11'(f_last[i]));
    end
wire [LANE_LOG2+3:0] f_needed = (LANE_LOG2+4)'(f_blocks[0] + (f_two ? f_blocks[1] : 11'd0));
wire [LANE_LOG2+3:0] f_came = stored ? (LANE_LOG2+4)'($countones(stored_keep)) : '0;

// Whether two ranges of lanes overlap.
function automatic logic f_overlap(input logic [2:0] a, input logic [2:0] in_a, input logic [2:0] b,
                                   input logic [2:0] in_b);
    f_overlap = in_a != '0 && in_b != '0 && (3'(a - b) < in_b || 3'(b - a) < in_a);
endfunction

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    // The rules of shotline_card_writes: payload of 1 to 1024 bytes, in slot 0 first; a report in slot 0; an interrupt in
    // slot 1, alone or with a report.
    for (int i = 0; i < 2; i++)
        if (s_slot_valid[i]) begin
            assume (s_slot_kind[2*i+:2] == PAYLOAD || s_slot_kind[2*i+:2] == (i == 0 ? REPORT : INTERRUPT));
            if (s_slot_kind[2*i+:2] == PAYLOAD)
                assume (s_slot_length[11*i+:11] != '0 && s_slot_length[11*i+:11] <= 11'd1024);
        end
    if (report) assume (s_slot_length[10:0] == 11'd8 && (!s_slot_valid[1] || interrupt));
    if (interrupt) assume (!s_slot_valid[0] || report);
    if (s_slot_valid[1] && !interrupt) assume (s_slot_valid[0]);
    // The FIFOs hold at most 2^LANE_LOG2 blocks each and one at their outputs, also if a word came now.
    assume (f_stored <= (LANE_LOG2+4)'(8 * ((1 << LANE_LOG2) + 1)));
    if (stored) assume (f_stored <= (LANE_LOG2+4)'(8 * (1 << LANE_LOG2)));
    if (rst) begin
        f_inside <= 1'b0;
        {f_lane_before, f_count_before, f_stored, f_stored_now} <= '0;
    end else begin
        if (take) {f_valid, f_kind, f_address, f_length, f_block} <=
            {s_slot_valid, s_slot_kind, s_slot_address, s_slot_length, s_slot_block};
        if (take) {f_channel, f_report, f_base, f_mask} <= {s_slot_channel, s_slot_report, window_base, window_mask};
        f_inside     <= take || (f_inside && !f_leave);
        f_stored     <= f_stored + f_came - (f_leave ? f_needed : '0);
        f_stored_now <= f_came != '0;
        if (f_leave) {f_lane_before, f_count_before} <= {f_last_lane[f_two], f_last[f_two]};
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // One entry is inside at most; it leaves once, when its blocks are stored.
        if (take) assert (!f_inside || f_leave);
        if (f_leave) assert (f_inside && f_needed <= f_stored);
        if (f_inside && f_needed <= f_stored && !f_stored_now) assert (m_valid);
        if ($past(f_started && !rst && m_valid && !m_ready))
            assert (m_valid && $stable(m_plan) && $stable(m_detail) && $stable({m_two, m_report, m_report_data}));
        if (f_inside) begin
            assert (m_two == f_two && m_report == (f_valid[0] && f_kind[1:0] == REPORT) && m_report_data == f_report);
            for (int i = 0; i < 2; i++)
                if (i == 0 || f_two) begin
                    assert (m_plan[i][18] == (!f_valid[i] || m_detail[i][80]));
                    assert (m_plan[i][17] == (i == 0 ?
                        f_overlap(f_block[2:0], f_first[0], f_lane_before, f_count_before) :
                        f_overlap(f_block[5:3], f_first[1], f_last_lane[0], f_last[0])));
                    assert (m_plan[i][16:11] == 6'(f_halves[i]) && f_halves[i] <= 11'd33);
                    // Blocks of the first half, of those between and of the last.
                    assert (m_plan[i][7:6] == f_first[i][1:0]);
                    if (f_payload[i]) assert (m_plan[i][10:8] == f_block[3*i+:3]);
                    if (f_halves[i] != 11'd1) assert (m_plan[i][5:3] == f_last[i] && f_first[i] == 3'd2);
                    assert (f_last[i] <= 3'd4 && (f_halves[i] == 11'd1 || f_last[i] != '0));
                    if (f_bytes[i] != '0) assert (m_plan[i][2:0] == 3'((f_end[i] - 11'd1) / 11'd4));
                    // An interrupt shares the record of its report.
                    assert (m_detail[i][82:81] == {i == 0 && f_interrupt, i == 0 && m_report && f_report[24]});
                    assert (m_detail[i][80] == (f_valid[i] && ((f_address[64*i+12+:52] ^ f_base) & f_mask) != '0));
                    assert (m_detail[i][79:72] == (f_valid[i] ? f_channel[8*i+:8] : f_channel[15:8]));
                    if (f_bytes[i] != '0) assert (m_detail[i][71:61] == f_bytes[i]);
                    if (f_valid[i]) assert (m_detail[i][60:0] == f_address[64*i+3+:61]);
                end
        end

        // Induction invariants.
        for (int lane = 0; lane < 8; lane++) begin
            assert (previous[lane] == (3'(lane) - f_lane_before < f_count_before));
            for (int i = 0; i < 2; i++)
                if (f_inside && (i == 0 || f_two)) begin
                    assert (first_lanes_1[i][lane] == (3'(lane) - f_block[3*i+:3] < f_first[i]));
                    assert (last_lanes_1[i][lane] == (3'(lane) - f_last_lane[i] < f_last[i]));
                end
        end
        for (int i = 0; i < 2; i++) if (f_inside && (i == 0 || f_two)) assert (blocks_1[i] == f_blocks[i][7:0]);
        assert (f_count_before <= 3'd4 && available <= f_stored && f_stored_now == (came != '0));
        assert (valid_1 == f_inside && f_stored == available + (LANE_LOG2+4)'(came));
        if (f_inside) assert (f_valid != 2'b00);
        for (int i = 0; i < 2; i++)
            if (f_inside && f_valid[i]) begin
                assert (f_kind[2*i+:2] == PAYLOAD || f_kind[2*i+:2] == (i == 0 ? REPORT : INTERRUPT));
                if (f_payload[i]) assert (f_bytes[i] != '0 && f_bytes[i] <= 11'd1024);
            end

        cover (f_leave && f_two && f_halves[0] == 11'd5 && m_plan[1][17] && $past(f_inside && !m_valid));
        cover (f_leave && m_detail[0][80] && m_detail[0][82]);
    end
end
