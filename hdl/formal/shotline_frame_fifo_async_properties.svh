// Properties of shotline_frame_fifo_async, both clocks unconstrained: a frame leaves without a gap, and an offered word
// stays. Integrity and order of the words are proven for the shotline_fifo_async inside, whose properties also hold
// here.

// The first steps are reset: see shotline_fifo_async_properties.svh.
(* gclk *) logic f_clock;
logic [1:0] f_step = 2'd0;
wire f_run = f_step == 2'd3;
always_ff @(posedge f_clock) if (!f_run) f_step <= f_step + 2'd1;

// Inside a frame: a word other than its last has left, so the next must be available.
logic f_inside;
// Word offered at the last edge but not accepted.
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
    for (int i = 0; i < P; i++) f_binary[i] = ^(gray >> i);
endfunction

// Number of frames that end among the words from the next one to leave up to a pointer.
function automatic logic [P-1:0] f_ends(input logic [P-1:0] pointer);
    logic [P-1:0] ahead;
    logic [DEPTH_LOG2-1:0] address;
    ahead = pointer - view_read;
    f_ends = {{P - 1{1'b0}}, valid && last};
    for (int i = 0; i < 2**DEPTH_LOG2; i++) begin
        address = view_read[DEPTH_LOG2-1:0] + DEPTH_LOG2'(i);
        if (P'(i) < ahead && view_top[address]) f_ends = f_ends + ONE;
    end
endfunction

// Frames counted by each stage of the count and not yet delivered: never more than the FIFO holds.
wire [P-1:0] f_stage_0 = written - delivered;
wire [P-1:0] f_stage_1 = f_binary(written_gray) - delivered;
wire [P-1:0] f_stage_2 = f_binary(published[P-1:0]) - delivered;
wire [P-1:0] f_stage_3 = f_binary(published[2*P-1:P]) - delivered;
wire [P-1:0] f_stage_4 = f_binary(cdc_chain_m) - delivered;
wire [P-1:0] f_stage_5 = f_binary(frames_gray_m) - delivered;

always_comb begin
    // From the end of reset on, when all registers are initialized.
    if (f_step[1]) begin
        assert (!f_inside || m_axis_tvalid);
        assert (!f_offered || (m_axis_tvalid && f_word == {m_axis_tlast, m_axis_tkeep, m_axis_tdata}));
        // Induction invariant: each stage of the count never exceeds the pointer of the same stage.
        assert (delivered_gray == (delivered ^ (delivered >> 1)) && f_stage_1 == f_stage_0);
        assert (f_stage_5 <= f_stage_4 && f_stage_4 <= f_stage_3 && f_stage_3 <= f_stage_2 && f_stage_2 <= f_stage_1);
        assert (f_stage_0 == f_ends(view_write));
        assert (f_stage_4 <= f_ends(view_chain));
        assert (f_stage_5 <= f_ends(view_synced));
        assert (!f_inside || f_stage_5 != '0);
    end
    cover (f_run && f_inside && m_axis_tlast && m_axis_tready && f_stage_5 == P'(2));
end
