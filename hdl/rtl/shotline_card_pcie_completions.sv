// Completions of descriptor reads: from the requester completion stream (PG213: 512 bits, without straddle) to beats of
// two descriptors.
//
// A completion begins with a descriptor of 12 bytes. Its payload is a multiple of 64 bytes, because reads are aligned to
// 256 bytes and completions end at multiples of 64 bytes or more (the read completion boundary); so each beat after the
// first completes 64 bytes, which take two clocks. Anything else, a poisoned completion or one with an error ends the read.

`default_nettype none

module shotline_card_pcie_completions #(
    parameter int TAGS_LOG2 = 6  // log2 of the reads in flight, 2 to 8
) (
    // Clock and synchronous reset.
    input  wire                 clk,
    input  wire                 rst,

    // Requester completion stream.
    input  wire [511:0]         s_axis_rc_tdata,
    input  wire                 s_axis_rc_tlast,
    input  wire [160:0]         s_axis_rc_tuser,
    input  wire                 s_axis_rc_tvalid,
    output wire                 s_axis_rc_tready,

    // Beats of two descriptors, or the error of a read.
    output logic                m_valid,
    input  wire                 m_ready,
    output logic                m_error,
    output logic [TAGS_LOG2-1:0] m_tag,
    output logic [255:0]        m_data
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(tags, TAGS_LOG2 >= 2 && TAGS_LOG2 <= 8,
                      "shotline_card_pcie_completions: TAGS_LOG2 must be 2 to 8")

    localparam int DISCONTINUE = 96;

    // `skip`: the rest of the completion is not used. `upper`: the upper half of 64 bytes waits in `half`.
    logic inner, skip, upper;
    logic [415:0] carry;
    logic [255:0] half;
    logic [TAGS_LOG2-1:0] tag;
    wire [7:0] its_tag = s_axis_rc_tdata[71:64];
    wire known = (its_tag >> TAGS_LOG2) == '0;
    wire bad = s_axis_rc_tdata[15:12] != '0 || s_axis_rc_tdata[45:43] != '0 || s_axis_rc_tdata[46] ||
               s_axis_rc_tdata[42:32] == '0 || s_axis_rc_tdata[35:32] != '0;
    wire lost = s_axis_rc_tuser[DISCONTINUE];
    wire free = !m_valid || m_ready;
    assign s_axis_rc_tready = free && !upper;
    wire take  = s_axis_rc_tvalid && s_axis_rc_tready;
    wire fails = take && (inner ? !skip && lost : known && (bad || lost));
    wire whole = take && inner && !skip && !lost;

    always_ff @(posedge clk) begin
        if (take) carry <= s_axis_rc_tdata[511:96];
        if (take && !inner) tag <= TAGS_LOG2'(its_tag);
        if (whole) half <= {s_axis_rc_tdata[95:0], carry[415:256]};
        if (free) begin
            m_data  <= upper ? half : carry[255:0];
            m_tag   <= inner ? tag : TAGS_LOG2'(its_tag);
            m_error <= fails;
        end
        if (free && upper) m_tag <= tag;
        if (rst) begin
            inner  <= 1'b0;
            skip    <= 1'b0;
            upper   <= 1'b0;
            m_valid <= 1'b0;
        end else begin
            if (take) begin
                inner <= !s_axis_rc_tlast;
                skip   <= inner ? skip || lost : !known || bad || lost;
            end
            if (free) begin
                upper   <= whole;
                m_valid <= whole || fails || upper;
            end
        end
    end

    wire unused = &{s_axis_rc_tuser, 1'b0};

`ifdef FORMAL
    `include "shotline_card_pcie_completions_properties.svh"
`endif
endmodule

`default_nettype wire
