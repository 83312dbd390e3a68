"""A program that uses endpoints, for type checkers: `test_python_package.py` checks its types, and nothing runs it."""

from collections.abc import Mapping
from typing import assert_type

import numpy as np
import shotline
from numpy.typing import NDArray


def initiate(address: str, token: str) -> None:
    """Uses an initiator."""
    with shotline.connect(address, token=token, transport="soft") as target:
        assert_type(target, shotline.Target)
        assert_type(target.regions, Mapping[str, shotline.RemoteRegion])
        image = target.regions["images"]
        assert_type(image.at(8), shotline.RemoteAddress)
        region = target.register(4096)
        assert_type(region.array, NDArray[np.uint8])
        assert_type(region[0:8], shotline.Element)
        cq = target.create_cq()
        with target.create_qp(cq, receives=(4, 4096)) as qp:
            qp.write([region[0:8], region], image.at(0), id=1)
            qp.write(b"12345678", image.at(0))
            qp.recv(region)
            qp.post([shotline.Request.read(region, image.at(0), signalled=False), shotline.Request.send(b"1")])
            for completion in cq.wait(timeout=1.0):
                assert_type(completion.check(), shotline.Completion)
                assert_type(completion.status, shotline.Status)
                assert_type(completion.imm, int | None)
        target.write("images", 0, np.arange(8))
        target.write(image, 0, bytearray(8))
        assert target.read("images", 0, 8).dtype == np.uint8


async def collect(cq: shotline.CompletionQueue) -> list[int]:
    """Waits in a coroutine."""
    assert_type(await cq.wait_async(1.0), list[shotline.Completion])
    found = []
    async for completion in cq:
        found.append(completion.id)
    return found


def serve() -> None:
    """Uses a target in the process."""
    try:
        with shotline.serve({"a": 4096, "b": shotline.Region(8)}, rights={"a": "rw"}) as served:
            assert_type(served, shotline.ServedTarget)
            assert_type(served.regions["a"].array, NDArray[np.uint8])
    except shotline.CompletionError as error:
        assert_type(error.completion, shotline.Completion | None)
