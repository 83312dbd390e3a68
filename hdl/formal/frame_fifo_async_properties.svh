// Of frame_fifo_async, with both clocks free: a frame that has begun to leave does not pause, and what is offered stays.
// That words are kept and in order is proven of the FIFO within, whose properties hold here, too.

// The first steps are the reset: see fifo_async_properties.svh.
(* gclk *) logic f_clock;
logic [1:0] f_step = 2'd0;
wire f_run = f_step == 2'd3;
always_ff @(posedge f_clock) if (!f_run) f_step <= f_step + 2'd1;

// A word that was not the frame's last has left, so the next must be there.
logic f_inside;
// What was offered at the last edge and not taken.
logic f_offered;
logic [9*BYTES:0] f_word;
always_ff @(posedge m_clk) begin
    if (m_rst) begin
        f_inside  <= 1'b0;
        f_offered <= 1'b0;
    end else begin
        if (m_axis_tvalid && m_axis_tready) f_inside <= !m_axis_tlast;
        f_offered <= m_axis_tvalid && !m_axis_tready;
        f_word    <= {m_axis_tlast, m_axis_tkeep, m_axis_tdata};
    end
end

function automatic logic [P-1:0] f_binary(input logic [P-1:0] gray);
    for (int i = 0; i < P; i = i + 1) f_binary[i] = ^(gray >> i);
endfunction

// Frames that end among the words from the one that leaves next up to a pointer.
function automatic logic [P-1:0] f_ends(input logic [P-1:0] pointer);
    logic [P-1:0] ahead;
    logic [DEPTH_LOG2-1:0] place;
    ahead = pointer - view_read;
    f_ends = {{P - 1{1'b0}}, valid && last};
    for (int i = 0; i < 2**DEPTH_LOG2; i = i + 1) begin
        place = view_read[DEPTH_LOG2-1:0] + DEPTH_LOG2'(i);
        if (P'(i) < ahead && view_top[place]) f_ends = f_ends + ONE;
    end
endfunction

// Frames that the stages of the count tell of and that have not left: never more than are in.
wire [P-1:0] f_stage_0 = written - left;
wire [P-1:0] f_stage_1 = f_binary(written_gray) - left;
wire [P-1:0] f_stage_2 = f_binary(published[P-1:0]) - left;
wire [P-1:0] f_stage_3 = f_binary(published[2*P-1:P]) - left;
wire [P-1:0] f_stage_4 = f_binary(cdc_chain_m) - left;
wire [P-1:0] f_stage_5 = f_binary(frames_gray_m) - left;

always_comb begin
    // From the end of the reset on: then all registers are as it left them.
    if (f_step[1]) begin
        assert (!f_inside || m_axis_tvalid);
        assert (!f_offered || (m_axis_tvalid && f_word == {m_axis_tlast, m_axis_tkeep, m_axis_tdata}));
        // What makes it inductive: the count is never ahead of the pointer beside it.
        assert (left_gray == (left ^ (left >> 1)) && f_stage_1 == f_stage_0);
        assert (f_stage_5 <= f_stage_4 && f_stage_4 <= f_stage_3 && f_stage_3 <= f_stage_2 && f_stage_2 <= f_stage_1);
        assert (f_stage_0 == f_ends(view_write));
        assert (f_stage_4 <= f_ends(view_chain));
        assert (f_stage_5 <= f_ends(view_synced));
        assert (!f_inside || f_stage_5 != '0);
    end
    cover (f_run && f_inside && m_axis_tlast && m_axis_tready && f_stage_5 == P'(2));
end
