"""Shots: single ones, and sequences of them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from . import _index, _native
from ._samples import Samples

if TYPE_CHECKING:
    from ._run import Run

TABLE_ROWS = 4096  # maximum table rows per read
CAUSES = tuple(_native.causes())


class State(enum.IntEnum):
    """State of a recorded shot."""

    LOST = 0
    """The shot was not recorded: its samples read as zeros."""
    PARTIAL = 1
    """Some packets are missing and read as zeros, or the end-of-shot record does not validate the rest."""
    COMPLETE = 2
    """All bytes are recorded, and validated as far as the shot's trailer allows."""


class Shots:
    """Lazy sequence of some shots of a run.

    `shots[3]` is one `Shot`; `shots[10:20]`, `shots[shots.complete]` and `shots[[1, 5]]` are `Shots`. If a run
    has several links, a shot of `run.shots` comprises those of all links with the same number (an event);
    `run.links[k].shots` has those of one link.
    """

    def __init__(self, run: Run, links: tuple[int, ...], rows: range | NDArray[np.uint64]) -> None:
        self.run = run
        self.links = links
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Shot: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> Shots: ...
    def __getitem__(self, index: Any) -> Shot | Shots:
        if isinstance(index, slice):
            return Shots(self.run, self.links, self._rows[index])
        if isinstance(index, (bool, np.bool_)) or not hasattr(index, "__index__") or np.ndim(index):
            return Shots(
                self.run, self.links, self.rows_at(_index.element_numbers(index, len(self), "shot").reshape(-1))
            )
        if not -len(self) <= index < len(self):
            raise IndexError(f"shot {index} is out of bounds: there are {len(self)}")
        at = int(index) % len(self)
        return next(iter(Shots(self.run, self.links, self._rows[at : at + 1])))

    def __iter__(self) -> Iterator[Shot]:
        for block in self.blocks(TABLE_ROWS):
            tables = [block._table(link) for link in self.links]
            for at, row in enumerate(block._rows):
                yield Shot(self.run, self.links, int(row), tuple(table[at] for table in tables))

    def blocks(self, shots: int) -> Iterator[Shots]:
        """Iterates over consecutive parts, to process a long run in little memory.

        Args:
            shots: Maximum number of shots of a part.

        Yields:
            Parts of `shots` shots; the last one may have fewer.

        Raises:
            ValueError: If `shots` is less than 1.
        """
        if shots < 1:
            raise ValueError(f"expected blocks of 1 shot or more, found {shots}")
        for first in range(0, len(self), shots):
            yield self[first : first + shots]

    @property
    def samples(self) -> Samples:
        """Samples of shape (shot, sample, channel), the channels of all links side by side; read when indexed.

        Raises:
            ValueError: If the links' shots differ in shape.
        """
        return Samples(self)

    @property
    def table(self) -> NDArray[Any]:
        """The rows of a link's table, with the field names of the file; `presence` is a bit map, lowest bit first.

        Raises:
            ValueError: If these are the shots of several links.
        """
        return self._table(self._one_link("table"))

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """Shot numbers."""
        return self._columns(self.links[0], ("number",))["number"]

    @property
    def stamps(self) -> NDArray[np.uint64]:
        """TAI nanoseconds since 1970 of the first samples, by the sender's clock; 0: unknown."""
        stamps = self._columns(self.links[0], ("stamp_tai_ns",))["stamp_tai_ns"]
        for link in self.links[1:]:  # if one link has no record, another may have one
            if stamps.all():
                break
            other = self._columns(link, ("stamp_tai_ns",))["stamp_tai_ns"]
            stamps = np.where(stamps == 0, other, stamps)
        return stamps

    @property
    def times(self) -> NDArray[np.datetime64]:
        """Times of the first samples in UTC; NaT: unknown."""
        return self.run.utc(self.stamps)

    @property
    def states(self) -> NDArray[np.uint8]:
        """The `State` of each shot. With several links: complete if all are, lost if all are, else partial."""
        return joined(np.stack([self._columns(link, ("state",))["state"] for link in self.links]))

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Mask of the complete shots: in `shots[shots.complete]` every zero is a sample."""
        complete: NDArray[np.bool_] = self.states == State.COMPLETE
        return complete

    @property
    def presence(self) -> NDArray[np.bool_]:
        """Mask of the packets received, of shape (shot, packet); the packets of several links are concatenated."""
        masks = [bits(self._columns(link, ("presence",))["presence"], self.run, link) for link in self.links]
        return np.concatenate(masks, axis=1)

    def rows_at(self, indices: NDArray[Any]) -> NDArray[np.uint64]:
        """Returns the rows in the file of the shots at these indices of the sequence."""
        if isinstance(self._rows, range):
            rows = indices.astype(np.int64) * self._rows.step + self._rows.start
            return rows.astype(np.uint64)
        return self._rows[indices.astype(np.int64)]

    def to_dask(self, shots_per_chunk: int | None = None) -> Any:
        """Converts to a dask array. Needs dask.

        Args:
            shots_per_chunk: Shots of a chunk; by default as many as make about 64 MiB.

        Returns:
            A lazy array of shape (shot, sample, channel).
        """
        from ._lazy import to_dask

        return to_dask(self, shots_per_chunk)

    def to_xarray(self) -> Any:
        """Converts to an xarray data set. Needs xarray; uses dask if it is installed.

        Returns:
            A lazy data set with the variable `samples` over (shot, sample, channel), and the coordinates `time`,
            `number`, `stamp` and `state`.
        """
        from ._lazy import to_xarray

        return to_xarray(self)

    def token(self) -> tuple[Any, ...]:
        """Returns a key for caches: shots with equal tokens have equal samples."""
        rows = self._rows if isinstance(self._rows, range) else self._rows.tobytes()
        return (str(self.run.path), self.run.info["run_id"], self.links, rows)

    def __reduce__(self) -> Any:
        return Shots, (self.run, self.links, self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} shots of {self.run.path.name}>"

    def _one_link(self, what: str) -> int:
        if len(self.links) > 1:
            raise ValueError(f"each of the {len(self.links)} links has its own {what}: use run.links[k].shots")
        return self.links[0]

    def _columns(self, link: int, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        """Reads columns of a link's table in blocks, so that distant or unordered rows need little memory."""
        rows = np.asarray(self._rows, np.uint64)
        order = np.argsort(rows, kind="stable") if not _ascends(self._rows) else None
        rows = rows if order is None else rows[order]
        blocks = []
        first = 0
        while first < len(rows):
            start = int(rows[first])
            last = int(np.searchsorted(rows, start + TABLE_ROWS, side="left"))
            stop = int(rows[last - 1]) + 1
            table = self.run.native.table(link, start, stop)
            picked = (rows[first:last] - np.uint64(start)).astype(np.int64)
            blocks.append({name: table[name].reshape(stop - start, -1)[picked] for name in names})
            first = last
        if not blocks:
            table = self.run.native.table(link, 0, 0)
            widths = {"presence": -(-self.run.links[link].geometry.packets // 8), "drops": len(CAUSES)}
            blocks = [{name: table[name].reshape(0, widths.get(name, 1)) for name in names}]
        whole = {name: np.concatenate([block[name] for block in blocks]) for name in names}
        if order is not None:
            back = np.argsort(order, kind="stable")
            whole = {name: column[back] for name, column in whole.items()}
        return {name: column if name in ("presence", "drops") else column[:, 0] for name, column in whole.items()}

    def _table(self, link: int) -> NDArray[Any]:
        names = [*FIELDS, "presence", "drops"]
        columns = self._columns(link, tuple(names))
        presence = columns.pop("presence")
        drops = columns.pop("drops")
        fields: list[Any] = [(name, columns[name].dtype) for name in FIELDS]
        fields += [("presence", np.uint8, presence.shape[1:]), *((cause, np.uint32) for cause in CAUSES)]
        table = np.empty(len(self), fields)
        for name, column in columns.items():
            table[name] = column
        table["presence"] = presence
        for number, cause in enumerate(CAUSES):
            table[cause] = drops[:, number]
        return table


FIELDS = (
    "number",
    "stamp_tai_ns",
    "arrived_tai_ns",
    "completed_tai_ns",
    "valid_bytes",
    "packets",
    "placed",
    "state",
    "flags",
    "record_good",
)


class Shot:
    """One shot of one link, or the shots of all links with the same number."""

    def __init__(self, run: Run, links: tuple[int, ...], row: int, entries: tuple[Any, ...]) -> None:
        self.run = run
        self.row = row
        """Row in the file."""
        self._links = links
        self._entries = entries

    @property
    def number(self) -> int:
        """Shot number, extended to 64 bits across wrap-arounds."""
        return int(self._entries[0]["number"])

    @property
    def stamp_tai_ns(self) -> int:
        """TAI nanoseconds since 1970 of the first sample, by the sender's clock; 0: unknown."""
        return next((int(entry["stamp_tai_ns"]) for entry in self._entries if entry["stamp_tai_ns"]), 0)

    @property
    def arrived_tai_ns(self) -> int:
        """Time at which the kernel received the first packet, in TAI nanoseconds of the recorder; 0: unknown."""
        return min((int(entry["arrived_tai_ns"]) for entry in self._entries if entry["arrived_tai_ns"]), default=0)

    @property
    def completed_tai_ns(self) -> int:
        """Time at which the shot was completed or discarded, in TAI nanoseconds of the recorder; 0: unknown."""
        return max(int(entry["completed_tai_ns"]) for entry in self._entries)

    @property
    def time(self) -> np.datetime64:
        """Time of the first sample in UTC; NaT: unknown."""
        time: np.datetime64 = self.run.utc(np.array([self.stamp_tai_ns], np.uint64))[0]
        return time

    @property
    def state(self) -> State:
        """State of the shot. With several links: complete if all are, lost if all are, else partial."""
        return State(int(joined(np.array([[entry["state"]] for entry in self._entries]))[0]))

    @property
    def is_complete(self) -> bool:
        """True if the state is `State.COMPLETE`."""
        return self.state == State.COMPLETE

    @property
    def presence(self) -> NDArray[np.bool_]:
        """Mask of the packets received; the packets of several links are concatenated."""
        entries = zip(self._links, self._entries, strict=True)
        return np.concatenate([bits(entry["presence"][None], self.run, link)[0] for link, entry in entries])

    @property
    def drops(self) -> dict[str, int]:
        """Number of packets of this shot that were dropped, by cause."""
        counts = {cause: sum(int(entry[cause]) for entry in self._entries) for cause in CAUSES}
        return {cause: count for cause, count in counts.items() if count}

    @property
    def links(self) -> tuple[Shot, ...]:
        """The shot of each link."""
        entries = zip(self._links, self._entries, strict=True)
        return tuple(Shot(self.run, (link,), self.row, (entry,)) for link, entry in entries)

    @cached_property
    def samples(self) -> NDArray[Any]:
        """Samples of shape (sample, channel), the channels of all links side by side; read at the first access."""
        samples: NDArray[Any] = Shots(self.run, self._links, range(self.row, self.row + 1)).samples.read()
        first: NDArray[Any] = samples[0]
        return first

    @property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of the shot's slot as on the wire: samples, padding, trailer, zeros.

        A read-only view of the memory-mapped file, without a copy; for a compressed shot, a decompressed copy. The
        view stays valid when the run is closed, but not if the file is truncated.

        Raises:
            ValueError: If this is the shot of several links, or the file was truncated.
            OSError: If the file cannot be read.
        """
        if len(self._links) > 1:
            raise ValueError(f"each of the {len(self._links)} links has its own bytes: use shot.links[k].raw")
        return self.run.raw(self.row, self._links[0])

    def __repr__(self) -> str:
        return f"<shot {self.number} of {self.run.path.name}, {self.state.name.lower()}, {self.time} UTC>"


def joined(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the states of events, from an array of states of shape (link, shot)."""
    same = (states == states[0]).all(axis=0)
    return np.where(same, states[0], np.uint8(State.PARTIAL)).astype(np.uint8)


def bits(presence: NDArray[np.uint8], run: Run, link: int) -> NDArray[np.bool_]:
    """Converts the bytes of presence maps to booleans of shape (shot, packet)."""
    packets = run.links[link].geometry.packets
    return np.unpackbits(presence, axis=1, bitorder="little", count=packets).astype(np.bool_)


def _ascends(rows: range | NDArray[np.uint64]) -> bool:
    return rows.step > 0 if isinstance(rows, range) else bool((rows[1:] >= rows[:-1]).all())
