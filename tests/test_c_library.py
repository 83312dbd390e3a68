"""The C library: installation, compilers, what programs in C and C++ read, and what wrong calls do."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from c_programs import COMPILERS, CRATE, EXAMPLES, SANITIZERS, SOURCES, WARNINGS, built_library, command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import values
from senders.generated import GeneratedShots

from common import ROOT, WAIT_TIMEOUT_S, Probe, Recorder, until

ALL_LINKS = 2**32 - 1


@pytest.fixture(scope="module")
def others(tmp_path_factory, shotline):
    """A compressed run, and a run of several files."""
    folder = tmp_path_factory.mktemp("others")
    sent = GeneratedShots(values(5, 1, (2, 12, 64, 6)), 1)
    sent.record(folder / "compressed.h5", flags=("--compress", "lz4"))
    sent.record(folder / "rolled.h5", flags=("--roll-shots", 4))
    return [folder / "compressed.h5", folder / "rolled.h5"]


# --- installation ------------------------------------------------------------------------------------


def test_installed_files_have_their_names_and_links(library):
    assert (library.lib / "libshotline.so.0").resolve() == (library.lib / "libshotline.so").resolve()
    assert (library.lib / "libshotline.so").resolve().name == f"libshotline.so.{version()}"
    assert (library.prefix / "include" / "shotline.h").read_bytes() == (CRATE / "include" / "shotline.h").read_bytes()
    texts = [path.read_text() for path in library.lib.rglob("*") if path.suffix in (".pc", ".cmake")]
    assert len(texts) == 4
    for text in texts:
        assert str(library.folder) not in text and not re.search(r"@\w+@", text)


def version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def test_other_folders_are_found_by_pkg_config(library, tmp_path):
    """As a package of a distribution is built."""
    where = ["--prefix", "/usr", "--libdir", "lib/some-linux-gnu", "--destdir", tmp_path]
    command("python3", ROOT / "scripts" / "install_lib.py", "--from", built_library(), *where)
    search = {"PKG_CONFIG_PATH": str(tmp_path / "usr" / "lib" / "some-linux-gnu" / "pkgconfig")}
    for variable, file in (("libdir", "libshotline.so.0"), ("includedir", "shotline.h")):
        folder = command("pkg-config", f"--variable={variable}", "shotline", **search).strip()
        assert Path(folder, file).resolve().is_relative_to(tmp_path) and Path(folder, file).exists()
    config = (tmp_path / "usr" / "lib" / "some-linux-gnu" / "cmake" / "Shotline" / "ShotlineConfig.cmake").read_text()
    assert '"${CMAKE_CURRENT_LIST_DIR}/../../../.."' in config and "/lib/some-linux-gnu/libshotline.a" in config


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("", True), ("0.1", True), ("0", True), ("0.1.0 EXACT", True), ("0.0.9", False), ("0.2", False), ("9", False)],
)
def test_cmake_accepts_versions_of_the_same_abi(library, tmp_path, wanted, found):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(wanted NONE)\nfind_package(Shotline {wanted} CONFIG)\n"
        'message("found=${Shotline_FOUND} ${Shotline_VERSION}")\n'
    )
    how = ["-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={library.prefix}"]
    done = subprocess.run(["cmake", *how], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=True)
    assert (f"found=1 {version()}" in done.stderr) == found, done.stderr


def test_soname_has_the_abi_version_of_the_header(library):
    abi = re.search(r"#define SHOTLINE_ABI_VERSION (\d+)", (CRATE / "include" / "shotline.h").read_text())[1]
    assert f"[libshotline.so.{abi}]" in command("readelf", "-d", library.lib / "libshotline.so")


def test_the_library_exports_the_functions_of_its_header_only(library):
    symbols = command("nm", "-D", "--defined-only", library.lib / "libshotline.so").splitlines()
    exported = {line.split()[2] for line in symbols}
    # Of a build that measures coverage.
    exported = {name for name in exported if not name.startswith("__llvm_profile")}
    declared = set(re.findall(r"(shotline_\w+)\(", (CRATE / "abi.txt").read_text()))
    assert exported == declared and len(exported) > 20


@pytest.mark.parametrize("language", COMPILERS)
def test_structures_have_the_sizes_of_the_abi_in_c(library, language):
    sizes = [line for line in (CRATE / "abi.txt").read_text().splitlines() if line.startswith("sizeof")]
    source = library.folder / "sizes.c"
    checks = [f'static_assert({size}, "{size}");' for size in sizes]
    # The header is first: it needs no other one before it.
    source.write_text(
        "\n".join(["#include <shotline.h>", "#include <assert.h>", *checks, "int main(void) { return 0; }"])
    )
    command(library.compile(source, language))
    assert len(sizes) > 5


# --- programs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "package"), [("c11", "shotline"), ("c++17", "shotline"), ("c11", "shotline-static")]
)
def test_read_run_prints_shots_and_losses(library, broken, language, package):
    printed = command(library.compile(EXAMPLES / "read_run.c", language, package), broken[0])
    check_printed(printed, broken)


def check_printed(printed, broken):
    path, sent = broken
    lines = printed.splitlines()
    assert lines[0] == f"{path}: 6 rows, 2 links, finished"
    assert "  row 1: shot 101 is partial, 2 of 3 packets, 1 wire_gap" in lines
    assert "  row 2: shot 103 is lost, 0 of 3 packets" in lines
    good = sent.values[1][[0, 2, 3, 4, 5]]
    assert f"  5 of 6 shots complete, their samples are {good.min()} to {good.max()}" in lines
    assert "lost: 3 shots of stream 1 from 106 on, wire_gap" in lines


@pytest.mark.parametrize("target", ["Shotline::shotline", "Shotline::static"])
def test_cmake_finds_the_package(library, broken, tmp_path, target):
    settings = [f"-DCMAKE_PREFIX_PATH={library.prefix}", f"-DSHOTLINE_TARGET={target}"]
    settings += [f"-DCMAKE_C_FLAGS={' '.join((*WARNINGS, *SANITIZERS))}"]
    command("cmake", "-S", EXAMPLES, "-B", tmp_path, *settings)
    command("cmake", "--build", tmp_path, "--target", "read_run", "record", "read_write", "serve_memory")
    check_printed(command(tmp_path / "read_run", broken[0]), broken)
    needed = command("readelf", "-d", tmp_path / "read_run")
    assert ("libshotline.so.0" in needed) == (target == "Shotline::shotline")


def test_first_program_of_the_documentation_runs(library, others, tmp_path):
    source = library.folder / "first.c"
    source.write_text(re.search(r"```c\n(.*?)```", (ROOT / "docs" / "c.md").read_text(), re.DOTALL)[1])
    shutil.copy(others[0], tmp_path / "run.h5")
    lines = command(library.compile(source), cwd=tmp_path).splitlines()
    assert lines[0] == "10 rows x 1 samples x 12 channels" and len(lines) == 11
    assert all(line.startswith(f"shot {row}: 1 of 1 packets") for row, line in enumerate(lines[1:]))


@pytest.mark.parametrize("language", COMPILERS)
def test_example_of_the_header_compiles_and_runs(library, runs, language):
    header = (CRATE / "include" / "shotline.h").read_text()
    lines = [line.removeprefix(" *     ").removeprefix(" *") for line in header.splitlines()]
    first = lines.index("#include <inttypes.h>")
    source = library.folder / f"header-{language}.c"
    source.write_text("\n".join(lines[first : lines.index("}", lines.index("int main(int argc, char **argv) {")) + 1]))
    path, expected = runs["packed"]
    printed = command(library.compile(source, language), path).splitlines()
    assert printed == [f"shot {row}: state 2, first sample {shot[0, 0]}" for row, shot in enumerate(expected)]


def test_follow_run_prints_each_shot_of_a_run_in_progress(library, tmp_path):
    path, shape = tmp_path / "run.h5", ("--channels", 8, "--samples", 500)
    program = library.compile(EXAMPLES / "follow_run.c")
    with Probe(*shape) as probe, Recorder(probe, *shape[2:], "--rate-hz", 200, "--out", path, "--progress") as recorder:
        recorder.wait_for_packets(1)
        until(lambda: path.exists() and rows(path), what="a row")
        with subprocess.Popen([program, path], stdout=subprocess.PIPE, text=True) as follower:
            first = follower.stdout.readline()
            recorder.interrupt().succeeded()
            rest = follower.stdout.read()
        assert follower.returncode == 0
        probe.report()
    with h5py.File(path) as file:
        table = file["link0/shots"][:]
    names = ("lost", "partial", "complete")
    expected = [f"shot {number}: {names[state]}" for number, state in zip(table["number"], table["state"], strict=True)]
    assert (first + rest).splitlines() == expected


def rows(path):
    try:
        with h5py.File(path) as file:
            return len(file["rf"])
    except OSError:
        return 0


# --- what is read ------------------------------------------------------------------------------------


def test_everything_read_equals_what_python_reads(library, shotline, runs, broken, others):
    for path in [*(path for path, _ in runs.values()), broken[0], *others]:
        found = library.dump(path)
        with shotline.open(path) as run:
            about = json.loads(run.native.about())
            assert found["about"] == about and found["joined"] == about["joined"] and found["finished"]
            assert (found["rows"], found["allocated_rows"]) == (run.rows, run.native.allocated_rows())
            assert [found[name] for name in ("start_tai_ns", "start_utc_ns")] == [
                run.info[name] for name in ("start_tai_ns", "start_utc_ns")
            ]
            assert found["losses"] == [list(loss) for loss in run.losses.tolist()]
            counters = {**run.counters, ALL_LINKS: run.totals}
            flat = [[stream, name, value] for stream, by_name in counters.items() for name, value in by_name.items()]
            assert sorted(found["counters"]) == sorted(flat)
            for link, properties in zip(run.links, found["links"], strict=True):
                assert {name: properties[name] for name in about["links"][link.index]} == about["links"][link.index]
                assert properties["element_bytes"] == link.geometry.dtype.itemsize
                check_shots(properties["shots"], link)


def check_shots(found, link):
    table = link.shots.table
    assert len(found) == len(table)
    for row, (shot, entry) in enumerate(zip(found, table, strict=True)):
        for name in ("number", "stamp_tai_ns", "arrived_tai_ns", "completed_tai_ns", "state", "valid_bytes"):
            assert shot[name] == entry[name], (row, name)
        for name in ("packets", "placed", "flags", "record_good"):
            assert shot[name] == entry[name], (row, name)
        assert shot["presence"] == entry["presence"].tobytes().hex()
        assert (shot["row_good"], shot["found"]) == (1, row)
        by_cause = {cause: count for cause, count in zip(causes(), shot["drops"], strict=False) if count}
        assert by_cause == link.shots[row].drops and not any(shot["drops"][len(causes()) :])


def causes():
    from shotline._shots import CAUSES

    return CAUSES


def test_tables_equal_those_of_h5py(library, broken):
    found = library.dump(broken[0])
    with h5py.File(broken[0]) as file:
        for index, link in enumerate(found["links"]):
            group = file[f"link{index}"]
            assert (link["name"], link["packing_number"]) == (group.attrs["name"], group.attrs["packing"])
            for name in ("number", "state", "placed", "slot_crc32", "completed_tai_ns"):
                assert [shot[name] for shot in link["shots"]] == group["shots"][name].tolist(), name
        assert len(found["losses"]) == len(file["losses"])
        assert {name for _, name, _ in found["counters"]} == {name.decode() for name in file["counters"]["name"]}


def test_slots_are_those_of_the_wire(library, broken, others, shotline, tmp_path):
    for path in [broken[0], *others]:
        command(library.compile(SOURCES / "dump.c"), path, "slots", tmp_path / "slots")
        with shotline.open(path) as run:
            expected = b"".join(shot.raw.tobytes() for link in run.links for shot in link.shots)
        assert (tmp_path / "slots").read_bytes() == expected


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_selection_equals_numpy(library, runs, broken, others, shotline, tmp_path, data):
    paths = sorted([*(path for path, _ in runs.values()), broken[0], *others])
    path = data.draw(st.sampled_from(paths))
    with shotline.open(path) as run:
        link = data.draw(st.sampled_from([*range(len(run.links)), ALL_LINKS]))
        whole = (run if link == ALL_LINKS else run.links[link]).samples[...]
    axes = [data.draw(axis(extent)) for extent in whole.shape]
    words = [word for _, given_axis in axes for word in given_axis]
    shape = library.dump(path, link, data.draw(st.integers(0, 3)), *words, tmp_path / "samples")
    expected = whole[np.ix_(*(indexes for indexes, _ in axes))]
    assert shape == [*expected.shape, expected.dtype.itemsize]
    assert (tmp_path / "samples").read_bytes() == expected.tobytes()


@st.composite
def axis(draw, extent):
    """Generates indexes within an extent, with the axis that names them; zeros stand for defaults."""
    first, step = draw(st.integers(0, extent - 1)), draw(st.integers(-4, 4))
    distance = step or 1
    indexes = np.arange(first, extent if distance > 0 else -1, distance)
    count = draw(st.integers(0, len(indexes)))
    return indexes[: count or None], (first, count, step)


# --- wrong calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", COMPILERS)
def test_wrong_calls_have_defined_errors(library, runs, language):
    printed = command(library.compile(SOURCES / "misuse.c", language), runs["packed"][0])
    assert printed == "every wrong call has failed as documented\n"


def test_a_run_survives_a_change_of_the_working_directory(library, others):
    source = library.folder / "moves.c"
    source.write_text(
        """#include <shotline.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            shotline_run run;
            shotline_shot shots[12];
            return argc != 2 || shotline_run_open(argv[1], &run) || chdir("/") || shotline_run_refresh(run, NULL) ||
                shotline_run_read_shots(run, 0, 0, 12, shots) || shotline_run_close(run);
        }"""
    )
    command(library.compile(source), others[1].name, cwd=others[1].parent)


def test_the_sanitizers_find_a_leak_and_a_read_after_free(library):
    source = library.folder / "faults.c"
    source.write_text(
        """#include <shotline.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            static char *volatile memory;
            char *again = argv[argc];
            memory = (char *)calloc(8, 1);
            if (argc > 1) {
                again = memory + 1;
                free(memory);
            }
            memory = NULL;
            return (again && again[0]) || shotline_abi_version() != SHOTLINE_ABI_VERSION;
        }"""
    )
    program = library.compile(source)
    for arguments, words in [((), "LeakSanitizer"), (("again",), "heap-use-after-free")]:
        with pytest.raises(AssertionError, match=words):
            command(program, *arguments)
