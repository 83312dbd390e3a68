"""Endpoints: registered memory, queue pairs and completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._kernels import flat
from ._native import Completion, Element, Receive, Region, RemoteAddress, RemoteRegion, Request
from ._readiness import Readiness

Local: TypeAlias = Element | Region | Sequence[Element | Region]
"""Local memory of a request: an element, a whole region, or a list of these."""


class CompletionQueue:
    """A completion queue, made by `Endpoint.create_cq`: where the requests of queue pairs report that they are done.

    Threads and coroutines may share one; each completion is returned once. `poll` and `wait` also do the endpoint's
    work (acknowledgements, retransmissions), with the interpreter's lock released.
    """

    def __init__(self, native: _native.Completions, readiness: Readiness) -> None:
        self._native = native
        self._readiness = readiness

    @property
    def depth(self) -> int:
        """Number of completions that it has space for. A queue that overflows raises VerbsError from then on."""
        return self._native.depth

    def poll(self, max: int = 256) -> list[Completion]:
        """Returns the completions that there are, at most `max`, oldest first. Does not block.

        Raises:
            DisconnectedError: If the target has ended, after all completions have been returned.
            VerbsError: If completions were lost because the queue was full, or the endpoint fails.
        """
        return self._native.poll(max)

    def wait(self, timeout: float | None = None, max: int = 256) -> list[Completion]:
        """Waits until there is a completion, and returns those that there are, at most `max`, oldest first.

        Args:
            timeout: Maximum time in seconds; None waits until there is a completion. If it is over, the list is empty.
            max: Maximum number of completions.

        Raises:
            ClosedError: If another thread closes the endpoint meanwhile.
            DisconnectedError: If the target has ended. Its outstanding requests are returned first, with Status.FLUSHED.
            VerbsError: As for `poll`.
        """
        return self._native.wait(timeout, max)

    async def wait_async(self, timeout: float | None = None, max: int = 256) -> list[Completion]:
        """Like `wait`, for a coroutine: its event loop runs other tasks meanwhile.

        It uses the loop's `add_reader` on the endpoint's descriptor.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._native.poll(max)
            is_busy = not found and self._native.arm()
            # Completions that arrived before the queue was armed wake no coroutine.
            found = found or self._native.poll(max)
            left = 1.0 if end is None else end - time.monotonic()
            if found or left <= 0:
                return found
            if is_busy:
                await asyncio.sleep(0)
            else:
                await self._readiness.wait(left)

    def __aiter__(self) -> AsyncIterator[Completion]:
        """Iterates over all completions from now on, until the endpoint is closed or the target ends (an exception)."""
        return self

    async def __anext__(self) -> Completion:
        # One at a time: a task that ends must not take others with it.
        completions = await self.wait_async(max=1)
        return completions[0]

    def arm(self) -> None:
        """Makes the endpoint's descriptor readable at the next completion: for event loops other than asyncio's.

        Call `poll` after it: completions that are in the queue already do not count. When the descriptor is readable,
        call `poll`, and arm the queue again.
        """
        self._native.arm()

    def close(self) -> None:
        """Destroys the queue.

        Raises:
            VerbsError: If a queue pair uses it.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<completion queue of {self.depth} entries>"


class QueuePair:
    """A queue pair that is connected to one of the target, made by `Target.create_qp`.

    `write`, `read`, `send`, `compare_swap`, `fetch_add` and `recv` post one request; `post` and `post_recv` post lists
    with one doorbell, which is faster. Requests are executed in order. The first one that fails puts the queue pair in
    its error state: all later ones complete as FLUSHED, and a new queue pair is needed.

    The queue pair ends with `close`, or when the last reference to this object is dropped; what is outstanding then does
    not complete.
    """

    def __init__(self, native: _native.Pair, send_cq: CompletionQueue, recv_cq: CompletionQueue) -> None:
        self._native = native
        self.send_cq = send_cq
        """Completion queue of `post`."""
        self.recv_cq = recv_cq
        """Completion queue of `post_recv`."""

    @property
    def number(self) -> int:
        """Number of the queue pair, as in `Completion.qp`."""
        return self._native.number

    @property
    def peer(self) -> int:
        """Number of the target's queue pair."""
        return self._native.peer

    @property
    def state(self) -> str:
        """State, by its name in the standard: RTS if requests can be posted, ERR after a failure."""
        return self._native.state()

    def post(self, requests: Sequence[Request]) -> None:
        """Posts requests, in order, with one doorbell. Does not wait for them.

        Raises:
            QueueFullError: If the send queue (`max_send` of `create_qp`) is full; `posted` says how many were posted.
            PostError: If a request is not valid; those before it are posted.
            ValueError: If memory is registered at another endpoint. Nothing is posted.
        """
        self._native.post(requests)

    def post_recv(self, receives: Sequence[Receive]) -> None:
        """Posts receives, in order.

        Raises:
            QueueFullError: If the receive queue (`max_recv` of `create_qp`) is full.
            PostError: If a receive is not valid.
        """
        self._native.post_recv(receives)

    def write(
        self,
        local: Local | bytes,
        remote: RemoteAddress,
        id: int = 0,
        *,
        imm: int | None = None,
        signalled: bool = True,
        fence: bool = False,
    ) -> None:
        """Posts a WRITE of local memory to memory of the target: `Request.write`, which explains the arguments."""
        self._native.post([Request.write(local, remote, id=id, imm=imm, signalled=signalled, fence=fence)])

    def read(
        self, local: Local, remote: RemoteAddress, id: int = 0, *, signalled: bool = True, fence: bool = False
    ) -> None:
        """Posts a READ of memory of the target into local memory."""
        self._native.post([Request.read(local, remote, id=id, signalled=signalled, fence=fence)])

    def send(
        self,
        local: Local | bytes,
        id: int = 0,
        *,
        imm: int | None = None,
        signalled: bool = True,
        fence: bool = False,
    ) -> None:
        """Posts a SEND of a message, for which the target needs a receive (`receives` of `create_qp`)."""
        self._native.post([Request.send(local, id=id, imm=imm, signalled=signalled, fence=fence)])

    def recv(self, local: Local, id: int = 0) -> None:
        """Posts a receive: the next message is written to local memory."""
        self._native.post_recv([Receive(local, id)])

    def compare_swap(
        self,
        local: Local,
        remote: RemoteAddress,
        compare: int,
        swap: int,
        id: int = 0,
        *,
        signalled: bool = True,
        fence: bool = False,
    ) -> None:
        """Posts a compare and swap of 8 bytes at the target; `local` gets their original value."""
        request = Request.compare_swap(local, remote, compare, swap, id=id, signalled=signalled, fence=fence)
        self._native.post([request])

    def fetch_add(
        self,
        local: Local,
        remote: RemoteAddress,
        add: int,
        id: int = 0,
        *,
        signalled: bool = True,
        fence: bool = False,
    ) -> None:
        """Posts a fetch and add to 8 bytes at the target; `local` gets their original value."""
        self._native.post([Request.fetch_add(local, remote, add, id=id, signalled=signalled, fence=fence)])

    def close(self) -> None:
        """Destroys the queue pair at both ends. Outstanding requests do not complete."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<queue pair {self.number}, connected to {self.peer}>"


class Endpoint:
    """A local endpoint: memory with keys, completion queues and queue pairs. `connect` opens one, as a `Target`.

    An endpoint and all its objects may be used by any number of threads. A thread that waits does not keep others from
    using it. Objects may be dropped in any order; `close`, or the end of a `with`, ends them all. In a child process of
    `os.fork` every call raises ForkedError: open an endpoint there.
    """

    def __init__(self, native: _native.Connection) -> None:
        self._native = native
        self._readiness = Readiness(native)

    @property
    def transport(self) -> str:
        """Transport, as on a command line: soft, shm, ibverbs:DEVICE or spacefibre:lanes=N."""
        return self._native.transport

    @property
    def local_address(self) -> str | None:
        """Local address of its packets, or None if it is not reached by IP."""
        return self._native.address

    def register(self, memory: int | Region, rights: str = "", kind: str = "heap") -> Region:
        """Registers memory for requests.

        Args:
            memory: Length in bytes of new memory, which is zero; or a `Region`, whose memory is registered here, too.
            rights: Rights of the target: "" (requests of this side need none), "r", "w", "rw" or "atomic".
            kind: Kind of new memory: `Region` lists them. Over shm, rights need "memfd".

        Returns:
            The region with its keys. `region.array` is its memory as a numpy array, without a copy.

        Raises:
            MemoryError: If there is not enough memory.
            VerbsError: If the provider cannot register such memory, or with these rights.
        """
        return self._native.register(memory, rights, kind)

    def create_cq(self, depth: int = 256) -> CompletionQueue:
        """Creates a completion queue.

        Args:
            depth: Number of completions that it must have space for: that of the outstanding signalled requests and
                receives of all its queue pairs.
        """
        return CompletionQueue(self._native.create_cq(depth), self._readiness)

    def fileno(self) -> int:
        """Returns a descriptor for event loops (`select`, `selectors`): readable when `CompletionQueue.poll` has work.

        That is: a completion of an armed queue (`CompletionQueue.arm`), packets, the end of the connection.
        """
        return self._native.fileno()

    def counters(self) -> dict[str, int]:
        """Returns the counters of the endpoint: packets, retransmissions, timeouts, and drops by cause."""
        return self._native.counters()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._native.closed

    def close(self) -> None:
        """Closes the endpoint with all its objects; the arrays of its regions remain.

        Threads and coroutines that wait get ClosedError. A second call does nothing.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Target(Endpoint):
    """An endpoint that is connected to a target, and the control connection to it: what `connect` returns.

        with shotline.connect("127.0.0.1:47920", token=token) as target:
            target.write("images", 0, np.arange(1000))      # blocks
            image = target.regions["images"]
            region = target.register(1 << 20)
            cq = target.create_cq(64)
            qp = target.create_qp(cq)
            qp.write(region[0:4096], image.at(8192), id=7)  # posts
            for completion in cq.wait(timeout=1.0):
                completion.check()

    The keys of the target's regions belong to this connection, and end with it.
    """

    @property
    def address(self) -> str:
        """Address of the target's control connections, as given to `connect`."""
        return self._native.to

    @property
    def regions(self) -> Mapping[str, RemoteRegion]:
        """The target's regions by name, as they were when the connection began.

        Raises:
            VerbsError: If the target does not answer.
        """
        return MappingProxyType({region.name: region for region in self._native.regions()})

    @property
    def is_connected(self) -> bool:
        """True if the control connection is open."""
        return self._native.is_connected()

    def create_qp(
        self,
        cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        max_send: int = 128,
        max_recv: int = 128,
        max_sge: int = 4,
        max_inline: int = 64,
        receives: tuple[int, int] = (0, 0),
        echo: bool = False,
        service: str = "rc",
        timeout: float = 0.067,
        retry_count: int = 7,
        service_level: int = 0,
        mtu: int | None = None,
    ) -> QueuePair:
        """Creates a queue pair and connects it to a new one of the target.

        Args:
            cq: Completion queue of its requests.
            recv_cq: Completion queue of its receives; None: `cq`.
            max_send: Depth of the send queue. An unsignalled request leaves it with the next signalled one.
            max_recv: Depth of the receive queue.
            max_sge: Maximum elements of a request.
            max_inline: Maximum bytes of a request that are given as `bytes`.
            receives: Number of receives that the target keeps posted for messages, and the bytes of each. It discards
                the messages. Only a target that was started with `--messages` accepts this.
            echo: The target sends each message back.
            service: "rc" (reliable connection), or "uc" (unreliable: write and send only).
            timeout: Seconds after which a packet without an acknowledgement is sent again.
            retry_count: Maximum retransmissions without progress, 0 to 7. With the defaults a target that does not
                answer is noticed after some 3 seconds (RETRY_EXCEEDED).
            service_level: Quality of service; over SpaceFibre the virtual channel.
            mtu: Maximum path MTU in bytes; None: the largest.

        Raises:
            VerbsError: If the target refuses, or the provider does not support an option.
        """
        cqs = (cq, recv_cq or cq)
        native = self._native.create_qp(
            (cqs[0]._native, cqs[1]._native),
            service,
            (max_send, max_recv),
            (max_sge, max_inline),
            (*receives, echo),
            (timeout, retry_count),
            service_level,
            mtu,
        )
        return QueuePair(native, *cqs)

    def read(
        self,
        region: str | RemoteRegion,
        offset: int = 0,
        length: int | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Reads bytes of a region of the target. Blocks until they have arrived.

        Long reads are several operations in flight; other threads run meanwhile, and a signal interrupts it.

        Args:
            region: Name of a region, or one of `regions`.
            offset: Offset of the first byte.
            length: Number of bytes; None: to the end of the region, or the size of `out`.
            out: Contiguous array for the bytes; None: a new one of uint8 and shape (length,).

        Returns:
            The bytes, which is `out` if given.

        Raises:
            KeyError: If the target has no such region.
            ValueError: If the bytes are not inside the region, or the size of `out` is not `length`.
            CompletionError: If the target refuses or does not answer.
        """
        remote = self._region(region)
        if length is None:
            length = remote.length - offset if out is None else out.nbytes
        if length < 0 or (out is not None and out.nbytes != length):
            raise ValueError(
                f"expected bytes inside region {remote.name} and space for them, found a length of {length}"
            )
        if out is None:
            out = np.empty(length, np.uint8)
        self._native.read(remote, offset, flat(out).view(np.uint8))
        return out

    def write(self, region: str | RemoteRegion, offset: int, data: ArrayLike | bytes | bytearray | memoryview) -> None:
        """Writes bytes to a region of the target. Blocks until the target has acknowledged all of them.

        Args:
            region: Name of a region, or one of `regions`.
            offset: Offset of the first byte.
            data: An array of any type and shape, whose bytes are written in C order, or an object with a buffer.

        Raises:
            KeyError: If the target has no such region.
            ValueError: If the bytes are not inside the region.
            CompletionError: If the target refuses or does not answer: after some 3 seconds unless it is started with
                `--strict-ib`, because it drops what it refuses (`Completion.check`).
        """
        if isinstance(data, (bytes, bytearray, memoryview)):
            array: NDArray[Any] = np.frombuffer(data, np.uint8)
        else:
            array = np.ascontiguousarray(data)
        self._native.write(self._region(region), offset, array.reshape(-1).view(np.uint8))

    def _region(self, region: str | RemoteRegion) -> RemoteRegion:
        if isinstance(region, RemoteRegion):
            return region
        regions = self.regions
        if region not in regions:
            raise KeyError(f"the target has no region {region}: choose one of {', '.join(regions)}")
        return regions[region]

    def statistics(self) -> dict[str, float]:
        """Returns the target's processor time in seconds, and its packets of this connection."""
        return self._native.statistics()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<target {self.address} over {self.transport}{state}>"


def connect(
    to: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    transport: str = "soft",
    bind: str | None = None,
) -> Target:
    """Opens an endpoint and connects it to a target: `shotline target`, or `serve` of another program.

    Args:
        to: HOST:PORT of its control connections, or the path of its socket (shm), which has a "/".
        token: The target's token, 32 hexadecimal digits.
        token_file: File with the token, readable only by its owner.
        transport: How the memory is reached, as the target was started: "soft" (RoCEv2 over UDP), "shm" (shared
            memory of this machine), "ibverbs:DEVICE" (an RDMA device) or "spacefibre:lanes=N".
        bind: Local address, with or without a port; None: that of the route to the target.

    Raises:
        ConnectError: If the target cannot be reached, refuses the token, or has another transport.
        ValueError: If an argument is invalid.
    """
    if (token is None) == (token_file is None):
        raise ValueError("expected either a token or a token_file")
    if token_file is not None:
        token = _native.read_token(token_file)
    return Target(_native.Connection(to, token or "", transport, bind))
