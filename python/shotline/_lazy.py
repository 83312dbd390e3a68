"""Conversion of runs to dask and xarray, which are optional dependencies."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from ._samples import Samples
from ._shots import Shots

CHUNK_BYTES = 64 << 20  # default size of a dask chunk


def to_dask(shots: Shots, shots_per_chunk: int | None) -> Any:
    """Implements `Shots.to_dask`."""
    import dask.array

    samples = shots.samples
    count, *shot = samples.shape
    if shots_per_chunk is None:
        shots_per_chunk = max(1, CHUNK_BYTES // (samples.dtype.itemsize * shot[0] * shot[1]))
    chunks = (max(1, min(shots_per_chunk, count)), *shot)
    from_array: Any = dask.array.from_array  # without types
    return from_array(samples, chunks=chunks, asarray=False, inline_array=True)


def to_xarray(shots: Shots) -> Any:
    """Implements `Shots.to_xarray`."""
    import xarray

    run = shots.run
    dims = ("shot", "sample", "channel")
    data = to_dask(shots, None) if find_spec("dask") else _wrapped(shots.samples)
    coordinates: dict[str, Any] = {
        "number": ("shot", shots.numbers, {"long_name": "shot number"}),
        "stamp": ("shot", shots.times, {"long_name": "UTC of the first sample"}),
        "state": ("shot", shots.states, {"flag_values": [0, 1, 2], "flag_meanings": "lost partial complete"}),
    }
    rate = run.links[shots.links[0]].geometry.sample_rate_hz
    if rate:
        time = np.arange(shots.samples.shape[1]) / rate
        coordinates["time"] = ("sample", time, {"units": "s", "long_name": "time from the first sample"})
    attributes = {name: value for name, value in run.info.items() if isinstance(value, (str, int)) and name != "config"}
    variable = xarray.Variable(dims, data, {"units": "counts"})
    return xarray.Dataset({"samples": variable}, coordinates, attributes)


def _wrapped(samples: Samples) -> Any:
    """Returns samples that xarray reads lazily."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Wrapped(BackendArray):
        shape = samples.shape
        dtype = samples.dtype

        def __getitem__(self, key: Any) -> Any:
            basic = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, basic, samples.__getitem__)

    return indexing.LazilyIndexedArray(Wrapped())
