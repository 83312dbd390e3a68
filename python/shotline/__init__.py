"""Recordings of Shotline as numpy arrays: lazy, fast, and honest about what was lost.

    import shotline

    with shotline.open("run.h5") as run:
        shot = run.shots[2]
        print(shot.number, shot.time, shot.state.name, shot.samples.shape)
        block = run.samples[100:200, :, 3]  # only these shots are read
        print(run.losses)

Nothing is read before it is asked for, and a run may still go on: `run.refresh()` looks for more shots. 12-bit
samples are unpacked by the package itself, by several threads and without the interpreter's lock. Missing packets
and lost shots read as zeros: tell a zero from a sample by `state` and `presence`, never by its value.
"""

from ._kernels import pack12, unpack12
from ._run import Geometry, Link, Run, open
from ._samples import Samples
from ._shots import Shot, Shots, State

__all__ = ["Geometry", "Link", "Run", "Samples", "Shot", "Shots", "State", "open", "pack12", "unpack12"]
