"""The memory of a PCI device as a region of `shotline target`: in a QEMU guest, where Linux has a real PCI bus.

The device is ivshmem: what is behind its BAR 2 is a file of this machine, so a test sees which bytes the target writes,
and in the file's other bytes that it writes no others. The independent initiator of `initiator.py` is at the host's end
of the guest's cable.
"""

import functools
import json
import random
import re
import socket
import subprocess
import sys

import pytest
from guest_setup import BAR_BYTES
from initiator import ACK, Initiator
from machine import BAR, GUEST6, HOST6
from memory_target import region
from test_guest_endpoints import HostProgram, parse_report

from common import WAIT_TIMEOUT_S, until

DEVICE = BAR.split("/")[0]
SYSFS = f"/sys/bus/pci/devices/{DEVICE}"
REMOTE_ACCESS_ERROR = 0x62  # syndrome of a NAK (IBTA volume 1, 9.7.5.2.4)
WAITS = re.compile(r"memory at (\S+)\ntoken (\w+)\ntarget waits for initiators on (\S+)\n")
MAKE_SOCKET = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
made = socket.socket(*map(int, sys.argv[2:]))
socket.send_fds(channel, [b"."], [made.fileno()])
"""


def socket_on_host(guest, family, kind):
    """Returns a socket of the host's end of the cable, which another process has made there."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = guest.on_host(sys.executable, "-c", MAKE_SOCKET, theirs.fileno(), int(family), int(kind))
        subprocess.run(words, pass_fds=[theirs.fileno()], check=True, timeout=WAIT_TIMEOUT_S)
        return socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])


class BarTarget:
    """`shotline target` in the guest with regions behind BARs."""

    def __init__(self, guest, *regions):
        self.guest = guest
        words = " ".join(f"--region {each}" for each in regions)
        words += f" --bind [{GUEST6}]:0 --listen [{GUEST6}]:0 --strict-ib --json"
        self.job = guest.spawn(f"shotline target {words} &\necho $! >/share/target\nwait $!")

    def __enter__(self):
        until(lambda: WAITS.search(self.job.output()) or self.job.ended(), what="a target that waits")
        assert not self.job.ended(), self.job.output()
        found = WAITS.search(self.job.output())
        self.memory, self.token, self.address = found.groups()
        return self

    def initiator(self):
        return Initiator(self, HOST6, functools.partial(socket_on_host, self.guest))

    def kill(self, signal_name):
        self.guest.run(f"kill -{signal_name} $(cat /share/target)").succeeded()

    def end_report(self):
        """Ends the target in order and returns its report, whose counters balance."""
        self.kill("TERM")
        report = parse_report(self.job.end())
        assert report["kind"] == "end" and report["balanced"] is True, report
        return report

    def __exit__(self, *_):
        if not self.job.ended():
            self.kill("KILL")
            self.job.end()


def fill(file, seed):
    """Writes other bytes to the whole memory, as the device would, and returns them."""
    data = bytearray(random.Random(seed).randbytes(BAR_BYTES))
    with open(file, "r+b") as opened:  # truncating it would end QEMU, which has mapped it
        opened.write(data)
    return data


# Offset and length: both ends of the BAR, all alignments in a word, whole words, both sides of a page's end.
RANGES = [(0, 1), (5, 2), (11, 3), (17, 4), (24, 8), (33, 7), (42, 1), (52, 12), (4096 - 5, 11), (12_345, 1000)]
RANGES += [(1 << 20, 1024), (BAR_BYTES - 13, 13), (BAR_BYTES - 1, 1)]


@pytest.mark.parametrize("access", ["", ":access=4"], ids=["access-8", "access-4"])
def test_rdma_changes_exactly_the_written_bytes_of_a_bar(guest, bar, access):
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR}{access},rights=rw") as target:
        expected = fill(bar, "before")
        with target.initiator() as initiator:
            for seed, (offset, count) in enumerate(RANGES):
                data = random.Random(seed).randbytes(count)
                initiator.write_acknowledged("fpga", offset, data)
                expected[offset : offset + count] = data
                assert initiator.read("fpga", offset, count) == data
            assert bar.read_bytes() == expected
        report = target.end_report()
    counted, count = region(report, "fpga"), sum(count for _, count in RANGES)
    assert (counted["writes"], counted["bytes_in"]) == (len(RANGES), count), counted
    assert (counted["reads"], counted["bytes_out"]) == (len(RANGES), count), counted


@pytest.mark.parametrize("access", ["", ":access=4"], ids=["access-8", "access-4"])
def test_rdma_reads_what_the_device_has_in_its_bar(guest, bar, access):
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR}{access}") as target, target.initiator() as initiator:
        for seed in ("first", "second"):
            expected = fill(bar, seed)
            for offset, count in RANGES:
                assert initiator.read("fpga", offset, count) == expected[offset : offset + count], (offset, count)
            assert initiator.read_long("fpga", 30_001, 4095) == expected[4095 : 4095 + 30_001]
        assert bar.read_bytes() == expected, "a read has changed memory"
        target.end_report()


def test_perf_writes_and_reads_the_whole_bar(guest, bar):
    before, size = fill(bar, "before"), 64 << 10
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR},rights=rw") as target:
        rows = {}
        for verb in ("write", "read"):
            words = f"perf {verb} --size {size} --span {BAR_BYTES} --depth 2 --seconds 0.1 --json"
            words += f" --to {target.address} --token {target.token} --bind [{HOST6}]:0"
            with HostProgram(guest, words) as host:
                rows[verb] = host.end()
        target.end_report()
    written = min(BAR_BYTES, rows["write"]["operations"] * size)
    assert written and rows["read"]["operations"] > 0, rows
    assert bar.read_bytes() == bytes(at % 251 for at in range(written)) + before[written:]


HALF = BAR_BYTES // 2
FORBIDDEN = {
    "one byte past the BAR": lambda i: i.write("fpga", BAR_BYTES - 3, b"evil"),
    "one byte past a region in the BAR": lambda i: i.write("half", HALF - 3, b"evil"),
    "a write to a region that may only be read": lambda i: i.write("view", 0, b"evil"),
    "a read past a region in the BAR": lambda i: i.send_read("half", HALF - 3, 4),
}


def test_access_outside_the_regions_of_a_bar_is_refused(guest, bar):
    regions = (
        f"fpga=4M,memory=bar:{BAR},rights=rw",
        f"half=2M,memory=bar:{BAR},rights=rw",
        f"view=4K,memory=bar:{BAR}",
    )
    expected = fill(bar, "before")
    with BarTarget(guest, *regions) as target:
        for what, attempt in FORBIDDEN.items():
            with target.initiator() as initiator:
                attempt(initiator)
                opcode, psn, rest = initiator.answer()
                assert (opcode, psn, rest[0]) == (ACK, initiator.psn, REMOTE_ACCESS_ERROR), what
        with target.initiator() as initiator:  # the last bytes of each region
            for name, end in (("fpga", BAR_BYTES), ("half", HALF)):
                initiator.write_acknowledged(name, end - 4, b"good")
                expected[end - 4 : end] = b"good"
            assert initiator.read("view", 4092, 4) == expected[4092:4096]
        assert bar.read_bytes() == expected
        report = target.end_report()
    assert [region(report, name)["writes"] for name in ("fpga", "half", "view")] == [1, 1, 0]


def refusal(guest, memory, size="4M"):
    """Returns the only line of a target that does not start."""
    done = guest.run(f"shotline target --region fpga={size},memory={memory} --listen [{GUEST6}]:0 --bind [{GUEST6}]:0")
    lines = done.output.splitlines()
    assert done.code == 1 and len(lines) == 1, done.output
    assert lines[0].startswith("shotline: region fpga: "), lines
    return lines[0]


SATA = "0000:00:1f.2"  # of the machine q35; Linux has no driver for it in the guest
REFUSED = [
    ("bar:0000:00:1e.0/2", "4M", "no PCI device 0000:00:1e.0: /sys/bus/pci/devices/0000:00:1e.0 does not exist"),
    (f"bar:{BAR}", "8M", f"BAR 2 of {DEVICE} has 4194304 bytes, 8388608 bytes are requested: request less"),
    (f"bar:{DEVICE}/0", "4K", f"BAR 0 of {DEVICE} has 256 bytes, 4096 bytes are requested: request less"),
    (
        f"bar:{DEVICE}/4",
        "4K",
        f"BAR 4 of {DEVICE} is absent, expected a memory BAR: the device has 0 (256 B), 2 (4.0 MiB)",
    ),
    (f"bar:{SATA}/4", "32", f"BAR 4 of {SATA} is of I/O ports, expected a memory BAR: the device has 5 (4.0 KiB)"),
]


@pytest.mark.parametrize("memory, size, message", REFUSED, ids=["device", "size", "registers", "absent", "ports"])
def test_a_bar_that_cannot_be_served_is_refused_with_the_reason(guest, memory, size, message):
    assert message in refusal(guest, memory, size)


def test_a_bar_that_a_driver_uses_is_refused(guest):
    drive = guest.run("basename $(readlink -f /sys/class/nvme/nvme0/device)").succeeded().strip()
    assert "a driver has probably claimed the BAR: unbind it" in refusal(guest, f"bar:{drive}/0", "4K")


IO_AND_MEMORY = 3  # in the command register, as the firmware has set it


@pytest.fixture
def command_register(guest):
    """Writes the low byte of the device's command register; restored, with the device present, at the end."""

    def write(low):
        guest.run(f"printf '\\{low:03o}' | dd of={SYSFS}/config bs=1 seek=4 conv=notrunc").succeeded()

    yield write
    guest.run(f"[ -e {SYSFS} ] || echo 1 >/sys/bus/pci/rescan; cd {SYSFS} && echo 1 >enable").succeeded()
    write(IO_AND_MEMORY)


def test_disabled_memory_is_refused_and_the_remedy_enables_it(guest, bar, command_register):
    command_register(0)
    message = refusal(guest, f"bar:{BAR}")
    assert f"the memory space of {DEVICE} is disabled" in message
    remedy = message.split(": ")[-1]
    assert remedy == f"echo 1 | sudo tee {SYSFS}/enable"
    guest.run(remedy.replace("sudo ", "")).succeeded()
    expected = fill(bar, "before")
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR}") as target, target.initiator() as initiator:
        assert initiator.read("fpga", 3, 5) == expected[3:8]


LOST = {
    "disabled": f"the memory space of {DEVICE} is disabled",
    "removed": f"{DEVICE} does not answer (its vendor id reads as 0xffff, or not at all)",
}


@pytest.mark.parametrize("how", LOST)
def test_a_target_ends_when_the_device_of_a_bar_is_lost(guest, bar, command_register, how):
    """No initiator reads, so that no answer shows it. QEMU answers by zeros, not by ones as PCI Express does."""
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR},rights=rw") as target, target.initiator() as initiator:
        initiator.write_acknowledged("fpga", 0, b"good")
        if how == "removed":
            guest.run(f"echo 1 >{SYSFS}/remove").succeeded()
        else:
            command_register(0)
        done = target.job.end()
        assert initiator.control.receive_message() is None, "its connection must be closed"
    assert done.code == 1 and f"shotline: region fpga: {LOST[how]}" in done.output, done.output
    (report,) = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert report["balanced"] is True, report


@pytest.mark.usefixtures("command_register")
def test_the_bar_of_a_device_that_is_found_again_is_served(guest, bar):
    """Linux assigns the addresses of its BARs, not the firmware."""
    expected = fill(bar, "before")
    guest.run(f"echo 1 >{SYSFS}/remove && echo 1 >/sys/bus/pci/rescan && echo 1 >{SYSFS}/enable").succeeded()
    with BarTarget(guest, f"fpga=4M,memory=bar:{BAR},rights=rw") as target, target.initiator() as initiator:
        initiator.write_acknowledged("fpga", 4097, b"good")
        expected[4097:4101] = b"good"
        assert initiator.read("fpga", 4090, 16) == expected[4090:4106]
        assert bar.read_bytes() == expected
