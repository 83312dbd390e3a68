"""spead2's own sender as a process: heaps of known bytes, described by a JSON object on the command line.

Without an argument each line of standard input is such an object and is sent by a process of its own. It prints `sent`
when everything is with the kernel, and exits without spead2's clean-up, which may hang.
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
    "items": 1,  # items that share the data
    "groups": 1,  # heaps whose packets are interleaved
    "order": None,  # heap counters in the order of sending
    "describe": "first",  # descriptors in a heap of their own: first, or before every n-th heap; or within: with data
    "stop": True,
    "rate": 20e6,  # bytes per second
}


def heap_data(number, size):
    """Returns the data of the number-th data heap that is sent, from 0."""
    return np.random.default_rng([number, size]).integers(0, 256, size, dtype=np.uint8)


def send(host, port, **wanted):
    wanted = DEFAULTS | wanted
    # A burst must fit the receive buffer that a kernel grants by default.
    config = spead2.send.StreamConfig(
        max_packet_size=wanted["packet"], rate=wanted["rate"], burst_size=16_384, max_heaps=wanted["groups"] + 1
    )
    endpoints = [(host, port)] * wanted["groups"]
    stream = spead2.send.UdpStream(spead2.ThreadPool(), endpoints, config)
    bits = wanted["flavour"]
    group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, bits, 0))
    for index in range(wanted["immediates"]):
        group.add_item(0x1600 + index, f"word{index}", "an immediate value", shape=(), format=[("u", bits)], value=0)
    cuts = [wanted["size"] * index // wanted["items"] for index in range(wanted["items"] + 1)]
    for index, length in enumerate(np.diff(cuts)):
        group.add_item(0x3300 + index, f"data{index}", "data", shape=(int(length),), dtype=np.uint8)

    def heap(number):
        for index in range(wanted["immediates"]):
            group[f"word{index}"].value = number * 4096 + index
        data = heap_data(number, wanted["size"])
        for index in range(wanted["items"]):
            group[f"data{index}"].value = data[cuts[index] : cuts[index + 1]]
        return group.get_heap(descriptors="stale" if wanted["describe"] == "within" else "none", data="all")

    def describe():
        if wanted["describe"] != "within":
            stream.send_heap(group.get_heap(descriptors="all", data="none"))

    describe()
    order = wanted["order"]
    for first in range(0, wanted["heaps"], wanted["groups"]):
        if isinstance(wanted["describe"], int) and first and first % wanted["describe"] == 0:
            describe()
        numbers = range(first, min(first + wanted["groups"], wanted["heaps"]))
        references = [
            spead2.send.HeapReference(heap(number), cnt=order[number] if order else -1, substream_index=index)
            for index, number in enumerate(numbers)
        ]
        stream.send_heaps(references, spead2.send.GroupMode.ROUND_ROBIN)
    if wanted["stop"]:
        stream.send_heap(group.get_end(), cnt=max(order) + 1 if order else -1)


def send_and_leave(wanted):
    status = "not sent"
    try:
        send(**json.loads(wanted))
        status = "sent"
    finally:
        if status != "sent":
            traceback.print_exc()
        print(status, flush=True)
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:]:
        send_and_leave(sys.argv[1])
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()  # spead2 has no thread yet
        if not child:
            send_and_leave(line)
        os.waitpid(child, 0)
