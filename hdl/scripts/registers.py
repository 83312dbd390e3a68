#!/usr/bin/env python3
"""Writes the register map of `registers.toml` as SystemVerilog, as Rust and as a page of the documentation.

With --check nothing is written; the exit status is 1 if a committed file differs from the generated one.
"""

import argparse
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "hdl/registers.toml"
ORIGIN = "Made by hdl/scripts/registers.py from hdl/registers.toml: do not edit."
# Byte addresses are 12 bits wide.
SPACE = 1 << 12
ACCESS = {"rw": "read, write", "ro": "read", "w1": "write 1", "ct": "counter"}


@dataclass
class Field:
    """A bit field of a register."""

    name: str
    high: int
    low: int
    description: str

    @property
    def mask(self) -> int:
        return ((1 << (self.high - self.low + 1)) - 1) << self.low


@dataclass
class Register:
    """One register, or an array of `count` registers at consecutive addresses."""

    name: str
    address: int
    access: str
    reset: int
    count: int
    description: str
    fields: list[Field] = field(default_factory=list)

    @property
    def words(self) -> int:
        return 2 if self.access == "ct" else self.count


@dataclass
class Block:
    """The registers of one module."""

    name: str
    module: str
    base: int
    description: str
    registers: list[Register]


def parse_field(raw: dict) -> Field:
    high, _, low = raw["bits"].partition(":")
    return Field(raw["name"], int(high), int(low or high), raw["description"])


def parse(text: str) -> list[Block]:
    """Returns the blocks of a map; raises ValueError if registers or fields overlap."""
    blocks = []
    taken: dict[int, str] = {}
    for raw in tomllib.loads(text)["block"]:
        registers = []
        for entry in raw["register"]:
            register = Register(
                entry["name"],
                raw["base"] + entry["offset"],
                entry["access"],
                entry.get("reset", 0),
                entry.get("count", 1),
                entry["description"],
                [parse_field(item) for item in entry.get("field", [])],
            )
            check(register, taken, f"{raw['name']}.{register.name}")
            registers.append(register)
        blocks.append(Block(raw["name"], raw["module"], raw["base"], raw["description"], registers))
    return blocks


def check(register: Register, taken: dict[int, str], name: str) -> None:
    if register.access not in ACCESS:
        raise ValueError(f"{name}: no access {register.access!r}")
    for word in range(register.words):
        address = register.address + 4 * word
        if address % 4 or not 0 <= address < SPACE:
            raise ValueError(f"{name}: address {address:#x} is not a word of the map")
        if address in taken:
            raise ValueError(f"{name} and {taken[address]} share address {address:#x}")
        taken[address] = name
    seen = 0
    for item in register.fields:
        if not 0 <= item.low <= item.high < 32 or seen & item.mask:
            raise ValueError(f"{name}.{item.name}: bits {item.high}:{item.low} overlap or do not exist")
        seen |= item.mask
    if register.fields and register.reset & ~seen:
        raise ValueError(f"{name}: the reset value has bits outside the fields")


def verilog(blocks: list[Block]) -> str:
    lines = [
        f"// {ORIGIN}",
        "// A module uses only the constants of its own block.",
        "/* verilator lint_off UNUSEDPARAM */",
        "",
    ]
    for block in blocks:
        prefix = block.name.upper()
        lines.append(f"// Block {block.name} of {block.module}: byte addresses and reset values.")
        for register in block.registers:
            name = f"{prefix}_{register.name.upper()}"
            for word in range(register.words):
                suffix = f"_{word}" if register.count > 1 else ("", "_HIGH")[word]
                lines.append(f"localparam logic [11:0] REG_{name}{suffix} = 12'h{register.address + 4 * word:03X};")
            if register.access in ("rw", "ro") and (register.reset or register.access == "rw"):
                lines.append(f"localparam logic [31:0] RESET_{name} = 32'h{register.reset:08X};")
        lines.append("")
    lines.append("/* verilator lint_on UNUSEDPARAM */")
    return "\n".join(lines) + "\n"


def rust(blocks: list[Block]) -> str:
    lines = [
        "//! Register map of the RTL: byte addresses on its AXI4-Lite port, masks and positions of fields.",
        "//!",
        f"//! {ORIGIN}",
    ]
    for block in blocks:
        lines += ["", f"/// Block `{block.name}` of `{block.module}`. {block.description}", f"pub mod {block.name} {{"]
        for register in block.registers:
            name = register.name.upper()
            note = " 48 bits: read this word first, then the next." if register.access == "ct" else ""
            lines.append(f"    /// {register.description}{note}")
            if register.count > 1:
                places = ", ".join(f"0x{register.address + 4 * word:03X}" for word in range(register.count))
                lines.append(f"    pub const {name}: [u16; {register.count}] = [{places}];")
            else:
                lines.append(f"    pub const {name}: u16 = 0x{register.address:03X};")
            if register.reset:
                lines.append(f"    /// `{register.name}` after reset.")
                lines.append(f"    pub const {name}_RESET: u32 = 0x{register.reset:08X};")
            for item in register.fields:
                lines.append(f"    /// `{register.name}`: {item.description}")
                if item.high == item.low:
                    lines.append(f"    pub const {name}_{item.name.upper()}: u32 = 1 << {item.low};")
                else:
                    lines.append(f"    pub const {name}_{item.name.upper()}: u32 = 0x{item.mask:08X};")
                    lines.append(f"    /// Lowest bit of [`{name}_{item.name.upper()}`].")
                    lines.append(f"    pub const {name}_{item.name.upper()}_LSB: u32 = {item.low};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def markdown(blocks: list[Block]) -> str:
    lines = [
        f"<!-- {ORIGIN} -->",
        "",
        "# Registers of the RTL",
        "",
        "All registers have 32 bits, at byte addresses of the AXI4-Lite port. A counter has 48 bits in two words: reading the first",
        "latches the upper half, which the second returns. A write with byte strobes other than all ones, or to a read-only",
        "register, gets the response SLVERR and changes nothing. Unused addresses read as 0.",
    ]
    for block in blocks:
        lines += ["", f"## `{block.name}`: {block.module}", "", block.description, ""]
        lines += ["| address | register | bits | access | reset | |", "|---|---|---|---|---|---|"]
        for register in block.registers:
            last = register.address + 4 * (register.words - 1)
            place = f"0x{register.address:03X}" + (f" to 0x{last:03X}" if register.words > 1 else "")
            reset = f"0x{register.reset:X}" if register.reset else "0"
            head = f"| {place} | `{register.name}` | | {ACCESS[register.access]} | {reset} | {register.description} |"
            lines.append(head)
            for item in register.fields:
                bits = f"{item.high}" if item.high == item.low else f"{item.high}:{item.low}"
                lines.append(f"| | `.{item.name}` | {bits} | | | {item.description} |")
    return "\n".join(lines) + "\n"


def outputs() -> dict[Path, str]:
    """Returns every generated file with its text."""
    blocks = parse(SOURCE.read_text())
    return {
        ROOT / "hdl/rtl/registers.svh": verilog(blocks),
        ROOT / "crates/rtl/src/registers.rs": rust(blocks),
        ROOT / "docs/rtl-registers.md": markdown(blocks),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check_only = parser.parse_args().check
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'differs from registers.toml' if check_only else 'written'}")
        if not check_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outputs()[path])
    return 1 if check_only and stale else 0


if __name__ == "__main__":
    sys.exit(main())
