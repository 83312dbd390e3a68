"""A probe's shots from one process to another through a memif that DPDK drives: no huge pages, no root, no network."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EXAMPLE = TARGET / "debug" / "examples" / "dpdk_throughput"

pytestmark = pytest.mark.skipif(
    not EXAMPLE.exists(), reason="no dpdk_throughput: built by cargo test where libdpdk is (feature dpdk)"
)


def memif(role, folder):
    return f"net_memif0,role={role},id=0,socket={folder}/memif.sock,socket-abstract=no"


def start(role, side, folder, seconds):
    command = [str(EXAMPLE), role, memif(side, folder), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(process):
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return json.loads(out)


def test_shots_of_another_process_come_whole_and_every_icrc_is_good(tmp_path):
    receiver = start("shots", "server", tmp_path, 1)
    sender = start("probe", "client", tmp_path, 60)
    try:
        found = figures(receiver)
        # It ends because its link does.
        assert sender.wait(timeout=30) == 0
    finally:
        receiver.kill()
        sender.kill()
    assert found["faults"] == 0
    assert found["missed"] == 0
    assert found["shots"] > 0
    assert found["shots_compared"] > 0


def test_a_probe_that_is_killed_leaves_whole_shots_and_another_goes_on(tmp_path):
    receiver = start("shots", "server", tmp_path, 6)
    first = start("probe", "client", tmp_path, 60)
    second = None
    try:
        assert "receiving" in receiver.stderr.readline()
        time.sleep(1)
        first.kill()
        second = start("probe", "client", tmp_path, 60)
        found = figures(receiver)
        assert second.wait(timeout=30) == 0
    finally:
        for process in filter(None, [receiver, first, second]):
            process.kill()
    assert found["link_downs"] >= 1
    assert found["faults"] == 0
    assert found["shots_compared"] > 0


def test_a_receiver_that_nobody_sends_to_says_what_is_missing(tmp_path):
    receiver = start("shots", "server", tmp_path, 1)
    out, errors = receiver.communicate(timeout=60)
    assert receiver.returncode != 0
    assert out == ""
    assert "its client must run" in errors
