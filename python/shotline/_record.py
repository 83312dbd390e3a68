"""Runs whose shots a program takes while they are received."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._geometry import Geometry
from ._live import LiveShot, Source
from ._run import LOSS
from ._settings import Settings
from ._shots import CAUSES


def record(**settings: Unpack[Settings]) -> Recorder:
    """Receives the shots of a probe or of another sender, and hands them to the program without a copy.

        with shotline.record(probe="[::1]:47910", samples=2000, shots=1000) as recorder:
            for shot in recorder:
                print(shot.number, shot.state.name, shot.samples.std())

    Without `out` nothing is stored: the program is the sink, and what it takes too slowly is dropped by `policy` and
    listed in `recorder.losses`. With `out` every shot is recorded as by `shotline record`, and the program sees as many
    as it can take.

    Args:
        settings: The settings of `shotline record`, by the names in a settings file, such as `probe` or `listen`, `out`,
            `samples`, `shots`, `seconds`, `pool`, `policy`, `transport`. See `shotline.Settings` for all of them.

    Returns:
        The run, which receives once this function has returned. It is a context manager, an iterator and an asynchronous
        iterator.

    Raises:
        ValueError: If the settings contradict each other or the sender.
        TimeoutError: If the probe does not answer.
        ConnectionRefusedError: If the probe refuses, for example because another receiver controls it.
        OSError: If the transport or the file cannot be opened.
    """
    return Recorder(settings)


class BufferWarning(RuntimeWarning):
    """The program holds all shots that it may hold, so that later ones are dropped."""


class Recorder:
    """A run in progress, started by `shotline.record`.

    Iterating takes shots until the run is over, and then raises `RunError` if it was cut off. Several threads and tasks
    may take shots of one run; each shot goes to one of them. Leaving the `with` block ends the run and closes its file;
    views of shots stay valid. A run that is not closed is closed when the interpreter ends.
    """

    def __init__(self, settings: Settings) -> None:
        self._native = _native.Recorder(json.dumps(settings, default=os.fspath))
        self._finalizer = weakref.finalize(self, self._native.close)
        self._warned = False
        try:
            self._native.wait_started()
        except BaseException:  # also Ctrl-C
            self._finalizer()
            raise

    # --- shots -----------------------------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> LiveShot | None:
        """Takes the next shot; waits for it.

        Args:
            timeout: Maximum time to wait in seconds; None: until the run is over.

        Returns:
            The shot of all links with one number; None once the run is over and all shots were taken.

        Raises:
            TimeoutError: If there is no shot in time.
            RunError: At the end, if the run was cut off.
            ValueError: If the recorder is closed.
        """
        return self._take(timeout)

    def _take(self, timeout: float | None) -> LiveShot | None:
        event = self._native.take(0.0)
        if event is None:
            self._warn_if_exhausted(4)  # the caller of `take` or `next`
            event = self._native.take(timeout)
        if event is not None:
            return self._shot(event)
        if not self._native.ended:
            raise TimeoutError(f"no shot within {timeout} s: is the sender on? See recorder.counters")
        self._native.wait_ended(None)
        return None

    def __iter__(self) -> Iterator[LiveShot]:
        return self

    def __next__(self) -> LiveShot:
        shot = self._take(None)
        if shot is None:
            raise StopIteration
        return shot

    def __aiter__(self) -> AsyncIterator[LiveShot]:
        return self

    async def __anext__(self) -> LiveShot:
        while True:
            event = self._native.take(0.0)
            if event is not None:
                return self._shot(event)
            if self._native.ended:
                await asyncio.to_thread(self._native.wait_ended, None)
                raise StopAsyncIteration
            self._warn_if_exhausted(3)
            await self._readable()

    async def _readable(self) -> None:
        """Waits until there may be a shot."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not ready.done():
                ready.set_result(None)

        # Event loops watch a descriptor once, and several tasks may wait.
        descriptor = os.dup(self._native.fileno())
        try:
            loop.add_reader(descriptor, finish)
            try:
                if not self._native.start_waiting():
                    await ready
            finally:
                self._native.stop_waiting()
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)

    def _shot(self, event: _native.Event) -> LiveShot:
        return LiveShot(event, self._source, self._all_links)

    def _warn_if_exhausted(self, stacklevel: int) -> None:
        """Warns once if the program holds all shots that it may hold, so that none can follow."""
        if self._warned or not self._native.exhausted:
            return
        self._warned = True
        held = self._native.counters()["held"]
        warnings.warn(
            f"this program holds {held} shots, as many as the pool has buffers for: later shots are dropped as sink_busy "
            "until it drops some; copy what it keeps (shot.samples.copy()), or use a larger pool",
            BufferWarning,
            stacklevel=stacklevel,
        )

    # --- the run ---------------------------------------------------------------------------------------

    @cached_property
    def _about(self) -> dict[str, Any]:
        about = self._native.about()
        if about is None:
            raise ValueError("the sender is not known before its first packets have arrived: take a shot first")
        described: dict[str, Any] = json.loads(about)
        return described

    @cached_property
    def geometry(self) -> Geometry:
        """The shape of a link's shots.

        Raises:
            ValueError: If a sender without set-up is not known yet: take a shot first. As for the next three.
        """
        return Geometry(**self._about["geometry"])

    @cached_property
    def _source(self) -> Source:
        return Source(self.geometry, self._about["tai_minus_utc_s"])

    @cached_property
    def _all_links(self) -> tuple[int, ...]:
        return tuple(range(self.link_count))

    @property
    def link_count(self) -> int:
        """Number of links."""
        return int(self._about["links"])

    @property
    def instrument(self) -> str:
        """Name of the sender."""
        return str(self._about["instrument"])

    @property
    def address(self) -> str:
        """Local address of the packets."""
        return str(self._about["address"])

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the run so far.

        `packets`, `bytes` and `packets_dropped`; `shots_complete`, `shots_partial` and `shots_dropped`; `rows` that
        readers of the file see; `taken`, `held` and `max_held`: shots (of all links together) that the program has taken, that it holds, and
        that it may hold; `untaken`: shots that were left when it closed the recorder; `lost`: the shots of `losses`, of all
        links, also those of ranges that a very long list leaves out.
        """
        return self._native.counters()

    @property
    def losses(self) -> NDArray[Any]:
        """Ranges of shot numbers that the program did not get, with the cause: `stream`, `cause`, `first`, `count`.

        Each link (`stream`) has its own: a shot that was dropped as a whole is in a range of every link.

        Without a file, they are the losses of the run. With one, `sink_busy` are shots for which the program had no
        space; they are in the file.
        """
        losses = self._native.losses()
        return np.array([(stream, CAUSES[cause], first, count) for stream, cause, first, count in losses], LOSS)

    @property
    def report(self) -> dict[str, Any]:
        """Summary of the run, as of `shotline record --json`.

        Raises:
            ValueError: If the run is not over.
        """
        summary = self._native.summary()
        if summary is None:
            raise ValueError("the run is not over: end it (recorder.close), or see recorder.counters")
        report: dict[str, Any] = json.loads(summary)
        return report

    def trigger(self) -> None:
        """Triggers: with `pre_trigger`, what was received before and after is recorded."""
        self._native.trigger()

    def stop(self) -> None:
        """Asks the run to end. Shots that have arrived can still be taken."""
        self._native.stop()

    def close(self) -> None:
        """Ends the run, and waits until its file is closed. Shots that were not taken are discarded (`untaken`)."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        counters = self.counters
        return f"<run in progress: {counters['taken']} shots taken, {counters['held']} held>"
