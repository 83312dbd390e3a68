"""Test cases of trigger_decoder: valid trigger commands are decoded, all other frames are ignored."""

import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from drivers import case, words
from frames import trigger_datagram, udp_frame

MAC = b"\x02\x00\x00\x00\x00\x01"
IP = {False: bytes(10) + b"\xff\xff" + bytes([192, 168, 0, 1]), True: bytes.fromhex("fd000000000000000000000000000001")}


async def start(dut, ipv6=False, any_address=0):
    Clock(dut.clk, 4, "ns").start()
    dut.rst.value = 1
    dut.s_axis_tvalid.value = 0
    dut.cfg_enable.value = 1
    dut.cfg_any_address.value = any_address
    dut.cfg_port.value = 47910
    dut.cfg_mac.value = int.from_bytes(MAC, "big")
    dut.cfg_ip.value = int.from_bytes(IP[ipv6], "big")
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    found = []

    async def watch():
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            if int(dut.trigger_valid.value):
                flags = int(dut.trigger_acknowledge.value) | int(dut.trigger_command_only.value) << 1
                found.append((int(dut.trigger_sequence.value), flags))

    cocotb.start_soon(watch())
    return found


async def send(dut, frame, *, user=0, pause=0.0):
    for data, keep, last in words(frame):
        while random.random() < pause:
            await FallingEdge(dut.clk)
            dut.s_axis_tvalid.value = 0
        await FallingEdge(dut.clk)
        dut.s_axis_tvalid.value = 1
        dut.s_axis_tdata.value = data
        dut.s_axis_tkeep.value = keep
        dut.s_axis_tlast.value = last
        dut.s_axis_tuser.value = user & last


async def settle(dut):
    await FallingEdge(dut.clk)
    dut.s_axis_tvalid.value = 0
    for _ in range(14):
        await FallingEdge(dut.clk)


@case()
async def triggers_are_found_back_to_back_and_with_pauses(dut):
    for ipv6 in (False, True):
        found = await start(dut, ipv6)
        truth = []
        for number in range(60):
            flags = random.choice([0, 1, 2, 3])
            frame = udp_frame(trigger_datagram(number * 0x0101_0101, flags), ipv6=ipv6, checksum=ipv6 or number % 3 > 0)
            await send(dut, frame, pause=0.0 if number < 30 else 0.3)
            truth.append((number * 0x0101_0101, flags))
        await settle(dut)
        assert found == truth


@case()
async def a_frame_with_any_bit_flipped_is_no_trigger(dut):
    for ipv6 in (False, True):
        found = await start(dut, ipv6)
        frame = udp_frame(trigger_datagram(77), ipv6=ipv6)
        for bit in range(8 * len(frame)):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            await send(dut, bytes(flipped))
        await settle(dut)
        # The source Ethernet address and the group bit of the destination are not checked, and over IPv6 neither are
        # the fields that no checksum covers: traffic class, flow label and hop limit.
        free = 6 * 8 + 1 + (28 + 8 if ipv6 else 0)
        assert found == [(77, 0)] * free


@case()
async def frames_of_every_other_length_are_ignored(dut):
    found = await start(dut)
    for ipv6 in (False, True):
        frame = udp_frame(trigger_datagram(1), ipv6=ipv6)
        for length in range(1, 260):
            if length != len(frame):
                await send(dut, (frame + bytes(200))[:length])
        # Datagrams with consistent length fields, but not of 64 bytes.
        for size in (0, 63, 65, 128):
            await send(dut, udp_frame((trigger_datagram(1) * 2)[:size], ipv6=ipv6))
    await settle(dut)
    assert found == []


def with_ip(frame, at, value):
    """Returns an IPv4 frame with other bytes in its header, and a correct header checksum."""
    frame = bytearray(frame)
    frame[at : at + len(value)] = value
    frame[24:26] = b"\0\0"
    total = sum(struct.unpack(">10H", frame[14:34]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[24:26] = (total ^ 0xFFFF).to_bytes(2, "big")
    return bytes(frame)


@case()
async def well_formed_frames_for_other_hosts_are_ignored(dut):
    found = await start(dut)
    good = trigger_datagram(9)
    plain = udp_frame(good, checksum=False)
    for frame in (
        udp_frame(good, port=47911),
        udp_frame(good, mac=b"\x02\x00\x00\x00\x00\x02"),
        udp_frame(good, destination=bytes([192, 168, 0, 2])),
        udp_frame(good, ipv6=True),  # the configured address is IPv4
        udp_frame(good[:4] + b"\x02" + good[5:]),  # version
        udp_frame(b"SHTQ" + good[4:]),
        udp_frame(trigger_datagram(9, 0x80)),  # an answer
        udp_frame(trigger_datagram(9, 0x83)),
        with_ip(plain, 20, b"\x20\x00"),  # a first fragment
        with_ip(plain, 20, b"\x00\x01"),  # a later one
        with_ip(plain, 20, b"\x80\x00"),  # reserved
        with_ip(plain, 23, b"\x06"),  # TCP
        with_ip(plain, 14, b"\x46"),  # options
        with_ip(plain, 14, b"\x55"),
        with_ip(plain, 16, b"\x00\x5d"),  # total length
        plain[:12] + b"\x81\x00" + plain[14:],  # VLAN
        plain[:12] + b"\x08\x06" + plain[14:],
    ):
        await send(dut, frame)
    await send(dut, plain, user=1)
    dut.cfg_enable.value = 1
    await settle(dut)
    assert found == []
    # These are accepted: the plain datagram, one without DF, a broadcast, and a multicast.
    await send(dut, plain)
    await send(dut, with_ip(plain, 20, b"\x00\x00"))
    await send(dut, udp_frame(good, mac=b"\xff" * 6, destination=b"\xff" * 4))
    await send(dut, udp_frame(good, mac=b"\x01\x00\x5e\x00\x00\x05", destination=bytes([224, 0, 0, 5])))
    await settle(dut)
    assert found == [(9, 0)] * 4
    dut.cfg_enable.value = 0
    await settle(dut)
    await send(dut, plain)
    await settle(dut)
    assert len(found) == 4
    # Over IPv6 a datagram without a checksum must be dropped (RFC 8200, 8.1); `any_address` accepts any destination.
    found = await start(dut, ipv6=True, any_address=1)
    await send(dut, udp_frame(good, ipv6=True, checksum=False))
    await send(dut, udp_frame(good, mac=b"\x02\x00\x00\x00\x00\x07", destination=bytes([10, 0, 0, 2])))
    await settle(dut)
    assert found == [(9, 0)]


@case()
async def noise_is_ignored_and_later_triggers_are_decoded(dut):
    found = await start(dut)
    good, sent = udp_frame(trigger_datagram(3)), 0
    for _ in range(200):
        noise = bytearray(random.choice([good, random.randbytes(random.randrange(1, 300))]))
        for _ in range(random.randrange(1, 5)):
            noise[random.randrange(12, max(len(noise), 13)) % len(noise)] ^= random.randrange(1, 256)
        if noise == good:  # two changes that undo each other
            continue
        await send(dut, bytes(noise), pause=random.choice([0.0, 0.2]))
        await send(dut, good, pause=random.choice([0.0, 0.2]))
        sent += 1
    await settle(dut)
    assert found == [(3, 0)] * sent
