"""spead2's own sender as a process: heaps of known bytes, described by a JSON object on the command line.

Without an argument each line of standard input is such an object, and a child process sends it. The sending process
prints `sent` when the kernel has all packets, and exits without spead2's clean-up, which may hang.
"""

import json
import os
import sys
import traceback

import numpy as np
import spead2
import spead2.send

DEFAULTS = {
    "flavour": 48,
    "packet": 1472,  # bytes of UDP payload
    "size": 10_000,  # bytes of data in a heap
    "heaps": 20,
    "immediates": 1,  # items in a heap's first packet only
    "items": 1,  # items into which the data is divided
    "groups": 1,  # heaps whose packets are interleaved
    "order": None,  # heap counters in the order of sending
    # Descriptors: "first", in a heap before the data; n, also before every n-th heap; "within", in the first data heap.
    "describe": "first",
    "stop": True,
    "rate": 20e6,  # bytes per second
}


def heap_data(number, size):
    """Returns the data of the number-th data heap that is sent, from 0."""
    return np.random.default_rng([number, size]).integers(0, 256, size, dtype=np.uint8)


def send(host, port, **settings):
    settings = DEFAULTS | settings
    # A burst must fit the receive buffer that a kernel grants by default.
    config = spead2.send.StreamConfig(
        max_packet_size=settings["packet"], rate=settings["rate"], burst_size=16_384, max_heaps=settings["groups"] + 1
    )
    endpoints = [(host, port)] * settings["groups"]
    stream = spead2.send.UdpStream(spead2.ThreadPool(), endpoints, config)
    bits = settings["flavour"]
    group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, bits, 0))
    for index in range(settings["immediates"]):
        group.add_item(0x1600 + index, f"word{index}", "an immediate value", shape=(), format=[("u", bits)], value=0)
    cuts = [settings["size"] * index // settings["items"] for index in range(settings["items"] + 1)]
    for index, length in enumerate(np.diff(cuts)):
        group.add_item(0x3300 + index, f"data{index}", "data", shape=(int(length),), dtype=np.uint8)

    def heap(number):
        for index in range(settings["immediates"]):
            group[f"word{index}"].value = number * 4096 + index
        data = heap_data(number, settings["size"])
        for index in range(settings["items"]):
            group[f"data{index}"].value = data[cuts[index] : cuts[index + 1]]
        return group.get_heap(descriptors="stale" if settings["describe"] == "within" else "none", data="all")

    def describe():
        if settings["describe"] != "within":
            stream.send_heap(group.get_heap(descriptors="all", data="none"))

    describe()
    order = settings["order"]
    for first in range(0, settings["heaps"], settings["groups"]):
        if isinstance(settings["describe"], int) and first and first % settings["describe"] == 0:
            describe()
        numbers = range(first, min(first + settings["groups"], settings["heaps"]))
        references = [
            spead2.send.HeapReference(heap(number), cnt=order[number] if order else -1, substream_index=index)
            for index, number in enumerate(numbers)
        ]
        stream.send_heaps(references, spead2.send.GroupMode.ROUND_ROBIN)
    if settings["stop"]:
        stream.send_heap(group.get_end(), cnt=max(order) + 1 if order else -1)


def send_and_exit(settings):
    status = "not sent"
    try:
        send(**json.loads(settings))
        status = "sent"
    finally:
        if status != "sent":
            traceback.print_exc()
        print(status, flush=True)
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        send_and_exit(sys.argv[1])
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()  # safe: spead2 has started no thread yet
        if not child:
            send_and_exit(line)
        os.waitpid(child, 0)
