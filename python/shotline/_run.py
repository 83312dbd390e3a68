"""A run: a recording that is open for reading."""

from __future__ import annotations

import builtins
import errno
import json
import mmap
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._samples import Samples
from ._shots import CAUSES, Shots

LOSS = np.dtype(
    [("stream", np.uint32), ("cause", f"U{max(map(len, CAUSES))}"), ("first", np.uint64), ("count", np.uint64)]
)


def open(path: str | os.PathLike[str], *, threads: int = 0) -> Run:
    """Opens a recording, finished or still being written.

    A few kilobytes are read, however long the run was. `threads` is how many may read samples at once (0: as many as
    pay). FileNotFoundError and its kinds tell that there is no such file, ValueError that it is no recording.
    """
    return Run(path, threads=threads)


@dataclass(frozen=True)
class Geometry:
    """The shape of a link's shots, and where their parts are in a slot."""

    channels: int
    samples: int
    """Per channel."""
    bits: int
    """Resolution of a sample."""
    packing: str
    """How samples lie in a slot: int16_le, int16_be, packed12_msb_first, uint8."""
    sample_rate_hz: int
    """0: unknown."""
    packets: int
    """Packets of a whole shot."""
    trailer: str
    """What closes a shot: record, hsb_metadata, none."""
    sample_bytes: int
    trailer_offset: int
    shot_bytes: int
    slot_bytes: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the unpacked samples."""
        return np.dtype(np.uint8 if self.packing == "uint8" else np.int16)


@dataclass(frozen=True, eq=False)
class Link:
    """One link of a run: a stream of shots."""

    run: Run
    index: int
    name: str
    stream: int
    geometry: Geometry

    @property
    def shots(self) -> Shots:
        """Its shots, as many as are visible now."""
        return Shots(self.run, (self.index,), range(self.run.rows))

    @property
    def samples(self) -> Samples:
        """(shot, sample, channel); read when indexed."""
        return self.shots.samples

    def __repr__(self) -> str:
        g = self.geometry
        return f"<link {self.index}: stream {self.stream}, {g.channels} channels x {g.samples} samples, {g.bits} bit>"


class Run:
    """A run. `shotline.open` makes one; it is also a context manager, and may be used by several threads."""

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0) -> None:
        if threads < 0:
            raise ValueError(f"expected threads of 0 (as many as pay) or more, found {threads}")
        self.path = Path(os.fspath(path)).absolute()
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "expected a recording, found a folder", str(self.path))
        self.threads = threads
        self.native = _native.Recording(self.path)
        about = json.loads(self.native.about())
        self.info: dict[str, Any] = about["run"]
        """What was known of the run before its first shot: `run_id`, `software`, `instrument`, `config`, ..."""
        self.links: tuple[Link, ...] = tuple(self._link(index, link) for index, link in enumerate(about["links"]))
        # What the recorder's clocks said. Where the kernel was not told the leap seconds, TAI was UTC.
        self._tai_minus_utc_ns = round((self.info["start_tai_ns"] - self.info["start_utc_ns"]) / 1e9) * 10**9
        self._maps: dict[Path, NDArray[np.uint8]] = {}

    def _link(self, index: int, about: dict[str, Any]) -> Link:
        geometry = Geometry(**{field.name: about[field.name] for field in fields(Geometry)})
        return Link(self, index, about["name"], about["stream"], geometry)

    # --- shots ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows that are visible: those that were at the last look."""
        return self.native.rows()

    def refresh(self) -> int:
        """Looks for more shots of a run that goes on, and returns how many are visible now."""
        return self.native.refresh()

    @property
    def shots(self) -> Shots:
        """The shots of all links side by side, as many as are visible now."""
        return Shots(self, tuple(range(len(self.links))), range(self.rows))

    @property
    def samples(self) -> Samples:
        """(shot, sample, channel), the links side by side; read when indexed."""
        return self.shots.samples

    @property
    def events(self) -> NDArray[Any]:
        """A row for each number: `number`, `stamp_tai_ns`, and `state` of every link."""
        shots = self.shots
        events = np.empty(len(shots), [("number", "u8"), ("stamp_tai_ns", "u8"), ("state", "u1", (len(self.links),))])
        events["number"], events["stamp_tai_ns"] = shots.numbers, shots.stamps
        for link in self.links:
            events["state"][:, link.index] = Shots(self, (link.index,), range(len(shots))).states
        return events

    @property
    def losses(self) -> NDArray[Any]:
        """Runs of shots that are in no row (or in a row as lost), and why: `stream`, `cause`, `first`, `count`."""
        losses = self.native.losses()
        return np.array([(stream, CAUSES[cause], first, count) for stream, cause, first, count in losses], LOSS)

    # --- the run -------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether it ended in order. If not, it goes on, or it broke off."""
        return self.native.ended() is not None

    @property
    def books(self) -> dict[int, dict[str, int]]:
        """The counts of each stream, by name; empty before the run has ended."""
        ended = self.native.ended()
        return ended[0] if ended else {}

    @property
    def totals(self) -> dict[str, int]:
        """The counts of the whole run, by name; empty before it has ended."""
        ended = self.native.ended()
        return ended[1] if ended else {}

    @property
    def geometry(self) -> Geometry:
        """The shape of a shot, the same for every link; where they differ, each link has its own."""
        if any(link.geometry != self.links[0].geometry for link in self.links):
            raise ValueError("the links' shots differ in shape: take run.links[k].geometry")
        return self.links[0].geometry

    @property
    def time_axis(self) -> NDArray[np.float64] | None:
        """Seconds from a shot's first sample to each of its samples; none if the sample rate is unknown."""
        geometry = self.geometry
        return np.arange(geometry.samples) / geometry.sample_rate_hz if geometry.sample_rate_hz else None

    def utc(self, stamps: NDArray[np.uint64]) -> NDArray[np.datetime64]:
        """TAI nanoseconds as UTC, by the offset that the recorder's clocks had; NaT for 0."""
        utc = (stamps.astype(np.int64) - self._tai_minus_utc_ns).view("datetime64[ns]")
        utc[stamps == 0] = np.datetime64("NaT")
        return utc

    def raw(self, row: int, link: int) -> NDArray[np.uint8]:
        """A read-only view of one slot in the file; of one that is compressed there, an unpacked copy."""
        path, at, length = self.native.stored(row, link)
        if length != self.links[link].geometry.slot_bytes:
            return np.frombuffer(self.native.slot(row, link), np.uint8)
        view = self._maps.get(path)
        if view is None or len(view) < at + length:
            with builtins.open(path, "rb") as file:
                view = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
            self._maps[path] = view
        if len(view) < at + length:
            raise ValueError(f"{path} ends at byte {len(view)}, its row {row} at {at + length}: it was cut short")
        return view[at : at + length]

    # --- elsewhere -----------------------------------------------------------------------------------

    def to_dask(self, shots_per_chunk: int | None = None) -> Any:
        """A dask array of (shot, sample, channel), some 64 MiB in a chunk; needs dask."""
        return self.shots.to_dask(shots_per_chunk)

    def to_xarray(self) -> Any:
        """An xarray data set: `samples` over (shot, sample, channel), with the coordinates `time`, `number`,
        `stamp` and `state`; lazy, by dask where that is installed. Needs xarray."""
        return self.shots.to_xarray()

    def close(self) -> None:
        """Gives the file back. Arrays that were read, and views of raw bytes, stay good."""
        self.native.close()
        self._maps.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _again, (self.path, self.threads)

    def __repr__(self) -> str:
        return f"<run {self.path.name}: {self.rows} shots of {len(self.links)} links>"


def _again(path: Path, threads: int) -> Run:
    """Opens a run in another process."""
    return Run(path, threads=threads)
