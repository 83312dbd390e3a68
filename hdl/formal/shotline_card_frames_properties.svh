// Properties of shotline_card_frames: a frame is dropped with exactly one cause, the first that applies, and leaves
// nothing; or all of its words leave once and in order, the first of them with its metadata. Words have numbers
// that count only those of delivered frames; the solver chooses an arbitrary one and compares what comes with that number
// with what leaves with it.
//
// With padding the words of a frame are those of its bytes after two of 0. It is arbitrary for each frame.
//
// The reader is any that takes the words of one frame after the other, as many as its length says.

localparam int F_SLOTS = (1 << BUFFER_LOG2) + 1;  // there are never more frames than this
localparam int F_META = 78;                       // time and length

// Words of a frame from its length without FCS.
function automatic logic [8:0] f_needed(input logic [13:0] bytes);
    f_needed = {1'b0, bytes[13:6]} + {8'd0, bytes[5:0] != '0};
endfunction

// The words of a frame in progress, after one more: a flag that tells that it is in progress, and their number.
function automatic logic [9:0] f_after(input logic [9:0] state, input logic valid, input logic last);
    f_after = !valid ? state : last ? 10'd0 : {1'b1, state[8] ? 9'd256 : state[8:0] + 9'd1};
endfunction

// The FIFO counts the frames whose metadata it got and gave. Attribute hierconn joins a wire with the one of that name in
// the flattened module.
(* hierconn *) wire [P-1:0] \metadata.f_in ;
(* hierconn *) wire [P-1:0] \metadata.f_out ;
(* hierconn *) wire [P-1:0] \metadata.stored ;
wire [P-1:0] f_in = \metadata.f_in ;
wire [P-1:0] f_out = \metadata.f_out ;

// What came, and the same one and two clocks later; then the decision.
logic f_started = 1'b0;
logic f_valid_1, f_first_1, f_last_1, f_error_1, f_valid_2, f_first_2, f_last_2, f_error_2;
logic [511:0] f_data_1, f_data_2;
logic [15:0] f_tail;               // the last bytes of the word that came last
logic f_pad, f_pad_1, f_pad_2;     // of the frame in progress, and of the words
logic [6:0] f_bytes_1, f_bytes_2;
logic [8:0] f_index_1, f_index_2;  // words of the frame before this one
logic [63:0] f_time_1, f_time_2;
logic [14:0] f_limit_1, f_limit_2;
wire [14:0] f_longest = in_pad ? 15'd16369 : 15'd16371;
logic [9:0] f_state, f_state_3;
logic [8:0] f_age;                 // a last word came 1 to 9 clocks ago
wire [9:0] f_state_2 = f_after(f_state_3, f_valid_2, f_last_2);
wire [9:0] f_state_1 = f_after(f_state_2, f_valid_1, f_last_1);
wire [14:0] f_length = {f_index_2, 6'd0} + {8'd0, f_bytes_2};
wire f_stored = f_valid_2 && !(f_last_2 && !f_first_2 && f_bytes_2 <= (f_pad_2 ? 7'd2 : 7'd4));
wire f_ends = f_valid_2 && f_last_2;
logic f_lost;                      // a word of the frame in progress found 2^BUFFER_LOG2 words before it
wire f_lost_now = (f_lost && !f_first_2) || (f_stored && write_pointer - read_pointer == FULL);
logic [3:0] f_cause;
always_comb begin
    f_cause = '0;
    if (f_error_2) f_cause[0] = 1'b1;
    else if (f_length < 15'd64) f_cause[1] = 1'b1;
    else if (f_length > f_limit_2) f_cause[2] = 1'b1;
    else if (f_lost_now) f_cause[3] = 1'b1;
end
wire f_good = f_ends && f_cause == '0;

// Delivered frames whose first word has not left, the oldest first: time and length, and the number of the first word;
// and what the FIFO was given.
logic [P-1:0] f_frames, f_at;  // number of the next frame, and of its first word
logic [F_SLOTS-1:0][F_META-1:0] f_expected;
logic [F_SLOTS-1:0][P-1:0] f_begin;
logic [F_SLOTS-1:0][META-1:0] f_given;
wire f_pop = frame_valid && frame_ready;
wire [P-1:0] f_pending = f_frames - f_out;
wire [P-1:0] f_inside = f_in - f_out;
wire [P-1:0] f_place = f_pending - {{P - 1{1'b0}}, f_pop};
wire [P-1:0] f_given_place = f_inside - {{P - 1{1'b0}}, f_pop};
wire [13:0] f_data_length = f_length[13:0] - 14'd4 + (f_pad_2 ? 14'd2 : 14'd0);

// Words that left, those that are left of the frame that is read, and the chosen word.
wire [P-1:0] f_read = read_pointer - {{P - 1{1'b0}}, out_valid};
logic [8:0] f_left;
(* anyconst *) logic [P-1:0] f_chosen;
logic [511:0] f_word;
wire [P-1:0] f_ahead = f_chosen - f_read;
wire [P-1:0] f_held = write_pointer - f_read;
logic f_was_lost, f_was_dropped;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    if (in_valid) assume (in_first == !f_state[9] && in_bytes != '0 && (in_last ? in_bytes <= 7'd64 : in_bytes == 7'd64));
    if (in_valid && !in_first) assume (in_pad == f_pad);
    if (word_ready) assume (word_valid && (f_left != '0 || frame_valid));
    assume (frame_ready == (word_ready && f_left == '0));
    // What the FIFO's proof says of any number.
    if (frame_valid) assume (meta == f_given[0]);
    {f_first_2, f_last_2, f_error_2, f_data_2} <= {f_first_1, f_last_1, f_error_1, f_data_1};
    {f_bytes_2, f_index_2, f_time_2, f_limit_2, f_pad_2} <= {f_bytes_1, f_index_1, f_time_1, f_limit_1, f_pad_1};
    f_limit_1 <= {1'b0, max_length} < f_longest ? {1'b0, max_length} : f_longest;
    if (in_valid) begin
        {f_first_1, f_last_1, f_error_1, f_data_1} <= {in_first, in_last, in_error, in_data};
        if (in_pad) f_data_1 <= in_data << 16 | (in_first ? 512'd0 : 512'(f_tail));
        {f_tail, f_pad, f_pad_1} <= {in_data[511:496], in_pad, in_pad};
        {f_bytes_1, f_index_1} <= {in_bytes, f_state[8:0]};
        if (in_first) f_time_1 <= in_time;
    end
    if (rst) begin
        {f_valid_1, f_valid_2, f_state, f_state_3, f_age, f_lost, f_frames, f_at, f_left} <= '0;
        {f_was_lost, f_was_dropped} <= '0;
    end else begin
        {f_valid_2, f_valid_1} <= {f_valid_1, in_valid};
        f_state   <= f_after(f_state, in_valid, in_last);
        f_state_3 <= f_state_2;
        f_age     <= {f_age[7:0], in_valid && in_last};
        if (f_valid_2) f_lost <= f_lost_now;
        if (f_good) begin
            f_frames <= f_frames + ONE;
            f_at     <= f_at + P'(f_needed(f_data_length));
        end
        for (int i = 0; i < F_SLOTS; i++) begin
            if (f_good && f_place == P'(i)) {f_expected[i], f_begin[i]} <= {f_time_2, f_data_length, f_at};
            else if (f_pop) {f_expected[i], f_begin[i]} <= {f_expected[(i+1)%F_SLOTS], f_begin[(i+1)%F_SLOTS]};
            if (waits[DELAY-1] && f_given_place == P'(i)) begin
                f_given[i] <= {class_channel, class_hash, class_flags, kept[F_META*DELAY-1 -: F_META]};
            end else if (f_pop) f_given[i] <= f_given[(i+1)%F_SLOTS];
        end
        if (store && write_pointer == f_chosen) f_word <= f_data_2;
        if (word_ready) f_left <= (f_left == '0 ? f_needed(frame_length) : f_left) - 9'd1;
        if (dropped[3]) f_was_lost <= 1'b1;
        if (dropped[0]) f_was_dropped <= 1'b1;
    end
end

// The number of frames that are decided and not yet in the FIFO, from a clock of waiting on.
logic [DELAY:0][P-1:0] f_waiting;
always_comb begin
    f_waiting = '0;
    for (int i = DELAY - 1; i >= 0; i--) f_waiting[i] = f_waiting[i+1] + {{P - 1{1'b0}}, waits[i]};
end

// The end of each frame is the beginning of the next one.
logic [F_SLOTS-1:0][P-1:0] f_end;
always_comb for (int i = 0; i < F_SLOTS; i++) f_end[i] = f_pending == P'(i + 1) ? f_at : f_begin[(i+1)%F_SLOTS];

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // Each frame is delivered or has one cause.
        if ($past(f_started && !rst)) assert (dropped == $past(f_ends ? f_cause : 4'd0));
        assert ((dropped & (dropped - 4'd1)) == '0);
        assert (good == f_good);
        // The chosen word leaves as it came, and no word leaves that is not of a delivered frame.
        if (word_valid && f_read == f_chosen) assert (word_data == f_word);
        if (word_valid) assert (f_read != end_pointer);
        // The first word of a frame leaves with its metadata, and all others follow without a gap.
        if (frame_valid || f_left != '0) assert (word_valid);
        if (frame_valid && f_left == '0) assert (f_begin[0] == f_read);
        if (frame_valid) assert ({frame_time, frame_length} == f_expected[0]);
        // The classifier's result is taken nine clocks after the last word; there is space for it.
        if (waits[DELAY-1]) assert (f_age[8] && meta_ready);
        // An offered word stays until it is taken.
        if ($past(f_started && !rst && word_valid && !word_ready)) assert (word_valid && $stable(word_data));

        // Induction invariants: the stages hold what came.
        assert (valid_1 == f_valid_1 && valid_2 == f_valid_2);
        if (f_valid_1) begin
            assert ({data_1, first_1, last_1, error_1} == {f_data_1, f_first_1, f_last_1, f_error_1});
            assert (length_1 == {f_index_1, 6'd0} + {8'd0, f_bytes_1});
            assert (fcs_only_1 == (f_last_1 && !f_first_1 && f_bytes_1 <= (f_pad_1 ? 7'd2 : 7'd4)));
            assert (pad_1 == f_pad_1);
            assert (f_first_1 == !f_state_2[9] && f_index_1 == f_state_2[8:0]);
            assert (f_last_1 ? f_bytes_1 != '0 && f_bytes_1 <= 7'd64 : f_bytes_1 == 7'd64);
        end
        if (f_valid_1 || f_state_1[9]) assert (time_1 == f_time_1);
        assert (limit == f_limit_1 && f_limit_1 <= 15'd16371);
        if (f_valid_1 && f_pad_1) assert (f_limit_1 <= 15'd16369);
        if (f_state[9]) assert (carry == f_tail);
        if (f_valid_1) assert (f_pad_1 == f_pad);
        if (f_valid_2 && f_valid_1 && !f_first_1) assert (f_pad_2 == f_pad_1);
        if (f_valid_2) begin
            assert ({data_2, first_2, last_2, time_2} == {f_data_2, f_first_2, f_last_2, f_time_2});
            assert (fcs_only_2 == (f_last_2 && !f_first_2 && f_bytes_2 <= (f_pad_2 ? 7'd2 : 7'd4)));
            assert (f_limit_2 <= (f_pad_2 ? 15'd16369 : 15'd16371));
            assert (length_2 == f_data_length && bad_2[0] == f_error_2);
            assert (bad_2[1] == (!f_error_2 && f_length < 15'd64));
            assert (bad_2[2] == (!f_error_2 && f_length >= 15'd64 && f_length > f_limit_2));
            assert (f_first_2 == !f_state_3[9] && f_index_2 == f_state_3[8:0]);
            assert (f_last_2 ? f_bytes_2 != '0 && f_bytes_2 <= 7'd64 : f_bytes_2 == 7'd64);
        end
        assert (f_state == f_state_1 && (f_state[9] || f_state[8:0] == '0));
        if (f_state[9]) assert (words == f_state[8:0] && f_state[8:0] <= 9'd256 && f_state[8:0] != '0);
        if (f_state_3[9]) assert (lost == f_lost && f_state_3[8:0] <= 9'd256 && f_state_3[8:0] != '0);
        else assert (f_state_3[8:0] == '0);
        assert (f_age[0] == (f_valid_1 && f_last_1) && f_age[1] == (f_valid_2 && f_last_2));
        for (int i = 0; i < DELAY; i++) if (waits[i]) assert (f_age[i+2]);
        // The words of the frame in progress follow those of the delivered ones.
        assert (write_pointer - read_pointer <= FULL && end_pointer - read_pointer <= write_pointer - read_pointer);
        if (!f_state_3[9]) assert (write_pointer == end_pointer);
        else if (!f_lost) assert (f_state_3[8:0] == 9'(P'(write_pointer - end_pointer)));
        if (f_ahead < f_held) begin
            if (out_valid && f_ahead == '0) assert (out_data == f_word);
            else assert (memory[f_chosen[BUFFER_LOG2-1:0]] == f_word);
        end
        // Each frame begins where the one before it ends, so it has a word, and there are no more frames than words.
        assert (f_at == end_pointer && end_pointer - f_read <= FULL + ONE && f_pending <= P'(F_SLOTS));
        assert (9'(P'((f_pending == '0 ? f_at : f_begin[0]) - f_read)) == f_left);
        assert (f_frames - f_in == f_waiting[0] && f_waiting[0] <= f_pending);
        for (int i = 0; i < F_SLOTS; i++) if (P'(i) < f_pending) begin
            assert (P'(f_begin[i] - f_read) < P'(f_end[i] - f_read));
            assert (f_needed(f_expected[i][13:0]) == 9'(P'(f_end[i] - f_begin[i])));
            if (P'(i) < f_inside) assert (f_given[i][F_META-1:0] == f_expected[i]);
        end
        for (int i = 0; i < DELAY; i++)
            for (int place = 0; place < F_SLOTS; place++)
                if (waits[i] && f_inside + f_waiting[i+1] == P'(place))
                    assert (kept[F_META*i +: F_META] == f_expected[place]);
        // Words and metadata are in their output registers a clock after they can be.
        if (!frame_valid) assert (\metadata.stored <= ONE);
        if (!out_valid) assert (f_left == '0 && (f_pending == '0 || (f_pending == ONE && waits[0])));

        // A frame of two words after one that was dropped for lack of space and one with an error.
        cover (f_was_lost && f_was_dropped && f_left == 9'd1 && word_ready);
    end
end
