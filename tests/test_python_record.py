"""Runs in Python: shots as they arrive, in loops, threads and tasks; kept views, exceptions, forks, Ctrl-C, exit."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from recordings import python

from common import ROOT, WAIT_TIMEOUT_S, verify

SMALL = {"links": 1, "channels": 8, "samples": 64}
SLOT = 4096  # bytes of a slot of such a shot


@pytest.fixture
def emulator(shotline):
    with shotline.Emulator(**SMALL) as emulator:
        yield emulator


def settings(emulator, **more):
    """Returns settings of a run on a port of its own, with a small pool."""
    return {"probe": emulator.address, "bind": "[::1]:0", "samples": 64, "rate_hz": 2000.0, "pool": "8MiB"} | more


# --- shots ---------------------------------------------------------------------------------------------


def test_shots_that_python_takes_are_those_in_the_file(shotline, tmp_path):
    path, seen = tmp_path / "run.h5", {}
    with shotline.Emulator(links=2, channels=8, samples=300, loss=0.02, seed=1) as emulator:
        wanted = settings(emulator, samples=300, out=path, shots=200)
        with shotline.record(**wanted) as recorder:
            for shot in recorder:
                raw = [link.raw.copy() if link.state else None for link in shot.links]
                seen[shot.number] = shot.state, shot.samples, shot.presence, shot.drops, shot.time, raw
                assert not any(link.raw.flags.writeable for link in shot.links if link.state), "the recorder's, too"
            missed = {n for loss in recorder.losses for n in range(loss["first"], loss["first"] + loss["count"])}
    verify(path)
    run = shotline.open(path)
    assert set(run.shots.numbers) >= set(seen) and set(seen) | missed >= set(run.shots.numbers)
    assert any(state != shotline.State.COMPLETE for state, *_ in seen.values()), "a loss must be visible"
    for shot in run.shots:
        if shot.number not in seen:
            continue
        state, samples, presence, drops, time, raw = seen[shot.number]
        assert (shot.state, shot.drops) == (state, drops) and np.array_equal(shot.time, time, equal_nan=True)
        assert np.array_equal(shot.samples, samples) and np.array_equal(shot.presence, presence)
        for link, bytes_of_link in zip(shot.links, raw, strict=True):
            assert bytes_of_link is None or np.array_equal(link.raw, bytes_of_link)


@pytest.mark.parametrize("packing", ["packed12_msb_first", "int16_le", "int16_be", "uint8"])
def test_samples_given_to_an_emulator_arrive(shotline, packing):
    low, high = (0, 256) if packing == "uint8" else (-2048, 2048)
    data = np.random.default_rng(5).integers(low, high, (3, 50, 8))
    with (
        shotline.Emulator(data, links=2, packing=packing) as emulator,
        shotline.record(**settings(emulator, samples=50, shots=30)) as recorder,
    ):
        assert recorder.geometry.channels == 4 and recorder.link_count == 2
        complete = 0
        for shot in recorder:
            if shot.is_complete:
                complete += 1
                assert np.array_equal(shot.samples, data[shot.number % 3])
        assert complete > 0
        assert complete + sum(recorder.losses["count"]) + recorder.counters["shots_partial"] >= 30


def test_raw_bytes_are_a_view_that_other_libraries_share(shotline, emulator):
    with shotline.record(**settings(emulator, shots=10)) as recorder:
        shot = recorder.take(WAIT_TIMEOUT_S)
        shared = np.from_dlpack(shot.raw)
        assert np.shares_memory(shared, shot.raw) and shared.nbytes == SLOT
        shot.raw[:4] = 1, 2, 3, 4
        assert list(shared[:4]) == [1, 2, 3, 4], "without a file the program may use the memory"


def test_a_buffer_returns_when_its_last_view_is_gone(shotline, emulator):
    with shotline.record(**settings(emulator, shots=10)) as recorder:
        shot = recorder.take(WAIT_TIMEOUT_S)
        view, part = shot.raw, shot.raw[100:200]
        assert recorder.counters["held"] == 1
        del shot, view
        gc.collect()
        assert recorder.counters["held"] == 1
        before = part.copy()
    assert np.array_equal(part, before), "a view outlives its run"
    del part
    gc.collect()
    assert recorder.counters["held"] == 0


# --- a program that is too slow, or fails --------------------------------------------------------------


def test_keeping_every_shot_warns_and_loses_only_later_ones(shotline, emulator):
    kept = []
    with shotline.record(**settings(emulator, shots=20_000, rate_hz=20_000.0)) as recorder:
        with pytest.warns(shotline.BufferWarning, match=r"this program holds \d+ shots.*shot.samples.copy"):
            kept.extend(recorder)
        counters, losses = recorder.counters, recorder.losses
    assert counters["held"] == counters["max_held"] == len(kept)
    assert "sink_busy" in set(losses["cause"]) and len(kept) + sum(losses["count"]) == 20_000
    assert recorder.report["drops"]["sink_busy"] == sum(losses[losses["cause"] == "sink_busy"]["count"])


@pytest.mark.parametrize(
    "taking",
    ["kept = list(recorder)", "while shot := recorder.take(): kept.append(shot)", "async for shot in recorder:"],
)
def test_the_warning_names_the_line_that_takes_shots(shotline, tmp_path, taking):
    script = f"""
import asyncio, shotline
kept = []
async def take():
    async for shot in recorder:
        kept.append(shot)
settings = dict(samples=64, rate_hz=20_000.0, shots=20_000, pool="8MiB", bind="[::1]:0")
with shotline.Emulator(links=1, channels=8, samples=64) as emulator:
    with shotline.record(probe=emulator.address, **settings) as recorder:
        {"asyncio.run(take())" if "async" in taking else taking}
"""
    (tmp_path / "keep.py").write_text(script)
    warnings_shown = python(tmp_path / "keep.py").stderr  # with Python's own filters
    line = [line.strip() for line in script.splitlines()].index(taking) + 1
    assert f"keep.py:{line}: BufferWarning: this program holds" in warnings_shown, warnings_shown


def test_keeping_every_shot_leaves_buffers_to_the_recorder(shotline, emulator, tmp_path):
    path = tmp_path / "run.h5"
    with shotline.record(**settings(emulator, out=path, shots=5000)) as recorder, warnings.catch_warnings():
        warnings.simplefilter("ignore", shotline.BufferWarning)
        kept = list(recorder)
    lost = shotline.open(path).losses
    assert len(shotline.open(path).shots) + sum(lost["count"]) == 5000
    assert "no_buffer" not in set(lost["cause"]), "assembly never lacked one"
    assert len(kept) + sum(recorder.losses["count"]) == 5000


def test_an_exception_in_the_loop_ends_the_run_and_its_file(shotline, emulator, tmp_path):
    path = tmp_path / "run.h5"
    with pytest.raises(ZeroDivisionError), shotline.record(**settings(emulator, out=path)) as recorder:
        for shot in recorder:
            shot.number // 0
    run = shotline.open(path)
    assert run.finished and len(run.shots) > 0
    assert recorder.report["ended"]["cause"] == "signal"
    verify(path)
    with pytest.raises(ValueError, match="this recorder is closed"):
        recorder.take(0)


def test_leaving_early_counts_the_shots_that_were_not_taken(shotline, emulator):
    with shotline.record(**settings(emulator)) as recorder:
        for _, _shot in zip(range(5), recorder, strict=False):
            pass
    counters, report = recorder.counters, recorder.report
    assert counters["taken"] + counters["untaken"] == report["shots_complete"] + report["shots_partial"]


# --- threads and tasks -----------------------------------------------------------------------------------


def test_ten_threads_take_each_shot_once(shotline, emulator):
    numbers, lock = [], threading.Lock()
    with shotline.record(**settings(emulator, shots=2000)) as recorder:

        def take():
            for shot in recorder:
                with lock:
                    numbers.append(shot.number)

        threads = [threading.Thread(target=take) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_TIMEOUT_S)
        losses = sum(recorder.losses["count"])
    assert len(numbers) == len(set(numbers)) and len(numbers) + losses == 2000


def test_tasks_of_an_event_loop_share_a_run(shotline, emulator):
    async def numbers_of(recorder):
        return [shot.number async for shot in recorder]

    async def main():
        async with shotline.record(**settings(emulator, shots=500)) as recorder:
            both = await asyncio.gather(numbers_of(recorder), numbers_of(recorder))
            return [*both[0], *both[1]], sum(recorder.losses["count"])

    numbers, lost = asyncio.run(asyncio.wait_for(main(), WAIT_TIMEOUT_S))
    assert len(set(numbers)) == len(numbers) and len(numbers) + lost == 500


def test_a_task_that_is_cancelled_leaves_the_run_to_others(shotline, emulator):
    async def main():
        waits = {name: value for name, value in settings(emulator).items() if name != "rate_hz"}
        async with shotline.record(**waits, external_trigger=True) as recorder:
            task = asyncio.create_task(anext(recorder))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            shot = shotline.Probe(emulator.address, take_over=True).trigger()
            return shot, (await anext(recorder)).number

    triggered, taken = asyncio.run(asyncio.wait_for(main(), WAIT_TIMEOUT_S))
    assert triggered == taken


@pytest.mark.parametrize("how", ["loop", "task"])
def test_a_probe_that_vanishes_raises_after_its_last_shot(shotline, how):
    with shotline.Emulator(**SMALL) as emulator, shotline.record(**settings(emulator)) as recorder:
        assert recorder.take(WAIT_TIMEOUT_S) is not None
        emulator.close()

        async def take_all():
            async for _ in recorder:
                pass

        with pytest.raises(shotline.RunError, match="probe"):
            if how == "loop":
                list(recorder)
            else:
                asyncio.run(asyncio.wait_for(take_all(), WAIT_TIMEOUT_S))
        assert recorder.report["ended"]["cause"] == "probe-lost"


# --- processes -------------------------------------------------------------------------------------------

OPEN = """
import os, signal, sys
import shotline
emulator = shotline.Emulator(links=1, channels=8, samples=64)
recorder = shotline.record(probe=emulator.address, bind="[::1]:0", samples=64, rate_hz=2000.0, out=sys.argv[1])
kept = [recorder.take().raw for _ in range(3)]
"""


def test_a_run_that_is_open_at_exit_is_closed(shotline, tmp_path):
    path = tmp_path / "run.h5"
    python("-W", "error", "-c", OPEN + "cycle = [recorder, kept]; cycle.append(cycle)", path)
    assert shotline.open(path).finished
    verify(path)


def test_ctrl_c_ends_a_loop_and_leaves_a_complete_file(shotline, tmp_path):
    path = tmp_path / "run.h5"
    script = OPEN + "print('ready', flush=True)\nwith recorder:\n    for shot in recorder: pass\n"
    site = next(entry for entry in sys.path if entry.endswith("shotline-site"))
    command = [sys.executable, "-c", script, path]
    environment = os.environ | {"PYTHONPATH": site}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=WAIT_TIMEOUT_S)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert shotline.open(path).finished
    verify(path)


def test_a_forked_child_is_refused_and_harms_nothing(shotline, tmp_path):
    script = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork in a process with threads
child = os.fork()
if child == 0:
    for call in (lambda: recorder.take(0), emulator.close, lambda: list(recorder)):
        try:
            call()
        except RuntimeError as error:
            assert "belongs to the parent process" in str(error), error
        else:
            os._exit(1)
    recorder.close()
    del kept, recorder, emulator
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert recorder.take() is not None
assert recorder.counters["held"] == 3
recorder.close()
assert emulator.close()["links"][0]["shots"] > 0
"""
    path = tmp_path / "run.h5"
    python("-c", OPEN + script, path)
    assert shotline.open(path).finished


# --- settings, errors and probes -----------------------------------------------------------------------


def test_settings_have_the_types_of_the_schema(shotline):
    subprocess.run([sys.executable, ROOT / "scripts" / "settings_types.py", "--check"], check=True)


def test_settings_that_no_run_can_have_are_named(shotline, emulator):
    for wrong, words in [
        ({}, "probe"),
        ({"sampels": 3}, "sampels"),
        ({"samples": "many"}, "invalid type"),
        ({"pool": "4KiB"}, "use pool 2MiB"),
        ({"transport": "carrier-pigeon"}, "carrier-pigeon"),
    ]:
        with pytest.raises(ValueError, match=words) as caught:
            shotline.record(**(settings(emulator) | wrong if wrong else {}))
        assert "--" not in str(caught.value), "names of settings, not flags"


def test_a_probe_of_another_receiver_is_refused(shotline, emulator):
    with shotline.record(**settings(emulator)):
        with pytest.raises(ConnectionRefusedError, match="another receiver controls the probe.*take_over"):
            shotline.record(**settings(emulator))
        with pytest.raises(ConnectionRefusedError, match="another receiver"):
            shotline.Probe(emulator.address).stop()


def test_a_probe_describes_itself_and_takes_triggers(shotline, emulator):
    probe = shotline.Probe(emulator.address)
    description = probe.description
    assert (description.links, description.channels, description.bits) == (1, 8, 12)
    assert not probe.status().running
    with pytest.raises(ConnectionRefusedError):
        probe.status(7)
    with probe.record(**{**settings(emulator), "rate_hz": 50.0, "shots": 3}) as recorder:
        assert len(list(recorder)) + sum(recorder.losses["count"]) == 3
    assert probe.status().shots_sent == 3
    with pytest.raises(ConnectionRefusedError, match="another receiver controls it; use take_over"):
        probe.trigger()
    with pytest.raises(ConnectionRefusedError, match="does not accept trigger commands now"):
        shotline.Probe(emulator.address, take_over=True).trigger()


def test_wrong_samples_for_an_emulator_are_refused(shotline):
    for data, arguments, words in [
        (np.zeros((2, 3), int), {}, "shape .shot, sample, channel."),
        (np.zeros((2, 3, 4)), {}, "expected integers"),
        (np.full((1, 2, 4), 40_000), {}, "at most 16 bits"),
        (np.full((1, 2, 4), 3000), {}, "expected samples of 12 bits, found 3000"),
        (np.zeros((0, 2, 4), int), {}, "none of them 0"),
        (np.zeros((1, 2, 4), int), {"samples": 5}, "at most 2 samples"),
        (np.zeros((1, 2, 4), int), {"input": "a.h5"}, "one source of samples"),
        (None, {"packing": "int13"}, "int13"),
        (None, {"listen": "here"}, "found here"),
    ]:
        with pytest.raises(ValueError, match=words):
            shotline.Emulator(data, **arguments)


# --- examples --------------------------------------------------------------------------------------------


def test_the_example_of_the_guide_accounts_for_every_shot(shotline):
    code = (ROOT / "examples" / "python" / "record.py").read_text()
    guide = (ROOT / "docs" / "python.md").read_text()
    shown = [line for line in code[code.index("with contextlib") :].splitlines() if not line.strip().startswith("#")]
    assert "\n".join(shown).rstrip() in guide, "docs/python.md shows another program"
    output = python(ROOT / "examples" / "python" / "record.py").stdout.splitlines()
    # A shot of which one link is lost is taken, too.
    taken, *lost = map(int, re.findall(r"\d+", output[-1].split(" lost")[0]))
    assert taken <= 200 and all(taken + of_link >= 200 for of_link in lost) and len(lost) == 2, output
    assert output[0] == guide[guide.index(output[0][:30]) :].splitlines()[0]


def test_the_example_with_a_file_records_while_it_watches(shotline, tmp_path):
    path = tmp_path / "run.h5"
    with shotline.Emulator(samples=100) as emulator:
        output = python(ROOT / "examples" / "python" / "live_mean.py", emulator.address, path).stdout
    run = shotline.open(path)
    for stream in (0, 1):
        lost = sum(run.losses["count"][run.losses["stream"] == stream])
        assert len(run.shots) <= 1000 <= len(run.shots) + lost
    assert output.splitlines()[-1].startswith(f"{len(run.shots)} rows in {path}"), output
