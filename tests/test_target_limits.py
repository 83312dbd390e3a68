"""A target's limits on connections, offers, memory and time, against faulty and malicious hosts."""

import contextlib
import json
import resource
import socket
import struct

import pytest
from initiator import Control, split
from memory_target import ROCE, Target, perf

from common import WAIT_TIMEOUT_S, Process, run, until


def test_a_wrong_token_is_refused_once_and_counted():
    with Target("--region", "a=4K") as target:
        with Control(target.address) as control:
            answer = control.hello("0" * 32)
            assert answer["type"] == "refused" and answer["cause"] == "token", answer
            assert control.receive_message() is None, "the connection must be closed"
        message = run("perf", "read", "--to", target.address, "--token", "f" * 32).refused()
        assert "token" in message
        assert perf(target, "read", "--size", "4K", "--seconds", "0.05", "--json").succeeded()["operations"] > 0
        report = target.end_report()
    assert (report["control"]["wrong_token"], report["control"]["welcomed"]) == (2, 1)


def test_a_first_message_other_than_hello_is_refused():
    wrong = [
        b"\xff\xff\xff\xff",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 17) + b'{"type":"regions"',
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    with Target("--region", "a=4K") as target:
        with contextlib.ExitStack() as stack:
            controls = [stack.enter_context(Control(target.address)) for _ in wrong]
            for control, data in zip(controls, wrong, strict=True):
                control.socket.sendall(data)
            assert [control.receive_message()["cause"] for control in controls] == ["token"] * len(wrong)
        assert target.end_report()["control"]["malformed"] == len(wrong)


def test_idle_connections_do_not_lock_out_an_initiator():
    with Target("--region", "a=4K") as target:
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(Control(target.address)).socket.sendall(b"\0")
            ended = perf(target, "read", "--size", "4K", "--seconds", "0.05", "--json").succeeded()
        assert ended["operations"] > 0
        control = target.end_report()["control"]
    assert control["welcomed"] == 1 and control["displaced"] >= 60, control


def test_ten_thousand_idle_connections_do_not_lock_out_others():
    """All are open and send nothing; one more connection, which sends the token, is served."""
    connections = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + 256
    with Target("--region", "a=4K") as target, contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), max(hard, needed)))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(connections):
            end = stack.enter_context(socket.socket())
            end.bind((f"127.94.{number >> 8}.{number & 255}", 0))
            end.settimeout(WAIT_TIMEOUT_S)
            end.connect(split(target.address))
        initiator = stack.enter_context(Control(target.address))
        assert initiator.hello(target.token)["type"] == "welcome"
        assert initiator.request(type="regions")["regions"][0]["name"] == "a"
        control = target.end_report()["control"]
    assert control["accepted"] == connections + 1 and control["welcomed"] == 1, control
    assert control["displaced"] >= connections - 100, control


def test_invalid_offers_are_refused():
    offer = {
        "type": "connect",
        "kind": "rc",
        "address": "127.0.0.1:9",
        "qp": 5,
        "psn": 5,
        "mtu": 1024,
        "max_rd_atomic": 1,
        "max_dest_rd_atomic": 1,
    }
    with Target("--region", "a=4K", "--queue-pairs", "2") as target, Control(target.address) as control:
        control.hello(target.token)
        assert control.request(**offer)["type"] == "accept"
        for change, words in [
            ({"address": "10.0.0.1:4791"}, "10.0.0.1"),
            ({"qp": 1 << 24}, "24 bits"),
            ({"mtu": 1500}, "MTU"),
            ({"kind": "rd"}, "rd"),
            ({"psn": -1}, "-1"),
            ({"receives": {"count": 1, "bytes": 1}}, "--messages"),
            ({"extra": 1}, "extra"),
            ({"address": "127.0.0.1:0"}, "port"),
            ({"max_rd_atomic": 255}, "at most 16"),
            ({"max_dest_rd_atomic": 17}, "at most 16"),
        ]:
            answer = control.request(**{**offer, **change})
            assert answer["type"] == "refused" and words in answer["message"], answer
        assert control.request(**offer)["type"] == "accept"
        assert "2 queue pairs" in control.request(**offer)["message"]
        assert control.request(type="disconnect", qp=12345)["cause"] == "unknown"
        assert control.request(type="goodbye")["type"] == "goodbye"
        assert target.end_report()["balanced"]


def test_the_token_comes_from_a_file_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "token"
    with Target("--region", "a=4K", "--token-file", path) as target:
        assert target.token is None, "the token must be only in the file"
        assert path.stat().st_mode & 0o777 == 0o600
        flags = ("perf", "read", "--to", target.address, "--size", "4K", "--seconds", "0.05", "--json")
        assert run(*flags, "--token-file", path).succeeded()["operations"] > 0
        assert run(*flags, "--token", path.read_text().strip()).succeeded()["operations"] > 0
        path.chmod(0o644)
        assert "chmod 600" in run(*flags, "--token-file", path).refused()
        assert "--token" in run(*flags).refused()
    assert "0644" in run("target", "--region", "a=4K", "--token-file", path, "--listen", "127.0.0.1:0").refused()


class UnixControl(Control):
    """A control connection to a target on this machine, which can pass a socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_TIMEOUT_S)
        self.socket.connect(str(path))

    def link(self, link_socket):
        data = json.dumps({"type": "link"}).encode()
        socket.send_fds(self.socket, [struct.pack(">I", len(data)) + data], [link_socket.fileno()])
        return self.receive_message()


def test_a_silent_link_peer_is_refused_without_blocking_others(tmp_path):
    with Target("--region", "a=64K,rights=rw", "--transport", "shm", listen=tmp_path / "target") as target:
        silent, link_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with silent, link_socket, UnixControl(target.address) as control:
            control.hello(target.token)
            answer = control.link(link_socket)
            assert answer["type"] == "refused" and "has sent no hello" in answer["message"], answer
            flags = ("--transport", "shm", "--size", "4K", "--seconds", 0.05, "--json")
            assert perf(target, "write", *flags).succeeded()["operations"] > 0
        assert target.end_report()["control"]["welcomed"] == 2


OFFERS = [{"receives": {"count": 1, "bytes": 1 << 20}}, {"sends": 1}]


@pytest.mark.parametrize("offer", OFFERS, ids=["messages", "streams"])
def test_initiator_memory_is_limited_and_returned(offer):
    """The memory is that of receives, or of a stream of operations that the target itself posts, of 1 MiB each."""

    def grow(control):
        """Creates queue pairs until one is refused; returns the number of accepted ones, and the refusal."""
        for accepted in range(100):
            address = f"127.0.0.1:{ROCE}"
            attributes = {
                "address": address,
                "qp": 5,
                "psn": 5,
                "mtu": 1024,
                "max_rd_atomic": 1,
                "max_dest_rd_atomic": 1,
            }
            answer = control.request(type="connect", kind="rc", **attributes, **offer)
            if answer["type"] == "accept" and "sends" in offer:
                memory = {"address": 0, "bytes": 1 << 30, "rkey": 1}
                role = {"name": "stream", "read": False, "bytes": 1 << 20, "group": 1, "memory": memory}
                answer = control.request(type="start_role", qp=answer["qp"], role=role)
            if answer["type"] == "refused":
                return accepted, answer
        raise AssertionError("100 MiB were not refused")

    flags = ["--region", "a=4K", "--messages", "--memory", "8M", "--initiator-memory", "5M"]
    with Target(*flags, "--every", 0.05) as target:
        for _ in range(2):
            with Control(target.address) as first, Control(target.address) as other:
                first.hello(target.token)
                other.hello(target.token)
                (held, refusal), (rest, sum_refusal) = grow(first), grow(other)
                assert (held, rest) == (4, 3) and refusal["cause"] == "limit", (held, rest)
                assert "5242880 bytes of one initiator" in refusal["message"], refusal
                assert "--initiator-memory" in refusal["message"], refusal
                assert "8388608 bytes of all" in sum_refusal["message"], sum_refusal
                assert "larger --memory" in sum_refusal["message"], sum_refusal
            until(
                lambda: (report := target.reports()[-1:]) and not report[0]["memory"]["used_bytes"],
                what="the return of the memory",
            )
        assert target.end_report()["memory"]["refused"] == 4


def test_regions_that_the_machine_cannot_hold_are_refused():
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) // 1024 + 1024
    half = f"{total // 2}M"
    message = run("target", "--region", f"a={half}", "--region", f"b={half},memfd", "--bind", "127.0.0.1:0").refused()
    assert all(word in message for word in ["are needed", "available", "file=PATH", "huge"]), message


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (["--initiators", 0], "expected --initiators above 0, found 0"),
        (["--queue-pairs", 0], "expected --queue-pairs above 0, found 0"),
        (["--memory", 0], "expected --memory above 0, found 0"),
        (["--initiator-memory", 0], "expected --initiator-memory above 0, found 0"),
        (["--initiator-memory", "3M", "--memory", "2M"], "of at most --memory, found 3 MiB of 2 MiB"),
    ],
)
def test_limits_that_admit_no_initiator_are_refused(limits, words):
    at = ["--bind", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--seconds", 1]
    assert words in run("target", "--region", "a=4K", *at, *limits).refused()


def test_a_duration_out_of_range_is_refused_with_its_bounds():
    ended = run("target", "--region", "a=4K", "--seconds", "1e300")
    assert ended.code == 2 and "0.01 to 1e9" in ended.stderr, ended.stderr


def test_strict_ib_excludes_accept_any_source_port():
    ended = run(
        "target", "--region", "a=4K", "--bind", "127.0.0.1:0", "--strict-ib", "--accept-any-source-port", "--seconds", 1
    )
    assert ended.code == 2 and "cannot be used with" in ended.stderr, ended.stderr


def test_a_target_with_unread_reports_serves_and_ends():
    """Its standard error is a pipe of one page, which fills at once."""
    words = [word for n in range(9) for word in ("--region", f"{n}{'a' * 60}=4K")]
    words += ["--bind", "127.0.0.1:0", "--listen", "127.0.0.1:0"]
    with Process("target", *words, "--every", 0.01, "--seconds", 1, pipesize=4096) as target:
        until(lambda: target.popen.poll() is not None, what="the end of the target")
        assert "balance" in target.popen.stdout.read()


def test_a_file_at_the_socket_path_is_kept(tmp_path):
    path = tmp_path / "run.h5"
    path.write_text("precious")
    message = run("target", "--region", "a=4K", "--transport", "shm", "--listen", path).refused()
    assert "run.h5" in message and path.read_text() == "precious", message
