"""Runs: recordings that are open for reading."""

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
from ._geometry import Geometry
from ._samples import Samples
from ._shots import CAUSES, Shots

LOSS = np.dtype(
    [("stream", np.uint32), ("cause", f"U{max(map(len, CAUSES))}"), ("first", np.uint64), ("count", np.uint64)]
)


def open(path: str | os.PathLike[str], *, threads: int = 0) -> Run:
    """Opens a recording, finished or still being written.

    Reads only a few kilobytes, for any length of the run.

    Args:
        path: The recording, or the master of a run of several files.
        threads: Maximum number of threads that read samples, 0 for an automatic choice.

    Returns:
        The run, which is a context manager.

    Raises:
        OSError: If the file cannot be opened, for example FileNotFoundError.
        ValueError: If the file is not a recording, or `threads` is negative.
    """
    return Run(path, threads=threads)


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
        """The link's shots that are visible now."""
        return Shots(self.run, (self.index,), range(self.run.rows))

    @property
    def samples(self) -> Samples:
        """The link's samples, of shape (shot, sample, channel); read when indexed."""
        return self.shots.samples

    def __repr__(self) -> str:
        g = self.geometry
        return f"<link {self.index}: stream {self.stream}, {g.channels} channels x {g.samples} samples, {g.bits} bit>"


class Run:
    """A recording that is open for reading, opened by `shotline.open`.

    It is a context manager, and may be used by several threads.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0) -> None:
        if threads < 0:
            raise ValueError(f"expected 0 threads (automatic) or more, found {threads}")
        self.path = Path(os.fspath(path)).absolute()
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "expected a recording, found a folder", str(self.path))
        self.threads = threads
        self.native = _native.Recording(self.path)
        about = json.loads(self.native.about())
        self.info: dict[str, Any] = about["run"]
        """Metadata written before the first shot: `run_id`, `software`, `instrument`, `config`, ..."""
        self.links: tuple[Link, ...] = tuple(self._link(index, link) for index, link in enumerate(about["links"]))
        # By the recorder's clocks: if its kernel had no TAI offset configured, TAI equals UTC.
        self._tai_minus_utc_ns = round((self.info["start_tai_ns"] - self.info["start_utc_ns"]) / 1e9) * 10**9
        self._maps: dict[Path, NDArray[np.uint8]] = {}

    def _link(self, index: int, about: dict[str, Any]) -> Link:
        geometry = Geometry(**{field.name: about[field.name] for field in fields(Geometry)})
        return Link(self, index, about["name"], about["stream"], geometry)

    # --- shots ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Number of rows visible since the run was opened or refreshed."""
        return self.native.rows()

    def refresh(self) -> int:
        """Makes new shots of a run in progress visible.

        Returns:
            The number of rows that are visible now.

        Raises:
            OSError: If the file cannot be read.
        """
        return self.native.refresh()

    @property
    def shots(self) -> Shots:
        """The shots of all links side by side that are visible now."""
        return Shots(self, tuple(range(len(self.links))), range(self.rows))

    @property
    def samples(self) -> Samples:
        """Samples of shape (shot, sample, channel), the channels of all links side by side; read when indexed.

        Raises:
            ValueError: If the links' shots differ in shape.
        """
        return self.shots.samples

    @property
    def events(self) -> NDArray[Any]:
        """One row per shot number: `number`, `stamp_tai_ns`, and `state` of every link."""
        shots = self.shots
        events = np.empty(len(shots), [("number", "u8"), ("stamp_tai_ns", "u8"), ("state", "u1", (len(self.links),))])
        events["number"], events["stamp_tai_ns"] = shots.numbers, shots.stamps
        for link in self.links:
            events["state"][:, link.index] = Shots(self, (link.index,), range(len(shots))).states
        return events

    @property
    def losses(self) -> NDArray[Any]:
        """Ranges of shot numbers that were lost, with the drop cause: `stream`, `cause`, `first`, `count`.

        Such shots have no row, or one with the state `State.LOST`.
        """
        losses = self.native.losses()
        return np.array([(stream, CAUSES[cause], first, count) for stream, cause, first, count in losses], LOSS)

    # --- the run -------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True if the run was closed properly; False if it is in progress or was interrupted."""
        return self.native.final_counters() is not None

    @property
    def counters(self) -> dict[int, dict[str, int]]:
        """Counters of each stream, by name; empty before the run has ended."""
        final_counters = self.native.final_counters()
        return final_counters[0] if final_counters else {}

    @property
    def totals(self) -> dict[str, int]:
        """Counters of the whole run, by name; empty before it has ended."""
        final_counters = self.native.final_counters()
        return final_counters[1] if final_counters else {}

    @property
    def geometry(self) -> Geometry:
        """The shape of a shot, if it is the same for every link.

        Raises:
            ValueError: If the links' shots differ in shape; use `Link.geometry` then.
        """
        if any(link.geometry != self.links[0].geometry for link in self.links):
            raise ValueError("the links' shots differ in shape: use run.links[k].geometry")
        return self.links[0].geometry

    @property
    def time_axis(self) -> NDArray[np.float64] | None:
        """Seconds from a shot's first sample to each of its samples; None if the sample rate is unknown."""
        geometry = self.geometry
        return np.arange(geometry.samples) / geometry.sample_rate_hz if geometry.sample_rate_hz else None

    def utc(self, stamps: NDArray[np.uint64]) -> NDArray[np.datetime64]:
        """Converts TAI nanoseconds to UTC.

        Args:
            stamps: TAI nanoseconds since 1970, 0 for an unknown time.

        Returns:
            The times in UTC by the offset of the recorder's clocks, NaT for 0.
        """
        utc: NDArray[np.datetime64] = (stamps.astype(np.int64) - self._tai_minus_utc_ns).view("datetime64[ns]")
        utc[stamps == 0] = np.datetime64("NaT")
        return utc

    def raw(self, row: int, link: int) -> NDArray[np.uint8]:
        """Returns the bytes of one slot.

        Args:
            row: Row in the file.
            link: Index of the link.

        Returns:
            A read-only view of the file; for a compressed slot, a decompressed copy.

        Raises:
            ValueError: If the file was truncated.
            OSError: If the file cannot be read.
        """
        path, offset, length = self.native.stored(row, link)
        if length != self.links[link].geometry.slot_bytes:
            return np.frombuffer(self.native.slot(row, link), np.uint8)
        view = self._maps.get(path)
        if view is None or len(view) < offset + length:
            with builtins.open(path, "rb") as file:
                view = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
            self._maps[path] = view
        if len(view) < offset + length:
            raise ValueError(
                f"{path} ends at byte {len(view)}, but its row {row} ends at byte {offset + length}: it was truncated"
            )
        return view[offset : offset + length]

    # --- conversion ----------------------------------------------------------------------------------

    def to_dask(self, shots_per_chunk: int | None = None) -> Any:
        """Returns a dask array of shape (shot, sample, channel). Needs dask; see `Shots.to_dask`."""
        return self.shots.to_dask(shots_per_chunk)

    def to_xarray(self) -> Any:
        """Returns an xarray data set of all shots. Needs xarray; see `Shots.to_xarray`."""
        return self.shots.to_xarray()

    def close(self) -> None:
        """Closes the file. Arrays that were read, and views of raw bytes, stay valid."""
        self.native.close()
        self._maps.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _reopen, (self.path, self.threads)

    def __repr__(self) -> str:
        return f"<run {self.path.name}: {self.rows} shots of {len(self.links)} links>"


def _reopen(path: Path, threads: int) -> Run:
    """Opens a run that was pickled, in another process."""
    return Run(path, threads=threads)
