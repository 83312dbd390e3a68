"""The guest of all tests against Linux's own RDMA stack, NVMe driver and PCI bus, booted once with all programs and drives.

It boots while tests run that need no guest. All tests share it and see the changes of earlier ones.
"""

import sys
import time
from pathlib import Path

import pytest

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S

sys.path.insert(0, str(ROOT / "guest"))

from image import Missing, output
from machine import Drive, Guest, GuestError

CONFORMANCE = Path(PROGRAM).parent / "examples" / "ibverbs_conformance"

MIB = 1 << 20
SECTOR = 512
PARTITION = range(8 * MIB, 72 * MIB)  # of the drive PARTED
SLOW = 500_000  # bytes/s
BAR_BYTES = 4 * MIB
# Writes to one sector always fail, to another one once.
FAULTS = """
[inject-error]
event = "write_aio"
iotype = "write"
errno = "5"
sector = "4096"
once = "off"

[inject-error]
event = "write_aio"
iotype = "write"
errno = "5"
sector = "6144"
once = "on"
"""


def table(partition):
    """Returns a partition table with one partition (MBR)."""
    start, count = partition.start // SECTOR, len(partition) // SECTOR
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + start.to_bytes(4, "little") + count.to_bytes(4, "little")
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def make_drives(folder):
    """Creates drives of every kind and returns them by serial number; FILES has a file system that is mounted."""
    drives = [Drive(folder / serial, serial, mdts=5) for serial in ("PLAIN", "EXT4", "SWAP", "PARTED", "FULL", "FILES")]
    drives += [Drive(folder / "LARGE", "LARGE", block=4096, mdts=1)]
    drives += [Drive(folder / "POWER", "POWER", mdts=5)]
    drives += [Drive(folder / "FAULTY", "FAULTY", mdts=5, faults=FAULTS)]
    drives += [Drive(folder / "SLOW", "SLOW", mdts=5, bytes_per_second=SLOW)]
    sizes = {"FULL": 16, "POWER": 64, "EXT4": 64}
    for drive in drives:
        with open(drive.file, "wb") as file:
            file.truncate(sizes.get(drive.serial, 256) * MIB)
    with open(folder / "PARTED", "r+b") as file:
        file.write(table(PARTITION))
    for serial in ("EXT4", "FILES"):
        output("/sbin/mke2fs", "-q", "-t", "ext4", folder / serial)
    return {drive.serial: drive for drive in drives}


def stripped(programs, folder):
    """Returns the programs without debug symbols, which would take the guest long to load."""
    for program in programs:
        output("strip", "-o", folder / program.name, program)
    return [folder / program.name for program in programs]


def clocks(guest):
    """Reads this machine's clock, then the guest's, then this machine's again; returns all three, in seconds."""
    before = time.monotonic()
    guest_s = float(guest.run("cut -d' ' -f1 /proc/uptime").succeeded())
    return before, guest_s, time.monotonic()


@pytest.fixture(scope="session")
def drives(tmp_path_factory):
    """The guest's drives by their serial numbers."""
    return make_drives(tmp_path_factory.mktemp("drives"))


@pytest.fixture(scope="session")
def bar(tmp_path_factory):
    """The file that is the memory of the guest's PCI device without a driver."""
    file = tmp_path_factory.mktemp("bar") / "bar"
    with open(file, "wb") as opened:
        opened.truncate(BAR_BYTES)
    return file


@pytest.fixture(scope="session")
def booting(tmp_path_factory, drives, bar):
    """The guest while it boots, or the error if none can be started."""
    programs = [Path(PROGRAM), *([CONFORMANCE] if CONFORMANCE.exists() else [])]
    try:
        programs = stripped(programs, tmp_path_factory.mktemp("programs"))
        guest = Guest(programs, drives=drives.values(), bar=bar, limit=WAIT_TIMEOUT_S, wait=False)
    except (Missing, GuestError) as error:
        yield error
        return
    with guest:
        yield guest


@pytest.fixture(scope="session")
def guest(booting):
    """The booted guest. FILES is mounted at /mnt; `numbers` maps serial numbers to the numbers in device names."""
    try:
        if not isinstance(booting, Guest):
            raise booting
        booting.booted()
    except (Missing, GuestError) as error:
        pytest.skip(f"NOT TESTED against Linux's RDMA stack, NVMe driver and PCI bus: {error}")
    booting.since = clocks(booting)
    listing = booting.run("for c in /sys/class/nvme/*; do echo $(cat $c/serial) ${c##*/nvme}; done").succeeded()
    booting.numbers = dict(line.split() for line in listing.splitlines())
    booting.run(f"mkdir /mnt && mount -t ext4 /dev/nvme{booting.numbers['FILES']}n1 /mnt").succeeded()
    return booting
