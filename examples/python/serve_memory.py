"""Serves memory of this program, which another one writes, without any call of this one.

    python examples/python/serve_memory.py

The initiator is a thread here to keep the example in one file; in another program, or on another machine, it is the same.
"""

import threading

import numpy as np
import shotline


def initiate(address: str, token: str) -> None:
    """Writes an image, and then its number."""
    with shotline.connect(address, token=token) as target:
        target.write("images", 0, np.full((100, 100), 7, np.uint16))
        target.write("count", 0, np.uint64(1))


with shotline.serve({"images": 1 << 20, "count": 8}, rights="rw") as served:
    print(served)
    images = served.regions["images"].array[:20_000].view(np.uint16).reshape(100, 100)
    count = served.regions["count"].array.view(np.uint64)
    threading.Thread(target=initiate, args=(served.address, served.token)).start()
    while count[0] == 0:  # written by the initiator
        pass
    print("image", count[0], "has the mean", images.mean())
    print("the same bytes:", bool((images == 7).all()))
