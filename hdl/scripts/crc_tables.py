#!/usr/bin/env python3
"""Writes the matrices of the CRC engines as rtl/crc_tables.svh.

A CRC is linear over GF(2), so the contribution of 64 bytes to the state is a matrix of 32 rows and 512 columns. Half of its
entries are ones, so trees of six-input XORs would take some 1640 LUTs. Two steps take fewer. First the leading 320 bits
of a word are folded onto the last 192: a power of x is congruent, modulo the polynomial, to a sum of a few much lower powers
(`FOLDS`), and the same sum holds for 64 consecutive powers, so the fold is an XOR of shifted slices. The matrix then has
only 192 columns.

With --check nothing is written; the exit status is 1 if the committed file differs from the generated one.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "hdl/rtl/crc_tables.svh"
POLYNOMIAL = 0x104C11DB7
REFLECTED = 0xEDB88320
WORD_BITS = 512
FOLDED_BITS = 192
BLOCK_BITS = 64
# x^e = the sum of x^a modulo the polynomial, for the lowest power e of each block that is folded; all a are at most
# FOLDED_BITS - BLOCK_BITS, so that one folding step is enough. Found by a meet-in-the-middle search: among all sums of
# three such powers, pairs whose difference is x^e. The shortest sums have seven terms for 448, six for the others.
FOLDS = {
    192: (2, 9, 14, 71, 89, 124),
    256: (9, 16, 70, 102, 105, 107),
    320: (2, 12, 14, 73, 93, 123),
    384: (4, 5, 46, 58, 80, 125),
    448: (0, 22, 37, 39, 43, 59, 84),
}


def register(state: int, data: bytes) -> int:
    """Returns the CRC register, least significant bit first, after `data`."""
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (REFLECTED if state & 1 else 0)
    return state


def step_back(state: int, count: int) -> int:
    """Returns the CRC register before the last `count` zero bytes."""
    for _ in range(8 * count):
        state = ((state ^ REFLECTED) << 1 | 1) if state >> 31 else state << 1
    return state


def power(exponent: int) -> int:
    """Returns x^exponent modulo the polynomial, bit i for x^i."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        value ^= POLYNOMIAL if value >> 32 else 0
    return value


def check_folds() -> None:
    """Raises ValueError unless every fold is an identity modulo the polynomial and within the allowed powers."""
    if sorted(FOLDS) != list(range(FOLDED_BITS, WORD_BITS, BLOCK_BITS)):
        raise ValueError("the folds do not cover a word")
    for exponent, sums in FOLDS.items():
        total = 0
        for term in sums:
            total ^= power(term)
        if total != power(exponent) or not all(0 <= term <= FOLDED_BITS - BLOCK_BITS for term in sums):
            raise ValueError(f"x^{exponent} is not the sum of {sums}")


def step_function(name: str, count: int) -> list[str]:
    """Returns a function that advances a CRC state by `count` zero bytes, or undoes them if `count` is negative."""
    if count < 0:
        columns = [step_back(1 << bit, -count) for bit in range(32)]
    else:
        columns = [register(1 << bit, bytes(count)) for bit in range(32)]
    terms = [f"{{32{{state[{bit}]}}}} & 32'h{column:08X}" for bit, column in enumerate(columns)]
    lines = [f"function automatic logic [31:0] {name}(input logic [31:0] state);", f"    {name} ="]
    lines.append("        " + "\n        ^ ".join(terms) + ";")
    return [*lines, "endfunction", ""]


def sum_function(part: int) -> list[str]:
    """Returns a function for the remainder of 64 bits of a folded word; bit 0 of part 0 is its first bit."""
    size = FOLDED_BITS // 8
    columns = [register(0, (1 << BLOCK_BITS * part + bit).to_bytes(size, "little")) for bit in range(BLOCK_BITS)]
    rows = [sum((column >> bit & 1) << index for index, column in enumerate(columns)) for bit in range(32)]
    lines = [
        f"function automatic logic [31:0] crc_sum_{part}(input logic [{BLOCK_BITS - 1}:0] part);",
        f"    crc_sum_{part} = {{",
    ]
    lines.append(",\n".join(f"        ^(part & {BLOCK_BITS}'h{row:016X})" for row in reversed(rows)))
    return [*lines, "    };", "endfunction", ""]


def fold_function() -> list[str]:
    """Returns the folding function. A bit of power p is bit 511 - p of the word and bit 191 - p of the folded word."""
    lines = [f"function automatic logic [{FOLDED_BITS - 1}:0] crc_fold(input logic [{WORD_BITS - 1}:0] word);"]
    terms = [f"word[{WORD_BITS - 1}:{WORD_BITS - FOLDED_BITS}]"]
    for exponent, sums in FOLDS.items():
        high = WORD_BITS - 1 - exponent
        piece = f"word[{high}:{high - BLOCK_BITS + 1}]"
        for term in sums:
            above, below = term, FOLDED_BITS - BLOCK_BITS - term
            parts = [f"{above}'b0"] * (above > 0) + [piece] + [f"{below}'b0"] * (below > 0)
            terms.append("{" + ", ".join(parts) + "}")
    lines.append("    crc_fold = " + "\n        ^ ".join(terms) + ";")
    return [*lines, "endfunction", ""]


def text() -> str:
    """Returns the generated file."""
    check_folds()
    start = step_back(register(0xFFFFFFFF, b"\xff" * 8), 14)
    lines = [
        "// Generated by hdl/scripts/crc_tables.py: do not edit.",
        "// Bits of a word and of a CRC state are in wire order, the least significant bit of byte 0 first.",
        "// Including files use only some of these functions.",
        "/* verilator lint_off UNUSEDPARAM */",
        "",
        "// Initial state that 14 zero bytes (in place of the Ethernet header) turn into the state after eight bytes of ones.",
        f"localparam logic [31:0] ICRC_START = 32'h{start:08X};",
        "",
        "// Folds a word of the bus to 24 bytes with the same remainder.",
        *fold_function(),
        "// Remainder of the folded word, as three partial sums.",
    ]
    for part in range(FOLDED_BITS // BLOCK_BITS):
        lines += sum_function(part)
    lines += ["// Advances a state by 64 zero bytes.", *step_function("crc_step", WORD_BITS // 8)]
    for count in (1, 2, 4, 8, 16, 32):
        lines.append(f"// Undoes the last {count} zero byte{'s' * (count > 1)}.")
        lines += step_function(f"crc_back_{count}", -count)
    lines.append("/* verilator lint_on UNUSEDPARAM */")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check_only = parser.parse_args().check
    made = text()
    if OUTPUT.exists() and OUTPUT.read_text() == made:
        return 0
    print(f"{OUTPUT.relative_to(ROOT)}: {'differs from what crc_tables.py generates' if check_only else 'written'}")
    if not check_only:
        OUTPUT.write_text(made)
    return int(check_only)


if __name__ == "__main__":
    sys.exit(main())
