"""Access to recordings of Shotline as numpy arrays: lazy, fast, and with complete information about losses.

    import shotline

    with shotline.open("run.h5") as run:
        shot = run.shots[2]
        print(shot.number, shot.time, shot.state.name, shot.samples.shape)
        block = run.samples[100:200, :, 3]  # only these shots are read
        print(run.losses)

Data is read only when it is accessed. A run may still be recording: `run.refresh()` makes new shots visible. 12-bit
samples are unpacked by the package itself, on several threads and with the interpreter's lock released. Missing packets
and lost shots read as zeros: use `state` and `presence`, not the value, to distinguish them from samples.
"""

from ._kernels import pack12, unpack12
from ._run import Geometry, Link, Run, open
from ._samples import Samples
from ._shots import Shot, Shots, State

__all__ = ["Geometry", "Link", "Run", "Samples", "Shot", "Shots", "State", "open", "pack12", "unpack12"]
