// Made by hdl/scripts/crc_tables.py: do not edit.
// Bits of a word and of a CRC state are in wire order, the least significant bit of byte 0 first.
// Including files use only some of these functions.
/* verilator lint_off UNUSEDPARAM */

// Initial state that 14 zero bytes (in place of the Ethernet header) turn into the state after eight bytes of ones.
localparam logic [31:0] ICRC_START = 32'hAE0BACAE;

// Folds a word of the bus to 24 bytes with the same remainder.
function automatic logic [191:0] crc_fold(input logic [511:0] word);
    crc_fold = word[511:320]
        ^ {2'b0, word[319:256], 126'b0}
        ^ {9'b0, word[319:256], 119'b0}
        ^ {14'b0, word[319:256], 114'b0}
        ^ {71'b0, word[319:256], 57'b0}
        ^ {89'b0, word[319:256], 39'b0}
        ^ {124'b0, word[319:256], 4'b0}
        ^ {9'b0, word[255:192], 119'b0}
        ^ {16'b0, word[255:192], 112'b0}
        ^ {70'b0, word[255:192], 58'b0}
        ^ {102'b0, word[255:192], 26'b0}
        ^ {105'b0, word[255:192], 23'b0}
        ^ {107'b0, word[255:192], 21'b0}
        ^ {2'b0, word[191:128], 126'b0}
        ^ {12'b0, word[191:128], 116'b0}
        ^ {14'b0, word[191:128], 114'b0}
        ^ {73'b0, word[191:128], 55'b0}
        ^ {93'b0, word[191:128], 35'b0}
        ^ {123'b0, word[191:128], 5'b0}
        ^ {4'b0, word[127:64], 124'b0}
        ^ {5'b0, word[127:64], 123'b0}
        ^ {46'b0, word[127:64], 82'b0}
        ^ {58'b0, word[127:64], 70'b0}
        ^ {80'b0, word[127:64], 48'b0}
        ^ {125'b0, word[127:64], 3'b0}
        ^ {word[63:0], 128'b0}
        ^ {22'b0, word[63:0], 106'b0}
        ^ {37'b0, word[63:0], 91'b0}
        ^ {39'b0, word[63:0], 89'b0}
        ^ {43'b0, word[63:0], 85'b0}
        ^ {59'b0, word[63:0], 69'b0}
        ^ {84'b0, word[63:0], 44'b0};
endfunction

// Remainder of the folded word, as three partial sums.
function automatic logic [31:0] crc_sum_0(input logic [63:0] part);
    crc_sum_0 = {
        ^(part & 64'h8BC1851A6378032B),
        ^(part & 64'h4E21479752C402BE),
        ^(part & 64'hACD126D1CA1A0274),
        ^(part & 64'hD6689368E50D013A),
        ^(part & 64'hE0F5CCAE11FE83B6),
        ^(part & 64'h7BBB634D6B8742F0),
        ^(part & 64'hBDDDB1A6B5C3A178),
        ^(part & 64'h552F5DC93999D397),
        ^(part & 64'hA1562BFEFFB4EAE0),
        ^(part & 64'h50AB15FF7FDA7570),
        ^(part & 64'h23940FE5DC953993),
        ^(part & 64'h1A0B82E88D329FE2),
        ^(part & 64'h86C4446E25E14CDA),
        ^(part & 64'hC362223712F0A66D),
        ^(part & 64'h61B1111B89785336),
        ^(part & 64'h30D8888DC4BC299B),
        ^(part & 64'h93ADC15C812617E6),
        ^(part & 64'hC9D6E0AE40930BF3),
        ^(part & 64'h64EB7057204985F9),
        ^(part & 64'h3275B82B9024C2FC),
        ^(part & 64'h993ADC15C812617E),
        ^(part & 64'h4C9D6E0AE40930BF),
        ^(part & 64'hAD8F321F117C9B74),
        ^(part & 64'hDD061C15EBC64E91),
        ^(part & 64'hEE830E0AF5E32748),
        ^(part & 64'hF74187057AF193A4),
        ^(part & 64'hF0614698DE00CAF9),
        ^(part & 64'h7830A34C6F00657C),
        ^(part & 64'hBC1851A6378032BE),
        ^(part & 64'h5E0C28D31BC0195F),
        ^(part & 64'h2F0614698DE00CAF),
        ^(part & 64'h17830A34C6F00657)
    };
endfunction

function automatic logic [31:0] crc_sum_1(input logic [63:0] part);
    crc_sum_1 = {
        ^(part & 64'h78C17D03F5A36F17),
        ^(part & 64'hC4A1C3820F72D89C),
        ^(part & 64'h9A919CC2F21A0359),
        ^(part & 64'h4D48CE61790D01AC),
        ^(part & 64'h5E651A334925EFC1),
        ^(part & 64'hD7F3F01A513198F7),
        ^(part & 64'hEBF9F80D2898CC7B),
        ^(part & 64'h0D3D810561EF092A),
        ^(part & 64'h7E5FBD814554EB82),
        ^(part & 64'hBF2FDEC0A2AA75C1),
        ^(part & 64'h27569263A4F655F7),
        ^(part & 64'hEB6A343227D845EC),
        ^(part & 64'h0D74671AE64F4DE1),
        ^(part & 64'h86BA338D7327A6F0),
        ^(part & 64'h435D19C6B993D378),
        ^(part & 64'hA1AE8CE35CC9E9BC),
        ^(part & 64'h28163B725BC79BC9),
        ^(part & 64'h140B1DB92DE3CDE4),
        ^(part & 64'h0A058EDC96F1E6F2),
        ^(part & 64'h0502C76E4B78F379),
        ^(part & 64'h028163B725BC79BC),
        ^(part & 64'h0140B1DB92DE3CDE),
        ^(part & 64'h786125EE3CCC7178),
        ^(part & 64'h44F1EFF4EBC557AB),
        ^(part & 64'h2278F7FA75E2ABD5),
        ^(part & 64'h913C7BFD3AF155EA),
        ^(part & 64'h305F40FD68DBC5E2),
        ^(part & 64'h182FA07EB46DE2F1),
        ^(part & 64'h8C17D03F5A36F178),
        ^(part & 64'hC60BE81FAD1B78BC),
        ^(part & 64'hE305F40FD68DBC5E),
        ^(part & 64'hF182FA07EB46DE2F)
    };
endfunction

function automatic logic [31:0] crc_sum_2(input logic [63:0] part);
    crc_sum_2 = {
        ^(part & 64'h826880EFA40DA72D),
        ^(part & 64'hC35CC098760B74BB),
        ^(part & 64'hE3C6E0A39F081D70),
        ^(part & 64'h71E37051CF840EB8),
        ^(part & 64'hBA9938C743CFA071),
        ^(part & 64'hDF241C8C05EA7715),
        ^(part & 64'h6F920E4602F53B8A),
        ^(part & 64'hB5A187CCA5773AE8),
        ^(part & 64'hD8B84309F6B63A59),
        ^(part & 64'h6C5C2184FB5B1D2C),
        ^(part & 64'hB446902DD9A029BB),
        ^(part & 64'hD84BC8F948DDB3F0),
        ^(part & 64'hEE4D649300637ED5),
        ^(part & 64'h7726B2498031BF6A),
        ^(part & 64'h3B935924C018DFB5),
        ^(part & 64'h1DC9AC92600C6FDA),
        ^(part & 64'h8C8C56A6940B90C0),
        ^(part & 64'h46462B534A05C860),
        ^(part & 64'h232315A9A502E430),
        ^(part & 64'h11918AD4D2817218),
        ^(part & 64'h08C8C56A6940B90C),
        ^(part & 64'h046462B534A05C86),
        ^(part & 64'h805AB1B53E5D896E),
        ^(part & 64'hC245D8353B23639A),
        ^(part & 64'h6122EC1A9D91B1CD),
        ^(part & 64'h3091760D4EC8D8E6),
        ^(part & 64'h9A203BE90369CB5E),
        ^(part & 64'h4D101DF481B4E5AF),
        ^(part & 64'h26880EFA40DA72D7),
        ^(part & 64'h1344077D206D396B),
        ^(part & 64'h09A203BE90369CB5),
        ^(part & 64'h04D101DF481B4E5A)
    };
endfunction

// Advances a state by 64 zero bytes.
function automatic logic [31:0] crc_step(input logic [31:0] state);
    crc_step =
        {32{state[0]}} & 32'h8F352D95
        ^ {32{state[1]}} & 32'hC51B5D6B
        ^ {32{state[2]}} & 32'h5147BC97
        ^ {32{state[3]}} & 32'hA28F792E
        ^ {32{state[4]}} & 32'h9E6FF41D
        ^ {32{state[5]}} & 32'hE7AEEE7B
        ^ {32{state[6]}} & 32'h142CDAB7
        ^ {32{state[7]}} & 32'h2859B56E
        ^ {32{state[8]}} & 32'h50B36ADC
        ^ {32{state[9]}} & 32'hA166D5B8
        ^ {32{state[10]}} & 32'h99BCAD31
        ^ {32{state[11]}} & 32'hE8085C23
        ^ {32{state[12]}} & 32'h0B61BE07
        ^ {32{state[13]}} & 32'h16C37C0E
        ^ {32{state[14]}} & 32'h2D86F81C
        ^ {32{state[15]}} & 32'h5B0DF038
        ^ {32{state[16]}} & 32'hB61BE070
        ^ {32{state[17]}} & 32'hB746C6A1
        ^ {32{state[18]}} & 32'hB5FC8B03
        ^ {32{state[19]}} & 32'hB0881047
        ^ {32{state[20]}} & 32'hBA6126CF
        ^ {32{state[21]}} & 32'hAFB34BDF
        ^ {32{state[22]}} & 32'h841791FF
        ^ {32{state[23]}} & 32'hD35E25BF
        ^ {32{state[24]}} & 32'h7DCD4D3F
        ^ {32{state[25]}} & 32'hFB9A9A7E
        ^ {32{state[26]}} & 32'h2C4432BD
        ^ {32{state[27]}} & 32'h5888657A
        ^ {32{state[28]}} & 32'hB110CAF4
        ^ {32{state[29]}} & 32'hB95093A9
        ^ {32{state[30]}} & 32'hA9D02113
        ^ {32{state[31]}} & 32'h88D14467;
endfunction

// Undoes the last 1 zero byte.
function automatic logic [31:0] crc_back_1(input logic [31:0] state);
    crc_back_1 =
        {32{state[0]}} & 32'h00000100
        ^ {32{state[1]}} & 32'h00000200
        ^ {32{state[2]}} & 32'h00000400
        ^ {32{state[3]}} & 32'h00000800
        ^ {32{state[4]}} & 32'h00001000
        ^ {32{state[5]}} & 32'h00002000
        ^ {32{state[6]}} & 32'h00004000
        ^ {32{state[7]}} & 32'h00008000
        ^ {32{state[8]}} & 32'h00010000
        ^ {32{state[9]}} & 32'h00020000
        ^ {32{state[10]}} & 32'h00040000
        ^ {32{state[11]}} & 32'h00080000
        ^ {32{state[12]}} & 32'h00100000
        ^ {32{state[13]}} & 32'h00200000
        ^ {32{state[14]}} & 32'h00400000
        ^ {32{state[15]}} & 32'h00800000
        ^ {32{state[16]}} & 32'h01000000
        ^ {32{state[17]}} & 32'h02000000
        ^ {32{state[18]}} & 32'h04000000
        ^ {32{state[19]}} & 32'h08000000
        ^ {32{state[20]}} & 32'h10000000
        ^ {32{state[21]}} & 32'h20000000
        ^ {32{state[22]}} & 32'h40000000
        ^ {32{state[23]}} & 32'h80000000
        ^ {32{state[24]}} & 32'hDB710641
        ^ {32{state[25]}} & 32'h6D930AC3
        ^ {32{state[26]}} & 32'hDB261586
        ^ {32{state[27]}} & 32'h6D3D2D4D
        ^ {32{state[28]}} & 32'hDA7A5A9A
        ^ {32{state[29]}} & 32'h6F85B375
        ^ {32{state[30]}} & 32'hDF0B66EA
        ^ {32{state[31]}} & 32'h6567CB95;
endfunction

// Undoes the last 2 zero bytes.
function automatic logic [31:0] crc_back_2(input logic [31:0] state);
    crc_back_2 =
        {32{state[0]}} & 32'h00010000
        ^ {32{state[1]}} & 32'h00020000
        ^ {32{state[2]}} & 32'h00040000
        ^ {32{state[3]}} & 32'h00080000
        ^ {32{state[4]}} & 32'h00100000
        ^ {32{state[5]}} & 32'h00200000
        ^ {32{state[6]}} & 32'h00400000
        ^ {32{state[7]}} & 32'h00800000
        ^ {32{state[8]}} & 32'h01000000
        ^ {32{state[9]}} & 32'h02000000
        ^ {32{state[10]}} & 32'h04000000
        ^ {32{state[11]}} & 32'h08000000
        ^ {32{state[12]}} & 32'h10000000
        ^ {32{state[13]}} & 32'h20000000
        ^ {32{state[14]}} & 32'h40000000
        ^ {32{state[15]}} & 32'h80000000
        ^ {32{state[16]}} & 32'hDB710641
        ^ {32{state[17]}} & 32'h6D930AC3
        ^ {32{state[18]}} & 32'hDB261586
        ^ {32{state[19]}} & 32'h6D3D2D4D
        ^ {32{state[20]}} & 32'hDA7A5A9A
        ^ {32{state[21]}} & 32'h6F85B375
        ^ {32{state[22]}} & 32'hDF0B66EA
        ^ {32{state[23]}} & 32'h6567CB95
        ^ {32{state[24]}} & 32'hCACF972A
        ^ {32{state[25]}} & 32'h4EEE2815
        ^ {32{state[26]}} & 32'h9DDC502A
        ^ {32{state[27]}} & 32'hE0C9A615
        ^ {32{state[28]}} & 32'h1AE24A6B
        ^ {32{state[29]}} & 32'h35C494D6
        ^ {32{state[30]}} & 32'h6B8929AC
        ^ {32{state[31]}} & 32'hD7125358;
endfunction

// Undoes the last 4 zero bytes.
function automatic logic [31:0] crc_back_4(input logic [31:0] state);
    crc_back_4 =
        {32{state[0]}} & 32'hDB710641
        ^ {32{state[1]}} & 32'h6D930AC3
        ^ {32{state[2]}} & 32'hDB261586
        ^ {32{state[3]}} & 32'h6D3D2D4D
        ^ {32{state[4]}} & 32'hDA7A5A9A
        ^ {32{state[5]}} & 32'h6F85B375
        ^ {32{state[6]}} & 32'hDF0B66EA
        ^ {32{state[7]}} & 32'h6567CB95
        ^ {32{state[8]}} & 32'hCACF972A
        ^ {32{state[9]}} & 32'h4EEE2815
        ^ {32{state[10]}} & 32'h9DDC502A
        ^ {32{state[11]}} & 32'hE0C9A615
        ^ {32{state[12]}} & 32'h1AE24A6B
        ^ {32{state[13]}} & 32'h35C494D6
        ^ {32{state[14]}} & 32'h6B8929AC
        ^ {32{state[15]}} & 32'hD7125358
        ^ {32{state[16]}} & 32'h7555A0F1
        ^ {32{state[17]}} & 32'hEAAB41E2
        ^ {32{state[18]}} & 32'h0E278585
        ^ {32{state[19]}} & 32'h1C4F0B0A
        ^ {32{state[20]}} & 32'h389E1614
        ^ {32{state[21]}} & 32'h713C2C28
        ^ {32{state[22]}} & 32'hE2785850
        ^ {32{state[23]}} & 32'h1F81B6E1
        ^ {32{state[24]}} & 32'h3F036DC2
        ^ {32{state[25]}} & 32'h7E06DB84
        ^ {32{state[26]}} & 32'hFC0DB708
        ^ {32{state[27]}} & 32'h236A6851
        ^ {32{state[28]}} & 32'h46D4D0A2
        ^ {32{state[29]}} & 32'h8DA9A144
        ^ {32{state[30]}} & 32'hC02244C9
        ^ {32{state[31]}} & 32'h5B358FD3;
endfunction

// Undoes the last 8 zero bytes.
function automatic logic [31:0] crc_back_8(input logic [31:0] state);
    crc_back_8 =
        {32{state[0]}} & 32'hB66B1FA6
        ^ {32{state[1]}} & 32'hB7A7390D
        ^ {32{state[2]}} & 32'hB43F745B
        ^ {32{state[3]}} & 32'hB30FEEF7
        ^ {32{state[4]}} & 32'hBD6EDBAF
        ^ {32{state[5]}} & 32'hA1ACB11F
        ^ {32{state[6]}} & 32'h9828647F
        ^ {32{state[7]}} & 32'hEB21CEBF
        ^ {32{state[8]}} & 32'h0D329B3F
        ^ {32{state[9]}} & 32'h1A65367E
        ^ {32{state[10]}} & 32'h34CA6CFC
        ^ {32{state[11]}} & 32'h6994D9F8
        ^ {32{state[12]}} & 32'hD329B3F0
        ^ {32{state[13]}} & 32'h7D2261A1
        ^ {32{state[14]}} & 32'hFA44C342
        ^ {32{state[15]}} & 32'h2FF880C5
        ^ {32{state[16]}} & 32'h5FF1018A
        ^ {32{state[17]}} & 32'hBFE20314
        ^ {32{state[18]}} & 32'hA4B50069
        ^ {32{state[19]}} & 32'h921B0693
        ^ {32{state[20]}} & 32'hFF470B67
        ^ {32{state[21]}} & 32'h25FF108F
        ^ {32{state[22]}} & 32'h4BFE211E
        ^ {32{state[23]}} & 32'h97FC423C
        ^ {32{state[24]}} & 32'hF4898239
        ^ {32{state[25]}} & 32'h32620233
        ^ {32{state[26]}} & 32'h64C40466
        ^ {32{state[27]}} & 32'hC98808CC
        ^ {32{state[28]}} & 32'h486117D9
        ^ {32{state[29]}} & 32'h90C22FB2
        ^ {32{state[30]}} & 32'hFAF55925
        ^ {32{state[31]}} & 32'h2E9BB40B;
endfunction

// Undoes the last 16 zero bytes.
function automatic logic [31:0] crc_back_16(input logic [31:0] state);
    crc_back_16 =
        {32{state[0]}} & 32'h6CA226EA
        ^ {32{state[1]}} & 32'hD9444DD4
        ^ {32{state[2]}} & 32'h69F99DE9
        ^ {32{state[3]}} & 32'hD3F33BD2
        ^ {32{state[4]}} & 32'h7C9771E5
        ^ {32{state[5]}} & 32'hF92EE3CA
        ^ {32{state[6]}} & 32'h292CC1D5
        ^ {32{state[7]}} & 32'h525983AA
        ^ {32{state[8]}} & 32'hA4B30754
        ^ {32{state[9]}} & 32'h921708E9
        ^ {32{state[10]}} & 32'hFF5F1793
        ^ {32{state[11]}} & 32'h25CF2967
        ^ {32{state[12]}} & 32'h4B9E52CE
        ^ {32{state[13]}} & 32'h973CA59C
        ^ {32{state[14]}} & 32'hF5084D79
        ^ {32{state[15]}} & 32'h31619CB3
        ^ {32{state[16]}} & 32'h62C33966
        ^ {32{state[17]}} & 32'hC58672CC
        ^ {32{state[18]}} & 32'h507DE3D9
        ^ {32{state[19]}} & 32'hA0FBC7B2
        ^ {32{state[20]}} & 32'h9A868925
        ^ {32{state[21]}} & 32'hEE7C140B
        ^ {32{state[22]}} & 32'h07892E57
        ^ {32{state[23]}} & 32'h0F125CAE
        ^ {32{state[24]}} & 32'h1E24B95C
        ^ {32{state[25]}} & 32'h3C4972B8
        ^ {32{state[26]}} & 32'h7892E570
        ^ {32{state[27]}} & 32'hF125CAE0
        ^ {32{state[28]}} & 32'h393A9381
        ^ {32{state[29]}} & 32'h72752702
        ^ {32{state[30]}} & 32'hE4EA4E04
        ^ {32{state[31]}} & 32'h12A59A49;
endfunction

// Undoes the last 32 zero bytes.
function automatic logic [31:0] crc_back_32(input logic [31:0] state);
    crc_back_32 =
        {32{state[0]}} & 32'h495811AA
        ^ {32{state[1]}} & 32'h92B02354
        ^ {32{state[2]}} & 32'hFE1140E9
        ^ {32{state[3]}} & 32'h27538793
        ^ {32{state[4]}} & 32'h4EA70F26
        ^ {32{state[5]}} & 32'h9D4E1E4C
        ^ {32{state[6]}} & 32'hE1ED3AD9
        ^ {32{state[7]}} & 32'h18AB73F3
        ^ {32{state[8]}} & 32'h3156E7E6
        ^ {32{state[9]}} & 32'h62ADCFCC
        ^ {32{state[10]}} & 32'hC55B9F98
        ^ {32{state[11]}} & 32'h51C63971
        ^ {32{state[12]}} & 32'hA38C72E2
        ^ {32{state[13]}} & 32'h9C69E385
        ^ {32{state[14]}} & 32'hE3A2C14B
        ^ {32{state[15]}} & 32'h1C3484D7
        ^ {32{state[16]}} & 32'h386909AE
        ^ {32{state[17]}} & 32'h70D2135C
        ^ {32{state[18]}} & 32'hE1A426B8
        ^ {32{state[19]}} & 32'h18394B31
        ^ {32{state[20]}} & 32'h30729662
        ^ {32{state[21]}} & 32'h60E52CC4
        ^ {32{state[22]}} & 32'hC1CA5988
        ^ {32{state[23]}} & 32'h58E5B551
        ^ {32{state[24]}} & 32'hB1CB6AA2
        ^ {32{state[25]}} & 32'hB8E7D305
        ^ {32{state[26]}} & 32'hAABEA04B
        ^ {32{state[27]}} & 32'h8E0C46D7
        ^ {32{state[28]}} & 32'hC7698BEF
        ^ {32{state[29]}} & 32'h55A2119F
        ^ {32{state[30]}} & 32'hAB44233E
        ^ {32{state[31]}} & 32'h8DF9403D;
endfunction

/* verilator lint_on UNUSEDPARAM */
