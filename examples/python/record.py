"""Takes shots as they arrive: from the probe at the given address, or from an emulated one.

Usage: python examples/python/record.py [ADDRESS:PORT]
"""

import contextlib
import sys

import shotline

with contextlib.ExitStack() as stack:
    if len(sys.argv) > 1:
        probe = shotline.Probe(sys.argv[1])
    else:
        emulator = stack.enter_context(shotline.Emulator(samples=500, loss=1e-3, seed=7))
        probe = shotline.Probe(emulator.address)
    print(probe.description)

    # Without out= nothing is stored. Each shot is a view of the memory into which the kernel has copied its packets.
    recorder = stack.enter_context(probe.record(samples=500, rate_hz=500.0, shots=200))
    for shot in recorder:
        if not shot.is_complete:
            print(f"{shot}: lacks packets {[int(packet) for packet in (~shot.presence).nonzero()[0]]}, {shot.drops}")
    print(f"the last one has samples of shape {shot.samples.shape}, deviation {shot.samples.std():.1f}")
    losses = recorder.losses
    lost = [int(losses["count"][losses["stream"] == link].sum()) for link in range(recorder.link_count)]
    print(f"{recorder.counters['taken']} shots taken, {lost} lost on links 0 and 1")
