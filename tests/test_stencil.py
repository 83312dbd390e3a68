"""`shotline stencil`: results against NumPy and SciPy, and nodes that fail.

The definition of a step, in its order of additions, is computed here with NumPy; every bit must be the same. SciPy adds
in another order, so it agrees to within a few units in the last place.
"""

import contextlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from memory_target import Target
from scipy.ndimage import convolve

from common import Process, run, until

ALPHA = 0.2
PAD = {"fixed": "edge", "periodic": "wrap", "insulated": "edge"}
SCIPY_MODE = {"periodic": "wrap", "insulated": "nearest"}
# Places after the binary point are lost by one rounding of each operation of a step: five, by half a unit each.
ULPS_PER_STEP = 3


def stepped(matrix, steps, boundary):
    """Returns the matrix after so many steps, by the definition."""
    center, side = matrix.dtype.type(1 - 4 * ALPHA), matrix.dtype.type(ALPHA)
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(steps):
            padded = np.pad(matrix, 1, PAD[boundary])
            vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
            horizontal = padded[1:-1, :-2] + padded[1:-1, 2:]
            new = center * matrix + side * (vertical + horizontal)
            if boundary == "fixed":
                new[[0, -1]], new[:, [0, -1]] = matrix[[0, -1]], matrix[:, [0, -1]]
            matrix = new
    return matrix


def random_matrix(rows, columns, dtype, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


def stencil(folder, matrix, *arguments):
    """Saves a matrix, computes its steps with the program, and returns the result and the report."""
    source, out = folder / "in.npy", folder / "out.npy"
    np.save(source, matrix)
    report = run("stencil", source, "--out", out, "--force", "--json", "--alpha", ALPHA, *arguments).succeeded()
    result = np.load(out)
    assert result.dtype == matrix.dtype and result.shape == matrix.shape
    return result, report


@pytest.mark.parametrize("transport", ["soft", "shm", "spacefibre"])
@pytest.mark.parametrize("boundary", PAD)
def test_tiles_over_nodes_give_the_bits_of_the_definition(tmp_path, transport, boundary):
    matrix = random_matrix(300, 130, "float32")
    memory = ("--node-memory", "64K", "--round-steps", 7, "--transport", transport)
    result, report = stencil(tmp_path, matrix, "--steps", 30, "--boundary", boundary, *memory)
    assert report["tiles"] > 4 and len(report["nodes"]) == 2
    assert result.tobytes() == stepped(matrix, 30, boundary).tobytes()
    last = stepped(matrix, 29, boundary).astype("float64") - result.astype("float64")
    assert report["max_change"] == np.abs(last).max()
    assert report["l2_change"] == pytest.approx(np.sqrt((last**2).sum()), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("boundary", SCIPY_MODE)
def test_results_agree_with_scipy_within_ulps(tmp_path, dtype, boundary):
    steps, matrix = 16, random_matrix(200, 333, dtype)
    result, _ = stencil(tmp_path, matrix, "--steps", steps, "--boundary", boundary, "--node-memory", "512K")
    expected = matrix
    kernel = np.array([[0, ALPHA, 0], [ALPHA, 1 - 4 * ALPHA, ALPHA], [0, ALPHA, 0]])
    for _ in range(steps):
        expected = convolve(expected.astype("float64"), kernel, mode=SCIPY_MODE[boundary]).astype(dtype)
    # A step is a mean, so no value is larger than the largest one before.
    ulp = np.spacing(np.abs(matrix).max())
    assert np.abs(result.astype("float64") - expected).max() <= ULPS_PER_STEP * steps * ulp


@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (100, 1), (3, 5), (17, 2)])
@pytest.mark.parametrize("boundary", PAD)
def test_matrices_smaller_than_a_halo_are_computed(tmp_path, shape, boundary):
    matrix = random_matrix(*shape, "float64")
    arguments = ("--steps", 20, "--round-steps", 20, "--boundary", boundary, "--nodes", 2, "--tile-rows", 2)
    result, _ = stencil(tmp_path, matrix, *arguments, "--transport", "shm", "--node-memory", "256K")
    assert result.tobytes() == stepped(matrix, 20, boundary).tobytes()


def test_nan_and_infinity_spread_as_by_definition(tmp_path):
    matrix = random_matrix(64, 64, "float32")
    matrix[20, 30], matrix[40, 10], matrix[50, 50], matrix[5, 5] = np.nan, np.inf, -np.inf, np.finfo("float32").max
    result, report = stencil(tmp_path, matrix, "--steps", 5, "--node-memory", "16K", "--round-steps", 3, "--verify")
    assert np.array_equal(result, stepped(matrix, 5, "fixed"), equal_nan=True)
    assert np.isnan(result).any() and np.isinf(result).any()
    assert report["max_change"] is None  # JSON has no NaN
    assert report["values_verified"] == 64 * 64


def test_demo_runs_four_nodes_and_verifies_every_value(tmp_path):
    picture = tmp_path / "map.png"
    report = run("stencil", "--demo", "--steps", 64, "--map", picture, "--json").succeeded()
    assert report["values_verified"] == 1024 * 1024
    assert [node["tiles"] > 0 for node in report["nodes"]] == [True] * 4
    assert sum(node["tiles"] for node in report["nodes"]) == 2 * report["tiles"]
    assert sum(node["bytes_back"] for node in report["nodes"]) == 2 * report["bytes"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = run("stencil", "--demo", "--steps", 64)
    assert text.code == 0 and "all values, bit by bit" in text.stdout and "@@" in text.stdout, text


def test_places_can_be_verified_after_many_steps(tmp_path):
    arguments = ("--steps", 100, "--boundary", "periodic", "--verify", 25, "--transport", "shm")
    report = run("stencil", "512x512", *arguments, "--json").succeeded()
    assert report["values_verified"] == 25


# --- nodes ---------------------------------------------------------------------------------------

SLOW = "memory=emulated:write=4MB/s:read=4MB/s"


def node(*more, memory="1M", kind="memory=heap", **options):
    return Target("--region", f"hbm={memory},rights=rw,{kind}", "--accelerate", "hbm", *more, **options)


def to(*nodes):
    """Returns the arguments that select running nodes, which have the same token."""
    addresses = [word for each in nodes for word in ("--to", each.address)]
    return (*addresses, "--token", nodes[0].token)


def wait_for_writes(target, transport="soft"):
    """Waits until a run writes to a node. Over shared memory the node does not see that: its memory shows it."""

    def is_written(report):
        return report["regions"][0]["writes"] > 0

    written = has_values if transport == "shm" else lambda target: any(map(is_written, target.reports()))
    until(lambda: written(target), what="the node is written to")


def has_values(target):
    """Returns `True` if there is anything but zeros in the shared memory of a node's region."""
    with open(f"/proc/{target.pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{target.pid}/maps").read_text().splitlines():
            if "memfd:shotline-hbm" in line:
                begin, end = (int(word, 16) for word in line.split()[0].split("-"))
                memory.seek(begin)
                return bool(memory.read(end - begin).strip(b"\0"))
    raise AssertionError("the node's region is not mapped")


def refused(*arguments, **options):
    """Returns the error of a run that must fail."""
    done = run("stencil", *arguments, **options)
    assert done.code == 1 and not done.stdout, done
    return done.stderr


def test_running_nodes_are_used_and_stay_for_the_next_run():
    with node("--threads", 1) as one, node("--token", one.token, memory="300K") as two:
        for seed in (1, 2):
            arguments = ("--seed", seed, "--steps", 20, "--verify", "--json")
            report = run("stencil", "256x256", *arguments, *to(one, two)).succeeded()
            assert report["values_verified"] == 1 << 16 and report["nodes"][1]["tiles"] > 0
        one.end_report()
        two.end_report()


SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
LOST = ["closed the connection", "does not respond", "hangs, or is too slow"]
lost_nodes = pytest.mark.parametrize("how", SIGNALS)
lost_over = pytest.mark.parametrize("transport", ["soft", "shm"])


def pair_of_nodes(folder, transport, kind, stack):
    """Starts a node with this kind of memory, which is to be lost, and one that is not. Each holds two tiles of 8 MiB."""
    where = [{"listen": str(folder / name)} if transport == "shm" else {} for name in ("lost", "other")]
    options = ("--transport", transport, "--every", 0.05)
    lost = stack.enter_context(node(*options, kind=kind, memory="32M", **where[0]))
    other = node(*options, "--token", lost.token, kind="memory=memfd", memory="32M", **where[1])
    return lost, stack.enter_context(other)


def write_rate(transport, how):
    """Returns a rate at which a node with a tile of 8 MiB is still being written when it is lost.

    Over shared memory this process writes, also to a stopped node, which then computes nothing: it need not be slow.
    """
    return f"memory=emulated:write={8 if (transport, how) == ('shm', 'stopped') else 1}MB/s"


def two_tiles(folder, transport, *nodes):
    """Returns a matrix of two tiles, of which the first node gets both, and the arguments for two rounds."""
    matrix = random_matrix(1024, 4096, "float32")
    np.save(folder / "in.npy", matrix)
    rounds = ("--steps", 4, "--round-steps", 2, "--tile-rows", 512, "--alpha", ALPHA, "--boundary", "periodic")
    files = (folder / "in.npy", "--out", folder / "out.npy")
    return matrix, (*files, *rounds, "--transport", transport, "--timeout", 10, "--verify", "--json", *to(*nodes))


def check_completed(folder, done, matrix, reasons=LOST):
    """Checks that a run has the right result, and has counted everything once, although its first node was lost."""
    report = done.succeeded()
    expected = stepped(matrix, 4, "periodic")
    assert np.load(folder / "out.npy").tobytes() == expected.tobytes()
    last = stepped(matrix, 3, "periodic").astype("float64") - expected.astype("float64")
    assert report["max_change"] == np.abs(last).max()
    assert report["l2_change"] == pytest.approx(np.sqrt((last**2).sum()), rel=1e-12)
    lost, other = report["nodes"]
    assert any(words in lost["lost"] for words in reasons) and other["lost"] is None, report["nodes"]
    assert lost["tiles"] + other["tiles"] == 2 * report["tiles"] == 4
    assert lost["bytes_back"] + other["bytes_back"] == 2 * report["bytes"]
    assert f"warning: node 0: {lost['lost']}: " in done.stderr
    return lost


@lost_over
@lost_nodes
def test_tiles_of_a_lost_node_go_to_the_other(tmp_path, transport, how):
    with contextlib.ExitStack() as stack:
        lost, other = pair_of_nodes(tmp_path, transport, write_rate(transport, how), stack)
        matrix, arguments = two_tiles(tmp_path, transport, lost, other)
        with Process("stencil", *arguments) as running:
            wait_for_writes(lost, transport)
            lost.signal(SIGNALS[how])
            done = running.end()
    reasons = ["rows 0 to 512 are not computed"] if (transport, how) == ("shm", "stopped") else LOST
    assert check_completed(tmp_path, done, matrix, reasons)["tiles"] == 0
    assert "its 2 tiles go to the other node\n" in done.stderr


@lost_over
@lost_nodes
def test_a_node_lost_while_it_is_read_ends_the_run_or_not(tmp_path, transport, how):
    # Over the network its first tile takes 8 s to be read. Over shared memory this process reads: the node may be gone.
    rate = 1 if transport == "soft" else 8
    with contextlib.ExitStack() as stack:
        lost, other = pair_of_nodes(tmp_path, transport, f"memory=emulated:read={rate}MB/s", stack)
        matrix, arguments = two_tiles(tmp_path, transport, lost, other)
        with Process("stencil", *arguments) as running:
            wait_for_results(tmp_path, matrix)
            lost.signal(SIGNALS[how])
            done = running.end()
    if transport == "shm":
        check_completed(tmp_path, done, matrix)
        return
    assert done.code == 1 and "node 0: " in done.stderr, done
    assert any(words in done.stderr for words in LOST), done.stderr
    assert list(tmp_path.glob("out*")) == []


def wait_for_results(folder, matrix):
    """Waits until the second row of the first tile is a result in the file, which has zeros before the source."""
    source = matrix[1, :512]

    def is_there():
        for partial in folder.glob("out.npy.*.partial"):
            rows = np.fromfile(partial, "float32", offset=4096 + matrix.strides[0], count=len(source))
            return len(rows) == len(source) and rows.all() and (rows != source).any()
        return False

    until(is_there, what="a result is read back")


@lost_over
@lost_nodes
@pytest.mark.parametrize("count", [1, 2])
def test_the_loss_of_all_nodes_ends_the_run(tmp_path, transport, how, count):
    with contextlib.ExitStack() as stack:
        nodes = []
        for index in range(count):
            where = {"listen": str(tmp_path / f"node{index}")} if transport == "shm" else {}
            token = ("--token", nodes[0].token) if nodes else ()
            options = ("--transport", transport, "--every", 0.05, *token)
            slow = node(*options, kind=write_rate(transport, how), memory="32M", **where)
            nodes.append(stack.enter_context(slow))
        out = tmp_path / "out.npy"
        options = ("--boundary", "periodic", "--transport", transport, "--timeout", 2, "--out", out)
        arguments = ("4096x2048", *options, *to(*nodes))
        with Process("stencil", *arguments) as running:
            for each in nodes:
                wait_for_writes(each, transport)
            for each in nodes:
                each.signal(SIGNALS[how])
            done = running.end()
    assert done.code == 1 and not done.stdout, done
    *warnings, error = done.stderr.strip().splitlines()
    assert len(warnings) == count - 1 and all(line.startswith("warning: node ") for line in warnings), done.stderr
    assert error.startswith("shotline: node ") and any(words in error for words in LOST), error
    assert list(tmp_path.glob("out*")) == []


def children(process):
    """Returns the processes that a process has started, oldest first."""
    words = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sorted(map(int, words), key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().split()[21]))


def connections(process):
    """Returns the number of nodes that a run over shared memory is connected to: it maps their command queues."""
    return Path(f"/proc/{process.pid}/maps").read_text().count("memfd:shotline-accelerator")


@lost_nodes
def test_a_lost_node_of_its_own_does_not_fail_the_run(tmp_path, how):
    # Over shared memory a stopped node returns nothing, and a READ is one copy, so every moment is right.
    slow = ("--transport", "shm", "--memory", "emulated:write=2MB/s", "--node-memory", "4M")
    with Process("stencil", "1024x1024", "--steps", 32, *slow, "--timeout", 10, "--verify", "--json") as running:
        until(lambda: connections(running) == 2, what="two nodes are connected")
        pid = children(running)[0]
        os.kill(pid, SIGNALS[how])
        done = running.end()
    report = done.succeeded()
    lost, other = report["nodes"]
    assert any(words in lost["lost"] for words in LOST) and other["lost"] is None
    assert report["values_verified"] == 1 << 20
    assert not Path(f"/proc/{pid}").exists(), "it has been killed and waited for"


def test_a_node_that_dies_after_its_last_tile_is_a_warning():
    slow = ("--transport", "shm", "--memory", "emulated:write=2MB/s")  # 2 s in which they can be seen
    with Process("stencil", "1024x2048", "--steps", 1, *slow, "--json") as running:
        # Its report does not fit the pipe, so that it waits there with its nodes.
        with open(f"/proc/{running.pid}/fd/1", "wb", buffering=0) as pipe:
            os.set_blocking(pipe.fileno(), False)
            while pipe.write(b"\n" * 4096):
                pass
        until(lambda: connections(running) == 2, what="two nodes are connected")
        until(lambda: connections(running) == 0, what="the last tile is back")
        os.kill(children(running)[1], signal.SIGKILL)
        done = running.end()
    assert done.code == 0 and [node["lost"] for node in json.loads(done.stdout.strip())["nodes"]] == [None, None]
    assert done.stderr == "warning: node 1, after its last tile: the target ended with signal: 9 (SIGKILL)\n"


def test_an_interrupted_run_leaves_no_file(tmp_path):
    out = tmp_path / "out.npy"
    with node("--every", 0.05, kind=SLOW) as slow:
        with Process("stencil", "1024x1024", "--out", out, *to(slow)) as running:
            wait_for_writes(slow)
            done = running.interrupt()
        assert done.code == 1 and "interrupted after 0 complete rounds" in done.stderr, done
        assert list(tmp_path.glob("out*")) == []
        # The node is free again as soon as it has finished the command.
        until(lambda: run("stencil", "8x8", "--steps", 1, *to(slow)).code == 0, what="the node is free")


def test_two_initiators_do_not_share_an_accelerator():
    with node("--every", 0.05, kind=SLOW) as slow, Process("stencil", "1024x1024", *to(slow)) as running:
        wait_for_writes(slow)
        error = refused("64x64", *to(slow))
        assert "the accelerator is in use by another initiator" in error
        assert running.popen.poll() is None


def test_targets_that_are_no_nodes_are_refused():
    with Target("--region", "hbm=1M,rights=rw", "--messages") as target:
        assert "it has no region accelerator (start it with --accelerate)" in refused("64x64", *to(target))
    with Target("--region", "hbm=1M,rights=rw") as target:
        assert "start it with --messages" in refused("64x64", *to(target))
    with node() as good:
        error = refused("64x64", "--to", good.address, "--token", "0" * 32)
        assert good.address in error and "token" in error
    for region, words in [
        ("hbm=1M", "use rights=rw"),
        ("other=1M,rights=rw", "with the name of a --region, found hbm"),
    ]:
        done = run("target", "--region", region, "--accelerate", "hbm", "--listen", "127.0.0.1:0")
        assert done.code == 1 and words in done.stderr, done


def test_tiles_that_do_not_fit_are_refused_with_the_sizes():
    small = ("--node-memory", "64K", "--transport", "shm")
    error = refused("1000x1000", *small)
    assert (
        "a tile of one row with halos of 16 rows takes 132264 bytes, a node has 32768 bytes for each of its 2" in error
    )
    assert "fewer steps in a round" in error
    assert "takes" in refused("1000x1000", *small, "--round-steps", 1, "--tile-rows", 500)


def test_files_that_are_no_matrix_are_refused(tmp_path):
    path, out = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(path, np.zeros((4, 4), "int32"))
    assert "expected float32 or float64" in refused(path)
    np.save(path, np.asfortranarray(random_matrix(4, 5, "float32")))
    assert "C order" in refused(path)
    np.save(path, random_matrix(4, 5, "float32"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "expected 80 bytes of numbers after its header, which has 79" in refused(path)
    path.write_bytes(b"\x93NUMP")
    assert "in.npy" in refused(path)
    out.touch()
    assert "exists: choose another name, or use --force" in refused("8x8", "--out", out)
    assert "no-folder" in refused("8x8", "--out", tmp_path / "no-folder" / "out.npy")
    assert "too large" in refused("9999999999x9999999999")
    assert json.loads(run("stencil", "8x8", "--out", out, "--force", "--json").stdout)["out"] == str(out)
    assert np.load(out).shape == (8, 8)


# --- maps ----------------------------------------------------------------------------------------


def test_maps_that_cannot_be_saved_are_refused_before_the_run(tmp_path):
    out, missing = tmp_path / "out.npy", tmp_path / "no-folder" / "map.png"
    folder, map_ = tmp_path / "folder", tmp_path / "map.png"
    folder.mkdir()
    # No node listens there: a run that connects first has another error.
    nowhere = ("--to", "127.0.0.1:1", "--token", "0" * 32)
    for arguments, words in [
        (("--map", missing), f"cannot create {missing}: No such file or directory"),
        (("--map", folder), f"{folder} exists and is not a file: choose another name"),
        (("--map", "/dev/null"), "/dev/null exists and is not a file"),
        (("--map", folder / ".." / "out.npy"), "--map and --out have the same file"),
    ]:
        assert words in refused("64x64", "--out", out, *arguments, *nowhere)
    matrix = tmp_path / "in.npy"
    np.save(matrix, np.zeros((64, 64), np.float32))
    assert "--map and the matrix have the same file" in refused(matrix, "--map", folder / ".." / "in.npy", *nowhere)
    assert np.load(matrix).shape == (64, 64)
    # A run that fails keeps the map of the one before.
    map_.write_bytes(b"before")
    assert "127.0.0.1:1" in refused("64x64", "--out", out, "--map", map_, *nowhere)
    assert map_.read_bytes() == b"before"
    assert sorted(tmp_path.iterdir()) == [folder, matrix, map_] and list(folder.iterdir()) == []


def test_a_map_that_fails_at_the_end_leaves_the_result(tmp_path):
    source, out, map_ = (tmp_path / name for name in ("in.npy", "out.npy", "map.png"))
    matrix = random_matrix(16, 16, "float32")
    np.save(source, matrix)
    run("stencil", source, "--map", map_, "--json").succeeded()
    picture = map_.read_bytes()
    # Larger files fail: there is room for the result (a page, then 1 KiB), not for the map.
    limit = 6 << 10
    assert len(picture) > limit
    small = ("prlimit", f"--fsize={limit}", "env", "--ignore-signal=XFSZ")
    with node() as near:
        arguments = ("--steps", 5, "--out", out, "--map", map_, "--verify", "--json", *to(near))
        done = run("stencil", source, *arguments, through=small)
        near.end_report()
    assert done.code == 1 and f"cannot write {map_}: File too large" in done.stderr, done
    assert np.load(out).tobytes() == stepped(matrix, 5, "fixed").tobytes()
    assert done.json["values_verified"] == 256 and done.json["out"] == str(out) and "map" not in done.json
    assert map_.read_bytes() == picture and len(list(tmp_path.iterdir())) == 3
