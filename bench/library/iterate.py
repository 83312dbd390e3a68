"""Takes shots of a probe in Python until the time is over, looks at each, and prints the run's figures as JSON.

Arguments: address of the probe, samples per shot, seconds, pool, processor of the receive thread, Gbit/s (0: free-running).
"""

import json
import sys
import time

import shotline

address, samples, seconds, pool, cpu, gbps = sys.argv[1:]
settings = {"gbps": float(gbps)} if float(gbps) else {}
began = time.monotonic()
recorder = shotline.record(
    probe=address, samples=int(samples), seconds=float(seconds), pool=pool, cpu=int(cpu), **settings
)
opened = time.monotonic()
first, taken, incomplete, length = None, 0, 0, 0
for shot in recorder:
    if first is None:
        first = time.monotonic()
    taken += 1
    incomplete += not shot.is_complete
    length += len(shot.raw)  # a view of each shot's bytes
del shot
ended = time.monotonic()
report = recorder.report
recorder.close()
closed = time.monotonic()
steps = {"open_ms": opened - began, "first_shot_ms": first - opened, "close_ms": closed - ended}
figures = {"taken": taken, "incomplete": incomplete, "bytes": length, "report": report}
print(json.dumps(figures | {step: seconds * 1e3 for step, seconds in steps.items()}))
