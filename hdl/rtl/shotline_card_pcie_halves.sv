// Reads the blocks of each half from their lanes, rotates them to their places and adds the descriptor: the second step
// of the requester stream. Never waits: shotline_card_pcie_plan makes halves only when there is room for them.

`default_nettype none

module shotline_card_pcie_halves (
    // Clock and synchronous reset.
    input  wire               clk,
    input  wire               rst,

    // Halves of shotline_card_pcie_plan, and its writes to the memory of details.
    input  wire  [1:0]        half_valid,
    input  wire  [1:0]        half_first,
    input  wire  [1:0]        half_last,
    input  wire  [1:0]        half_silent,
    input  wire  [1:0][2:0]   half_lane,
    input  wire  [1:0][2:0]   half_count,
    input  wire  [1:0][2:0]   half_eop,
    input  wire  [1:0][5:0]   half_place,
    input  wire               write,
    input  wire  [4:0]        write_entry,
    input  wire  [1:0][83:0]  write_detail,
    input  wire  [64:0]       write_report,

    // FIFOs of the lanes.
    input  wire  [7:0]        lane_valid,
    input  wire  [7:0][63:0]  lane_data,
    output logic [7:0]        lane_ready,

    // Halves: control is silent, first, last, last dword, byte enables of the first and the last dword. Events, in the
    // last half of a TLP: interrupt, final report, refused, channel.
    output logic [1:0]        m_valid,
    output logic [1:0][255:0] m_data,
    output logic [1:0][13:0]  m_control,
    output logic [1:0][10:0]  m_event
);
    localparam logic [3:0] READ = 4'd0, WRITE = 4'd1;

    // ---------------------------------------------------------------- clock 1: blocks and details
    always_comb
        for (int lane = 0; lane < 8; lane++)
            lane_ready[lane] = (half_valid[0] && 3'(lane) - half_lane[0] < half_count[0]) ||
                               (half_valid[1] && 3'(lane) - half_lane[1] < half_count[1]);

    wire [1:0][4:0] entries = {half_place[1][5:1], half_place[0][5:1]};
    wire [1:0][148:0] details_0;
    wire [1:0][83:0] details_1;
    shotline_lut_ram #(.WIDTH(149), .DEPTH_LOG2(5), .READS(2)) memory_0 (
        .clk, .write, .write_addr(write_entry), .write_data({write_report, write_detail[0]}), .read_addr(entries),
        .read_data(details_0)
    );
    shotline_lut_ram #(.WIDTH(84), .DEPTH_LOG2(5), .READS(2)) memory_1 (
        .clk, .write, .write_addr(write_entry), .write_data(write_detail[1]), .read_addr(entries),
        .read_data(details_1)
    );

    logic [7:0][63:0] blocks;
    logic [1:0] valid_1, valid_2;
    always_ff @(posedge clk) begin
        blocks  <= lane_data;
        valid_1 <= half_valid & ~{2{rst}};
        valid_2 <= valid_1 & ~{2{rst}};
        // A silent record is seen only at its end, for its event.
        for (int i = 0; i < 2; i++) m_valid[i] <= !rst && valid_2[i] && !(silent_2[i] && !last_2[i]);
    end

    // ---------------------------------------------------------------- clocks 2 and 3
    logic [1:0] silent_2, last_2;
    for (genvar i = 0; i < 2; i++) begin : g_half
        logic first_1, last_1, silent_1, first, report;
        logic [2:0] rotate, eop_1, eop;
        logic [3:0] present;  // places that have a block; the others become 0
        logic [83:0] detail;
        logic [64:0] report_1;
        logic [63:0] report_data;
        logic [127:0] head;
        logic [255:0] data;
        logic [3:0] first_be, last_be;
        logic [10:0] events;
        wire read;
        wire [10:0] length;
        wire [60:0] address;
        wire [7:0] channel;
        wire [2:0] flags;
        assign {read, flags, channel, length, address} = detail;
        wire [8:0] dwords = length[10:2] + {8'd0, length[1:0] != 2'd0};
        wire [3:0] part = length[1:0] == 2'd0 ? 4'hF : length[1:0] == 2'd1 ? 4'h1 : length[1:0] == 2'd2 ? 4'h3 : 4'h7;
        always_ff @(posedge clk) begin
            {first_1, last_1, silent_1, eop_1} <= {half_first[i], half_last[i], half_silent[i], half_eop[i]};
            rotate   <= half_lane[i] - (half_first[i] ? 3'd2 : 3'd0);
            for (int block = 0; block < 4; block++)
                present[block] <= 3'(block) - (half_first[i] ? 3'd2 : 3'd0) < half_count[i];
            detail   <= half_place[i][0] ? details_1[i] : details_0[i][83:0];
            report_1 <= half_place[i][0] ? '0 : details_0[i][148:84];
        end
        always_ff @(posedge clk) begin
            for (int block = 0; block < 4; block++) data[64*block +: 64] <= present[block] ? blocks[rotate + 3'(block)] : '0;
            head <= {24'd0, read ? channel : 8'd0, 17'd0, read ? READ : WRITE, 2'd0, dwords, address, 3'd0};
            {first, last_2[i], silent_2[i], eop} <= {first_1, last_1, silent_1, eop_1};
            {report, report_data} <= report_1;
            first_be <= dwords == 9'd1 ? part : 4'hF;
            last_be  <= dwords == 9'd1 ? 4'h0 : part;
            events   <= last_1 ? {flags, channel} : '0;
        end
        always_ff @(posedge clk) begin
            m_data[i]    <= {data[255:192], report ? report_data : data[191:128], first ? head : data[127:0]};
            m_control[i] <= {silent_2[i], first, last_2[i], eop, first_be, last_be};
            m_event[i]   <= events;
        end
    end

`ifdef VERILATOR
    blocks_are_there: assert property (@(posedge clk) disable iff (rst) (lane_ready & ~lane_valid) == '0);
`endif
    wire unused = &{lane_valid, 1'b0};
endmodule

`default_nettype wire
