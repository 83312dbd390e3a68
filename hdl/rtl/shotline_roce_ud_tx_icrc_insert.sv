// ICRC insertion and output stage: frames wait in a word FIFO until their ICRC is known, and leave to the MAC.
//
// A word may leave ICRC_LATENCY clocks after it arrived; by then the ICRC of its frame is known if the word contains
// bytes of it. Nothing else delays the data, and the stages before never stall: the framer reserves a FIFO entry for
// each word before it starts it.
//
// A frame with an ICRC is 2 bytes longer than a multiple of 4 (every RoCE header is, counted from the Ethernet header),
// so byte b of a word can only be byte (b + 2) mod 4 of an ICRC. If the last word has 2 bytes, the first half of the
// ICRC is in the word before it.

`default_nettype none

module shotline_roce_ud_tx_icrc_insert (
    // Clock and synchronous reset.
    input  wire          clk,
    input  wire          rst,

    // Configuration, stable while frames are in the pipeline.
    input  wire          cfg_icrc,     // frames have an ICRC
    input  wire          cfg_ipv6,

    // Frame words, from shotline_roce_ud_tx_framer.
    input  wire          reserve,      // reserve an entry of the word FIFO: a word enters the pipeline
    output logic         slot_free,    // the word FIFO has a free entry
    input  wire          frame_valid,
    input  wire  [511:0] frame_data,
    input  wire          frame_first,
    input  wire          frame_last,
    input  wire          frame_split,  // the ICRC starts in this word, the one before the last
    input  wire  [5:0]   frame_tail,   // bytes of the frame's last word, 0 for 64

    // AXI4-Stream source: frames.
    output logic [511:0] m_axis_tdata,
    output logic [63:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  wire          m_axis_tready,
    output logic         m_axis_tlast,

    // State and events for the counters.
    output wire          idle,           // no word is reserved or waits for the MAC
    output logic         count_frame,
    output logic [6:0]   count_bytes,    // bytes that left in this clock
    output logic         count_blocked  // the MAC does not accept the offered word
);
    localparam int ICRC_LATENCY = 10;  // latency of the ICRC engine plus one clock of the result FIFO
    localparam int WIDTH = 512 + 1 + 1 + 6;

    // ICRC of each frame; at most 16 frames are in the word FIFO.
    wire        covered = frame_valid && cfg_icrc && !(frame_last && frame_tail == 6'd2);
    wire        icrc_valid, done;
    /* verilator lint_off UNUSEDSIGNAL */  // only used by assertions
    wire        head_valid;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0] icrc_now, head;
    shotline_icrc engine (
        .clk, .rst, .in_valid(covered), .in_data(frame_data), .in_first(frame_first),
        .in_last(frame_last || frame_split), .in_bytes(frame_tail - 6'd4), .in_ipv6(cfg_ipv6),
        .out_valid(icrc_valid), .out_icrc(icrc_now)
    );
    shotline_fifo_small #(.WIDTH(32), .DEPTH_LOG2(5)) results (
        .clk, .rst, .push(icrc_valid), .push_data(icrc_now), .pop(done && cfg_icrc), .out_valid(head_valid),
        .out_data(head)
    );

    // Word FIFO.
    (* ram_style = "distributed" *)
    logic [WIDTH-1:0] queue [0:31];
    logic [4:0]       write_at, read_at;
    always_ff @(posedge clk) if (frame_valid) queue[write_at] <= {frame_last, frame_split, frame_tail, frame_data};
    wire [WIDTH-1:0] oldest = queue[read_at];
    wire [511:0]     data   = oldest[511:0];
    wire [5:0]       tail   = oldest[517:512];
    wire             split  = oldest[518];
    wire             last   = oldest[519];

    // Reserved entries, and words that may leave.
    logic [5:0] reserved, ready;
    logic has_ready;
    logic [ICRC_LATENCY-1:0] pipeline;
    wire pop = has_ready && (m_axis_tready || !m_axis_tvalid);
    wire [5:0] reserved_next = reserved + {5'd0, reserve} - {5'd0, pop};
    wire [5:0] ready_next = ready + {5'd0, pipeline[ICRC_LATENCY-1]} - {5'd0, pop};
    always_ff @(posedge clk)
        if (rst) begin
            reserved  <= 0;
            ready     <= 0;
            has_ready <= 1'b0;
            slot_free <= 1'b0;
            pipeline  <= 0;
            write_at  <= 0;
            read_at   <= 0;
        end else begin
            reserved  <= reserved_next;
            slot_free <= reserved_next != 6'd32;
            ready     <= ready_next;
            has_ready <= ready_next != 0;
            pipeline  <= {pipeline[ICRC_LATENCY-2:0], frame_valid};
            if (frame_valid) write_at <= write_at + 5'd1;
            if (pop) read_at <= read_at + 5'd1;
        end
    assign idle = reserved == 0 && !m_axis_tvalid;
    assign done = pop && last;

    // Lanes 4g - 2 to 4g + 1 hold the ICRC if the last word has 4g + 2 bytes; its first half may be a word earlier.
    function automatic logic [511:0] with_icrc(
        input logic [511:0] word, input logic [3:0] group, input logic [31:0] value
    );
        with_icrc = word;
        for (int lane = 0; lane < 62; lane++)
            if ({2'd0, group} == (lane[5:0] + 6'd2) >> 2)
                with_icrc[8*lane +: 8] = word[8*lane +: 8] | value[8*((lane+2)%4) +: 8];
    endfunction
    // `tkeep` of a word with `count` bytes, 0 for 64.
    function automatic logic [63:0] keep_mask(input logic [5:0] count);
        for (int lane = 0; lane < 64; lane++) keep_mask[lane] = count == 0 || lane[5:0] < count;
    endfunction

    always_ff @(posedge clk) begin
        if (rst) m_axis_tvalid <= 1'b0;
        else if (pop || m_axis_tready) m_axis_tvalid <= pop;
        if (pop) begin
            if (split) m_axis_tdata <= {data[511:496] | head[15:0], data[495:0]};
            else if (last && cfg_icrc) m_axis_tdata <= with_icrc(data, tail[5:2], head);
            else m_axis_tdata <= data;
            m_axis_tkeep <= last ? keep_mask(tail) : '1;
            m_axis_tlast <= last;
        end
        count_frame   <= done && !rst;
        count_bytes   <= !pop ? 7'd0 : last && tail != 0 ? {1'b0, tail} : 7'd64;
        count_blocked <= m_axis_tvalid && !m_axis_tready && !rst;
    end

`ifdef VERILATOR
    icrc_known: assert property (@(posedge clk) disable iff (rst) pop && cfg_icrc && (last || split) |-> head_valid);
    // A MAC such as the CMAC aborts a frame that has a gap.
    no_gap_in_frame: assert property (@(posedge clk) disable iff (rst)
        m_axis_tvalid && m_axis_tready && !m_axis_tlast |=> m_axis_tvalid);
    no_overflow: assert property (@(posedge clk) disable iff (rst) reserved <= 6'd32);
`endif
endmodule

`default_nettype wire
