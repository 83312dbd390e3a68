"""Shots of fast instruments as numpy arrays, recorded or as they arrive, and memory of others by RDMA.

Runs tell exactly what was lost:

    import shotline

    with shotline.record(probe="[::1]:47910", shots=1000, out="run.h5") as recorder:
        for shot in recorder:  # views of the memory into which the shots were received
            print(shot.number, shot.state.name, shot.samples.std())

    with shotline.open("run.h5") as run:
        shot = run.shots[2]
        print(shot.number, shot.time, shot.state.name, shot.samples.shape)
        block = run.samples[100:200, :, 3]  # only these shots are read
        print(run.losses)

Data is read only when it is accessed. A run may still be recording: `run.refresh()` makes new shots visible. 12-bit
samples are unpacked by the package itself, on several threads and with the interpreter's lock released. Missing packets
and lost shots read as zeros: use `state` and `presence`, not the value, to distinguish them from samples.

Endpoints reach the memory of `shotline target`, or of `serve` in another program:

    with shotline.connect("127.0.0.1:47920", token=token) as target:
        target.write("images", 0, array)            # blocks; read returns an array
        region = target.register(1 << 20)           # memory of this side: region.array
        cq = target.create_cq()
        qp = target.create_qp(cq)
        qp.write(region[0:4096], target.regions["images"].at(8192), id=7)
        for completion in cq.wait(timeout=1.0):     # or await cq.wait_async()
            completion.check()

`Target` and `QueuePair` describe how to use them, `Region` when memory belongs to the provider, and `Completion.check` what
happens to requests that fail. All exceptions of endpoints are `VerbsError`.
"""

from ._errors import (
    ClosedError,
    CompletionError,
    ConnectError,
    DisconnectedError,
    FlushedError,
    ForkedError,
    PostError,
    QueueFullError,
    RemoteAccessError,
    RetryExceededError,
    VerbsError,
)
from ._geometry import Geometry
from ._kernels import pack12, unpack12
from ._live import LiveShot
from ._native import Completion, Element, Receive, Region, RemoteAddress, RemoteRegion, Request, RunError
from ._probe import Emulator, Probe, ProbeDescription, ProbeStatus
from ._record import BufferWarning, Recorder, record
from ._run import Link, Run, open
from ._samples import Samples
from ._serve import ServedTarget, serve
from ._settings import Settings
from ._shots import Shot, Shots, State
from ._status import Operation, Status
from ._verbs import CompletionQueue, Endpoint, QueuePair, Target, connect

# Recordings.
__all__ = ["Geometry", "Link", "Run", "Samples", "Shot", "Shots", "State", "open", "pack12", "unpack12"]
# Runs in progress.
__all__ += ["BufferWarning", "LiveShot", "Recorder", "RunError", "Settings", "record"]
# Probes.
__all__ += ["Emulator", "Probe", "ProbeDescription", "ProbeStatus"]
# Endpoints.
__all__ += [
    "Element",
    "Endpoint",
    "Region",
    "RemoteAddress",
    "RemoteRegion",
    "ServedTarget",
    "Target",
    "connect",
    "serve",
]
__all__ += ["Completion", "CompletionQueue", "Operation", "QueuePair", "Receive", "Request", "Status"]
__all__ += [
    "ClosedError",
    "ConnectError",
    "DisconnectedError",
    "ForkedError",
    "PostError",
    "QueueFullError",
    "VerbsError",
]
__all__ += ["CompletionError", "FlushedError", "RemoteAccessError", "RetryExceededError"]
