"""Event loops that wait for an endpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ._errors import VerbsError

if TYPE_CHECKING:
    from ._native import Connection

# An event that another thread takes wakes one event loop only; with several, each looks again after this time.
LONGEST_S = 0.05


class Readiness:
    """Wakes coroutines when the descriptor of an endpoint is readable, in any number of event loops."""

    def __init__(self, native: Connection) -> None:
        self._native = native
        self._waits: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}

    async def wait(self, seconds: float) -> None:
        """Waits until there may be completions, at most for a short time."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        waits = self._waits.get(loop)
        if waits is None:
            waits = self._waits[loop] = set()
            loop.add_reader(self._native.fileno(), self._ready, waits)
            self._native.count_loop(True)
        waits.add(future)
        timer = loop.call_later(min(seconds, LONGEST_S), _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            waits.discard(future)
            if not waits:
                del self._waits[loop]
                loop.remove_reader(self._native.fileno())
                self._native.count_loop(False)

    def _ready(self, waits: set[asyncio.Future[None]]) -> None:
        try:
            self._native.drive()
        except VerbsError:
            pass  # the queues that are polled next raise it in the coroutines
        for future in waits:
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
