"""Parsing of numpy indices into the range to read and the index to apply to the result."""

import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Axis(NamedTuple):
    """A range of one dimension: `count` elements from `start`, `step` apart."""

    start: int
    step: int
    count: int  # type: ignore[assignment]  # instead of the method of tuples


class Selection(NamedTuple):
    """The part of an array of (shot, sample, channel) to read, and the index to apply to it."""

    rows: NDArray[np.uint64]
    samples: Axis
    channels: Axis
    rest: tuple[Any, ...]  # numpy index into the array that was read


def parse(index: Any, shape: tuple[int, int, int]) -> Selection:
    """Splits an index of (shot, sample, channel).

    Args:
        index: Integers, slices, an ellipsis, and arrays of integers or booleans, with numpy's meaning.
        shape: Shape of the array that is indexed.

    Returns:
        The part to read; numpy then applies `rest` to the array that was read.

    Raises:
        IndexError: If the index is out of bounds, has too many dimensions, or has an unsupported type.
    """
    keys = [*index] if isinstance(index, tuple) else [index]
    dots = [at for at, key in enumerate(keys) if key is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if len(keys) - len(dots) > len(shape):
        raise IndexError(f"expected at most {len(shape)} indices (shot, sample, channel), found {len(keys)}")
    at = dots[0] if dots else len(keys)
    fill = [slice(None)] * (len(shape) - len(keys) + len(dots))
    keys[at : at + len(dots)] = fill
    (rows, first), *others = (_axis(key, extent, name) for key, extent, name in zip(keys, shape, NAMES, strict=True))
    (samples, second), (channels, third) = (_covering_range(picked, rest) for picked, rest in others)
    if isinstance(rows, Axis):
        rows = np.arange(rows.count, dtype=np.int64) * rows.step + rows.start
    return Selection(rows.astype(np.uint64), samples, channels, (first, second, third))


NAMES = ("shot", "sample", "channel")


def _axis(key: Any, extent: int, name: str) -> tuple[Axis | NDArray[np.int64], Any]:
    """Returns the elements of one dimension to read, and the key to apply to them."""
    if isinstance(key, slice):
        start, stop, step = key.indices(extent)
        count = len(range(start, stop, step))
        return Axis(start if count else 0, step if count else 1, count), slice(None)
    if not isinstance(key, (bool, np.bool_)) and (number := _integer(key)) is not None:
        if not -extent <= number < extent:
            raise IndexError(f"{name} {number} is out of bounds: there are {extent}")
        return Axis(number % extent, 1, 1), 0
    picked = element_numbers(key, extent, name)
    return picked.reshape(-1), np.arange(picked.size).reshape(picked.shape)


def element_numbers(key: Any, extent: int, name: str) -> NDArray[np.int64]:
    """Converts an array of integers or booleans to an array of element numbers, bounds-checked and not negative."""
    array = np.asarray(key)
    if array.dtype == bool and array.ndim == 1:
        if len(array) != extent:
            raise IndexError(f"expected a boolean for each {name}, {extent} in total, found {len(array)}")
        return np.flatnonzero(array)
    if array.size == 0 and isinstance(key, (list, tuple)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or key is None:
        raise IndexError(
            f"expected integers, slices, an ellipsis or arrays of integers or booleans for {name}, found {key!r}"
        )
    out = array.astype(np.int64)
    if out.size and not (-extent <= out.min() and out.max() < extent):
        raise IndexError(f"a {name} is out of bounds: there are {extent}")
    return np.where(out < 0, out + extent, out)


def _integer(key: Any) -> int | None:
    try:
        return operator.index(key)
    except TypeError:
        return None


def _covering_range(picked: Axis | NDArray[np.int64], rest: Any) -> tuple[Axis, Any]:
    """Returns a range that contains all elements picked, and the index into it."""
    if isinstance(picked, Axis):
        return picked, rest
    if picked.size == 0:
        return Axis(0, 1, 0), rest
    first = int(picked.min())
    return Axis(first, 1, int(picked.max()) + 1 - first), (picked - first).reshape(rest.shape)
