"""Shots of a run in progress: views of the memory into which they were received."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._geometry import Geometry
from ._shots import CAUSES, State

# Packings whose samples need no unpacking.
VIEWS: dict[str, np.dtype[Any]] = {
    "int16_le": np.dtype("<i2"),
    "int16_be": np.dtype(">i2"),
    "uint8": np.dtype(np.uint8),
}


@dataclass(frozen=True)
class Source:
    """Properties that all shots of a run have in common."""

    geometry: Geometry
    tai_minus_utc_s: int


class LiveShot:
    """One shot of a run in progress, of one link or of all links with the same number.

    It has the attributes of a recorded `Shot`. Its bytes are in the receiver's pool of buffers: `raw`, and `samples`
    where the samples need no unpacking, are views without a copy. The buffer returns to the pool when the shot and its
    last view are gone; copy (`shot.samples.copy()`) what you keep for long, because later shots are lost while the
    program holds all buffers.
    """

    __slots__ = ("__dict__", "_event", "_links", "_source")

    def __init__(self, event: _native.Event, source: Source, links: tuple[int, ...]) -> None:
        self._event = event
        self._source = source
        self._links = links

    @property
    def number(self) -> int:
        """Shot number, extended to 64 bits across wrap-arounds."""
        return self._event.number

    @cached_property
    def _numbers(self) -> list[tuple[int, ...]]:
        """The numbers of each link's shot that has arrived."""
        return [numbers for link in self._links if (numbers := self._event.numbers(link)) is not None]

    @property
    def stamp_tai_ns(self) -> int:
        """TAI nanoseconds since 1970 of the first sample, by the sender's clock; 0: unknown."""
        return next((numbers[2] for numbers in self._numbers if numbers[2]), 0)

    @property
    def arrived_tai_ns(self) -> int:
        """Time at which the kernel received the first packet, in TAI nanoseconds of the receiver; 0: unknown."""
        return min((numbers[3] for numbers in self._numbers if numbers[3]), default=0)

    @property
    def completed_tai_ns(self) -> int:
        """Time at which the shot was completed or its assembly ended, in TAI nanoseconds of the receiver; 0: unknown."""
        return max((numbers[4] for numbers in self._numbers), default=0)

    @property
    def time(self) -> np.datetime64:
        """Time of the first sample in UTC, by the offset of the receiver's clock to TAI; NaT: unknown."""
        stamp = self.stamp_tai_ns
        utc = stamp - self._source.tai_minus_utc_s * 10**9
        return np.datetime64(utc, "ns") if stamp else np.datetime64("NaT", "ns")

    @property
    def state(self) -> State:
        """State of the shot. With several links: complete if all are, lost if all are, else partial."""
        states = {numbers[8] for numbers in self._numbers}
        if len(self._numbers) < len(self._links):
            states.add(State.LOST)
        return State(states.pop()) if len(states) == 1 else State.PARTIAL

    @property
    def is_complete(self) -> bool:
        """True if the state is `State.COMPLETE`: every byte has arrived, and is verified as far as the trailer allows."""
        return self.state == State.COMPLETE

    @property
    def presence(self) -> NDArray[np.bool_]:
        """Mask of the packets received; the packets of several links are concatenated."""
        packets = self._source.geometry.packets
        masks = []
        for link in self._links:
            bits = np.frombuffer(self._event.presence(link) or bytes(-(-packets // 8)), np.uint8)
            masks.append(np.unpackbits(bits, bitorder="little", count=packets).astype(np.bool_))
        return np.concatenate(masks)

    @property
    def drops(self) -> dict[str, int]:
        """Number of packets of this shot that were dropped, by cause."""
        counts: dict[str, int] = {}
        for link in self._links:
            for cause, count in self._event.drops(link):
                counts[CAUSES[cause]] = counts.get(CAUSES[cause], 0) + count
        return counts

    @property
    def links(self) -> tuple[LiveShot, ...]:
        """The shot of each link."""
        return tuple(LiveShot(self._event, self._source, (link,)) for link in self._links)

    @property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of the shot's slot as on the wire: samples, padding, trailer, zeros; a view without a copy.

        It is read-only if the run records to a file, which needs the same bytes, and writable otherwise.

        Raises:
            ValueError: If this is the shot of several links, or no packet of it has arrived.
            BufferError: If the pool is in the memory of a device.
        """
        if len(self._links) > 1:
            raise ValueError(f"each of the {len(self._links)} links has its own bytes: use shot.links[k].raw")
        return np.frombuffer(memoryview(self._event.slot(self._links[0])), np.uint8)

    @cached_property
    def samples(self) -> NDArray[Any]:
        """Samples of shape (sample, channel), the channels of all links side by side. Missing packets read as zeros.

        For one link whose samples have 8 or 16 bits on the wire, a view without a copy, with the wire's byte order.
        Otherwise a new array: unpacked, or of several links. A link of which no packet has arrived reads as zeros.
        """
        parts = [self._samples_of(link) for link in self._links]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _samples_of(self, link: int) -> NDArray[Any]:
        geometry = self._source.geometry
        shape = geometry.samples, geometry.channels
        if self._event.numbers(link) is None:
            return np.zeros(shape, geometry.dtype)
        view = VIEWS.get(geometry.packing)
        if view is not None:
            return np.frombuffer(memoryview(self._event.slot(link)), view, shape[0] * shape[1]).reshape(shape)
        samples = np.empty(shape[0] * shape[1], np.int16)
        self._event.unpack_int16(link, samples)
        return samples.reshape(shape)

    def __repr__(self) -> str:
        return f"<shot {self.number}, {self.state.name.lower()}, {self.time} UTC>"
