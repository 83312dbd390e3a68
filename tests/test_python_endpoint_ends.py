"""How endpoints of the Python package end: closed, dropped, without their target, in threads, loops and other processes."""

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from python_endpoints import LONG_S, TRANSPORTS, done, pattern
from recordings import python

from common import WAIT_TIMEOUT_S

# --- ends --------------------------------------------------------------------------------------------


def objects(target):
    region, cq = target.register(4096), target.create_cq()
    return region, cq, target.create_qp(cq), target.regions["images"]


def test_use_after_close_is_a_defined_error(shotline, start_target, connect_to):
    target = connect_to(start_target())
    region, cq, qp, image = objects(target)
    element = region[0:8]
    target.close()
    target.close()
    assert target.closed and "closed" in repr(target) and "closed" in repr(region)
    calls = [
        cq.poll,
        cq.wait,
        cq.arm,
        lambda: qp.write(element, image.at(0)),
        lambda: qp.recv(element),
        lambda: qp.state,
        lambda: target.register(8),
        target.create_cq,
        lambda: target.create_qp(cq),
        lambda: target.read("images"),
        lambda: target.write("images", 0, b"1"),
        target.statistics,
        target.counters,
        lambda: asyncio.run(cq.wait_async()),
    ]
    for call in calls:
        with pytest.raises(shotline.ClosedError):
            call()
    for each in (qp, cq, region):
        each.close()


def test_one_closed_queue_leaves_the_others(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        region, cq, qp, image = objects(target)
        with pytest.raises(shotline.VerbsError, match="in use by a queue pair"):
            cq.close()
        with qp:
            pass
        with pytest.raises(shotline.ClosedError, match="queue pair is closed"):
            qp.write(region[0:8], image.at(0))
        with cq:
            pass
        with pytest.raises(shotline.ClosedError, match="completion queue is closed"):
            cq.poll()
        other = target.create_cq()
        pair = target.create_qp(other)
        pair.write(region[0:8], image.at(0))
        done(other)


@pytest.mark.parametrize("order", range(6))
def test_objects_may_be_dropped_in_any_order(start_target, connect_to, order):
    endpoint = connect_to(start_target())
    region, cq, qp, image = objects(endpoint)
    region.array[:8] = 7
    qp.write(region[0:4096], image.at(0))
    names = ["region", "cq", "qp"]
    alive = dict(zip(names, (region, cq, qp), strict=True))
    del region, cq, qp
    for _ in names:
        del alive[names.pop(order % len(names))]
        order //= 2
        gc.collect()
    endpoint.write("images", 0, b"still")
    assert bytes(endpoint.read("images", 0, 5)) == b"still"


def test_memory_outlives_regions_while_requests_use_it(start_target, connect_to):
    with connect_to(start_target()) as target:
        image, cq = target.regions["images"], target.create_cq(256)
        qp = target.create_qp(cq, max_send=128)
        expected = []
        for at in range(0, 100 * 4096, 4096):
            region = target.register(4096)
            region.array[:] = pattern(at, 4096)
            expected.append(region.array.copy())
            qp.write(region, image.at(at))
            del region
            gc.collect(0)
        done(cq, 100)
        assert np.array_equal(target.read("images", 0, 100 * 4096), np.concatenate(expected))
        region = target.register(4096)
        array, gone = region.array, weakref.ref(region.array)
        del region
        gc.collect()
        array[:] = 5
        assert array.sum() == 5 * 4096 and gone() is None


# --- waiting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_target_that_dies_ends_the_wait(shotline, start_target, connect_to, transport, kind):
    program = start_target(transport)
    target = connect_to(program)
    region, cq, idle = target.register(1 << 20), target.create_cq(), target.create_cq()
    qp = target.create_qp(cq)
    qp.recv(region[0:8], id=5)

    def wait(queue):
        while True:
            for completion in queue.wait(LONG_S):
                completion.check()

    async def wait_async(queue):
        async for completion in queue:
            completion.check()

    async def both():
        return await asyncio.gather(wait_async(cq), wait_async(idle), return_exceptions=True)

    with ThreadPoolExecutor() as pool:
        if kind == "thread":
            waits = [pool.submit(wait, queue) for queue in (cq, idle)]
        else:
            waits = pool.submit(lambda: asyncio.run(both()))
        time.sleep(0.2)
        program.signal(signal.SIGKILL)
        errors = [each.exception() for each in waits] if kind == "thread" else waits.result(LONG_S)
    assert [type(error) for error in errors] == [shotline.FlushedError, shotline.DisconnectedError], errors
    assert errors[0].completion.id == 5
    with pytest.raises(shotline.DisconnectedError, match="has ended"):
        cq.wait(LONG_S)
    with pytest.raises(shotline.VerbsError):
        target.create_qp(target.create_cq())
    with pytest.raises(shotline.VerbsError):
        target.read("images")
    assert not target.is_connected


def test_a_served_target_that_closes_ends_transfers(shotline):
    served = shotline.serve({"images": 64 << 20}, rights="rw")
    with shotline.connect(served.address, token=served.token) as target:
        began = threading.Event()

        def transfer():
            while True:
                target.read("images")
                began.set()

        with ThreadPoolExecutor() as pool:
            failed = pool.submit(transfer)
            assert began.wait(LONG_S)
            served.close()
            assert isinstance(failed.exception(LONG_S), (shotline.FlushedError, shotline.DisconnectedError))


@pytest.mark.parametrize("kind", ["thread", "asyncio", "transfer"])
def test_close_interrupts_waits(shotline, start_target, connect_to, kind):
    program = start_target()
    target = connect_to(program)
    queues = [target.create_cq() for _ in range(3)]
    target.regions  # noqa: B018  # while the target answers
    if kind == "transfer":
        program.signal(signal.SIGSTOP)
    calls = {
        "thread": lambda cq: cq.wait(LONG_S),
        "asyncio": lambda cq: asyncio.run(cq.wait_async(LONG_S)),
        "transfer": lambda cq: target.create_qp(cq) if cq is queues[0] else target.read("images"),
    }
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(calls[kind], cq) for cq in queues]
        time.sleep(0.2)
        target.close()
        errors = [wait.exception(LONG_S) for wait in waits]
    assert [type(error) for error in errors] == [shotline.ClosedError] * 3, errors


def test_a_wait_ends_when_its_time_is_over(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        cq = target.create_cq()
        for timeout in (0, 0.01, 0.15):
            began = time.monotonic()
            assert cq.wait(timeout) == [] and asyncio.run(cq.wait_async(timeout)) == []
            assert time.monotonic() - began >= 2 * timeout
        with pytest.raises(ValueError, match="0 seconds or more"):
            cq.wait(-1)


def test_ten_threads_share_an_endpoint(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        image, counter = target.regions["images"], target.regions["counters"]

        def work(number):
            region, cq = target.register(1 << 14), target.create_cq(64)
            with target.create_qp(cq) as qp:
                place = number * len(region)
                for turn in range(30):
                    region.array[:] = pattern(100 * number + turn, len(region))
                    qp.write(region, image.at(place))
                    qp.fetch_add(target.register(8)[:], counter.at(0), 1)
                    done(cq, 2)
                    assert np.array_equal(target.read("images", place, len(region)), region.array)
            return number

        with ThreadPoolExecutor(10) as pool:
            assert list(pool.map(work, range(10))) == list(range(10))
        assert target.read("counters", 0, 8).view(np.uint64)[0] == 300


def test_ten_threads_share_a_completion_queue(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        image, cq = target.regions["images"], target.create_cq(1024)
        qp, lock, taken = target.create_qp(cq, max_send=1024), threading.Lock(), []

        def take(_):
            while len(taken) < 1000:
                found = cq.wait(0.05, max=7)
                with lock:
                    taken.extend(completion.check().id for completion in found)

        with ThreadPoolExecutor(10) as pool:
            waits = pool.map(take, range(10))
            for first in range(0, 1000, 100):
                qp.post(
                    [shotline.Request.write(b"12345678", image.at(8 * id), id=id) for id in range(first, first + 100)]
                )
            list(waits)
        assert sorted(taken) == list(range(1000))


def test_coroutines_of_several_loops_wait(shotline, start_target, connect_to):
    with connect_to(start_target("soft")) as target:
        image = target.regions["images"]

        async def work(number):
            region, cq = target.register(4096), target.create_cq()
            qp = target.create_qp(cq)
            for turn in range(20):
                qp.write(region, image.at(4096 * number), id=turn)
                (completion,) = await cq.wait_async(LONG_S)
                assert completion.check().id == turn

        async def loop(first):
            await asyncio.gather(*(work(first + index) for index in range(5)))

        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda first: asyncio.run(loop(first)), [0, 5, 10]))


def test_the_descriptor_is_readable_at_a_completion(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        region, cq, qp, image = objects(target)

        def is_readable(seconds):
            return bool(select.select([target], [], [], seconds)[0])

        cq.arm()
        assert cq.poll() == [] and not is_readable(0.05)
        qp.write(region, image.at(0), id=4)
        found = []
        while not found:
            assert is_readable(LONG_S)
            found = cq.poll()
        assert found[0].check().id == 4


# --- processes ---------------------------------------------------------------------------------------


def test_a_forked_child_gets_an_error_and_harms_nothing(shotline, start_target, connect_to):
    with shotline.serve({"a": 4096}, rights="rw") as served, connect_to(start_target()) as target:
        region, cq, qp, image = objects(target)
        element = region[0:8]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                calls = [cq.poll, cq.wait, lambda: qp.write(element, image.at(0)), lambda: target.register(8)]
                calls += [lambda: target.read("images"), target.create_cq, served.state, lambda: qp.state, qp.close]
                calls += [
                    target.fileno,
                    target.counters,
                    lambda: target.is_connected,
                    lambda: asyncio.run(cq.wait_async()),
                ]
                for call in calls:
                    with pytest.raises(shotline.ForkedError, match="child process connects for itself"):
                        call()
                target.close()
                served.close()
                del region, element, cq, qp, target, served
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        qp.write(element, image.at(0))
        done(cq)
        assert served.state()["initiators"] == 0
        with shotline.connect(served.address, token=served.token) as other:
            other.write("a", 0, b"served")


LEFT_OPEN = """
import asyncio, sys, threading
import shotline

served = shotline.serve({"a": 1 << 20}, rights="rw")
target = shotline.connect(sys.argv[1], token=sys.argv[2], transport=sys.argv[3])
own = shotline.connect(served.address, token=served.token)
region, cq = target.register(1 << 20), target.create_cq()
qp = target.create_qp(cq)
array = region.array
for _ in range(100):
    qp.write(region, target.regions["images"].at(0), signalled=False)
qp.recv(region[0:8])
idle = target.create_cq()
threading.Thread(target=lambda: idle.wait(), daemon=True).start()
threading.Thread(target=lambda: own.create_cq().wait(), daemon=True).start()
threading.Thread(target=lambda: asyncio.run(own.create_cq().wait_async()), daemon=True).start()
print("left open")
"""


@pytest.mark.parametrize("transport", ["soft", "shm"])
def test_an_interpreter_exits_with_everything_open(shotline, start_target, connect_to, transport):
    program = start_target(transport)
    for _ in range(3):
        assert python("-c", LEFT_OPEN, program.address, program.token, transport).stdout == "left open\n"
    with connect_to(program) as target:
        target.write("images", 0, b"still served")


def test_a_signal_interrupts_a_wait(shotline, start_target):
    program = start_target()
    script = (
        "import shotline, sys; cq = shotline.connect(*sys.argv[1:2], token=sys.argv[2]).create_cq();"
        "print('waits', flush=True); cq.wait()"
    )
    site = next(path for path in sys.path if Path(path).name == "shotline-site")
    words = [sys.executable, "-c", script, program.address, program.token]
    with subprocess.Popen(words, env=os.environ | {"PYTHONPATH": site}, stdout=-1, stderr=-1, text=True) as child:
        assert child.stdout.readline() == "waits\n"
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=WAIT_TIMEOUT_S)
    assert "KeyboardInterrupt" in error and child.returncode != 0
