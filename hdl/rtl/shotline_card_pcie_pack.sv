// Packs halves into beats of the requester stream: the last step. Beats wait in a FIFO; `room` stops the halves while it
// still has places for those on their way.
//
// The last half of a TLP that comes alone waits for the next TLP, but only while enough beats are in the FIFO: else the
// stream, which may not pause within a TLP, would run out of them.
//
// Events of a TLP follow the beat in which it ends, when that has been accepted. A silent half, which comes alone, is not
// sent: it adds its event to the beat before, or has an entry in the FIFO without a beat.

`default_nettype none

module shotline_card_pcie_pack (
    // Clock and synchronous reset.
    input  wire               clk,
    input  wire               rst,

    // Halves of shotline_card_pcie_halves.
    input  wire  [1:0]        s_valid,
    input  wire  [1:0][255:0] s_data,
    input  wire  [1:0][13:0]  s_control,
    input  wire  [1:0][10:0]  s_event,
    output logic              room,

    // Requester stream of the integrated block (PG213: 512 bits, straddle, dword-aligned).
    output wire  [511:0]      m_axis_rq_tdata,
    output wire  [15:0]       m_axis_rq_tkeep,
    output wire               m_axis_rq_tlast,
    output wire  [136:0]      m_axis_rq_tuser,
    output wire               m_axis_rq_tvalid,
    input  wire               m_axis_rq_tready,

    // Events of both halves of an accepted beat.
    output wire               event_valid,
    output wire  [1:0][10:0]  events
);
    localparam int DEPTH_LOG2 = 5;
    // Clocks of halves on their way are at most five; the others keep the stream busy until halves come again.
    localparam logic [DEPTH_LOG2:0] LIMIT = 6'd16;
    // A beat takes two clocks through the FIFO, and two halves may wait before the level shows it.
    localparam logic [DEPTH_LOG2:0] DEEP = 6'd6;

    // ---------------------------------------------------------------- pairs
    logic held, deep;
    logic [255:0] held_data;
    logic [13:0] held_control;
    logic [10:0] held_event;
    wire held_last = held_control[11];
    wire silent = s_control[0][13];
    wire pair  = held ? s_valid[0] : s_valid[1];
    wire alone = held ? !s_valid[0] && held_last : s_valid == 2'b01 && (silent || !deep);

    logic beat;
    logic [1:0] real_1;  // a half that is sent
    logic [1:0][255:0] data_1;
    logic [1:0][13:0] control_1;
    logic [1:0][10:0] event_1;
    always_ff @(posedge clk) begin
        data_1    <= held ? {s_data[0], held_data} : s_data;
        control_1 <= held ? {s_control[0], held_control} : s_control;
        event_1   <= {pair ? (held ? s_event[0] : s_event[1]) : 11'd0, held ? held_event : s_event[0]};
        real_1    <= {pair && !(held && silent), held || !silent};
        if (held ? s_valid[1] : s_valid[0]) begin
            held_data    <= held ? s_data[1] : s_data[0];
            held_control <= held ? s_control[1] : s_control[0];
            held_event   <= held ? s_event[1] : s_event[0];
        end
        if (rst) begin
            beat <= 1'b0;
            held <= 1'b0;
        end else begin
            beat <= pair || alone;
            held <= held ? s_valid != 2'b01 && !alone : s_valid == 2'b01 && !alone;
        end
    end

    // ---------------------------------------------------------------- user signals
    logic push;
    logic [511:0] data_2;
    logic [35:0] user_2;
    logic [1:0] real_2;
    logic [1:0][10:0] event_2;
    logic ends_2;
    wire [1:0] first = {real_1[1] && control_1[1][12], control_1[0][12]};
    wire [1:0] last  = {real_1[1] && control_1[1][11], control_1[0][11]};
    wire [1:0][3:0] end_at   = {1'b1, control_1[1][10:8], 1'b0, control_1[0][10:8]};
    wire [1:0][3:0] first_be = {control_1[1][7:4], control_1[0][7:4]};
    wire [1:0][3:0] last_be  = {control_1[1][3:0], control_1[0][3:0]};
    always_ff @(posedge clk) begin
        data_2  <= {real_1[1] ? data_1[1] : 256'd0, data_1[0]};
        real_2  <= real_1;
        event_2 <= event_1;
        ends_2  <= real_1[1] ? control_1[1][11] : control_1[0][11];
        user_2[3:0]   <= first == 2'b10 ? first_be[1] : first[0] ? first_be[0] : 4'd0;
        user_2[7:4]   <= first == 2'b11 ? first_be[1] : 4'd0;
        user_2[11:8]  <= first == 2'b10 ? last_be[1] : first[0] ? last_be[0] : 4'd0;
        user_2[15:12] <= first == 2'b11 ? last_be[1] : 4'd0;
        user_2[19:16] <= 4'd0;
        user_2[21:20] <= {first == 2'b11, first != 2'b00};
        user_2[23:22] <= first == 2'b10 ? 2'b10 : 2'b00;
        user_2[25:24] <= first == 2'b11 ? 2'b10 : 2'b00;
        user_2[27:26] <= {last == 2'b11, last != 2'b00};
        user_2[31:28] <= last == 2'b10 ? end_at[1] : last[0] ? end_at[0] : 4'd0;
        user_2[35:32] <= last == 2'b11 ? end_at[1] : 4'd0;
        push <= beat && !rst;
    end

    // ---------------------------------------------------------------- beats
    wire out_valid, ends;
    wire [1:0] real_out;
    wire [35:0] user;
    wire pop = out_valid && (m_axis_rq_tready || !real_out[0]);
    shotline_fifo_small #(.WIDTH(512 + 36 + 22 + 3), .DEPTH_LOG2(DEPTH_LOG2)) beats (
        .clk, .rst, .push, .push_data({data_2, user_2, event_2, real_2, ends_2}), .pop, .out_valid,
        .out_data({m_axis_rq_tdata, user, events, real_out, ends})
    );
    assign m_axis_rq_tvalid = out_valid && real_out[0];
    assign m_axis_rq_tkeep  = {{8{real_out[1]}}, 8'hFF};
    assign m_axis_rq_tlast  = ends;
    assign m_axis_rq_tuser  = {101'd0, user};
    assign event_valid = pop && (events[0][10:8] != 3'd0 || events[1][10:8] != 3'd0);

    logic [DEPTH_LOG2:0] level;
    always_ff @(posedge clk)
        if (rst) begin
            level <= '0;
            room  <= 1'b0;
            deep  <= 1'b0;
        end else begin
            level <= level + {{DEPTH_LOG2{1'b0}}, push} - {{DEPTH_LOG2{1'b0}}, pop};
            room  <= level <= LIMIT;
            deep  <= level >= DEEP;
        end

`ifdef VERILATOR
    ends_alone: assert property (@(posedge clk) disable iff (rst)
        !held && s_valid == 2'b01 |-> s_control[0][11]);
`endif
    wire unused = &{held_control[13], s_control[1][13], control_1[0][13], control_1[1][13], 1'b0};

`ifdef FORMAL
    `include "shotline_card_pcie_pack_properties.svh"
`endif
endmodule

`default_nettype wire
