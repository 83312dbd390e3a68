"""Endpoints of the Python package: operations of initiators of `shotline target` and of targets in a Python process."""

import asyncio
import time

import numpy as np
import pytest
from memory_target import Target
from python_endpoints import LONG_S, TRANSPORTS, done, pattern
from recordings import python

from common import ROOT, until

# --- operations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_operation_over_each_transport(shotline, start_target, connect_to, transport):
    with connect_to(start_target(transport)) as target:
        image, counter = target.regions["images"], target.regions["counters"]
        assert (image.name, image.length, image.rights, counter.rights) == ("images", 1 << 20, "rw", "atomic")
        region, cq = target.register(1 << 16), target.create_cq(64)
        qp = target.create_qp(cq, receives=(4, 4096), echo=True)
        region.array[:9000] = pattern(1, 9000)
        qp.write(region[0:9000], image.at(500), id=7)
        (written,) = done(cq)
        assert (written.id, written.operation, written.qp) == (7, shotline.Operation.WRITE, qp.number)
        qp.read([region[10000:10100], region[20000:28900]], image.at(500), id=8)
        (read,) = done(cq)
        assert (read.bytes, read.status, read.ok) == (9000, shotline.Status.SUCCESS, True)
        scattered = np.concatenate([region.array[10000:10100], region.array[20000:28900]])
        assert np.array_equal(scattered, region.array[:9000])
        qp.fetch_add(region[0:8], counter.at(8), 5)
        done(cq)
        qp.compare_swap(region[8:16], counter.at(8), 5, 77)
        done(cq)
        qp.compare_swap(region[16:24], counter.at(8), 5, 99)
        done(cq)
        assert region.array[:24].view(np.uint64).tolist() == [0, 5, 77]
        qp.recv(region[30000:34096], id=9)
        qp.send(b"a message", id=10, imm=0xCAFE)
        sent, received = sorted(done(cq, 2), key=lambda completion: completion.operation.value, reverse=True)
        assert (sent.id, received.id, received.bytes) == (10, 9, 9)
        assert received.operation == shotline.Operation.RECV
        assert bytes(region.array[30000:30009]) == b"a message"


@pytest.mark.parametrize("transport", ["soft", "spacefibre:lanes=2"])
def test_memory_of_this_process_is_served(shotline, transport):
    memory = shotline.Region(1 << 20)
    rights = {"images": "rw", "fixed": "r"}
    with shotline.serve({"images": memory, "fixed": 4096}, rights=rights, transport=transport) as served:
        served.regions["fixed"].array[:5] = list(b"hello")
        with shotline.connect(served.address, token=served.token, transport=transport) as target:
            assert {name: region.rights for name, region in target.regions.items()} == rights
            assert bytes(target.read("fixed", 0, 5)) == b"hello"
            data = pattern(2, 1 << 20)
            target.write("images", 0, data)
            assert np.array_equal(memory.array, data) and np.array_equal(served.regions["images"].array, data)
            state = served.state()
            assert state["initiators"] == 1 and state["region images"]["bytes_in"] == 1 << 20
        until(lambda: served.state()["initiators"] == 0, what="the initiator has left")
    with pytest.raises(shotline.ClosedError, match="target is closed"):
        served.state()
    assert np.array_equal(memory.array, data), "the memory outlives the target"


def test_shared_memory_is_served_by_the_program_only(shotline):
    with pytest.raises(ValueError, match="shotline target --transport shm"):
        shotline.serve({"a": 4096}, transport="shm")
    with pytest.raises(ValueError, match="letters"):
        shotline.serve({"not a name": 4096})
    with pytest.raises(ValueError, match="rights r, w, rw or atomic"):
        shotline.serve({"a": 4096}, rights="x")


@pytest.mark.parametrize("transport", ["soft", "shm"])
@pytest.mark.parametrize("length", [0, 1, 7, 300_000, 1 << 20])
def test_blocking_transfers_of_any_length(start_target, connect_to, transport, length):
    with connect_to(start_target(transport)) as target:
        offset = (1 << 20) - length
        data = pattern(length, length)
        target.write("images", offset, data)
        assert np.array_equal(target.read("images", offset), data)
        out = np.empty((length,), np.uint8)
        assert target.read(target.regions["images"], offset, out=out) is out and np.array_equal(out, data)


def test_arrays_of_any_type_are_transferred(start_target, connect_to):
    with connect_to(start_target()) as target:
        matrix = np.arange(600.0).reshape(20, 30)
        target.write("images", 8, matrix.T)
        assert np.array_equal(target.read("images", 8, 4800).view(np.float64).reshape(30, 20), matrix.T)
        target.write("images", 0, b"bytes")
        assert bytes(target.read("images", 0, 5)) == b"bytes"
        assert np.array_equal(target.read("images", 8, out=np.empty((30, 20))), matrix.T)
        for offset, length in [((1 << 20) - 3, 4), (1 << 20, 1), (0, (1 << 20) + 1)]:
            with pytest.raises(ValueError, match="inside region images"):
                target.read("images", offset, length)
        with pytest.raises(KeyError, match="choose one of images"):
            target.read("image")


def test_lists_are_posted_with_one_completion(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        image, region, cq = target.regions["images"], target.register(1 << 20), target.create_cq(8)
        qp = target.create_qp(cq, max_send=64)
        region.array[:] = pattern(3, 1 << 20)
        step = 1 << 14
        places = range(0, 1 << 20, step)
        requests = [
            shotline.Request.write(region[at : at + step], image.at(at), id=at, signalled=at == places[-1])
            for at in places
        ]
        for _ in range(3):
            qp.post(requests)
            assert [completion.id for completion in done(cq)] == [places[-1]]
        assert np.array_equal(target.read("images"), region.array)
        with pytest.raises(shotline.QueueFullError, match="queue is full") as full:
            qp.post(requests[:-1] * 2)
        assert full.value.posted == 64


def test_regions_are_numpy_arrays_without_a_copy(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        region = target.register(10_000)
        array = region.array
        assert (array.shape, array.dtype, array.flags.writeable, len(region)) == ((10_000,), np.uint8, True, 10_000)
        array[16:24].view(np.uint64)[0] = 1 << 40
        assert region.array[21] == 1 and region[16:24].array.view(np.uint64)[0] == 1 << 40
        assert np.shares_memory(np.from_dlpack(array), array)
        again = target.register(region)
        assert np.shares_memory(again.array, array) and again.lkey != region.lkey
        assert region.is_registered
        region.close()
        assert not region.is_registered and again.is_registered
        for part in [slice(0, 10_001), slice(-10_001, None), slice(5, 4)]:
            with pytest.raises(IndexError, match="inside a region"):
                again[part]
        with pytest.raises(ValueError, match="step"):
            again[0:10:2]
        assert (again[-8:].offset, len(again[:])) == (9992, 10_000)
    array[:] = 3  # the memory outlives the endpoint
    assert again.array.sum() == 30_000
    with pytest.raises(ValueError, match="not registered"):
        shotline.Region(8)[0:8]


# --- refusals ----------------------------------------------------------------------------------------


def test_a_wrong_key_is_not_answered_by_default(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        cq = target.create_cq()
        qp = target.create_qp(cq, timeout=0.001, retry_count=2)
        qp.write(b"evil", shotline.RemoteAddress(0, target.regions["images"].rkey ^ 1), id=3)
        (failed,) = cq.wait(LONG_S)
        assert (failed.id, failed.ok, failed.status) == (3, False, shotline.Status.RETRY_EXCEEDED)
        with pytest.raises(shotline.RetryExceededError, match="request 3: retry_exceeded: .*--strict-ib") as raised:
            failed.check()
        assert raised.value.completion is failed and isinstance(raised.value, shotline.VerbsError)
        assert qp.state == "ERR"
        qp.write(b"late", target.regions["images"].at(0))
        with pytest.raises(shotline.FlushedError):
            cq.wait(LONG_S)[0].check()


def served_memory(shotline):
    return shotline.serve({"images": 4096, "fixed": 4096}, rights={"images": "rw"}, strict_ib=True)


@pytest.mark.parametrize("served", [False, True], ids=["program", "process"])
def test_a_wrong_key_is_refused_at_once_if_strict(shotline, start_target, connect_to, served):
    target = start_target("soft", "--strict-ib")
    memory = served_memory(shotline) if served else target
    memory.transport = "soft"
    with connect_to(memory) as target:
        fixed = target.regions["fixed"]
        for remote in [shotline.RemoteAddress(0, fixed.rkey ^ 1), fixed.at(0), fixed.at(4096)]:
            cq = target.create_cq()
            qp = target.create_qp(cq)
            qp.write(b"evil", remote)
            with pytest.raises(shotline.RemoteAccessError, match="key, range or rights"):
                cq.wait(LONG_S)[0].check()
        with pytest.raises(shotline.RemoteAccessError):
            target.write("fixed", 0, b"evil")
        assert bytes(target.read("fixed", 0, 4)) == bytes(4), "transfers work again after a failure"
    if served:
        memory.close()


def test_connections_are_refused_with_a_reason(shotline, start_target):
    target = start_target()
    with pytest.raises(shotline.ConnectError, match="token"):
        shotline.connect(target.address, token="0" * 32)
    with pytest.raises(shotline.ConnectError, match="use --transport soft"):
        shotline.connect(target.address, token=target.token, transport="spacefibre:lanes=2")
    with pytest.raises(shotline.ConnectError, match="cannot reach"):
        shotline.connect("127.0.0.1:1", token=target.token)
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        shotline.connect(target.address, token="12")
    with pytest.raises(ValueError, match="expected soft, shm"):
        shotline.connect(target.address, token=target.token, transport="tcp")
    with pytest.raises(ValueError, match="token_file"):
        shotline.connect(target.address)
    with shotline.serve({"a": 4096}) as served, shotline.connect(served.address, token=served.token) as endpoint:
        cq = endpoint.create_cq()
        with pytest.raises(shotline.VerbsError, match="shotline target --messages"):
            endpoint.create_qp(cq, receives=(1, 8))
        assert served.state()["wrong_token"] == 0


def test_memory_of_another_endpoint_is_refused(shotline, start_target, connect_to):
    target = start_target()
    with connect_to(target) as one, connect_to(target) as other:
        image, region, cq = one.regions["images"], other.register(4096), one.create_cq()
        qp = one.create_qp(cq)
        with pytest.raises(ValueError, match="another endpoint"):
            qp.write(region[0:8], image.at(0))
        own = one.register(4096)
        element = own[0:8]
        own.close()
        with pytest.raises(shotline.PostError, match="request 0: element 0"):
            qp.write(element, image.at(0))


def test_queues_of_another_endpoint_are_refused(shotline, start_target, connect_to):
    target = start_target()
    with connect_to(target) as one, connect_to(target) as other:
        for queues in [(other.create_cq(),), (one.create_cq(), other.create_cq())]:
            with pytest.raises(ValueError, match="another endpoint"):
                one.create_qp(*queues)
        with pytest.raises(ValueError, match="retry count of 0 to 7, found 8"):
            one.create_qp(one.create_cq(), retry_count=8)


def test_a_loop_over_completions_takes_one_at_a_time(shotline, start_target, connect_to):
    async def first_and_rest(qp, cq, image):
        for number in range(5):
            qp.write(b"12345678", image.at(0), id=number)
        async for completion in cq:
            first = completion.id
            break
        rest = [await anext(cq) for _ in range(4)]
        return [first, *(completion.id for completion in rest)]

    with connect_to(start_target()) as target:
        cq = target.create_cq()
        qp = target.create_qp(cq)
        numbers = asyncio.run(asyncio.wait_for(first_and_rest(qp, cq, target.regions["images"]), LONG_S))
    assert numbers == [0, 1, 2, 3, 4]


def test_a_full_completion_queue_is_an_error(shotline, start_target, connect_to):
    with connect_to(start_target()) as target:
        image, cq = target.regions["images"], target.create_cq(2)
        qp = target.create_qp(cq)
        qp.post([shotline.Request.write(b"12345678", image.at(at)) for at in range(0, 320, 8)])
        with pytest.raises(shotline.VerbsError, match="larger depth"):
            while True:
                time.sleep(0.01)
                cq.wait(LONG_S, max=1)


@pytest.mark.parametrize("example", ["serve_memory.py", "read_write.py"])
def test_examples_run(shotline, start_target, example):
    program = start_target()
    arguments = [program.address, program.token] if example == "read_write.py" else []
    output = python(ROOT / "examples" / "python" / example, *arguments).stdout
    assert "the same bytes: True" in output, output


def test_the_initiator_of_the_guide_works_as_printed(shotline, tmp_path):
    guide = (ROOT / "docs" / "endpoints.md").read_text()
    section = guide[guide.index("### An initiator in Python") :]
    code, expected = section.split("```python\n")[1].split("```\n\n```\n")
    with Target("--region", "images=64M,rights=rw") as target:
        (tmp_path / "token").write_text(target.token + "\n")
        output = python("-c", code.replace("127.0.0.1:47920", target.address), cwd=tmp_path).stdout
    assert output == expected.split("```")[0]


def test_names_of_statuses_are_those_of_the_library(shotline):
    assert {status.name.lower() for status in shotline.Status} == {status.value for status in shotline.Status}
    assert {each.name.lower() for each in shotline.Operation} == {each.value for each in shotline.Operation}
