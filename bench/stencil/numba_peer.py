"""Peer of bench/stencil.py: Jacobi steps in plain loops of numba. Usage: ROWS COLUMNS STEPS f32|f64 REPEATS.

Prints the sum of some values after one repetition, then the seconds of each.
"""

import sys
import time

import numba
import numpy as np


@numba.njit(parallel=True, fastmath=True)
def step(old, new, center, neighbour):
    rows, columns = old.shape
    for row in numba.prange(1, rows - 1):
        for column in range(1, columns - 1):
            vertical = old[row - 1, column] + old[row + 1, column]
            horizontal = old[row, column - 1] + old[row, column + 1]
            new[row, column] = center * old[row, column] + neighbour * (vertical + horizontal)


def main():
    rows, columns, steps, repeats = (int(sys.argv[index]) for index in (1, 2, 3, 5))
    real = np.float64 if sys.argv[4] == "f64" else np.float32
    down, across = np.ogrid[:rows, :columns]
    a = ((7 * down + 13 * across) % 64).astype(real)
    a /= 64
    b = a.copy()
    weights = real(0.2), real(0.2)
    step(a[:8], b[:8].copy(), *weights)  # compiles
    for repeat in range(repeats):
        start = time.perf_counter()
        for number in range(steps):
            step(*((b, a) if number % 2 else (a, b)), *weights)
        seconds = time.perf_counter() - start
        if repeat == 0:
            now = b if steps % 2 else a
            print("sum", float(now[1, 1]) + float(now[rows // 3, columns // 5]) + float(now[-2, -2]))
        print(seconds)


main()
