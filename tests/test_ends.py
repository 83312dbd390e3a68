"""How programs end when their output is closed or blocked: terminals, pipes, a service manager."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import termios
from pathlib import Path

import pytest
from file_state import wait_for_rows
from senders.listen import free_port

from common import PROGRAM, WAIT_TIMEOUT_S, Probe, Process, Recorder, Recording, check_samples, run, until, verify

SLOW = ("--rate-hz", 200, "--samples", 100, "--timeout-ms", 60_000)
SHOTS = (*SLOW, "--capacity", 5000)


def test_a_closed_terminal_ends_a_run_in_order(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        pid, terminal = pty.fork()
        if pid == 0:
            words = ["record", "--probe", probe.address, "--bind", "[::1]:0", *map(str, SHOTS), "--out", str(path)]
            os.execv(PROGRAM, [PROGRAM, *words])
        try:
            wait_for_rows(path, 50)
        finally:
            os.close(terminal)  # the kernel sends SIGHUP, and every later write to the terminal fails
        until(lambda: os.waitpid(pid, os.WNOHANG)[0], what="the recorder's end")
    recording = Recording(path)
    check_samples(recording)
    verify(path)
    laid_out = 5000 * 2 * 16_384
    assert path.stat().st_size < laid_out // 2, "unused space was not released"


@pytest.mark.parametrize("command", ["record", "trigger"])
def test_the_first_signal_ends_the_wait_for_a_silent_probe(command):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as silent:
        silent.bind(("::1", 0))
        silent.settimeout(WAIT_TIMEOUT_S)
        at = f"[::1]:{silent.getsockname()[1]}"
        with Process(command, "--probe", at, *(["--discard"] if command == "record" else [])) as process:
            for _ in range(2):
                silent.recv(1 << 16)
            process.signal(signal.SIGINT)
            line = process.end().refused()
    assert "stopped before" in line and at in line, line


def test_nohup_keeps_a_run_alive(tmp_path):
    path = tmp_path / "run.h5"

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Probe() as probe, Recorder(probe, *SHOTS, "--shots", 100, "--out", path, preexec_fn=ignore) as recorder:
        wait_for_rows(path, 1)
        recorder.signal(signal.SIGHUP)
        assert recorder.end().succeeded()["ended"]["cause"] == "shots"


@pytest.fixture
def closed_pipe():
    """The write end of a pipe whose read end is closed."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    yield write_end
    os.close(write_end)


def test_output_to_a_closed_pipe_is_no_failure(closed_pipe):
    ended = subprocess.run(
        [PROGRAM, "plan"], check=False, stdout=closed_pipe, stderr=subprocess.PIPE, timeout=WAIT_TIMEOUT_S
    )
    assert (ended.returncode, ended.stderr) == (0, b""), ended


def test_a_sweep_with_a_closed_output_writes_its_file(closed_pipe, tmp_path):
    out = tmp_path / "sweep.jsonl"
    words = map(
        str,
        ("sweep", "network", "--samples", 500, "--framing", "udp", "--trigger-hz", 100, "--repeats", 1, "--out", out),
    )
    ended = subprocess.run(
        [PROGRAM, *words], check=False, stdout=closed_pipe, stderr=subprocess.PIPE, timeout=WAIT_TIMEOUT_S
    )
    assert ended.returncode == 0, ended
    assert json.loads(out.read_text().splitlines()[-1])["kind"] == "end"


def test_closed_output_pipes_do_not_end_a_run(closed_pipe, tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        source = ("--probe", probe.address, "--bind", "[::1]:0", "--transport", "auto")
        words = map(str, ("record", *source, *SHOTS, "--shots", 50, "--out", path))
        ended = subprocess.run(
            [PROGRAM, *words], check=False, stdout=closed_pipe, stderr=closed_pipe, timeout=WAIT_TIMEOUT_S
        )
    assert ended.returncode == 0 and len(Recording(path).numbers()) == 50, ended


@pytest.fixture
def full_pipe():
    """Both ends of a pipe that is full and has no reader."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, bytes(4096))
    os.set_blocking(write_end, True)
    yield read_end, write_end
    os.close(write_end)
    os.close(read_end)


def run_program(*words, stderr, **options):
    """Runs the program with this standard error; returns its exit code and standard output."""
    words = [PROGRAM, *map(str, words)]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=stderr, timeout=WAIT_TIMEOUT_S, **options)
    return done.returncode, done.stdout


@pytest.mark.parametrize("view", ["--progress", "--quiet"])
def test_a_full_standard_error_does_not_block_the_end_of_a_run(full_pipe, view, tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        source = ("--probe", probe.address, "--bind", "[::1]:0", "--transport", "auto")
        code, summary = run_program(
            "record", *source, *SHOTS, "--shots", 50, "--out", path, view, "--json", stderr=full_pipe[1]
        )
    assert code == 0 and json.loads(summary)["rows"] == 50, summary
    assert len(Recording(path).numbers()) == 50
    verify(path)


def test_an_unread_summary_blocks_only_after_the_file_is_closed(full_pipe, tmp_path):
    read_end, write_end = full_pipe
    path = tmp_path / "run.h5"
    with Probe() as probe:
        source = ("--probe", probe.address, "--bind", "[::1]:0")
        words = map(str, ("record", *source, *SHOTS, "--shots", 50, "--out", path, "--progress", "--json"))
        with subprocess.Popen([PROGRAM, *words], stdout=write_end, stderr=write_end) as recorder:
            try:
                until(lambda: path.exists() and run("inspect", path, "--json").succeeded()["finished"], what="the end")
                assert len(Recording(path).numbers()) == 50
                verify(path)
                assert recorder.poll() is None, "the summary must block until it is read"
                received = b""
                while b'"ended"' not in received:
                    received += os.read(read_end, 1 << 16)
                assert recorder.wait(WAIT_TIMEOUT_S) == 0
            finally:
                recorder.kill()


def test_a_replay_with_an_unread_report_ends(full_pipe, tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe, Recorder(probe, *SHOTS, "--shots", 50, "--out", path) as recorder:
        recorder.end().succeeded()
    to = ("--to", f"127.0.0.1:{free_port()}", "--framing", "udp")
    assert run_program("replay", path, *to, "--max", stderr=full_pipe[1]) == (0, b"")


def test_a_stopped_terminal_does_not_block_the_end_of_a_run(tmp_path):
    path = tmp_path / "run.h5"
    terminal, theirs = pty.openpty()
    try:
        termios.tcflow(theirs, termios.TCOOFF)  # Ctrl-S
        with Probe() as probe:
            source = ("--probe", probe.address, "--bind", "[::1]:0")
            words = map(str, ("record", *source, *SHOTS, "--shots", 50, "--out", path))
            done = subprocess.run(
                [PROGRAM, *words], check=False, stdout=subprocess.PIPE, stderr=theirs, timeout=WAIT_TIMEOUT_S
            )
    finally:
        os.close(theirs)
        os.close(terminal)
    assert done.returncode == 0 and len(Recording(path).numbers()) == 50, done


def test_an_unread_error_still_ends_the_program(full_pipe, tmp_path):
    assert run_program("verify", tmp_path / "none.h5", stderr=full_pipe[1]) == (1, b"")


@pytest.fixture
def manager(tmp_path):
    """A service manager whose queue is full, and the environment that names it."""
    manager, others = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    with manager, others:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_TIMEOUT_S)
        others.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                others.sendto(b"WATCHDOG=1", str(tmp_path / "notify"))
        yield manager, {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}


def test_a_blocked_service_manager_does_not_stop_the_receiver(manager):
    with Probe() as probe:
        source = ("--probe", probe.address, "--bind", "[::1]:0")
        code, summary = run_program(
            "record", *source, *SLOW, "--shots", 50, "--discard", "--json", stderr=subprocess.PIPE, env=manager[1]
        )
    assert code == 0 and json.loads(summary)["ended"]["cause"] == "shots", summary


def test_a_late_service_manager_receives_the_ready_message(manager):
    queue, env = manager
    at = ("--listen", f"127.0.0.1:{free_port()}", "--framing", "spead", "--pool", "32MiB")
    with Process("record", *at, "--discard", "--json", env=env) as recorder:

        def is_full():
            with contextlib.suppress(OSError):  # a thread may end meanwhile
                threads = Path(f"/proc/{recorder.pid}/task").glob("*/comm")
                return "notify" in [thread.read_text().strip() for thread in threads]

        until(is_full, what="the thread that waits for space in the manager's queue")
        while queue.recv(64) != b"READY=1":
            pass


def test_a_target_with_unread_messages_serves_and_ends(full_pipe, tmp_path):
    at = ("--transport", "shm", "--listen", tmp_path / "a.sock")
    code, report = run_program("target", "--region", "a=1M", *at, "--every", 0.02, "--seconds", 1, stderr=full_pipe[1])
    assert code == 0 and b"balance" in report, report


def test_a_target_frees_its_resources_before_an_unread_report(full_pipe, tmp_path):
    read_end, write_end = full_pipe
    host, port = "127.0.0.1", free_port()
    at = ("--bind", f"{host}:{port}", "--listen", f"{host}:0")
    words = ("target", "--region", "a=1M", *at, "--json", "--seconds", 0.1)
    with subprocess.Popen([PROGRAM, *map(str, words)], stdout=write_end, stderr=subprocess.PIPE) as target:
        try:
            until(lambda: b"waits for initiators" in target.stderr.readline(), what="the target's start")

            def is_free():
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                    try:
                        other.bind((host, port))
                    except OSError:
                        return False
                    return True

            until(is_free, what="the target's port")
            assert target.poll() is None, "the report must block until it is read"
            report = b""
            while b"\n" not in report:
                report += os.read(read_end, 1 << 16).lstrip(b"\0")
            assert json.loads(report)["balanced"] and target.wait(WAIT_TIMEOUT_S) == 0
        finally:
            target.kill()
