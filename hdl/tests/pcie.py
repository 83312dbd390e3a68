"""Streams of the UltraScale+ integrated block for PCIe (PG213, 512 bits), written from its documentation.

The receiver of requests checks the rules of straddle; sources send completions and host accesses without straddle.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cocotb.triggers import FallingEdge, ReadOnly

READ, WRITE, IO_READ, IO_WRITE, ATOMIC, MESSAGE = 0, 1, 2, 3, 4, 12
ONES = (1 << 512) - 1


def bits(number: int, high: int, low: int) -> int:
    """Returns bits `high` to `low` of a number."""
    return number >> low & ((1 << (high - low + 1)) - 1)


@dataclass
class Tlp:
    """A request: its dwords with the descriptor, and the byte enables of its first and last dword."""

    first_be: int
    last_be: int
    begin: int  # half in which it begins, counted over all beats
    end: int = 0
    dwords: list[int] = field(default_factory=list)

    def check(self) -> None:
        """Asserts what must hold for each request of the card."""
        d0, _, d2, d3 = self.dwords[:4]
        count = bits(d2, 10, 0)
        assert self.kind in (READ, WRITE) and not bits(d2, 31, 15) and not bits(d0, 2, 0)
        assert not bits(d3, 31, 8) and (self.kind == READ or not d3), "attributes, or a tag of a write"
        assert len(self.dwords) == 4 + (count if self.kind == WRITE else 0)
        assert self.address // 4096 == (self.address + 4 * count - 1) // 4096
        if count == 1:
            assert self.first_be in (1, 3, 7, 15) and not self.last_be
        else:
            assert self.first_be == 15 and self.last_be in (1, 3, 7, 15)

    @property
    def kind(self) -> int:
        return bits(self.dwords[2], 14, 11)

    @property
    def tag(self) -> int:
        return bits(self.dwords[3], 7, 0)

    @property
    def address(self) -> int:
        return self.dwords[1] << 32 | self.dwords[0]

    @property
    def data(self) -> bytes:
        """The bytes that are enabled."""
        last = self.last_be or self.first_be
        whole = b"".join(dword.to_bytes(4, "little") for dword in self.dwords[4:])
        return whole[: len(whole) - 4 + last.bit_length()]


class RequestSink:
    """Receives requests from `m_axis_rq`; `ready()` gives the value of `tready` in each clock."""

    def __init__(self, dut, ready: Callable[[], bool] = lambda: True) -> None:
        self.dut = dut
        self.ready = ready
        self.tlps: list[Tlp] = []
        self.open: Tlp | None = None
        self.offered: tuple | None = None  # a beat that was not accepted
        self.halves = 0  # two a beat, used or not
        self.empty = 0  # unused ones
        self.clocks: list[int] = []  # in which beats were accepted
        self.clock = 0

    async def run(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.pcie_clk)
            self.clock += 1
            ready = self.ready()
            dut.m_axis_rq_tready.value = int(ready)
            await ReadOnly()
            if int(dut.dma_rst.value):
                self.offered = None
            elif not int(dut.m_axis_rq_tvalid.value):
                assert self.offered is None, "an offered beat did not stay"
                assert self.open is None, "tvalid fell within a TLP"
            else:
                beat = tuple(int(getattr(dut, f"m_axis_rq_t{name}").value) for name in ("data", "user", "keep"))
                assert self.offered in (None, beat), "an offered beat changed"
                self.offered = None if ready else beat
                if ready:
                    self.clocks.append(self.clock)
                    self.take(*beat)

    def take(self, data: int, user: int, keep: int) -> None:
        """Takes a beat by the rules of straddle: TLPs begin at byte 0 or 32, and none of a beat's first half is unused."""
        begins, ends = bits(user, 21, 20), bits(user, 27, 26)
        assert begins in (0, 1, 3) and ends in (0, 1, 3)
        at = [bits(user, 23 + 2 * i, 22 + 2 * i) for i in range(begins.bit_count())]
        to = [bits(user, 31 + 4 * i, 28 + 4 * i) for i in range(ends.bit_count())]
        assert at in ([], [0], [2], [0, 2]) and to == sorted(set(to))
        assert not bits(user, 19, 16) and not user >> 36, "offset, discontinue, hints, sequence numbers or parity"
        used = [False, False]
        for half in range(2):
            if 2 * half in at:
                assert self.open is None, "a TLP begins within another"
                i = at.index(2 * half)
                self.open = Tlp(bits(user, 3 + 4 * i, 4 * i), bits(user, 11 + 4 * i, 8 + 4 * i), self.halves + half)
            if self.open is None:
                continue
            used[half] = True
            end = next((end for end in to if end // 8 == half), None)
            count = 8 if end is None else end % 8 + 1
            self.open.dwords += [bits(data, 256 * half + 32 * i + 31, 256 * half + 32 * i) for i in range(count)]
            if end is not None:
                self.open.check()
                self.open.end = self.halves + half
                self.tlps.append(self.open)
                self.open = None
        assert used[0], "the first half of a beat is unused"
        assert keep == (0xFFFF if used[1] else 0x00FF)
        self.halves += 2
        self.empty += not used[1]


async def offer(clock, valid, ready, items: Iterable, drive: Callable, pause: float = 0.0) -> None:
    """Offers items on a port with handshake; `drive` sets the port's other signals."""
    for item in items:
        while random.random() < pause:
            await FallingEdge(clock)
        drive(item)
        valid.value = 1
        await ReadOnly()
        while not int(ready.value):
            await FallingEdge(clock)
            await ReadOnly()
        await FallingEdge(clock)
        valid.value = 0


def stream(clock, dut, prefix: str, beats: Iterable[tuple[int, int, int]], pause: float = 0.0):
    """Offers beats (data, user, last) on a stream."""
    port = {name: getattr(dut, f"{prefix}_t{name}") for name in ("data", "user", "last", "valid", "ready")}

    def drive(beat: tuple[int, int, int]) -> None:
        port["data"].value, port["user"].value, port["last"].value = beat

    return offer(clock, port["valid"], port["ready"], beats, drive, pause)


def cut(number: int, dwords: int, user: int) -> list[tuple[int, int, int]]:
    """Returns a packet as beats, with `user` in the first."""
    count = -(-dwords // 16)
    return [(number >> 512 * i & ONES, user if i == 0 else 0, int(i == count - 1)) for i in range(count)]


def completion(
    tag: int, data: bytes, address: int = 0, left: int = 0, status: int = 0, error: int = 0, poisoned: bool = False
) -> list[tuple[int, int, int]]:
    """Returns a completion as beats of the requester completion stream."""
    count = len(data) // 4
    head = address & 0xFFF | error << 12 | left << 16
    head |= (count | status << 11 | poisoned << 14 | 0x0100 << 16) << 32 | tag << 64
    return cut(head | int.from_bytes(data, "little") << 96, 3 + count, random.getrandbits(64))


def access(kind: int, address: int, data: list[int], bar: int, tag: int, count: int = 1, enables: int = 0xF) -> list:
    """Returns a request of the host as beats of the completer request stream."""
    head = address | (count | kind << 11 | 0x1234 << 16) << 64 | (tag | 3 << 8 | bar << 16 | 5 << 28 | 2 << 25) << 96
    number = head | sum(dword << 128 + 32 * i for i, dword in enumerate(data))
    return cut(number, 4 + len(data), enables | (0xF << 8 if count > 1 else 0))


class AnswerSink:
    """Receives completions from `m_axis_cc`, one a beat."""

    def __init__(self, dut, ready: Callable[[], bool] = lambda: True) -> None:
        self.dut = dut
        self.ready = ready
        self.answers: deque[tuple[int, int]] = deque()  # data and keep

    async def run(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.pcie_clk)
            ready = self.ready()
            dut.m_axis_cc_tready.value = int(ready)
            await ReadOnly()
            if int(dut.m_axis_cc_tvalid.value) and ready:
                assert int(dut.m_axis_cc_tlast.value)
                self.answers.append((int(dut.m_axis_cc_tdata.value), int(dut.m_axis_cc_tkeep.value)))
