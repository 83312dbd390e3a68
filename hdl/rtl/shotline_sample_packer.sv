// Sample packer: 12-bit samples to 64-byte words, packing 1 of docs/wire-formats.md (most significant bit first).
//
// A beat has SAMPLES samples, an even number up to 42, the first in its lowest 12 bits. Two samples make three bytes:
// a[11:4], a[3:0] b[11:8], b[7:0]. A frame of beats, ended by `s_last`, becomes an AXI4-Stream frame; unused bytes of
// its last word are zero with `tkeep` clear. `s_bad` with the last beat becomes `m_axis_tuser` with the last word.
//
// One beat per clock while words are accepted, except for one clock after a frame whose end spills into one more word.

`default_nettype none

module shotline_sample_packer #(
    parameter int SAMPLES = 32  // samples of a beat, even, 2 to 42
) (
    // Clock and synchronous reset.
    input  wire                  clk,
    input  wire                  rst,

    // Beats.
    input  wire [12*SAMPLES-1:0] s_data,
    input  wire                  s_valid,
    output wire                  s_ready,
    input  wire                  s_last,
    input  wire                  s_bad,

    // AXI4-Stream source: words.
    output wire [511:0]          m_axis_tdata,
    output wire [63:0]           m_axis_tkeep,
    output wire                  m_axis_tvalid,
    input  wire                  m_axis_tready,
    output wire                  m_axis_tlast,
    output wire                  m_axis_tuser
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(samples, SAMPLES >= 2 && SAMPLES <= 42 && SAMPLES % 2 == 0,
        "shotline_sample_packer: SAMPLES must be even, 2 to 42")

    localparam int BYTES = SAMPLES * 3 / 2;
    // All fill levels are multiples of the greatest common divisor of a beat and a word, the power of two in BYTES,
    // which keeps the shifter small.
    localparam int GRAIN = BYTES & (~BYTES + 1);
    localparam logic [6:0] GRAINS = 7'(BYTES / GRAIN);
    localparam logic [6:0] WORD = 7'(64 / GRAIN);

    // Wiring: bytes of a beat, the first in bits 7:0.
    logic [8*BYTES-1:0] packed_beat;
    always_comb begin
        packed_beat = '0;
        for (int i = 0; i < SAMPLES / 2; i++) begin
            packed_beat[24*i +: 8]      = s_data[24*i + 4 +: 8];
            packed_beat[24*i + 8 +: 8]  = {s_data[24*i +: 4], s_data[24*i + 20 +: 4]};
            packed_beat[24*i + 16 +: 8] = s_data[24*i + 12 +: 8];
        end
    end

    // Bytes of an incomplete word, `held` grains of them; the rest is zero.
    logic [511:0] rest;
    logic [6:0] held;
    // The frame has ended, and `rest` is its last word.
    logic flush;
    logic flush_bad;

    logic [511:0] out_data;
    logic [6:0] out_grains;
    logic out_valid;
    logic out_last;
    logic out_bad;

    wire free = !out_valid || m_axis_tready;
    wire take = s_valid && s_ready;
    wire [6:0] total = held + GRAINS;
    wire [1023:0] joined = {512'b0, rest} | ({{1024 - 8*BYTES{1'b0}}, packed_beat} << (held * 8 * GRAIN));

    assign s_ready       = free && !flush;
    assign m_axis_tdata  = out_data;
    assign m_axis_tvalid = out_valid;
    assign m_axis_tlast  = out_last;
    assign m_axis_tuser  = out_bad;

    logic [63:0] keep;
    always_comb begin
        for (int i = 0; i < 64; i++) keep[i] = 7'(i / GRAIN) < out_grains;
    end
    assign m_axis_tkeep = keep;

    always_ff @(posedge clk) begin
        if (take) begin
            out_data   <= joined[511:0];
            out_grains <= total < WORD ? total : WORD;
            out_last   <= s_last && total <= WORD;
            out_bad    <= s_last && total <= WORD && s_bad;
            rest       <= total >= WORD ? joined[1023:512] : s_last ? '0 : joined[511:0];
            flush_bad  <= s_bad;
        end else if (flush && free) begin
            out_data   <= rest;
            out_grains <= held;
            out_last   <= 1'b1;
            out_bad    <= flush_bad;
            rest       <= '0;
        end
        if (rst) rest <= '0;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            held      <= '0;
            flush     <= 1'b0;
            out_valid <= 1'b0;
        end else begin
            if (take) begin
                flush <= s_last && total > WORD;
                if (s_last && total <= WORD) held <= '0;
                else held <= total >= WORD ? total - WORD : total;
                out_valid <= s_last || total >= WORD;
            end else if (flush && free) begin
                flush     <= 1'b0;
                held      <= '0;
                out_valid <= 1'b1;
            end else if (m_axis_tready) begin
                out_valid <= 1'b0;
            end
        end
    end

`ifdef FORMAL
    `include "shotline_sample_packer_properties.svh"
`endif
endmodule

`default_nettype wire
