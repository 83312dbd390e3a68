"""Lazy array of the samples of many shots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._index import Axis, Selection, parse
from ._kernels import flat

if TYPE_CHECKING:
    from ._shots import Shots

BLOCK_BYTES = 16 << 20  # samples that an iteration reads at once


class Samples:
    """Lazy array of shape (shot, sample, channel), with the channels of all links side by side.

    Indexing it like a numpy array returns a numpy array: `samples[10:20, :, 3]`, `samples[[1, 5], ::2]`,
    `samples[-1]`. Only the selected shots are read, each once, and unpacked directly into the result.
    """

    ndim = 3

    def __init__(self, shots: Shots) -> None:
        geometries = [shots.run.links[link].geometry for link in shots.links]
        if any(geometry != geometries[0] for geometry in geometries):
            raise ValueError("the links' shots differ in shape and have no joined samples: use run.links[k].samples")
        self._shots = shots
        channels = sum(geometry.channels for geometry in geometries)
        self.shape: tuple[int, int, int] = (len(shots), geometries[0].samples, channels)
        self.dtype: np.dtype[Any] = geometries[0].dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def nbytes(self) -> int:
        """Size in bytes when read into memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        selection = parse(index, self.shape)
        shape = (len(selection.rows), selection.samples.count, selection.channels.count)
        out = np.empty(shape, self.dtype)
        self._read(selection, out)
        return out[selection.rest]

    def read(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Reads all samples.

        Args:
            out: Contiguous array of this shape and type, which a loop over blocks can reuse; allocated if None.

        Returns:
            The samples, which is `out` if given.

        Raises:
            ValueError: If `out` has another shape or type, or is not contiguous and writeable.
            OSError: If the file cannot be read.
        """
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError(f"expected an array of {self.shape} {self.dtype}, found {out.shape} {out.dtype}")
        shots, samples, channels = self.shape
        rows = np.arange(shots, dtype=np.uint64)
        self._read(Selection(rows, Axis(0, 1, samples), Axis(0, 1, channels), ()), out)
        return out

    def _read(self, selection: Selection, out: NDArray[Any]) -> None:
        run = self._shots.run
        rows = self._shots.rows_at(selection.rows)
        native = run.native
        read = native.read_int16 if self.dtype == np.int16 else native.read_uint8
        read(rows, [*self._shots.links], selection.samples, selection.channels, flat(out), run.threads)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the samples are in a file: an array of them is always a copy")
        return self.read().astype(dtype or self.dtype, copy=False)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        block = max(1, BLOCK_BYTES // max(1, self.nbytes // max(1, len(self))))
        for first in range(0, len(self), block):
            yield from self[first : first + block]

    def __repr__(self) -> str:
        return f"<samples of {self._shots.run.path.name}: {self.shape} {self.dtype}, read when indexed>"

    def __dask_tokenize__(self) -> Any:
        return self._shots.token()
