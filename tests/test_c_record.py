"""Recording in C: shots as they arrive, emulated probes, wrong calls, threads, forks, and the end of the process."""

import json
import re

import numpy as np
import pytest
from c_programs import COMPILERS, EXAMPLES, SOURCES, command

from common import ROOT, verify

CAUSE_SLOTS = 32
STATES = ("lost", "partial", "complete")


def take(library, folder, config, settings, samples="-"):
    """Returns what tests/c/take.c prints, and the slots and samples of each link of each event."""
    settings = {"probe": "PROBE", "bind": "[::1]:0", "pool": "8MiB"} | settings
    program = library.compile(SOURCES / "take.c")
    found = json.loads(command(program, json.dumps(config), samples, json.dumps(settings), folder / "taken"))
    links = found["about"]["links"]

    def read(end, dtype):
        return np.fromfile(folder / f"taken.{end}", dtype).reshape(len(found["events"]), links, -1)

    wide = np.uint8 if found["about"]["geometry"]["packing"] == "uint8" else np.int16
    return found, read("slots", np.uint8), read("samples", wide)


@pytest.mark.parametrize(
    ("language", "package"), [("c11", "shotline"), ("c++17", "shotline"), ("c11", "shotline-static")]
)
def test_record_prints_shots_counters_and_losses(library, tmp_path, language, package):
    program, path = library.compile(EXAMPLES / "record.c", language, package), tmp_path / "run.h5"
    for file in ((), (path,)):
        lines = command(program, "emulated", *file).splitlines()
        shots = [line for line in lines if line.startswith("shot ")]
        assert all(": complete, link 0: " in line or ": partial, link 0: " in line for line in shots)
        complete = sum(": complete" in line for line in shots)
        counters = next(line for line in lines if " events taken" in line)
        assert complete > 0 and f"{len(shots)} events taken" in counters
    verify(path)


def test_programs_in_the_documentation_compile(library):
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "c.md").read_text(), re.DOTALL)
    starts = [block for block in blocks if "_start(" in block or "_connect(" in block]
    assert len(starts) == 3
    source = library.folder / "starts.c"
    functions = "".join(
        f"void start{at}(const char *token)\n{{\n(void)token;\n{block}}}\n" for at, block in enumerate(starts)
    )
    source.write_text(
        "#include <shotline.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "void process(const void *data, size_t length);\nvoid process(const void *data, size_t length)\n"
        "{\n    (void)data;\n    (void)length;\n}\n"
        "static void check(shotline_status status)\n{\n    if (status)\n        exit(1);\n}\n"
        f"{functions}int main(void) {{ return 0; }}\n"
    )
    library.compile(source)


def test_shots_taken_in_c_are_those_in_the_file(library, shotline, tmp_path):
    path = tmp_path / "run.h5"
    config = {"links": 2, "channels": 8, "samples": 300, "faults": {"loss": 0.02}, "seed": 1}
    settings = {"samples": 300, "shots": 200, "rate_hz": 1000.0, "out": str(path)}
    found, slots, samples = take(library, tmp_path, config, settings)
    verify(path)
    run = shotline.open(path)
    rows = {number: row for row, number in enumerate(run.shots.numbers)}
    lost = {n for _, _, first, count in found["losses"] for n in range(first, first + count)}
    assert {event["number"] for event in found["events"]} | lost >= set(rows)
    assert any(STATES[event["state"]] != "complete" for event in found["events"]), "a loss must be visible"
    for event, event_slots, event_samples in zip(found["events"], slots, samples, strict=True):
        row = rows[event["number"]]
        assert event["state"] == run.shots[row].state
        for index, shot in enumerate(event["links"]):
            entry, recorded = run.links[index].shots.table[row], run.links[index].shots[row]
            names = [name for name in shot if name not in ("drops", "presence", "row_good")]
            assert {name: shot[name] for name in names} == {name: entry[name] for name in names}
            assert shot["presence"] == entry["presence"].tobytes().hex() and shot["row_good"] == 1
            assert sum(shot["drops"]) == sum(recorded.drops.values()) and len(shot["drops"]) == CAUSE_SLOTS
            assert np.array_equal(event_slots[index], recorded.raw)
            assert np.array_equal(event_samples[index], recorded.samples.reshape(-1))
    check_texts(found, run)


def check_texts(found, run):
    geometry, link = found["about"]["geometry"], run.links[0].geometry
    assert (geometry["channels"], geometry["samples"]) == (link.channels, link.samples)
    assert found["report"]["ended"]["cause"] == "shots" and found["report"]["rows"] == run.rows
    counters = found["counters"]
    assert counters["rows"] == run.rows and counters["held"] == 0 and counters["taken"] == len(found["events"])
    assert counters["packets"] == found["report"]["packets"]


@pytest.mark.parametrize("packing", ["packed12_msb_first", "int16_le", "int16_be", "uint8"])
def test_samples_that_c_gives_to_an_emulator_arrive(library, tmp_path, packing):
    low, high = (0, 256) if packing == "uint8" else (-2048, 2048)
    data = np.random.default_rng(5).integers(low, high, (3, 50, 8)).astype(np.int16)
    data.tofile(tmp_path / "given")
    config = {"links": 2, "packing": packing, "free_running": {"rate": 1000.0}}
    found, _, samples = take(library, tmp_path, config, {"samples": 50, "shots": 30}, tmp_path / "given")
    complete = [event["number"] for event in found["events"] if STATES[event["state"]] == "complete"]
    assert len(complete) + found["counters"]["lost"] + found["counters"]["shots_partial"] >= 30 and complete
    for event, links in zip(found["events"], samples, strict=True):
        for link, taken in enumerate(links):
            if event["links"][link]["state"] == STATES.index("complete"):
                expected = data[event["number"] % 3, :, 4 * link : 4 * link + 4]
                assert np.array_equal(taken.reshape(50, 4), expected)


@pytest.mark.parametrize("language", COMPILERS)
def test_wrong_calls_of_recorders_have_defined_errors(library, language):
    printed = command(library.compile(SOURCES / "record_misuse.c", language))
    assert printed == "every wrong call has failed as documented\n"


def test_a_probe_that_vanishes_cuts_the_run_off(library):
    command(library.compile(SOURCES / "record_misuse.c"), "vanish")


@pytest.mark.parametrize("how", ["return", "exit"])
def test_a_run_that_is_open_at_the_end_is_closed(library, shotline, tmp_path, how):
    path = tmp_path / "run.h5"
    command(library.compile(SOURCES / "open_at_exit.c"), path, how)
    assert shotline.open(path).finished
    verify(path)
