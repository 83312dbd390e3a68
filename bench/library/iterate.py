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
ended = time.monotonic()
lost = int(recorder.losses["count"].sum())
recorder.close()
closed = time.monotonic()
report = recorder.report
figures = {
    "gbps": report["receive_gbps"],
    "packets": report["packets"],
    "lost": lost + incomplete,
    "seconds": report["seconds"],
    "taken": taken,
    "bytes": length,
    "open_ms": (opened - began) * 1e3,
    "first_shot_ms": (first - opened) * 1e3,
    "close_ms": (closed - ended) * 1e3,
}
if taken + lost != report["shots_complete"] + report["shots_partial"] + sum(report["drops"].values()):
    sys.exit(f"{taken} taken and {lost} lost are not the shots of {report}")
print(json.dumps(figures))
