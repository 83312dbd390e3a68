"""Corner cases of `icrc`: lengths around word boundaries up to 8191 bytes, back to back and with gaps."""

import random
import struct

import cocotb
import wire
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from drivers import case

LATENCY = 9


def packet(rng: random.Random, covered: int, ipv6: bool) -> bytes:
    """Returns a frame whose ICRC covers `covered` bytes, with random contents except for the IP version."""
    data = bytearray(rng.randbytes(14 + covered))
    data[14] = 0x60 | data[14] & 0xF if ipv6 else 0x45
    return bytes(data)


async def start(dut) -> None:
    cocotb.start_soon(Clock(dut.clk, 5, unit="ns").start())
    dut.rst.value = 1
    dut.in_valid.value = 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def check(dut, packets: list[tuple[bytes, bool]], gap: float, rng: random.Random) -> None:
    """Sends packets; each ICRC must be output exactly `LATENCY` clocks after its packet's last word."""
    expected = {}
    clock = 0
    seen = 0

    async def step() -> None:
        nonlocal clock, seen
        await FallingEdge(dut.clk)
        clock += 1
        if clock in expected:
            assert dut.out_valid.value == 1, f"no ICRC in clock {clock}"
            assert int(dut.out_icrc.value) == expected.pop(clock)
            seen += 1
        else:
            assert dut.out_valid.value == 0

    for data, ipv6 in packets:
        for at in range(0, len(data), 64):
            while rng.random() < gap:
                dut.in_valid.value = 0
                await step()
            word = data[at : at + 64]
            dut.in_valid.value = 1
            dut.in_data.value = int.from_bytes(word, "little")
            dut.in_first.value = at == 0
            dut.in_last.value = at + 64 >= len(data)
            dut.in_bytes.value = len(word) % 64
            dut.in_ipv6.value = ipv6
            if at + 64 >= len(data):
                expected[clock + LATENCY] = struct.unpack("<I", wire.icrc(data))[0]
            await step()
    dut.in_valid.value = 0
    for _ in range(LATENCY + 2):
        await step()
    assert (seen, expected) == (len(packets), {})


@case()
async def every_length_modulo_a_word_back_to_back(dut) -> None:
    """All lengths of up to three words: one ICRC per packet, nine clocks after its last word, packets without gaps."""
    rng = random.Random(1)
    await start(dut)
    lengths = list(range(49, 49 + 130))
    rng.shuffle(lengths)
    packets = [(packet(rng, length + 20 * ipv6, ipv6), ipv6) for length in lengths for ipv6 in (False, True)]
    rng.shuffle(packets)
    await check(dut, packets, 0, rng)


@case()
async def lengths_around_words_up_to_8191(dut) -> None:
    """The longest packets that the module supports."""
    rng = random.Random(2)
    await start(dut)
    lengths = [64 * words + extra for words in (4, 33, 65, 66, 127) for extra in (-15, -14, -13, 0, 50)] + [8190, 8191]
    await check(dut, [(packet(rng, length, bool(length & 1)), bool(length & 1)) for length in lengths], 0, rng)


@case()
async def gaps_change_nothing(dut) -> None:
    """Words with idle clocks between them."""
    rng = random.Random(3)
    await start(dut)
    await check(dut, [(packet(rng, 80 + 7 * n, n % 3 == 0), n % 3 == 0) for n in range(40)], 0.5, rng)
