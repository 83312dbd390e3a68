"""12-bit samples to and from bytes, without a recording."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native


def unpack12(data: Any, out: NDArray[np.int16] | None = None) -> NDArray[np.int16]:
    """Unpacks 12-bit samples, most significant bit first, and extends their sign.

    Two samples lie in three bytes, `a[11:4]`, `a[3:0] b[11:8]`, `b[7:0]`, as on the wire and in a recording's slots.
    `data` is anything with a buffer (bytes, memoryview, an array); its bytes are a multiple of three. `out`, if
    given, takes the samples and is returned. One thread, with the interpreter's lock released.
    """
    packed = np.frombuffer(data, np.uint8)
    if out is None:
        out = np.empty(packed.size // 3 * 2, np.int16)
    _native.unpack12(packed, flat(out))
    return out


def pack12(samples: ArrayLike, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Packs the low 12 bits of an even number of samples: the inverse of `unpack12`."""
    samples = np.ascontiguousarray(samples, np.int16).reshape(-1)
    if out is None:
        out = np.empty(samples.size // 2 * 3, np.uint8)
    _native.pack12(samples, flat(out))
    return out


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory in one dimension; refuses memory with gaps, of which that would be a copy."""
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("expected a writable array whose elements lie one behind the other: np.empty(shape, dtype)")
    return array.reshape(-1)
