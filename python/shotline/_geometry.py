"""The shape of shots."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Geometry:
    """The shape of a link's shots, and the layout of a slot."""

    channels: int
    samples: int
    """Samples per channel."""
    bits: int
    """Resolution of a sample."""
    packing: str
    """Format of samples in a slot: int16_le, int16_be, packed12_msb_first, uint8."""
    sample_rate_hz: int
    """Samples per second of each channel; 0 if unknown."""
    packets: int
    """Packets of a complete shot."""
    trailer: str
    """Data after the samples: record, hsb_metadata, block, context, none."""
    sample_bytes: int
    """Length of the samples in bytes, without padding."""
    trailer_offset: int
    """Offset of the trailer in bytes: the length of samples and padding."""
    shot_bytes: int
    """Length of a shot in bytes: samples, padding and trailer."""
    slot_bytes: int
    """Length of a slot in bytes, a multiple of 4096; zeros follow the shot."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the unpacked samples."""
        return np.dtype(np.uint8 if self.packing == "uint8" else np.int16)
