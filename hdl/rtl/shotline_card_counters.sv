// Counts packets and bytes of each channel by cause, 48 bits each, one packet a clock.

`default_nettype none

module shotline_card_counters #(
    parameter int CHANNELS_LOG2 = 7  // 3 to 8
) (
    // Clock and synchronous reset, which clears all counters; `ready` when that is done.
    input  wire                      clk,
    input  wire                      rst,
    output logic                     ready,

    // A packet.
    input  wire                      add,
    input  wire  [CHANNELS_LOG2-1:0] add_channel,
    input  wire  [1:0]               add_cause,
    input  wire  [13:0]              add_bytes,

    // A pair of counters, one clock after its address.
    input  wire  [CHANNELS_LOG2-1:0] read_channel,
    input  wire  [1:0]               read_cause,
    output logic [47:0]              read_packets,
    output logic [47:0]              read_bytes
);
    `include "shotline_require.svh"
    `SHOTLINE_REQUIRE(channels, CHANNELS_LOG2 >= 3 && CHANNELS_LOG2 <= 8,
                      "shotline_card_counters: CHANNELS_LOG2 must be 3 to 8")

    localparam int ADDRESS = CHANNELS_LOG2 + 2;

    (* ram_style = "block" *)
    logic [95:0] memory [0:(1<<ADDRESS)-1];

    // Clock 0: the packet is registered. 1: its counters are read. 2: the sums are written; the next packet's read has
    // missed them, so they are forwarded if it is of the same counters.
    logic              valid_1, valid_2, forward;
    logic [ADDRESS-1:0] addr_1, addr_2;
    logic [13:0]       bytes_1, bytes_2;
    logic [95:0]       found, last;
    wire  [95:0] base = forward ? last : found;
    wire  [95:0] sums = {base[95:48] + 48'd1, base[47:0] + {34'd0, bytes_2}};

    logic [ADDRESS-1:0] sweep;
    wire               write      = !ready || valid_2;
    wire [ADDRESS-1:0] write_addr = ready ? addr_2 : sweep;
    wire [95:0]        write_data = ready ? sums : '0;

    always_ff @(posedge clk) begin
        addr_1  <= {add_channel, add_cause};
        bytes_1 <= add_bytes;
        addr_2  <= addr_1;
        bytes_2 <= bytes_1;
        forward <= valid_2 && addr_2 == addr_1;
        last    <= sums;
        found   <= memory[addr_1];
        {read_packets, read_bytes} <= memory[{read_channel, read_cause}];
        if (write) memory[write_addr] <= write_data;
    end

    always_ff @(posedge clk)
        if (rst) begin
            valid_1 <= 1'b0;
            valid_2 <= 1'b0;
            sweep   <= '0;
            ready   <= 1'b0;
        end else begin
            valid_1 <= add;
            valid_2 <= valid_1;
            sweep   <= sweep + 1'b1;
            if (sweep == '1) ready <= 1'b1;
        end
endmodule

`default_nettype wire
