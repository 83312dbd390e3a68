"""Conversion of 12-bit samples to and from packed bytes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native


def unpack12(data: Any, out: NDArray[np.int16] | None = None) -> NDArray[np.int16]:
    """Unpacks 12-bit samples, most significant bit first, with sign extension.

    Two samples are in three bytes, `a[11:4]`, `a[3:0] b[11:8]`, `b[7:0]`, as on the wire and in a recording's slots.
    Uses one thread, with the interpreter's lock released.

    Args:
        data: An object with the buffer interface (bytes, memoryview, an array) of a multiple of three bytes.
        out: Contiguous array for the samples; allocated if None.

    Returns:
        The samples, which is `out` if given.

    Raises:
        ValueError: If the sizes of `data` and `out` do not match, or `out` is not contiguous and writeable.
    """
    packed = np.frombuffer(data, np.uint8)
    if out is None:
        out = np.empty(packed.size // 3 * 2, np.int16)
    _native.unpack12(packed, flat(out))
    return out


def pack12(samples: ArrayLike, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Packs the low 12 bits of each sample: the inverse of `unpack12`.

    Args:
        samples: An even number of samples.
        out: Contiguous array for the bytes; allocated if None.

    Returns:
        Three bytes for each pair of samples, which is `out` if given.

    Raises:
        ValueError: If the sizes of `samples` and `out` do not match, or `out` is not contiguous and writeable.
    """
    samples = np.ascontiguousarray(samples, np.int16).reshape(-1)
    if out is None:
        out = np.empty(samples.size // 2 * 3, np.uint8)
    _native.pack12(samples, flat(out))
    return out


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a one-dimensional view of an array.

    Raises:
        ValueError: If the array is not contiguous, so that the result would be a copy, or not writeable.
    """
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("expected a writable contiguous array: np.empty(shape, dtype)")
    return array.reshape(-1)
