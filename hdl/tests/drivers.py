"""Cocotb drivers: AXI4-Lite, AXI4-Stream words, register names.

All drive signals at the falling edge and sample them after it, when they have settled: the module's registers load
these values at the next rising edge.
"""

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

_MAP = tomllib.loads((Path(__file__).resolve().parent.parent / "registers.toml").read_text())
REGISTERS = {
    f"{block['name']}.{register['name']}": block["base"] + register["offset"]
    for block in _MAP["block"]
    for register in block["register"]
}
RESETS = {
    f"{block['name']}.{register['name']}": register["reset"]
    for block in _MAP["block"]
    for register in block["register"]
    if "reset" in register
}
COUNTERS = {
    f"{block['name']}.{register['name']}"
    for block in _MAP["block"]
    for register in block["register"]
    if register["access"] == "ct"
}

# A cocotb test. The longest takes 52 us of simulated time; one that waits for an event that never occurs fails at the
# limit.
case = functools.partial(cocotb.test, timeout_time=1, timeout_unit="ms")


class AxiLite:
    """An AXI4-Lite manager for ports `s_axil_*` in the domain of `dut.clk`."""

    def __init__(self, dut) -> None:
        self.dut = dut
        for name in ("awvalid", "wvalid", "arvalid"):
            getattr(dut, f"s_axil_{name}").value = 0
        dut.s_axil_bready.value = 1
        dut.s_axil_rready.value = 1
        dut.s_axil_wstrb.value = 0xF

    async def _until(self, *signals) -> None:
        """Waits until all signals are set in one clock; returns before that clock's rising edge."""
        await ReadOnly()
        for _ in range(1000):
            if all(int(signal.value) for signal in signals):
                return
            await FallingEdge(self.dut.clk)
            await ReadOnly()
        raise AssertionError(f"{[str(signal._name) for signal in signals]} never set")

    async def write(self, name: str | int, value: int) -> int:
        """Writes a register; returns the response, 0 for OKAY."""
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.s_axil_awaddr.value = REGISTERS[name] if isinstance(name, str) else name
        dut.s_axil_wdata.value = value
        dut.s_axil_awvalid.value = 1
        dut.s_axil_wvalid.value = 1
        await self._until(dut.s_axil_awready, dut.s_axil_wready)
        await FallingEdge(dut.clk)
        dut.s_axil_awvalid.value = 0
        dut.s_axil_wvalid.value = 0
        await self._until(dut.s_axil_bvalid)
        code = int(dut.s_axil_bresp.value)
        await RisingEdge(dut.clk)
        return code

    async def read(self, name: str | int) -> int:
        """Reads a register; of a counter both words."""
        address = REGISTERS[name] if isinstance(name, str) else name
        value = await self._read(address)
        return value | (await self._read(address + 4)) << 32 if name in COUNTERS else value

    async def _read(self, address: int) -> int:
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.s_axil_araddr.value = address
        dut.s_axil_arvalid.value = 1
        await self._until(dut.s_axil_arready)
        await FallingEdge(dut.clk)
        dut.s_axil_arvalid.value = 0
        await self._until(dut.s_axil_rvalid)
        value = int(dut.s_axil_rdata.value)
        await RisingEdge(dut.clk)
        return value


def words(frame: bytes) -> list[tuple[int, int, int]]:
    """Returns a frame as 64-byte words: data, keep, last."""
    parts = [frame[at : at + 64] for at in range(0, len(frame), 64)]
    return [(int.from_bytes(p, "little"), (1 << len(p)) - 1, int(i == len(parts) - 1)) for i, p in enumerate(parts)]


class Sink:
    """Receives frames from `<prefix>_t*`; `ready()` gives the value of `tready` in each clock.

    `tvalid` must not fall within a frame: a MAC would abort it. `gaps=True` allows it.
    """

    def __init__(self, dut, clock, prefix: str, ready: Callable[[], bool] = lambda: True, gaps: bool = False) -> None:
        self.clock = clock
        self.signals = {name: getattr(dut, f"{prefix}_t{name}") for name in ("data", "keep", "valid", "ready", "last")}
        self.ready = ready
        self.gaps = gaps
        self.frames: list[bytes] = []
        self.frame = b""  # bytes of the incomplete frame
        self.users: list[int] = []
        self.user = getattr(dut, f"{prefix}_tuser", None)

    async def run(self) -> None:
        signals, previous = self.signals, None
        while True:
            await FallingEdge(self.clock)
            ready = self.ready()
            if ready != previous:
                signals["ready"].value = int(ready)
                previous = ready
            await ReadOnly()
            if not int(signals["valid"].value):
                assert self.gaps or not self.frame, "tvalid fell within a frame"
                continue
            if not ready:
                continue
            keep = int(signals["keep"].value)
            count = keep.bit_length()
            last = int(signals["last"].value)
            assert keep == (1 << count) - 1 and count and (last or count == 64), f"keep {keep:#x}, last {last}"
            self.frame += int(signals["data"].value).to_bytes(64, "little")[:count]
            if last:
                self.frames.append(self.frame)
                self.users.append(int(self.user.value) if self.user is not None else 0)
                self.frame = b""
