"""`shotline get` and `shotline put`: a region of a target to and from files and pipes, over every provider."""

import json
import os
import random
import signal
import subprocess

import pytest
from memory_target import Target, region

from common import PROGRAM, WAIT_TIMEOUT_S, Outcome, until

TOKEN = "00112233445566778899aabbccddeeff"
# Not a multiple of an operation, and more than all operations in flight.
LENGTH = 5 * (1 << 20) + 3
BYTES = random.Random(1).randbytes(LENGTH)
TRANSPORTS = ["soft", "shm", "spacefibre", "spacefibre:shm"]


def start(tmp_path, transport="soft", *more, regions=("data=8M,rights=rw", "ro=64K")):
    flags = [word for spec in regions for word in ("--region", spec)]
    options = {"listen": tmp_path / "target"} if "shm" in transport else {}
    target = Target(*flags, "--transport", transport, "--token", TOKEN, *more, **options)
    target.transport = transport
    return target


def command(name, target, *arguments, token=TOKEN):
    access = ("--to", str(target.address), "--token", token, "--transport", target.transport)
    return [PROGRAM, name, *map(str, arguments), *access]


def outcome(name, target, *arguments, data=None, token=TOKEN, **options):
    """Runs the command. `data` is its standard input; its standard output is bytes, unless it is given."""
    words = command(name, target, *arguments, token=token)
    options.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(
        words, input=data or b"", stderr=subprocess.PIPE, timeout=WAIT_TIMEOUT_S, check=False, **options
    )
    return Outcome(" ".join(words[1:]), done.returncode, done.stdout or b"", done.stderr.decode())


def get(target, *arguments, **options):
    return outcome("get", target, *arguments, **options)


def put(target, *arguments, **options):
    return outcome("put", target, *arguments, **options)


def row(ended):
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_file_is_written_and_read_back(tmp_path, transport):
    (tmp_path / "in").write_bytes(BYTES)
    with start(tmp_path, transport) as target:
        written = row(put(target, "data", tmp_path / "in", "--offset", 1000, "--json"))
        read = row(get(target, "data", tmp_path / "out", "--offset", 1000, "--length", LENGTH, "--json"))
        around = get(target, "data", "--offset", 998, "--length", 4).stdout
        report = target.end_report()
    assert (tmp_path / "out").read_bytes() == BYTES
    assert around == bytes(2) + BYTES[:2], "other bytes of the region have changed"
    common = {"region": "data", "offset": 1000, "bytes": LENGTH, "operations": 21, "transport": transport.split(":")[0]}
    assert written.items() >= {"command": "put", **common}.items()
    assert read.items() >= {"command": "get", **common}.items()
    counted = region(report, "data")
    if transport != "shm":  # its target does not see the operations
        assert (counted["writes"], counted["bytes_in"]) == (21, LENGTH)
        assert counted["bytes_out"] >= LENGTH + 4


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_pipes_are_written_and_read(tmp_path, transport):
    with start(tmp_path, transport) as target:
        assert put(target, "data", data=BYTES).code == 0
        assert put(target, "data", "-", "--offset", LENGTH, data=b"end").code == 0
        ended = get(target, "data", "-", "--length", LENGTH + 3)
        assert ended.stdout == BYTES + b"end" and not ended.stderr
        # The report does not mix with the bytes.
        ended = get(target, "data", "--length", 2, "--json")
        assert ended.stdout == BYTES[:2] and json.loads(ended.stderr)["bytes"] == 2


def test_a_whole_region_is_written_and_read(tmp_path):
    with start(tmp_path, regions=["data=1M,rights=rw"]) as target:
        data = BYTES[: 1 << 20]
        assert put(target, "data", data=data).code == 0
        assert get(target, "data").stdout == data
        assert get(target, "data", "--offset", "1M").stdout == b"", "the end of the region is a valid offset"
        assert row(put(target, "data", "--offset", "1M", "--json"))["operations"] == 0


def test_regions_are_listed(tmp_path):
    with start(tmp_path) as target:
        listed = row(get(target, "--json"))
        table = get(target).stdout.decode()
    assert listed == {
        "regions": [
            {"name": "data", "bytes": 8 << 20, "rights": "rw"},
            {"name": "ro", "bytes": 64 << 10, "rights": "r"},
        ]
    }
    assert [line.split() for line in table.splitlines()] == [
        ["region", "size", "rights"],
        ["data", "8", "MiB", "rw"],
        ["ro", "64", "KiB", "r"],
    ]


def test_more_bytes_than_the_region_has_are_refused(tmp_path):
    (tmp_path / "in").write_bytes(bytes(65))
    with start(tmp_path, regions=["data=64,rights=rw"]) as target:
        # Of a file the length is known before: nothing is written.
        message = put(target, "data", tmp_path / "in").refused()
        assert "at most 64 bytes" in message and "found 65" in message and "--length" in message, message
        message = put(target, "data", tmp_path / "in", "--offset", 1, "--length", 64).refused()
        assert "at most 63 bytes" in message and "found --length 64" in message, message
        # Of a pipe it is not.
        message = outcome("put", target, "data", data=b"x" * 65).refused()
        assert "at most 64 bytes" in message and "found more" in message, message
        message = get(target, "data", "--offset", 60, "--length", 5).refused()
        assert "at most 4 bytes" in message and "found --length 5" in message, message
        for name in ("get", "put"):
            message = outcome(name, target, "data", "--offset", 65).refused()
            assert "--offset of at most 64" in message and "found 65" in message, message
        assert put(target, "data", tmp_path / "in", "--length", 64).code == 0


def test_a_short_input_is_an_error(tmp_path):
    (tmp_path / "in").write_bytes(b"abc")
    with start(tmp_path) as target:
        message = put(target, "data", tmp_path / "in", "--length", 4).refused()
        assert "expected 4 bytes" in message and "found 3" in message, message
        message = put(target, "data", "--length", 4, data=b"abc").refused()
        assert "expected 4 bytes in standard input, found 3" in message, message


def test_missing_regions_and_rights_are_named(tmp_path):
    with start(tmp_path, regions=["data=64,rights=rw", "ro=64", "wo=64,rights=w"]) as target:
        message = get(target, "nowhere").refused()
        assert "no region nowhere" in message and "data, ro, wo" in message, message
        message = put(target, "ro", data=b"x").refused()
        assert "rights 'r', 'w' are needed" in message and "rights=rw" in message, message
        message = get(target, "wo").refused()
        assert "rights 'w', 'r' are needed" in message, message
        assert put(target, "wo", data=b"x").code == 0


def test_a_wrong_token_is_refused_with_the_remedy(tmp_path):
    with start(tmp_path) as target:
        for name, arguments in [("get", ()), ("get", ("data",)), ("put", ("data",))]:
            message = outcome(name, target, *arguments, token="f" * 32).refused()
            assert "wrong token" in message and "--token-file" in message, message


def test_a_target_that_does_not_run_is_named():
    words = ["get", "a", "--to", "127.0.0.1:1", "--token", TOKEN]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    message = Outcome(" ".join(words), done.returncode, done.stdout, done.stderr).refused()
    assert "cannot reach the target at 127.0.0.1:1" in message, message


def test_output_that_cannot_be_written_is_an_error(tmp_path):
    with start(tmp_path) as target:
        with open("/dev/full", "wb") as full:
            message = get(target, "data", stdout=full).refused()
        assert "cannot write to standard output: No space left" in message, message
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as closed:
            message = get(target, "data", stdout=closed).refused()
        assert "cannot write to standard output: Broken pipe" in message, message


def test_an_existing_file_is_replaced_only_by_force(tmp_path):
    out = tmp_path / "out"
    out.write_bytes(b"before")
    with start(tmp_path) as target:
        assert "--force" in get(target, "ro", out).refused() and out.read_bytes() == b"before"
        assert get(target, "ro", out, "--force").code == 0 and out.read_bytes() == bytes(64 << 10)
        assert "no region" in get(target, "nowhere", tmp_path / "other").refused()
        assert sorted(os.listdir(tmp_path)) == ["out"], "no partial file is left"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_target_killed_while_put_writes_is_reported(tmp_path, transport):
    with start(tmp_path, transport) as target:
        words = command("put", target, "data")
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            # More than a pipe holds, so put is connected and reads; it waits for the rest of an operation.
            process.stdin.write(BYTES[: 1 << 20])
            process.stdin.flush()
            target.signal(signal.SIGKILL)
            # The input stays open: put notices by itself.
            message = process.stderr.read().decode()
            code = process.wait(WAIT_TIMEOUT_S)
            assert not process.stdout.read()
            process.stdin.close()
    assert code == 1 and message.startswith("shotline: after ") and len(message.splitlines()) == 1, message
    assert "closed the connection" in message or "does not respond" in message, message


def test_a_target_killed_while_get_reads_is_reported(tmp_path):
    with start(tmp_path, regions=["data=64M,rights=rw"]) as target:
        words = command("get", target, "data")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            received = len(process.stdout.read(1 << 20))  # it has read, and is far from the end: the pipe is full
            target.signal(signal.SIGKILL)
            until(lambda: target.popen.poll() is not None, what="the end of the target")
            received += len(process.stdout.read())
            message = process.stderr.read().decode()
            assert process.wait(WAIT_TIMEOUT_S) == 1
    assert f"after {received} of {64 << 20} bytes of region data: " in message, message
    assert "closed the connection" in message or "does not respond" in message, message


def test_an_interrupted_put_ends_with_an_error(tmp_path):
    with start(tmp_path, "soft", "--every", 0.1) as target:
        words = command("put", target, "data")
        with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(bytes(1 << 20))
            process.stdin.flush()
            until(lambda: any(region(report, "data")["writes"] > 0 for report in target.reports()), what="a write")
            process.send_signal(signal.SIGINT)
            message = process.stderr.read().decode()
            assert process.wait(WAIT_TIMEOUT_S) == 1 and "interrupted" in message, message
            process.stdin.close()
        report = target.end_report()
    assert report["initiators"] == []


def test_options_of_other_transports_are_refused(tmp_path):
    with start(tmp_path, "shm") as target:
        message = get(target, "data", "--bind", "127.0.0.1").refused()
        assert "--bind" in message and "shm" in message, message
        target.transport = "soft"
        assert "--transport shm" in put(target, "data", data=b"x").refused()
