"""How programs end when nobody sees them any more: a terminal that closes, a reader that is gone."""

import os
import pty
import signal
import subprocess

import pytest
from watching import wait_for_rows

from common import PATIENCE, PROGRAM, Probe, Recorder, Recording, check_samples, until, verify

SHOTS = ("--rate-hz", 200, "--samples", 100, "--timeout-ms", 60_000, "--capacity", 5000)


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
            os.close(terminal)  # the kernel sends SIGHUP, and every write to the terminal fails from now on
        until(lambda: os.waitpid(pid, os.WNOHANG)[0], what="the recorder's end")
    recording = Recording(path)
    check_samples(recording)
    verify(path)
    laid_out = 5000 * 2 * 16_384
    assert path.stat().st_size < laid_out // 2, "room that was not used stays"


def test_nohup_keeps_a_run_going(tmp_path):
    path = tmp_path / "run.h5"

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Probe() as probe, Recorder(probe, *SHOTS, "--shots", 100, "--out", path, preexec_fn=ignore) as recorder:
        wait_for_rows(path, 1)
        recorder.signal(signal.SIGHUP)
        assert recorder.end().succeeded()["ended"]["cause"] == "shots"


@pytest.fixture
def nobody():
    """The end of a pipe that programs write into, and nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


def test_output_that_nobody_reads_is_no_failure(nobody):
    ended = subprocess.run([PROGRAM, "plan"], check=False, stdout=nobody, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, b""), ended


def test_messages_that_nobody_reads_do_not_end_a_run(nobody, tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        source = ("--probe", probe.address, "--bind", "[::1]:0", "--transport", "auto")
        words = map(str, ("record", *source, *SHOTS, "--shots", 50, "--out", path))
        ended = subprocess.run([PROGRAM, *words], check=False, stdout=nobody, stderr=nobody, timeout=PATIENCE)
    assert ended.returncode == 0 and len(Recording(path).numbers()) == 50, ended
