// Properties of shotline_card_writes: every byte of an entry's parts is in exactly one write, in order, and no write
// crosses 4 KiB or is longer than the maximum, whatever the addresses, lengths and stalls are.

logic f_started = 1'b0;
// The entry in progress, and the bytes of each part for which writes were made.
logic [60:0] f_start_0, f_start_1;
logic [13:0] f_length_0, f_length_1;
logic [13:0] f_done_0, f_done_1;
logic [BLOCKS_LOG2-1:0] f_block_0, f_block_1;
logic [7:0] f_channel;
logic [63:0] f_data;
logic [1:0] f_two;  // entries of two parts that took one clock, in succession

wire [10:0] f_most = 11'd128 << max_write;
wire [10:0] f_blocks_0 = {3'b0, m_length[0][10:3]} + {10'b0, m_length[0][2:0] != '0};
wire [10:0] f_blocks_1 = {3'b0, m_length[1][10:3]} + {10'b0, m_length[1][2:0] != '0};

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    else assume ($stable(max_write));
    if (s_valid) assume ((s_report || s_interrupt) == (s_length == '0));
    if (rst) begin
        {f_length_0, f_length_1, f_done_0, f_done_1} <= '0;
        f_two <= '0;
    end else if (s_valid && s_ready) begin
        {f_start_1, f_start_0}   <= s_address;
        {f_length_1, f_length_0} <= s_length;
        {f_block_1, f_block_0}   <= s_block;
        {f_done_1, f_done_0}     <= '0;
        {f_channel, f_data}      <= {s_channel, s_data};
        f_two <= take_0 && take_1 && f_done_0 == '0 && f_done_1 == '0 ? f_two + {1'b0, f_two != 2'd3} : 2'd0;
    end else if (free) begin
        if (take_0) f_done_0 <= f_done_0 + {3'b0, now_0};
        if (take_1) f_done_1 <= f_done_1 + {3'b0, now_1};
    end
end

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // What was written and what is left is the part, without gap or overlap.
        assert (f_done_0 <= f_length_0 && left_0 == f_length_0 - f_done_0);
        assert (f_done_1 <= f_length_1 && left_1 == f_length_1 - f_done_1);
        if (left_0 != '0) assert (address_0 == f_start_0 + {50'b0, f_done_0[13:3]} && f_done_0[2:0] == '0);
        if (left_1 != '0) assert (address_1 == f_start_1 + {50'b0, f_done_1[13:3]} && f_done_1[2:0] == '0);
        if (left_0 != '0) assert (block_0 == f_block_0 + f_done_0[3+:BLOCKS_LOG2]);
        if (left_1 != '0) assert (block_1 == f_block_1 + f_done_1[3+:BLOCKS_LOG2]);
        // Part 0 is written before part 1, and all is written before the next entry begins.
        assert (f_done_1 == '0 || left_0 == '0);
        if (s_ready) assert (left_0 == (take_0 ? {3'b0, now_0} : 14'b0) && left_1 == (take_1 ? {3'b0, now_1} : 14'b0));
        // The writes that are offered are those that were counted: part 0 first, then part 1, or the report.
        if ($past(f_started && !rst && free)) begin
            assert (m_valid[0] == $past(left_0 != '0 || left_1 != '0 || report));
            if ($past(left_0 != '0)) begin
                assert (m_kind[0] == PAYLOAD && m_length[0] == $past(now_0));
                assert (m_address[0] == $past(f_start_0 + {50'b0, f_done_0[13:3]}));
                assert (m_block[0] == $past(f_block_0 + f_done_0[3+:BLOCKS_LOG2]));
            end
            if ($past(take_1)) begin
                assert (m_valid[$past(left_0 != '0)] && m_kind[$past(left_0 != '0)] == PAYLOAD);
                assert (m_length[$past(left_0 != '0)] == $past(now_1));
                assert (m_address[$past(left_0 != '0)] == $past(f_start_1 + {50'b0, f_done_1[13:3]}));
                assert (m_block[$past(left_0 != '0)] == $past(f_block_1 + f_done_1[3+:BLOCKS_LOG2]));
            end
            if ($past(report)) assert (m_kind[0] == REPORT && m_address[0] == $past(f_start_0) && m_data == $past(f_data));
            if ($past(interrupt)) assert (m_valid[1] && m_kind[1] == INTERRUPT);
            assert (m_valid[1] == $past((left_0 != '0 && take_1) || interrupt));
            assert (m_valid == '0 || m_channel == $past(f_channel));
        end
        // Form of the writes.
        if (m_valid[0] && m_kind[0] == PAYLOAD) begin
            assert (m_length[0] != '0 && m_length[0] <= f_most);
            assert ({2'b0, m_address[0][8:0]} + f_blocks_0 <= 11'd512);
        end
        if (m_valid[1] && m_kind[1] == PAYLOAD) begin
            assert (m_length[1] != '0 && m_length[1] <= f_most);
            assert ({2'b0, m_address[1][8:0]} + f_blocks_1 <= 11'd512);
            assert (m_valid[0] && m_kind[0] == PAYLOAD);
        end
        if (m_valid[1] && m_kind[1] == INTERRUPT) assert (!m_valid[0] || m_kind[0] == REPORT);
        if (left_0 != '0) assert (limit_0 == limit(address_0[8:0], max_write));
        if (left_1 != '0) assert (limit_1 == limit(address_1[8:0], max_write));
        // Induction invariants: the entry in progress is the one that was taken; a report or an interrupt has no payload
        // beside it.
        assert (!(report || interrupt) || (left_0 == '0 && left_1 == '0));
        if (report) assert (address_0 == f_start_0 && data == f_data);
        if (report || interrupt || left_0 != '0 || left_1 != '0) assert (channel == f_channel);
        if (m_valid[0]) assert (m_kind[0] != INTERRUPT);
        if (m_valid[1]) assert (m_kind[1] != REPORT);
        if (m_valid[0]) assert (m_kind[0] == PAYLOAD || m_length[0] == 11'd8);
        // Offered writes stay until they are taken.
        if ($past(f_started && !rst && m_valid != '0 && !m_ready))
            assert ($stable(m_valid) && $stable(m_address) && $stable(m_length) && $stable(m_kind) && $stable(m_block));

        cover (f_two == 2'd3);
        cover (m_valid == 2'b11 && f_done_0 == 14'd300);
        cover (m_valid[0] && m_address[0][8:0] == 9'd511 && left_0 != '0);
    end
end
