"""Runs spead2's sender or one of its receivers, pinned to one core.

    spead2_peer.py send PORT CPU GBPS SECONDS         one JSON object: heaps sent
    spead2_peer.py ring PORT CPU                      heaps in buffers of a memory pool, through a ring
    spead2_peer.py chunk PORT CPU LIBRARY             heaps in the caller's chunks, placed by LIBRARY (spead2_place.c)

A receiver prints `ready`, and after the stop heap one JSON object: complete heaps, and the CPU time since `ready`, which
excludes Python's start.
"""

import ctypes
import json
import os
import sys
import time

import numpy as np
import spead2
import spead2.recv
import spead2.send

HEAP = 1 << 20
PAYLOAD = 8192
HEADER = 8 + 4 * 8
ITEM = 0x3300
POOL = 256  # heaps in memory of sender and receiver each: larger than the caches
BATCH = 32


def send(port, cpu, gbps, seconds):
    # spead2's rate counts packets with the SPEAD header, but without those of IP and UDP.
    rate = gbps * 1e9 / 8 * (PAYLOAD + HEADER) / PAYLOAD
    config = spead2.send.StreamConfig(max_packet_size=PAYLOAD + HEADER, rate=rate, max_heaps=2 * BATCH)
    pool = spead2.ThreadPool(1, [cpu])
    stream = spead2.send.UdpStream(pool, [("::1", port)], config, buffer_size=8 << 20)
    heaps, random = [], np.random.default_rng(1)
    for _ in range(POOL - 1):  # so that no buffer receives the same heap twice in a row
        group = spead2.send.ItemGroup(flavour=spead2.Flavour(4, 64, 48, 0))
        group.add_item(ITEM, "data", "", shape=(HEAP,), dtype=np.uint8, value=random.bytes(HEAP))
        group[ITEM].value = np.frombuffer(random.bytes(HEAP), np.uint8)
        heaps.append(group.get_heap(descriptors="none", data="all"))
    sent, begun, at = 0, time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        batch = [spead2.send.HeapReference(heaps[(at + index) % len(heaps)]) for index in range(BATCH)]
        stream.send_heaps(batch, spead2.send.GroupMode.SERIAL)
        at, sent = at + BATCH, sent + BATCH
    stream.send_heap(group.get_end())
    print(json.dumps({"heaps": sent, "seconds": time.monotonic() - begun}), flush=True)


def receiver(port, cpu, stream):
    """Starts to receive; returns a function that prints the report."""
    stream.add_udp_reader(port, max_size=PAYLOAD + HEADER, buffer_size=256 << 20, bind_hostname="::1")
    print("ready", flush=True)
    before = time.process_time()  # of all threads, user and system

    def report(heaps):
        print(json.dumps({"heaps": heaps, "cpu_s": time.process_time() - before}), flush=True)

    return report


def ring(port, cpu):
    allocator = spead2.MemoryPool(HEAP, HEAP + 4096, POOL, POOL)
    config = spead2.recv.StreamConfig(max_heaps=4, memory_allocator=allocator)
    ring_config = spead2.recv.RingStreamConfig(heaps=8)
    stream = spead2.recv.Stream(spead2.ThreadPool(1, [cpu]), config, ring_config)
    report = receiver(port, cpu, stream)
    report(sum(isinstance(heap, spead2.recv.Heap) for heap in stream))


def chunk(port, cpu, library):
    place = ctypes.CDLL(library).place
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    signature = b"void (void *, size_t)"
    # The tuple that scipy.LowLevelCallable consists of.
    callback = (new(ctypes.cast(place, ctypes.c_void_p), signature, None), None, None)
    free, data = spead2.recv.ChunkRingbuffer(POOL), spead2.recv.ChunkRingbuffer(POOL)
    chunks = spead2.recv.ChunkStreamConfig(
        items=[spead2.HEAP_CNT_ID, spead2.HEAP_LENGTH_ID], max_chunks=4, place=callback
    )
    stream = spead2.recv.ChunkRingStream(
        spead2.ThreadPool(1, [cpu]), spead2.recv.StreamConfig(max_heaps=4), chunks, data, free
    )
    for _ in range(POOL):
        stream.add_free_chunk(spead2.recv.Chunk(present=np.zeros(1, np.uint8), data=np.ones(HEAP, np.uint8)))
    report = receiver(port, cpu, stream)
    heaps = 0
    for chunk in data:
        heaps += int(chunk.present[0])
        stream.add_free_chunk(chunk)
    report(heaps)


if __name__ == "__main__":
    what, port, cpu, *rest = sys.argv[1:]
    os.sched_setaffinity(0, {int(cpu)})
    if what == "send":
        send(int(port), int(cpu), *map(float, rest))
    else:
        {"ring": ring, "chunk": chunk}[what](int(port), int(cpu), *rest)
    os._exit(0)  # spead2's clean-up may hang
