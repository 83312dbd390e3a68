// Properties of shotline_card_gate: each word leaves once and in order, with those blocks that belong to kept packets,
// in their lanes. The solver chooses an arbitrary word and an arbitrary packet; what the word should be is computed
// from the position of its blocks in the packets, when it comes.
//
// What is proven for the chosen word is used for the word before it, which left earlier: this is induction over the
// words. What is proven of the queue while the chosen word is the oldest is used at other times in the same way.

localparam int F_NUMBER = ROWS_LOG2 + 2;  // bits of the number of a packet; never so many are inside

// The number of packets after a word, with a bit that tells 0 from a wrap.
function automatic logic [F_NUMBER:0] f_after(input logic [F_NUMBER:0] number, input logic is_first);
    f_after = is_first ? {1'b1, number[F_NUMBER-1:0] + 1'b1} : number;
endfunction

// The FIFOs' own properties follow one word of each; here these are the chosen word and the decision on the chosen
// packet. Attribute hierconn joins a wire with the one of that name in the flattened module.
(* hierconn *) wire [ROWS_LOG2:0] \rows.f_index ;
(* hierconn *) wire [ROWS_LOG2:0] \rows.f_in ;
(* hierconn *) wire [ROWS_LOG2:0] \rows.f_out ;
(* hierconn *) wire [WIDTH+2*BLOCKS:0] \rows.f_word ;
(* hierconn *) wire [F_NUMBER-1:0] \decisions.f_index ;
(* hierconn *) wire [F_NUMBER-1:0] \decisions.f_in ;
(* hierconn *) wire [F_NUMBER-1:0] \decisions.f_out ;
(* hierconn *) wire \decisions.f_word ;
(* hierconn *) wire [5:0] \names.f_index ;
(* hierconn *) wire [5:0] \names.f_in ;
(* hierconn *) wire [5:0] \names.f_out ;
(* hierconn *) wire [CHANNELS_LOG2+BLOCKS_LOG2+13:0] \names.f_word ;

wire [ROWS_LOG2:0] f_row = \rows.f_index ;
wire [F_NUMBER-1:0] f_packet = \decisions.f_index ;
wire f_keep = \decisions.f_word ;

logic f_started = 1'b0;
// Packets that came, whose metadata was taken, that were decided, and whose first word has left.
logic [F_NUMBER:0] f_numbers;
logic [F_NUMBER-1:0] f_asked;
logic f_some_begun;
wire  [F_NUMBER-1:0] f_came = f_numbers[F_NUMBER-1:0];
wire  [F_NUMBER-1:0] f_decided = \decisions.f_in ;
wire  [F_NUMBER-1:0] f_begun = \decisions.f_out ;
wire  [F_NUMBER-1:0] f_inside = f_came - f_begun;
wire  [ROWS_LOG2:0] f_held = \rows.f_in - \rows.f_out ;

// The packet in progress: its blocks, and the position of block 0 of the next word in it.
logic [11:0] f_blocks, f_position;
logic [BLOCKS-1:0] f_old, f_new;
always_comb for (int lane = 0; lane < BLOCKS; lane++) begin
    f_old[lane] = f_position + 12'(lane) < f_blocks;
    f_new[lane] = s_first && lane >= s_first_block && 14'(8 * (lane - s_first_block)) < s_length;
end

// The chosen word; packets that came before it, according to the word before it.
logic [WIDTH+2*BLOCKS:0] f_expected;
logic [F_NUMBER:0] f_number, f_before, f_number_before;
logic f_first_before, f_loaded;
logic [CHANNELS_LOG2+BLOCKS_LOG2+13:0] f_name;
wire f_pop = row_valid && row_ready;
wire f_row_inside = f_row - \rows.f_out < f_held;
wire [ROWS_LOG2:0] f_since = \rows.f_in - f_row;
wire f_row_is_next = \rows.f_out == f_row;

always_ff @(posedge clk) begin
    f_started <= 1'b1;
    if (!f_started) assume (rst);
    assume (\names.f_index == f_packet[5:0]);
    // Packets follow each other without overlap, and decisions come after the metadata was taken.
    if (s_valid) assume (s_first ? s_length != '0 && left <= first_block : left != '0);
    if (decision_valid) assume (f_decided != f_asked);
    if (rst) begin
        {f_numbers, f_asked, f_before, f_blocks, f_position} <= '0;
        f_some_begun <= 1'b0;
        f_loaded <= 1'b0;
    end else begin
        f_loaded     <= f_pop && f_row_is_next;
        if (f_pop && row_first) f_some_begun <= 1'b1;
        if (take) begin
            f_numbers <= f_after(f_numbers, s_first);
            if (s_first) begin
                f_blocks   <= 12'(s_length[13:3]) + 12'(s_length[2:0] != '0);
                f_position <= 12'(BLOCKS) - first_block;
            end else f_position <= f_position + 12'(BLOCKS);
            if (\rows.f_in + 1'b1 == f_row) begin
                f_before        <= f_after(f_numbers, s_first);
                f_number_before <= f_numbers;
                f_first_before  <= s_first;
            end
            if (\rows.f_in == f_row) begin
                f_expected <= {s_first, f_new, f_old, s_data};
                f_number   <= f_numbers;
            end
            if (s_first && f_came == f_packet) f_name <= {s_channel, s_length, s_first_block};
        end
        if (packet_valid && packet_ready) f_asked <= f_asked + 1'b1;
        // The word before the chosen one.
        if (f_pop && \rows.f_out + 1'b1 == f_row) begin
            assume ({f_some_begun, f_begun} == f_number_before && row_first == f_first_before);
        end
    end
end

// Blocks of the chosen word that belong to the packet before its first block and to the one that begins in it.
wire [BLOCKS-1:0] f_word_old = f_expected[WIDTH+:BLOCKS];
wire [BLOCKS-1:0] f_word_new = f_expected[WIDTH+BLOCKS+:BLOCKS];

always_ff @(posedge clk) begin
    if (f_started && !rst) begin
        // The chosen word leaves with all blocks of the chosen packet or none, and with no block that is in no packet.
        if (f_loaded) begin
            assert (m_data == f_expected[WIDTH-1:0] && m_data_valid == (m_data_keep != '0));
            assert ((m_data_keep & ~(f_word_old | f_word_new)) == '0);
            if (f_number[F_NUMBER-1:0] - 1'b1 == f_packet)
                assert ((m_data_keep & f_word_old) == (f_keep ? f_word_old : '0));
            if (f_number[F_NUMBER-1:0] == f_packet) assert ((m_data_keep & f_word_new) == (f_keep ? f_word_new : '0));
        end
        // No other word: a word leaves once, and stays until it is taken.
        if ($past(f_started && !rst && !f_pop)) assert (m_data_valid == $past(m_data_valid && !m_data_ready));
        if ($past(f_started && !rst && m_data_valid && !m_data_ready)) assert ($stable(m_data) && $stable(m_data_keep));
        // The metadata of each packet, in order, and a place for each decision.
        if (packet_valid && packet_ready && f_asked == f_packet)
            assert ({packet_channel, packet_length, packet_block} == f_name);
        if (decision_valid) assert (decisions_ready);

        // Induction invariants: the FIFOs hold the same words and packets.
        if (s_valid) assert ((f_old & f_new) == '0);
        assert (left == (f_position < f_blocks ? f_blocks - f_position : '0));
        assert (f_position >= 12'd1 || f_blocks == '0);
        assert (f_position <= 12'd4095 - 12'(BLOCKS) && f_blocks <= 12'd2048);
        assert (rows_level == f_held && f_held <= 6'd33);
        assert (\names.f_in == f_came[5:0] && \names.f_out == f_asked[5:0]);
        assert (f_came - f_asked <= F_NUMBER'(33) && f_asked - f_decided <= f_came - f_decided);
        assert (f_decided - f_begun <= f_asked - f_begun && f_asked - f_begun <= f_inside);
        if (f_packet - f_asked < f_came - f_asked) assert (\names.f_word == f_name);
        if (!f_numbers[F_NUMBER]) assert (f_numbers == '0 && f_blocks == '0);
        // Words and packets are in step.
        if (f_row_inside) begin
            assert (\rows.f_word == f_expected && f_number == f_before);
            assert (f_number[F_NUMBER] || f_word_old == '0);
            assert ((f_expected[WIDTH+2*BLOCKS] || f_word_new == '0) && (f_word_old & f_word_new) == '0);
            assert (f_came - f_number[F_NUMBER-1:0] <= F_NUMBER'(f_since));
        end
        if (f_row - 1'b1 - \rows.f_out < f_held) assert (f_before == f_after(f_number_before, f_first_before));
        if (\rows.f_in == f_row) assert (f_numbers == f_before);
        if (f_row_is_next) assert ({f_some_begun, f_begun} == f_before);
        if (f_row_is_next) assert (f_inside <= F_NUMBER'(f_held));
        else assume (f_inside <= F_NUMBER'(f_held));
        if (f_some_begun && f_begun - 1'b1 == f_packet) assert (kept == f_keep);

        // A word with the end of a packet that is kept and the beginning of one that is not, and the reverse.
        cover (f_loaded && f_number[F_NUMBER-1:0] == f_packet && f_word_new != '0 && m_data_keep == f_word_old);
        cover (f_loaded && f_number == {1'b1, F_NUMBER'(2)} && f_word_old != '0 && m_data_keep == f_word_new);
    end
end
