"""The endpoints over an RDMA device: Linux's own stack (rxe) in a QEMU guest, alone and with the software endpoint.

UPDATE=1 rewrites the device's column of the table in docs/capabilities.md (crates/verbs/tests/conformance-rxe.txt).
"""

import json
import os
import re
import signal
import subprocess

import pytest
from guest_setup import CONFORMANCE
from machine import GUEST, GUEST_2, GUEST_3, HOST

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S, until

COLUMN = ROOT / "crates" / "verbs" / "tests" / "conformance-rxe.txt"

TOKEN = "5ea15ea15ea15ea15ea15ea15ea15ea1"
CONTROL = 47920
SIZE = 16384
SPAN = 16 * SIZE

SOFT, DEVICE = "soft:soft:10.78.0.2", "rxe1"
CABLE = f"""
ip() {{ /usr/bin/ip "$@"; }}
mkdir -p /run
ip netns add soft
ip link add cable mtu 4300 type veth peer name cable mtu 4300 netns soft
ip address add 10.78.0.1/24 dev cable
ip link set cable up
ip -n soft address add 10.78.0.2/24 dev cable
ip -n soft link set cable up
rdma link add {DEVICE} type rxe netdev cable
until [ "$(cat /sys/class/infiniband/{DEVICE}/ports/1/gids/1 | tr -d :0)" ]; do sleep 0.05; done
"""


def run_conformance(guest, *ends):
    """Runs the conformance suite, which must pass; returns the rows of the table."""
    assert CONFORMANCE.exists(), f"there is no {CONFORMANCE}: cargo build --package shotline-verbs --examples"
    done = guest.run(f"ibverbs_conformance {' '.join(ends)}")
    rows = [line for line in done.output.splitlines() if "\t" in line]
    failed = "\n".join(line for line in done.output.splitlines() if "\t" not in line)
    assert done.code == 0 and not failed, failed
    assert len(rows) > 50, done.output
    return rows


def test_a_device_conforms_to_the_verbs(guest):
    ends = [f"rxe0,gid={guest.gid(address)}" for address in (GUEST, GUEST_2, GUEST_3)]
    rows = run_conformance(guest, *ends)
    column = "".join(f"{row}\n" for row in rows)
    if os.environ.get("UPDATE"):
        COLUMN.write_text(column)
    assert COLUMN.read_text() == column, f"{COLUMN.name} differs from the results of the checks: UPDATE=1 rewrites it"


@pytest.fixture(scope="module")
def cable(guest):
    """A second device in the guest, on a cable to a network namespace with the software endpoint."""
    guest.run(CABLE).succeeded()
    yield
    guest.run(f"rdma link delete {DEVICE} && /usr/bin/ip netns delete soft").succeeded()


@pytest.mark.parametrize("ends", [(DEVICE, SOFT), (SOFT, DEVICE)], ids=["from-device", "from-software"])
def test_a_device_and_the_software_endpoint_conform_together(guest, cable, ends):
    rows = run_conformance(guest, *ends)
    assert sum(row.endswith("\tyes") for row in rows) > 55, rows


# --- between the guest and this machine --------------------------------------------------------------


def device(guest):
    return f"ibverbs:rxe0,gid={guest.gid()}"


class HostProgram:
    """A program of this repository at the host's end of the cable."""

    def __init__(self, guest, words):
        command = guest.on_host(PROGRAM, *words.split())
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_until_listening(self):
        """Waits until a target reports that it waits for initiators."""
        text = ""
        while "target waits" not in text:
            line = self.process.stderr.readline()
            assert line, f"it has ended: {text}"
            text += line

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self):
        """Waits for the end and returns the report."""
        out, errors = self.process.communicate(timeout=WAIT_TIMEOUT_S)
        assert "panicked" not in errors, errors
        assert self.process.returncode == 0, errors
        return json.loads(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def parse_report(done):
    """Returns the report of a program of this repository in the guest."""
    return json.loads(done.succeeded().splitlines()[-1])


# verb, kind of queue pair, bytes of an operation
OPERATIONS = [
    ("write", "rc", SIZE),
    ("read", "rc", SIZE),
    ("send", "rc", SIZE),
    ("atomic", "rc", 8),
    ("write", "uc", SIZE),
    ("send", "uc", SIZE),
    ("send", "ud", 4096),
]


def perf(verb, kind, size, to, *more):
    words = f"perf {verb} --qp {kind} --size {size} --span {SPAN} --depth 2 --seconds 0.1 --json"
    return " ".join([words, f"--to {to}:{CONTROL} --token {TOKEN}", *more])


def target(listen, region, *more):
    words = f"target --region memory={SPAN},file={region},rights=atomic --messages --json"
    return " ".join([words, f"--listen {listen}:{CONTROL} --token {TOKEN}", *more])


def check(verb, kind, row, region):
    """Checks that operations completed and that written data is in place: byte i of remote memory is i modulo 251."""
    assert row["operations"] > 0, row
    if verb == "write" and kind == "rc":
        written = min(SPAN, row["operations"] * SIZE)
        assert region == bytes(at % 251 for at in range(written)) + bytes(SPAN - written)
    elif verb == "write":
        assert any(region), "nothing has arrived"
        assert all(byte in (0, at % 251) for at, byte in enumerate(region)), "data is at a wrong offset"
    elif verb == "send":
        assert 0 < row["received_bytes"] <= row["bytes"], row
    elif verb == "atomic":
        words = [int.from_bytes(region[at : at + 8], "little") for at in range(0, SPAN, 8)]
        assert sum(words) == row["operations"], "each operation must add 1, once"


@pytest.mark.parametrize("verb, kind, size", OPERATIONS)
def test_the_guest_s_device_reaches_memory_on_the_host(guest, tmp_path, verb, kind, size):
    region = tmp_path / "region"
    with HostProgram(guest, target(HOST, region, "--bind", HOST)) as host:
        host.wait_until_listening()
        row = parse_report(guest.run("shotline " + perf(verb, kind, size, HOST, f"--transport {device(guest)}")))
        host.interrupt()
        report = host.end()
    assert report["balanced"]
    assert row["transport"] == "ibverbs"
    check(verb, kind, row, region.read_bytes())


class GuestTarget:
    """A target on the guest's device, with a region that is a file."""

    def __init__(self, guest):
        self.guest = guest
        words = target(GUEST, "/tmp/region", f"--transport {device(guest)}")
        self.job = guest.spawn(f"rm -f /tmp/region\nshotline {words} &\necho $! >/share/target\nwait $!")

    def __enter__(self):
        until(lambda: "target waits" in self.job.output() or self.job.ended(), what="a target that waits")
        assert not self.job.ended(), self.job.output()
        return self

    def end(self):
        """Returns its report, and the contents of its region."""
        self.guest.run("kill $(cat /share/target)").succeeded()
        report = parse_report(self.job.end())
        self.guest.run("cp /tmp/region /share/region").succeeded()
        return report, (self.guest.share / "region").read_bytes()

    def __exit__(self, *_):
        if not self.job.ended():
            self.guest.run("kill -9 $(cat /share/target)")
            self.job.end()


@pytest.mark.parametrize("verb, kind, size", OPERATIONS)
def test_the_host_reaches_memory_of_the_guest_s_device(guest, verb, kind, size):
    with GuestTarget(guest) as server, HostProgram(guest, perf(verb, kind, size, GUEST, "--bind", HOST)) as host:
        row = host.end()
        report, region = server.end()
    assert report["balanced"] and report["provider"] == "ibverbs"
    check(verb, kind, row, region)


def test_a_reliable_connection_to_a_device_survives_packet_loss(guest):
    words = perf("write", "rc", SIZE, GUEST, "--bind", HOST, "--loss", "0.02", "--group", "8")
    with GuestTarget(guest) as server, HostProgram(guest, words) as host:
        row = host.end()
        _, region = server.end()
    assert row["retransmitted"] > 0
    check("write", "rc", row, region)


def test_a_missing_device_is_reported_with_the_available_ones(guest):
    done = guest.run("shotline target --region a=4K --transport ibverbs:mlx5_0")
    assert done.code == 1
    assert re.search(r'no RDMA device "mlx5_0"; found .*rxe0', done.output), done.output
    done = guest.run("shotline target --region a=4K --transport ibverbs:rxe0,gid=200")
    assert f"({GUEST})" in done.output, done.output


def test_memory_that_no_device_can_register_is_refused(guest):
    done = guest.run(f"shotline target --region a=4K,memory=emulated --transport {device(guest)} --listen {GUEST}:0")
    assert done.code == 1 and "shotline: region a: an RDMA device cannot register" in done.output, done.output
    assert "--transport soft" in done.output, done.output


def test_images_are_read_over_an_rdma_device_into_frame_buffers(guest):
    words = f"--transport {device(guest)} --display none --mode 160x120@60 --count 5 --frames 12"
    report = parse_report(guest.run(f"shotline images --json {words}"))
    assert (report["shown"], report["verified"], report["images_read"]) == (12, 12, 12), report
