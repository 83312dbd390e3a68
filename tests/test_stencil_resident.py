"""`shotline stencil --resident`: tiles that stay in their nodes, which write their border rows to each other."""

import signal

import numpy as np
import pytest
from test_stencil import PAD, node, random_matrix, refused, stencil, stepped, to, wait_for_writes

from common import Process, run, until

RESIDENT = ("--resident", "--node-memory", "256K", "--nodes", 4)


@pytest.mark.parametrize("transport", ["soft", "shm", "spacefibre"])
@pytest.mark.parametrize("boundary", PAD)
def test_resident_tiles_give_the_bits_of_the_definition(tmp_path, transport, boundary):
    matrix = random_matrix(131, 77, "float32")
    arguments = (*RESIDENT, "--round-steps", 7, "--transport", transport, "--boundary", boundary)
    result, report = stencil(tmp_path, matrix, "--steps", 30, *arguments)
    assert (report["resident"], report["tiles"], report["tile_rows"]) == (True, 4, 33)
    assert result.tobytes() == stepped(matrix, 30, boundary).tobytes()
    last = stepped(matrix, 29, boundary).astype("float64") - result.astype("float64")
    assert report["max_change"] == np.abs(last).max()
    assert report["l2_change"] == pytest.approx(np.sqrt((last**2).sum()), rel=1e-12)
    # Every tile goes out once, with its halos, and comes back once; the last of five rounds has two steps.
    borders = 8 if boundary == "periodic" else 6
    assert sum(node["bytes_back"] for node in report["nodes"]) == matrix.nbytes
    assert sum(node["bytes_out"] for node in report["nodes"]) == matrix.nbytes + borders * 7 * 77 * 4
    assert sum(node["bytes_exchanged"] for node in report["nodes"]) == borders * (7 + 7 + 7 + 2) * 77 * 4


@pytest.mark.parametrize("rows,tiles", [(1, 1), (15, 1), (16, 2), (31, 3), (33, 4)])
@pytest.mark.parametrize("boundary", ["fixed", "periodic"])
def test_nodes_without_rows_for_a_halo_are_not_used(tmp_path, rows, tiles, boundary):
    matrix = random_matrix(rows, 9, "float64")
    arguments = (*RESIDENT, "--round-steps", 8, "--transport", "shm", "--boundary", boundary)
    result, report = stencil(tmp_path, matrix, "--steps", 20, *arguments)
    assert report["tiles"] == tiles
    assert result.tobytes() == stepped(matrix, 20, boundary).tobytes()


@pytest.mark.parametrize("transport", ["soft", "shm"])
def test_thousands_of_rounds_lose_no_completion(transport):
    # A node completes commands faster than they are acknowledged: more than its send queue holds.
    arguments = ("64x64", "--steps", 16000, "--round-steps", 8, "--nodes", 2, "--node-memory", "64K", "--threads", 1)
    report = run("stencil", *arguments, "--resident", "--transport", transport, "--verify", "--json").succeeded()
    assert [node["tiles"] for node in report["nodes"]] == [2000, 2000]


def test_border_rows_take_the_path_of_an_accelerator(tmp_path):
    matrix = random_matrix(64, 64, "float32")
    arguments = ("--resident", "--nodes", 2, "--node-memory", "64K", "--memory", "emulated:path2:latency=1ms")
    result, report = stencil(tmp_path, matrix, "--steps", 40, "--round-steps", 4, *arguments)
    assert result.tobytes() == stepped(matrix, 40, "fixed").tobytes()
    # Nine times, a node reads its own memory and writes that of the other one.
    assert all(node["exchanging_s"] >= 9 * 0.001 for node in report["nodes"]), report["nodes"]


def test_tiles_that_cannot_stay_are_refused_with_the_sizes():
    error = refused("4096x4096", "--resident", "--node-memory", "1M", "--transport", "shm")
    assert "a tile of 2048 rows that stays takes" in error and "a node has 1048576: use more nodes" in error
    done = run("stencil", "--resident", "--tile-rows", 5)
    assert done.code == 2 and "cannot be used with" in done.stderr, done


def test_a_neighbour_that_refuses_is_named_with_the_reason():
    # The run itself is the only initiator that it accepts.
    with node("--initiators", 1) as full, node("--token", full.token) as other:
        error = refused("64x64", "--resident", *to(full, other))
    assert "node 1 cannot exchange halos with node 0: " in error
    assert "the connection to the target broke" in error, error


@pytest.mark.parametrize("transport", ["soft", "shm"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_node_ends_the_run_and_frees_the_others(tmp_path, transport, how):
    sockets = [str(tmp_path / name) if transport == "shm" else "127.0.0.1:0" for name in "abc"]
    kind, out = "memory=memfd" if transport == "shm" else "memory=heap", tmp_path / "out.npy"
    common = ("--transport", transport, "--token", "7" * 32, "--every", 0.05)
    forever = ("64x64", "--resident", "--steps", 1 << 40, "--round-steps", 8, "--transport", transport)
    with (
        node(*common, kind=kind, listen=sockets[0]) as first,
        node(*common, kind=kind, listen=sockets[1]) as lost,
        node(*common, kind=kind, listen=sockets[2]) as last,
    ):
        nodes = [first, lost, last]
        for each in nodes:
            each.token = "7" * 32
        with Process("stencil", *forever, "--out", out, "--timeout", 2, *to(*nodes)) as running:
            wait_for_writes(lost, transport)
            lost.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            done = running.end()
        assert done.code == 1, done
        assert "node 1: " in done.stderr or "with node 1: " in done.stderr, done.stderr
        assert list(tmp_path.glob("out*")) == []
        lost.signal(signal.SIGKILL)  # Until it has ended, it could write to the others.
        again = ("64x64", "--steps", 8, "--verify", "--transport", transport)
        until(lambda: run("stencil", *again, *to(first, last)).code == 0, what="the others are free")


def test_nodes_are_free_after_their_initiator_is_killed():
    with node("--every", 0.05) as one, node("--token", one.token) as two:
        with Process("stencil", "64x64", "--resident", "--steps", 1 << 40, *to(one, two)) as running:
            wait_for_writes(one)
            running.signal(signal.SIGKILL)
            running.end()
        again = ("64x64", "--resident", "--steps", 64, "--verify", *to(one, two))
        until(lambda: run("stencil", *again).code == 0, what="the nodes are free")
        one.end_report()
        two.end_report()


def test_resident_runs_on_running_nodes_follow_each_other():
    with node() as one, node("--token", one.token) as two:
        for seed in (1, 2, 3):
            arguments = (
                "64x64",
                "--resident",
                "--boundary",
                "periodic",
                "--seed",
                seed,
                "--steps",
                40,
                "--verify",
                "--json",
            )
            assert run("stencil", *arguments, *to(one, two)).succeeded()["values_verified"] == 64 * 64
        one.end_report()
        two.end_report()


@pytest.mark.parametrize("transport", ["soft", "shm"])
def test_a_node_that_an_old_neighbour_can_write_is_not_used(tmp_path, transport):
    sockets = [str(tmp_path / name) if transport == "shm" else "127.0.0.1:0" for name in "ab"]
    kind = "memory=memfd" if transport == "shm" else "memory=heap"
    common = ("--transport", transport, "--token", "7" * 32, "--every", 0.05)
    with (
        node(*common, kind=kind, listen=sockets[0]) as hung,
        node(*common, kind=kind, listen=sockets[1]) as other,
    ):
        hung.token = other.token = "7" * 32
        forever = ("64x64", "--resident", "--steps", 1 << 40, "--transport", transport)
        with Process("stencil", *forever, *to(hung, other)) as running:
            until(
                lambda: any(len(report["initiators"]) > 1 for report in other.reports()), what="the neighbour is there"
            )
            hung.signal(signal.SIGSTOP)
            running.signal(signal.SIGKILL)
            running.end()
        again = ("64x64", "--steps", 8, "--verify", "--transport", transport, *to(other))
        until(lambda: "another initiator is connected" in run("stencil", *again).stderr, what="its own queue is closed")
        hung.signal(signal.SIGKILL)
        until(lambda: run("stencil", *again).code == 0, what="the neighbour has gone")
