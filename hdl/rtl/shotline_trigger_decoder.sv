// Trigger decoder: finds trigger commands (docs/wire-formats.md, section 7) among the frames received by a 100G MAC.
//
// Input: AXI4-Stream without back-pressure, 64 bytes a word, frames without FCS and VLAN tag; `s_axis_tuser` with the
// last word flags a bad frame. Any frame may arrive; all that are not exactly a trigger are dropped.
//
// A trigger is a frame of 106 bytes over IPv4 or 126 over IPv6: two words. Checked are: Ethernet and IP destination
// (own or group address; see `cfg_any_address`), header length, total length, fragmentation, protocol, IPv4 header
// checksum, UDP port and length, UDP checksum (0 means none over IPv4 and is invalid over IPv6), magic, version, the
// response flag (a response is no command), and the length of the frame. Reserved fields are ignored, as the wire
// format requires.
//
// `trigger_valid` is set for one clock, STAGES + 1 clocks after the frame's last word. The configuration must be stable
// while `cfg_enable` is set.

`default_nettype none

module shotline_trigger_decoder (
    // Clock and synchronous reset.
    input  wire         clk,
    input  wire         rst,

    // AXI4-Stream sink without ready: received frames.
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tvalid,
    input  wire         s_axis_tlast,
    input  wire         s_axis_tuser,

    // Configuration.
    input  wire         cfg_enable,
    input  wire         cfg_any_address,  // do not check destination addresses
    input  wire [15:0]  cfg_port,
    input  wire [47:0]  cfg_mac,          // first byte in bits 47:40
    input  wire [127:0] cfg_ip,           // first byte in bits 127:120; IPv4 a.b.c.d as ::ffff:a.b.c.d

    // Decoded commands.
    output wire         trigger_valid,
    output wire [31:0]  trigger_sequence,
    output wire         trigger_acknowledge,
    output wire         trigger_command_only
);
    // Clocks from the checks of the second word to the decision: four for the adder tree, one to add both words, three
    // to fold.
    localparam int STAGES = 8;

    // 0: registered input, big-endian: byte i of the word is at bits 511 - 8i and below.
    logic [511:0] word;
    logic [63:0] keep;
    logic valid, last, damaged;
    logic [1:0] index;  // index of the word in its frame: 0, 1, or 2 for all others
    always_ff @(posedge clk) begin
        for (int i = 0; i < 64; i++) word[511 - 8*i -: 8] <= s_axis_tdata[8*i +: 8];
        keep    <= s_axis_tkeep;
        last    <= s_axis_tlast;
        damaged <= s_axis_tuser;
        valid   <= s_axis_tvalid && !rst;
        if (rst) index <= 2'd0;
        else if (valid) index <= last ? 2'd0 : index == 2'd0 ? 2'd1 : 2'd2;
    end

    wire first  = valid && index == 2'd0;
    wire second = valid && index == 2'd1;
    wire is_4   = word[511 - 8*12 -: 16] == 16'h0800;
    wire is_6   = word[511 - 8*12 -: 16] == 16'h86DD;

    // 1, first word: one bit per check.
    wire [47:0] mac = word[511 -: 48];
    wire [31:0] ip_4 = word[511 - 8*30 -: 32];
    wire [127:0] ip_6 = word[511 - 8*38 -: 128];
    logic v6, v4;
    logic [4:0] checks_both;
    logic [6:0] checks_4;
    logic [5:0] checks_6;
    logic no_checksum;
    logic [31:0] sequence_4;
    logic acknowledge_4, command_only_4;
    always_ff @(posedge clk) begin
        if (first) begin
            v4 <= is_4;
            v6 <= is_6;
            checks_both <= {
                cfg_enable,
                !last,
                cfg_any_address || mac == cfg_mac || mac[40],
                is_4 || is_6,
                &keep
            };
            checks_4 <= {
                word[511 - 8*14 -: 8] == 8'h45,
                word[511 - 8*16 -: 16] == 16'd92 && word[511 - 8*38 -: 16] == 16'd72,
                (word[511 - 8*20 -: 16] & 16'hBFFF) == 16'd0,
                word[511 - 8*23 -: 8] == 8'd17,
                cfg_any_address || ip_4 == '1 || ip_4[31:28] == 4'hE || {96'hFFFF, ip_4} == cfg_ip,
                word[511 - 8*36 -: 16] == cfg_port,
                word[511 - 8*42 -: 40] == {"SHTR", 8'd1} && !word[511 - 8*47]
            };
            checks_6 <= {
                word[511 - 8*14 -: 4] == 4'd6,
                word[511 - 8*18 -: 16] == 16'd72 && word[511 - 8*58 -: 16] == 16'd72,
                word[511 - 8*20 -: 8] == 8'd17,
                cfg_any_address || ip_6[127:120] == 8'hFF || ip_6 == cfg_ip,
                word[511 - 8*56 -: 16] == cfg_port,
                word[511 - 8*62 -: 16] == "SH"
            };
            no_checksum    <= (is_4 ? word[511 - 8*40 -: 16] : word[511 - 8*60 -: 16]) == 16'd0;
            sequence_4     <= word[511 - 8*50 -: 32];
            acknowledge_4  <= word[511 - 8*47 - 7];
            command_only_4 <= word[511 - 8*47 - 6];
        end
    end

    // 1, second word: its checks and the fields of the command.
    logic candidate;
    logic [31:0] sequence_number;
    logic acknowledge, command_only, no_udp_checksum;
    always_ff @(posedge clk) begin
        candidate <= second && last && !damaged && (&checks_both) && (v4
            ? (&checks_4) && keep == {22'd0, {42{1'b1}}}
            : (&checks_6) && keep == {2'd0, {62{1'b1}}} && word[511 -: 24] == {"TR", 8'd1} && !word[511 - 8*3]
                && !no_checksum);
        no_udp_checksum <= v4 && no_checksum;
        sequence_number <= v4 ? sequence_4 : word[511 - 8*6 -: 32];
        acknowledge     <= v4 ? acknowledge_4 : word[511 - 8*3 - 7];
        command_only    <= v4 ? command_only_4 : word[511 - 8*3 - 6];
    end

    // Ones' complement sums of 16-bit words; both words of a frame go through the same adder tree in turn. UDP:
    // addresses, datagram, and (below) length and protocol. IPv4: the header.
    logic [511:0] addends;
    logic [159:0] header_addends;
    logic [STAGES-2:0] is_first, is_second;
    always_ff @(posedge clk) begin
        for (int i = 0; i < 32; i++) begin
            if (index == 2'd0) addends[16*i +: 16] <= (i >= (is_6 ? 11 : 13)) ? word[511 - 16*i -: 16] : 16'd0;
            else addends[16*i +: 16] <= (i < (v6 ? 31 : 21)) ? word[511 - 16*i -: 16] : 16'd0;
        end
        header_addends <= word[511 - 8*14 -: 160];
        is_first       <= rst ? '0 : {is_first[STAGES-3:0], first};
        is_second      <= rst ? '0 : {is_second[STAGES-3:0], second};
    end

    logic [8*18-1:0] quads;            // 2
    logic [2*20-1:0] halves;           // 3
    logic [20:0] sum;                  // 4
    logic [20:0] sum_first;            // 5
    logic [21:0] joined;               // 5
    logic [16:0] folded;               // 6
    logic [15:0] folded_twice;         // 7
    logic [3*18-1:0] header_quads;     // 2
    logic [19:0] header_sum;           // 3
    logic [16:0] header_folded;        // 4
    logic [15:0] header_folded_twice;  // 5
    logic [1:0] header_ok;             // 6, 7
    logic header_good;                 // 8, held for the second word
    always_ff @(posedge clk) begin
        for (int i = 0; i < 8; i++) begin
            quads[18*i +: 18] <= {2'd0, addends[64*i +: 16]} + {2'd0, addends[64*i + 16 +: 16]}
                + {2'd0, addends[64*i + 32 +: 16]} + {2'd0, addends[64*i + 48 +: 16]};
        end
        for (int i = 0; i < 2; i++) begin
            halves[20*i +: 20] <= {2'd0, quads[72*i +: 18]} + {2'd0, quads[72*i + 18 +: 18]}
                + {2'd0, quads[72*i + 36 +: 18]} + {2'd0, quads[72*i + 54 +: 18]};
        end
        sum <= {1'd0, halves[19:0]} + {1'd0, halves[39:20]};
        // Length (72) and protocol (17) of the pseudo-header are added to the first word.
        if (is_first[3]) sum_first <= sum + 21'd89;
        joined       <= {1'd0, sum_first} + {1'd0, sum};
        folded       <= {1'd0, joined[15:0]} + {11'd0, joined[21:16]};
        folded_twice <= folded[15:0] + {15'd0, folded[16]};

        for (int i = 0; i < 2; i++) begin
            header_quads[18*i +: 18] <= {2'd0, header_addends[64*i +: 16]} + {2'd0, header_addends[64*i + 16 +: 16]}
                + {2'd0, header_addends[64*i + 32 +: 16]} + {2'd0, header_addends[64*i + 48 +: 16]};
        end
        header_quads[36 +: 18] <= {2'd0, header_addends[128 +: 16]} + {2'd0, header_addends[144 +: 16]};
        header_sum          <= {2'd0, header_quads[0 +: 18]} + {2'd0, header_quads[18 +: 18]}
            + {2'd0, header_quads[36 +: 18]};
        header_folded       <= {1'd0, header_sum[15:0]} + {13'd0, header_sum[19:16]};
        header_folded_twice <= header_folded[15:0] + {15'd0, header_folded[16]};
        header_ok           <= {header_ok[0], &header_folded_twice};
        if (is_first[6]) header_good <= header_ok[1];
    end

    // Fields delayed until the sums are known.
    localparam int FIELDS = 1 + 1 + 1 + 32 + 1 + 1;
    logic [(STAGES-2)*FIELDS-1:0] delayed;
    wire delayed_candidate, delayed_no_checksum, delayed_4, delayed_acknowledge, delayed_only;
    wire [31:0] delayed_sequence;
    logic was_v4;
    always_ff @(posedge clk) begin
        was_v4  <= v4;
        delayed <= {
            delayed[(STAGES-3)*FIELDS-1:0], candidate, no_udp_checksum, was_v4, sequence_number, acknowledge,
            command_only
        };
    end
    assign {delayed_candidate, delayed_no_checksum, delayed_4, delayed_sequence, delayed_acknowledge, delayed_only}
        = delayed[(STAGES-2)*FIELDS-1 -: FIELDS];

    logic trigger;
    logic [31:0] out_sequence;
    logic out_acknowledge, out_command_only;
    always_ff @(posedge clk) begin
        trigger <= !rst && is_second[6] && delayed_candidate && (delayed_no_checksum || (&folded_twice))
            && (!delayed_4 || header_good);
        out_sequence     <= delayed_sequence;
        out_acknowledge  <= delayed_acknowledge;
        out_command_only <= delayed_only;
    end
    assign trigger_valid        = trigger;
    assign trigger_sequence     = out_sequence;
    assign trigger_acknowledge  = out_acknowledge;
    assign trigger_command_only = out_command_only;
endmodule

`default_nettype wire
