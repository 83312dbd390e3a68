"""Endpoints: `shotline target` serves memory, `shotline perf` measures it, and an independent initiator tests it.

That initiator is in `initiator.py`.
"""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest
from initiator import ACK, ATOMIC_ACK, FETCH_ADD, Initiator
from memory_target import Target, perf, region

from common import PROGRAM, WAIT_TIMEOUT_S, Process, run, until


@pytest.fixture
def exposed(tmp_path):
    """A target on IPv6 with a writable file, read-only memory, and memory for atomic operations."""
    file = tmp_path / "memory"
    regions = (
        "--region",
        f"data=8K,file={file},rights=rw",
        "--region",
        "quiet=4K",
        "--region",
        "count=64,rights=atomic",
    )
    with Target(*regions, bind="[::1]:0", listen="[::1]:0") as target:
        target.file = file
        yield target


def test_an_independent_initiator_writes_reads_and_counts(exposed):
    with Initiator(exposed) as initiator:
        assert [key["rights"] for key in initiator.keys.values()] == ["rw", "r", "rwa"]
        initiator.write_acknowledged("data", 100, b"from afar...")
        assert exposed.file.read_bytes()[100:112] == b"from afar..."
        assert initiator.read("data", 104, 8) == b" afar..."
        for before in (0, 5):
            key = initiator.keys["count"]
            initiator.send(FETCH_ADD, struct.pack(">QIQQ", key["address"] + 8, key["rkey"], 5, 0))
            opcode, psn, rest = initiator.answer()
            assert (opcode, psn, int.from_bytes(rest[4:12])) == (ATOMIC_ACK, initiator.psn, before)
            initiator.psn = (initiator.psn + 1) % (1 << 24)
    report = exposed.end_report()
    data = region(report, "data")
    assert (data["writes"], data["bytes_in"], data["reads"], data["bytes_out"]) == (1, 12, 1, 8), data
    assert region(report, "count")["atomics"] == 2
    assert report["queue_pairs"]["drops"] == {}


WRONG = {
    "another key": ("bad_key", lambda i: i.write("data", 0, b"evil", **other_key(i))),
    "one byte past the end": ("bad_bounds", lambda i: i.write("data", 8192 - 3, b"evil")),
    "an address that wraps": ("bad_bounds", lambda i: i.write("data", 2**64 - 2, b"evil")),
    "a region that may only be read": ("bad_rights", lambda i: i.write("quiet", 0, b"evil")),
}


def other_key(initiator):
    """Replaces the key of `data` by another one; returns no options for the packet."""
    initiator.keys["data"] = {**initiator.keys["data"], "rkey": initiator.keys["data"]["rkey"] ^ 1}
    return {}


@pytest.mark.parametrize("what", WRONG)
def test_a_forbidden_access_is_refused_and_the_qp_keeps_working(exposed, what):
    cause, attempt = WRONG[what]
    with Initiator(exposed) as initiator:
        keys = dict(initiator.keys)
        initiator.write_acknowledged("data", 0, b"good")
        attempt(initiator)
        initiator.keys = keys
        initiator.write_acknowledged("data", 4, b"more")  # the first answer is to this write
        assert initiator.refused() == 1 and initiator.received_nothing()
        assert exposed.file.read_bytes() == b"goodmore" + bytes(8184)
    report = exposed.end_report()
    assert report["queue_pairs"]["drops"] == {cause: 1}
    assert region(report, "quiet")["writes"] == 0


def test_forged_packets_change_nothing_for_the_real_initiator(tmp_path):
    file = tmp_path / "memory"
    with (
        Target("--region", f"data=8K,file={file},rights=rw") as target,
        Initiator(target) as initiator,
        Initiator(target) as attacker,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as elsewhere,
    ):
        initiator.write_acknowledged("data", 0, b"good")
        keys, attacker.keys = attacker.keys, initiator.keys
        attacker.write("data", 0, b"evil")  # the key belongs to another protection domain
        # Another program on the initiator's host: another port.
        attacker.write("data", 0, b"evil", qp=initiator.accept["qp"], psn=initiator.psn)
        attacker.keys = keys
        attacker.write("data", 0, b"evil", qp=initiator.accept["qp"] ^ 0x555555)
        # An attacker at another address with every correct number.
        elsewhere.bind(("127.0.0.3", 0))
        initiator.write("data", 0, b"evil", source=elsewhere)
        initiator.write("data", 0, b"evil", crc=b"\1\2\3\4")
        initiator.socket.sendto(b"\x0a" + bytes(20), initiator.to)
        initiator.write(
            "data", 0, b"evil", psn=initiator.psn + 1000
        )  # a guessed PSN, as if packets before it were lost
        opcode, psn, rest = initiator.answer()
        assert (opcode, psn, rest[0]) == (ACK, initiator.psn, 0x60)
        initiator.write_acknowledged("data", 4, b"more")
        assert attacker.received_nothing() and initiator.received_nothing()
        # A duplicate of an earlier packet: acknowledged, and not executed again.
        with file.open("r+b") as other:
            other.seek(4)
            other.write(b"xxxx")
        initiator.write("data", 4, b"more", psn=initiator.psn - 1)
        assert initiator.answer()[0] == ACK
        assert file.read_bytes() == b"goodxxxx" + bytes(8184)
        report = target.end_report()
    dropped = {**report["endpoint"]["drops"], **report["queue_pairs"]["drops"]}
    assert dropped.items() >= {"unknown_qp": 1, "bad_icrc": 1, "malformed": 1, "bad_source": 2, "bad_key": 1}.items()
    assert region(report, "data")["writes"] == 2, report


def test_an_emulated_accelerator_is_written_and_read_anywhere():
    """Its memory is not mapped: payloads pass through copies of the device."""
    with Target("--region", "hbm=64K,memory=emulated:path2:latency=5us,rights=rw") as target:
        with Initiator(target) as initiator:
            initiator.write_acknowledged("hbm", 0, bytes(range(200)))
            initiator.write_acknowledged("hbm", 13, b"from afar...")
            expected = bytes(range(13)) + b"from afar..." + bytes(range(25, 200))
            assert initiator.read("hbm", 0, 200) == expected
            assert initiator.read("hbm", 7, 31) == expected[7:38]
        report = target.end_report()
    counted = region(report, "hbm")
    assert (counted["writes"], counted["bytes_in"], counted["reads"], counted["bytes_out"]) == (2, 212, 2, 231)


def test_keys_are_revoked_with_their_connection(exposed):
    with Initiator(exposed) as first:
        old = first.keys
        first.write_acknowledged("data", 0, b"good")
    with Initiator(exposed) as second:
        assert {key["rkey"] for key in old.values()}.isdisjoint(key["rkey"] for key in second.keys.values())
        new, second.keys = second.keys, old
        second.write("data", 0, b"evil")
        second.keys = new
        assert second.read("data", 0, 4) == b"good"
    assert exposed.end_report()["queue_pairs"]["drops"] == {"bad_key": 1}


# --- target and perf -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["write", "read", "send", "atomic"])
def test_a_rate_is_measured_with_a_target_of_its_own(verb):
    size = 8 if verb == "atomic" else 12345
    row = perf(None, verb, "--size", size, "--group", 4, "--depth", 2, "--seconds", 0.05, "--iterations", 2, "--json")
    row = row.succeeded()
    assert (row["verb"], row["size"], row["group"], row["depth"], row["iterations"]) == (verb, size, 4, 2, 2)
    assert row["operations"] > 0 and row["operations"] % 4 == 0 and row["bytes"] == row["operations"] * size
    assert row["time_us"]["count"] * 4 == row["operations"], "not all groups were timed"
    assert 0 < row["gbps"]["worst"] <= row["gbps"]["average"]
    # The rate of two iterations together lies between theirs.
    worst, best = row["gbps"]["worst"], 2 * row["gbps"]["average"] - row["gbps"]["worst"]
    assert worst * 0.999 <= row["bytes"] * 8e-9 / row["seconds"] <= best * 1.001, row
    for cpu in ("cpu_initiator_percent", "cpu_target_percent"):
        assert 0 < row[cpu]["average"] <= row[cpu]["worst"]


def test_a_program_that_has_been_removed_still_starts_its_target(tmp_path):
    program = tmp_path / "shotline"
    shutil.copy(PROGRAM, program)
    file = os.open(program, os.O_RDONLY)
    program.unlink()
    words = [f"/proc/self/fd/{file}", "perf", "write", "--size", "8", "--seconds", "0.05", "--json"]
    done = subprocess.run(words, check=False, pass_fds=[file], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S)
    os.close(file)
    assert done.returncode == 0 and json.loads(done.stdout)["operations"] > 0, done.stderr


def test_retransmissions_are_in_the_summary():
    flags = ("--size", "64K", "--loss", 0.05, "--seconds", 0.5)
    row = perf(None, "write", *flags, "--json").succeeded()
    assert row["retransmitted"] > 0 and row["timeouts"] <= row["retransmitted"]
    assert row["time_us"]["count"] * row["group"] == row["operations"]
    table = perf(None, "write", *flags)
    assert table.code == 0 and "timeouts" in table.stdout, table.stderr


def test_latencies_are_measured_with_a_target_of_its_own():
    ended = perf(None, "latency", "--operation", "write,read,atomic,send,ping", "--seconds", 0.05, "--json")
    assert ended.code == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["verb"] for row in rows] == [f"{verb} latency" for verb in ("write", "read", "atomic", "send", "ping")]
    for row in rows:
        us = row["time_us"]
        assert us["count"] == row["operations"] and 0 < us["min"] <= us["p50"] <= us["p99"] <= us["max"], row
        assert row["half_round_trip"] == (row["verb"] in ("send latency", "ping latency"))


def test_every_perf_mode_completes_operations():
    short = ("--seconds", 0.05, "--json")
    both = perf(None, "write", "--size", "64K", "--group", 4, "--bidirectional", *short).succeeded()
    assert both["reverse_gbps"]["average"] > 0
    pairs = perf(None, "read", "--size", "4K", "--queue-pairs", 8, *short).succeeded()
    assert pairs["queue_pairs"] == 8 and pairs["operations"] >= 8
    sleeping = perf(None, "write", "--size", "4K", "--event", *short).succeeded()
    assert sleeping["event"] is True and sleeping["operations"] > 0
    post = perf(None, "write", "--group", 64, "--post-only", *short).succeeded()
    assert post["post_ns"]["average"] > 0 and post["complete_ns"]["average"] > 0
    walk = perf(None, "write", "--size", "4K", "--span", "1M", "--mtu", 1024, *short).succeeded()
    assert walk["mtu"] == 1024 and walk["operations"] > 0


@pytest.mark.parametrize("verb", ["write", "read", "send", "atomic"])
def test_perf_works_over_shared_memory(verb):
    size = 8 if verb == "atomic" else 4096
    flags = ("--transport", "shm", "--group", 4, "--queue-pairs", 2, "--seconds", 0.05, "--json")
    row = perf(None, verb, "--size", size, *flags).succeeded()
    assert row["transport"] == "shm" and row["operations"] > 0 and row["bytes"] == row["operations"] * size


def test_an_emulated_accelerator_is_measured_over_shared_memory(tmp_path):
    """The initiator's copies take the time of the path, which the target has announced."""
    spec = "hbm=1M,memory=emulated:write=20MB/s:read=10MB/s,rights=rw"
    with Target("--region", spec, "--transport", "shm", listen=tmp_path / "target") as target:
        flags = ("--transport", "shm", "--size", "256K", "--depth", 2, "--seconds", 0.05, "--json")
        for verb, rate in (("write", 20e6), ("read", 10e6)):
            row = perf(target, verb, *flags).succeeded()
            assert row["operations"] > 0
            # At most 100 us early at the end.
            assert row["bytes"] / rate <= row["seconds"] + 0.001, row
        assert "rights" in perf(target, "atomic", "--transport", "shm", "--seconds", 0.05).refused()
        target.end_report()


def test_latencies_are_measured_over_shared_memory():
    verbs = ("write", "read", "atomic", "send", "ping")
    ended = perf(None, "latency", "--transport", "shm", "--operation", ",".join(verbs), "--seconds", 0.05, "--json")
    assert ended.code == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["time_us"]["count"] for row in rows] == [row["operations"] for row in rows] and len(rows) == 5


def test_a_span_of_zero_is_refused():
    assert "--span above 0" in run("perf", "write", "--span", 0).refused()


def test_a_shared_memory_target_has_an_owner_only_socket(tmp_path):
    path = tmp_path / "target"
    regions = ("--region", "a=64K,rights=rw", "--region", "ro=4K")
    with Target(*regions, "--transport", "shm", "--every", 0.1, listen=path) as target:
        assert target.address == str(path) and path.stat().st_mode & 0o777 == 0o600
        flags = ("--transport", "shm", "--size", "4K", "--seconds", 0.05, "--json")
        assert perf(target, "read", "--region", "ro", *flags).succeeded()["operations"] > 0
        assert "rights 'r'" in perf(target, "write", "--region", "ro", *flags).refused()
        wrong = ("--to", path, "--token", "0" * 32)
        assert "token" in run("perf", "read", *flags, *wrong).refused()
        long = ("--transport", "shm", "--size", "4K", "--seconds", 1000, "--to", path, "--token", target.token)
        with Process("perf", "write", *long) as victim:
            until(
                lambda: any(report["control"]["welcomed"] == 3 for report in target.reports()),
                what="the connection to the target",
            )
            victim.signal(signal.SIGKILL)
        assert perf(target, "write", *flags).succeeded()["operations"] > 0
        report = target.end_report()
    assert report["provider"] == "shm" and report["control"]["welcomed"] == 4 and report["initiators"] == []
    assert not path.exists()


def test_the_papers_tables_are_printed_with_the_measured_ones():
    ended = perf(None, "--matrix", "--seconds", 0.01, "--json")
    assert ended.code == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["paper"]["table"] for row in rows] == ["I"] * 7 + ["II"] * 7 + ["III"] * 7 + ["IV"] * 7
    assert rows[13]["paper"]["gbps"] == [23.45, 23.44] and (rows[13]["size"], rows[13]["group"]) == (256 << 10, 8)
    assert all(row["operations"] > 0 for row in rows)
    words = perf(None, "--matrix", "--seconds", 0.01).stdout
    assert all(f"Table {number}:" in words for number in ("I", "II", "III", "IV")) and "23.45 (23.44)" in words


def test_two_initiators_write_and_read_without_interference(tmp_path):
    file = tmp_path / "log"
    regions = ("--region", f"log=1M,file={file},rights=rw", "--region", "other=1M,rights=rw")
    with Target(*regions) as target:
        flags = ("--size", "4K", "--group", 16, "--seconds", 0.2, "--json", "--to", target.address)
        with (
            Process("perf", "write", *flags, "--token", target.token, "--region", "log") as first,
            Process("perf", "read", *flags, "--token", target.token, "--region", "other") as second,
        ):
            written, read = first.end().succeeded(), second.end().succeeded()
        report = target.end_report()
    expected = bytes(i % 251 for i in range(16 * 4096))
    found = file.read_bytes()
    assert len(found) == 1 << 20 and found[: len(expected)] == expected and not any(found[len(expected) :])
    log, other = region(report, "log"), region(report, "other")
    assert (log["writes"], log["bytes_in"], log["reads"]) == (written["operations"], written["bytes"], 0)
    assert (other["reads"], other["bytes_out"], other["writes"]) == (read["operations"], read["bytes"], 0)
    assert report["control"]["welcomed"] == 2 and report["initiators"] == []


# Fills the first 64 KiB of a file with one byte value after the other, until its input ends.
WRITER = """
import mmap, os, select, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
words = [bytes([value]) * 65536 for value in range(256)]
print("writing", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for word in words:
        memory[:65536] = word
"""


def test_a_file_that_another_process_writes_is_read_untorn(tmp_path):
    file = tmp_path / "memory"
    with Target("--region", f"data=64K,file={file},rights=rw", bind="[::1]:0", listen="[::1]:0") as target:
        command = [sys.executable, "-c", WRITER, file]
        with (
            Initiator(target) as initiator,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer,
        ):
            assert writer.stdout.readline() == b"writing\n"
            for _ in range(200):
                data = initiator.read_long("data", 65536)  # which checks each packet's ICRC
                words = struct.unpack(f"{len(data) // 8}Q", data)
                torn = [word for word in words if word != word % 256 * 0x0101010101010101]
                assert not torn, hex(torn[0])
                initiator.write_acknowledged("data", 0, bytes(1024))
            writer.stdin.close()
        report = target.end_report()
    assert (region(report, "data")["reads"], region(report, "data")["writes"]) == (200, 200)
    assert report["endpoint"]["packets_copied"] == 200 * 64 and report["endpoint"]["drops"] == {}


def test_a_killed_initiator_leaves_no_resources():
    with Target("--region", "a=1M,rights=rw", "--every", 0.1) as target:
        flags = ("--size", "256K", "--group", 4, "--seconds", 1000, "--to", target.address, "--token", target.token)
        with Process("perf", "write", *flags) as victim:
            reports_show = lambda check: lambda: any(check(report) for report in target.reports())
            until(reports_show(lambda report: region(report, "a")["writes"] > 0), what="a write")
            victim.signal(signal.SIGKILL)
            until(reports_show(lambda report: not report["initiators"]), what="the end of its queue pairs")
        assert perf(target, "write", "--size", "4K", "--seconds", 0.05, "--json").succeeded()["operations"] > 0
        assert target.end_report()["control"]["welcomed"] == 2


@pytest.mark.parametrize("event", [(), ("--event",)], ids=["polling", "sleeping"])
def test_perf_reports_a_killed_target(event):
    with Target("--region", "a=1M,rights=rw", "--every", 0.1) as target:
        flags = ("--size", "64K", "--seconds", 1000, "--to", target.address, "--token", target.token, *event)
        with Process("perf", "write", *flags) as initiator:
            until(lambda: any(region(report, "a")["writes"] > 0 for report in target.reports()), what="a write")
            target.signal(signal.SIGKILL)
            message = initiator.end().refused()
    assert any(words in message for words in ("target broke", "closed the connection", "not respond")), message


def test_interrupted_perf_ends_its_target_and_reports():
    with Process("perf", "write", "--size", "4K", "--seconds", 1000, "--json") as process:
        children = until(lambda: descendants(process.pid), what="a target")
        # It would run for 1000 s, so the interrupt arrives while it measures.
        until(lambda: processor_time_s(process.pid) > 0.5, what="half a second of a processor")
        row = process.interrupt().succeeded()
        assert row["operations"] > 0 and row["seconds"] < 1000
        until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), what="the target's end")


def descendants(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def processor_time_s(pid):
    """Returns the processor time that a process has used, in seconds."""
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["write", "--region", "ro"], ["rights 'r'", "'w'"]),
        (["write", "--region", "nowhere"], ["no region nowhere"]),
        (["read", "--size", "2M"], ["no region of 2097152 bytes"]),
        (["send"], ["--messages"]),
        (["write", "--bidirectional"], ["--messages"]),
        (["atomic"], ["rights 'a'"]),
        (["send", "--bidirectional"], ["write and read"]),
    ],
)
def test_operations_the_target_does_not_offer_are_refused(flags, words):
    with Target("--region", "ro=1M", "--region", "rw=1M,rights=rw") as target:
        size = () if "--size" in flags or "atomic" in flags else ("--size", "4K")
        message = perf(target, *flags, *size, "--seconds", 0.05).refused()
        assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["target", "--region", "a=4K", "--bind", "192.0.2.1"], ["192.0.2.1"]),
        (["target", "--region", "a=4K", "--region", "a=4K"], ["a region named a is already exported"]),
        (["target", "--region", "a=4K,file=/dev/null/x"], ["/dev/null/x"]),
        (["target", "--region", "a=4K", "--listen", "nowhere"], ["ADDRESS:PORT", "nowhere"]),
        (["target", "--region", "a=4K", "--transport", "shm"], ["--listen PATH"]),
        (["target", "--region", "a=4K,rights=w", "--transport", "shm"], ["rights=rw"]),
        (["target", "--region", "a=4K,file=/tmp/x", "--transport", "shm"], ["memfd"]),
        (["perf", "read", "--to", "127.0.0.1:1", "--token", "0" * 32], ["127.0.0.1:1"]),
        (["perf", "latency", "--operation", "ping", "--size", "4K"], ["8 to 64"]),
    ],
)
def test_impossible_settings_are_refused(flags, words):
    if flags[0] == "target" and "--bind" not in flags and "shm" not in flags:
        flags = [*flags, "--bind", "127.0.0.1:0"]
    message = run(*flags).refused()
    assert all(word in message for word in words), message


def test_a_target_ends_after_its_time_with_a_report():
    with Target("--region", "a=4K", "--seconds", 0.3) as target:
        report = target.end().succeeded()
    assert report["kind"] == "end" and report["seconds"] >= 0.3 and report["balanced"] is True


@pytest.mark.parametrize("command", ["target", "perf"])
def test_the_help_has_examples(command):
    end = run(command, "--help")
    assert end.code == 0 and "Examples" in end.stdout and "--json" in end.stdout


def test_latencies_against_a_plain_target_are_measured():
    with Target("--region", "a=4K") as target:
        ended = perf(target, "latency", "--seconds", 0.05, "--json")
        assert ended.code == 0 and [json.loads(line)["verb"] for line in ended.stdout.splitlines()] == ["read latency"]
        for word in ["write latency: not measured", "send latency: not measured", "ping latency", "--messages"]:
            assert word in ended.stderr, ended.stderr
        assert "--messages" in perf(target, "latency", "--operation", "ping", "--seconds", 0.05).refused()
