// Elaboration check of a parameter: elaboration fails with MESSAGE unless CONDITION holds. NAME makes the label of the
// generate block unique within the module.
//
// Icarus Verilog 11 has no elaboration system tasks (IEEE 1800-2017, clause 20.11) and checks nothing. It also crashes
// on a macro carried over into a library file (-y), so the macro is defined again in each.
`ifdef SHOTLINE_REQUIRE
`undef SHOTLINE_REQUIRE
`endif
`ifdef __ICARUS__
`define SHOTLINE_REQUIRE(NAME, CONDITION, MESSAGE)
`else
`define SHOTLINE_REQUIRE(NAME, CONDITION, MESSAGE) if (!(CONDITION)) begin : require_``NAME $error(MESSAGE); end
`endif
