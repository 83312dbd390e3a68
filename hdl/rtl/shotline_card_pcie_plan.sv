// Divides the card's writes and reads into halves of beats of the requester stream, up to two a clock.
//
// Entries of up to two records wait in a queue of five, so that two TLPs of one half each can begin in every clock. A
// read shares an entry with a lone record, or takes its turn with entries of two: neither can hold the other up. What the
// header needs stays in a memory, and a record has its place in it.

`default_nettype none

module shotline_card_pcie_plan #(
    parameter int TAGS_LOG2 = 6  // log2 of the reads in flight, 2 to 8
) (
    // Clock and synchronous reset.
    input  wire              clk,
    input  wire              rst,

    // Entries of shotline_card_pcie_slots.
    input  wire              s_valid,
    output wire              s_ready,
    input  wire              s_two,
    input  wire  [1:0][18:0] s_plan,
    input  wire  [1:0][82:0] s_detail,
    input  wire              s_report,
    input  wire  [63:0]      s_report_data,

    // Reads of 256 bytes at a multiple of 256.
    input  wire              s_read_valid,
    output wire              s_read_ready,
    input  wire  [63:8]      s_read_address,
    input  wire  [TAGS_LOG2-1:0] s_read_tag,

    // Limits: whether halves are taken, and whether a TLP may begin.
    input  wire              room,
    input  wire              room_begin,

    // Halves: half 0 is before half 1, which is not valid alone. Blocks `lane` to `lane + count - 1` are read.
    output logic [1:0]       half_valid,
    output logic [1:0]       half_first,
    output logic [1:0]       half_last,
    output logic [1:0]       half_silent,
    output logic [1:0][2:0]  half_lane,
    output logic [1:0][2:0]  half_count,
    output logic [1:0][2:0]  half_eop,
    output logic [1:0][5:0]  half_place,

    // Memory of details, written before a record's first half: entry in bits 5:1 of the place, record in bit 0.
    output logic             write,
    output logic [4:0]       write_entry,
    output logic [1:0][83:0] write_detail,   // bit 83: a read, whose tag is in the place of the channel
    output logic [64:0]      write_report
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8, "shotline_card_pcie_plan: TAGS_LOG2 must be 2 to 8")

    localparam int RECORD = 19 + 6;
    localparam logic [18:0] READ = {2'b00, 6'd1, 3'd0, 2'd0, 3'd1, 3'd3};

    // ---------------------------------------------------------------- entries and reads in turn
    logic in_valid, in_two, turn;
    logic [1:0][18:0] in_plan;
    logic [4:0] in_entry;
    wire in_ready;
    wire free = !in_valid || in_ready;
    wire both = s_valid && s_read_valid;
    assign s_ready      = free && !(both && s_two && turn);
    assign s_read_ready = free && !(both && s_two && !turn);
    wire slot = s_valid && s_ready;
    wire read = s_read_valid && s_read_ready;
    wire [83:0] read_detail = {1'b1, 3'd0, 8'(s_read_tag), 11'd256, s_read_address, 5'd0};

    always_ff @(posedge clk) begin
        if (free) begin
            in_two     <= slot && (s_two || read);
            in_plan[0] <= slot ? s_plan[0] : READ;
            in_plan[1] <= read ? READ : s_plan[1];
            in_entry   <= write_entry + 5'd1;
        end
        write_detail[0] <= slot ? {1'b0, s_detail[0]} : read_detail;
        write_detail[1] <= read ? read_detail : {1'b0, s_detail[1]};
        write_report    <= {slot && s_report, s_report_data};
        if (rst) begin
            in_valid    <= 1'b0;
            turn        <= 1'b0;
            write       <= 1'b0;
            write_entry <= '0;
        end else begin
            write <= slot || read;
            if (slot || read) write_entry <= write_entry + 5'd1;
            if (both && s_two && free) turn <= !turn;
            if (free) in_valid <= slot || read;
        end
    end

    // ---------------------------------------------------------------- queue
    logic [4:0][RECORD-1:0] queue;
    logic [2:0] waiting;
    logic [1:0] taken;
    assign in_ready = waiting <= 3'd3;
    wire [2:0] kept = waiting - {1'b0, taken};
    wire [2:0] added = in_valid && in_ready ? 3'd1 + {2'd0, in_two} : 3'd0;
    wire [6:0][RECORD-1:0] longer = {{2{queue[4]}}, queue};
    always_ff @(posedge clk) begin
        for (int i = 0; i < 5; i++)
            queue[i] <= 3'(i) > kept ? {in_plan[1], in_entry, 1'b1} : 3'(i) == kept ? {in_plan[0], in_entry, 1'b0} :
                        taken[1] ? longer[i+2] : taken[0] ? longer[i+1] : longer[i];
        if (rst) waiting <= '0;
        else waiting <= kept + added;
    end

    // ---------------------------------------------------------------- the TLP in progress, and the next two
    logic silent, silent_0, silent_1, clash_0, clash_1;
    logic [5:0] left, halves_0, halves_1, place, place_0, place_1;
    logic [2:0] lane, lane_0, lane_1, tail, tail_0, tail_1, eop, eop_0, eop_1;
    logic [1:0] head_0, head_1;
    assign {silent_0, clash_0, halves_0, lane_0, head_0, tail_0, eop_0, place_0} = queue[0];
    assign {silent_1, clash_1, halves_1, lane_1, head_1, tail_1, eop_1, place_1} = queue[1];
    wire single_0 = halves_0 == 6'd1;
    wire single_1 = halves_1 == 6'd1;

    // Half 0 goes on with the TLP or begins the next; half 1 also. Silent records have a clock for each half.
    wire on_0    = room && left != '0;
    wire begin_0 = room && room_begin && left == '0 && waiting != '0;
    wire on_1    = on_0 && !silent && left != 6'd1;
    wire next_1  = begin_0 && !silent_0 && !single_0;
    wire begin_1 = on_0 && !silent && left == 6'd1 && room_begin && waiting != '0 && !clash_0 && !silent_0;
    wire pair_1  = begin_0 && !silent_0 && single_0 && waiting >= 3'd2 && !clash_1 && !silent_1;
    assign taken = {1'b0, begin_0 || begin_1} + {1'b0, pair_1};

    always_ff @(posedge clk) begin
        half_first    <= {begin_1 || pair_1, begin_0};
        half_last[0]  <= on_0 ? left == 6'd1 : single_0;
        half_silent   <= {1'b0, on_0 ? silent : silent_0};
        half_lane[0]  <= on_0 ? lane : lane_0;
        half_count[0] <= begin_0 ? {1'b0, head_0} : left == 6'd1 ? tail : 3'd4;
        half_eop[0]   <= on_0 ? eop : eop_0;
        half_place[0] <= on_0 ? place : place_0;
        half_last[1]  <= on_1 ? left == 6'd2 : next_1 ? halves_0 == 6'd2 : begin_1 ? single_0 : single_1;
        half_lane[1]  <= on_1 ? lane + 3'd4 : next_1 ? lane_0 + 3'd2 : begin_1 ? lane_0 : lane_1;
        half_count[1] <= on_1 ? (left == 6'd2 ? tail : 3'd4) : next_1 ? (halves_0 == 6'd2 ? tail_0 : 3'd4) :
                         {1'b0, begin_1 ? head_0 : head_1};
        half_eop[1]   <= on_1 ? eop : next_1 || begin_1 ? eop_0 : eop_1;
        half_place[1] <= on_1 ? place : next_1 || begin_1 ? place_0 : place_1;
        half_valid    <= rst ? 2'b00 : {on_1 || next_1 || begin_1 || pair_1, on_0 || begin_0};
    end
    always_ff @(posedge clk)
        if (rst) left <= '0;
        else if (pair_1) begin
            left <= halves_1 - 6'd1;
            lane <= lane_1 + 3'd2;
            {silent, tail, eop, place} <= {silent_1, tail_1, eop_1, place_1};
        end else if (begin_0 || begin_1) begin
            left <= halves_0 - (next_1 ? 6'd2 : 6'd1);
            lane <= lane_0 + (next_1 ? 3'd6 : 3'd2);
            {silent, tail, eop, place} <= {silent_0, tail_0, eop_0, place_0};
        end else if (on_0) begin
            left <= left - (on_1 ? 6'd2 : 6'd1);
            lane <= on_1 ? lane : lane + 3'd4;
        end

`ifdef FORMAL
    `include "shotline_card_pcie_plan_properties.svh"
`endif
endmodule

`default_nettype wire
