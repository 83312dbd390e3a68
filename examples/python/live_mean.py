"""Records to a file and watches the shots at the same time, with asyncio.

Usage: python examples/python/live_mean.py ADDRESS:PORT run.h5
"""

import asyncio
import sys

import shotline


async def watch(recorder: shotline.Recorder) -> None:
    """Prints the mean of each channel once in 100 shots."""
    async for shot in recorder:
        if shot.number % 100 == 0:
            means = shot.samples.mean(axis=0)
            print(f"shot {shot.number}: channel means from {means.min():.1f} to {means.max():.1f}")


async def main(probe: str, out: str) -> None:
    async with shotline.record(probe=probe, out=out, force=True, shots=1000, rate_hz=1000.0) as recorder:
        await watch(recorder)
    # The file has what the drive could take, whatever this program does; the program may have missed shots of its own.
    losses, report = recorder.losses, recorder.report
    missed = losses["count"][losses["stream"] == 0].sum()
    print(f"{report['rows']} rows in {out}, dropped {report['drops']}; {missed} shots not seen here")


asyncio.run(main(*sys.argv[1:]))
