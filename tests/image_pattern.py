"""The moving pattern of `shotline images`, computed from its description in docs/images.md."""

import numpy as np

BAR = 32  # rows of the statistics


def pattern(number, width, height):
    """Returns an image of the pattern as (row, column, colour), red first."""
    y, x = np.mgrid[:height, :width]
    red = np.where((x // 64 + y // 64) % 2 == 0, number % 256, 255 - number % 256)
    return np.stack([red, (y + 2 * number) % 256, (x + 4 * number) % 256], axis=2).astype("uint8")
