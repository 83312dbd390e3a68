// The ICRC's place filled, and the last stop before the MAC: frames wait in a queue until their ICRC is known.
//
// A word may leave SEEN clocks after it came; by then the ICRC of its frame has been computed if it belongs into it. So
// nothing else delays the data, and the engines before never stop: the framer only begins a word that has a place here.
//
// A frame with an ICRC is 2 bytes longer than a multiple of 4 (every RoCE header is, counted from the Ethernet header),
// so that byte b of a word can only be byte (b + 2) mod 4 of an ICRC. Where the last word has 2 bytes, the first half
// of the ICRC is in the word before.
module roce_ud_tx_seal (
    input  wire         clk,
    input  wire         rst,
    input  wire         cfg_sealed,
    input  wire         cfg_ipv6,

    input  wire         issue,
    output reg          room,
    input  wire         frame_valid,
    input  wire [511:0] frame_data,
    input  wire         frame_first,
    input  wire         frame_last,
    input  wire         frame_split,
    input  wire [5:0]   frame_tail,

    output reg  [511:0] m_axis_tdata,
    output reg  [63:0]  m_axis_tkeep,
    output reg          m_axis_tvalid,
    input  wire         m_axis_tready,
    output reg          m_axis_tlast,

    output wire         idle,
    output reg          count_frame,
    output reg  [6:0]   count_bytes,
    output reg          count_blocked
);
    localparam SEEN = 10;  // one more than the engine's clocks: its result goes through a queue
    localparam WIDTH = 512 + 1 + 1 + 6;

    // The ICRC of each frame; there are at most 16 frames in the queue.
    wire        covered = frame_valid & cfg_sealed & ~(frame_last & frame_tail == 6'd2);
    wire        icrc_valid, done;
    /* verilator lint_off UNUSEDSIGNAL */  // used by assertions alone
    wire        head_valid;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0] icrc_now, head;
    icrc engine (
        .clk, .rst, .in_valid(covered), .in_data(frame_data), .in_first(frame_first),
        .in_last(frame_last | frame_split), .in_bytes(frame_tail - 6'd4), .in_ipv6(cfg_ipv6),
        .out_valid(icrc_valid), .out_icrc(icrc_now)
    );
    fifo_small #(.WIDTH(32), .LOG2_DEPTH(5)) results (
        .clk, .rst, .push(icrc_valid), .push_data(icrc_now), .pop(done & cfg_sealed), .out_valid(head_valid),
        .out_data(head)
    );

    // The queue of words.
    (* ram_style = "distributed" *)
    reg [WIDTH-1:0] queue [0:31];
    reg [4:0]       write_at, read_at;
    always @(posedge clk) if (frame_valid) queue[write_at] <= {frame_last, frame_split, frame_tail, frame_data};
    wire [WIDTH-1:0] oldest = queue[read_at];
    wire [511:0]     data   = oldest[511:0];
    wire [5:0]       tail   = oldest[517:512];
    wire             split  = oldest[518];
    wire             last   = oldest[519];

    // Places taken, from `issue` on, and words that may leave.
    reg [5:0]      places, ready;
    reg            any;
    reg [SEEN-1:0] coming;
    wire           pop = any & (m_axis_tready | ~m_axis_tvalid);
    wire [5:0] places_next = places + {5'd0, issue} - {5'd0, pop};
    wire [5:0] ready_next  = ready + {5'd0, coming[SEEN-1]} - {5'd0, pop};
    always @(posedge clk)
        if (rst) begin
            places   <= 0;
            ready    <= 0;
            any      <= 1'b0;
            room     <= 1'b0;
            coming   <= 0;
            write_at <= 0;
            read_at  <= 0;
        end else begin
            places <= places_next;
            room   <= places_next != 6'd32;
            ready  <= ready_next;
            any    <= ready_next != 0;
            coming <= {coming[SEEN-2:0], frame_valid};
            if (frame_valid) write_at <= write_at + 5'd1;
            if (pop) read_at <= read_at + 5'd1;
        end
    assign idle = places == 0 & ~m_axis_tvalid;
    assign done = pop & last;

    // Lanes 4 g - 2 to 4 g + 1 hold the ICRC when the last word has 4 g + 2 bytes; its first half may be in the word before.
    function automatic [511:0] with_icrc(input [511:0] word, input [3:0] group, input [31:0] value);
        integer lane;
        with_icrc = word;
        for (lane = 0; lane < 62; lane = lane + 1)
            if ({2'd0, group} == (lane[5:0] + 6'd2) >> 2) with_icrc[8*lane +: 8] = word[8*lane +: 8] | value[8*((lane+2)%4) +: 8];
    endfunction
    function automatic [63:0] lanes(input [5:0] count);
        integer lane;
        for (lane = 0; lane < 64; lane = lane + 1) lanes[lane] = count == 0 | lane[5:0] < count;
    endfunction

    always @(posedge clk) begin
        if (rst) m_axis_tvalid <= 1'b0;
        else if (pop | m_axis_tready) m_axis_tvalid <= pop;
        if (pop) begin
            if (split) m_axis_tdata <= {data[511:496] | head[15:0], data[495:0]};
            else if (last & cfg_sealed) m_axis_tdata <= with_icrc(data, tail[5:2], head);
            else m_axis_tdata <= data;
            m_axis_tkeep <= last ? lanes(tail) : ~64'd0;
            m_axis_tlast <= last;
        end
        count_frame   <= done & ~rst;
        count_bytes   <= ~pop ? 7'd0 : last & tail != 0 ? {1'b0, tail} : 7'd64;
        count_blocked <= m_axis_tvalid & ~m_axis_tready & ~rst;
    end

`ifdef VERILATOR
    icrc_is_there: assert property (@(posedge clk) disable iff (rst) pop & cfg_sealed & (last | split) |-> head_valid);
    // A MAC such as the CMAC wants a frame's words one behind the other, and it gets them.
    no_frame_is_interrupted: assert property (@(posedge clk) disable iff (rst)
        m_axis_tvalid & m_axis_tready & ~m_axis_tlast |=> m_axis_tvalid);
    room_for_each_word: assert property (@(posedge clk) disable iff (rst) places <= 6'd32);
`endif
endmodule
