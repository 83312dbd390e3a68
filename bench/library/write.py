"""Writes 64 KiB at a time into the memory of a target, in groups of 16 with one completion, and prints the rate as JSON.

Arguments: address of the target, token, seconds, processor.
"""

import json
import os
import sys
import time

import shotline

SIZE, GROUP = 65536, 16

address, token, seconds, cpu = sys.argv[1:]
os.sched_setaffinity(0, {int(cpu)})
with shotline.connect(address, token=token) as target:
    memory, remote = target.register(SIZE), target.regions["a"]
    completions = target.create_cq(2 * GROUP)
    pair = target.create_qp(completions)
    group = [
        shotline.Request.write(memory[0:SIZE], remote.at(0), id=at, signalled=at == GROUP - 1) for at in range(GROUP)
    ]

    def write_group():
        pair.post(group)
        while not (found := completions.poll()):
            pass
        found[0].check()

    write_group()
    groups, began = 0, time.monotonic()
    end = last = began + float(seconds)
    while (last := time.monotonic()) < end:
        write_group()
        groups += 1
    print(json.dumps({"gbps": groups * GROUP * SIZE * 8 / (last - began) / 1e9}))
