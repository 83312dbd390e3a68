"""Writes to the memory of a target and reads it back: the smallest initiator.

shotline target --region images=1M,rights=rw
python examples/python/read_write.py 127.0.0.1:47920 TOKEN
"""

import sys

import numpy as np
import shotline

address, token = sys.argv[1:3]
with shotline.connect(address, token=token) as target:
    image = target.regions["images"]
    print(target, image)

    # Blocking: any array, any length.
    target.write("images", 0, np.arange(1000, dtype=np.float32))
    print("the first numbers:", target.read("images", 0, 16).view(np.float32))

    # With the verbs: registered memory, a queue pair, and the completions of its requests.
    region = target.register(1 << 16)
    completions = target.create_cq()
    pair = target.create_qp(completions)
    region.array[:4096] = np.arange(4096) % 251
    pair.write(region[0:4096], image.at(8192), id=1)
    pair.read(region[4096:8192], image.at(8192), id=2)  # after the write: requests of a queue pair are in order
    missing = {1, 2}
    while missing:
        for completion in completions.wait():
            print(completion.check())  # an exception, if the request has failed
            missing.remove(completion.id)
    print("the same bytes:", np.array_equal(region.array[:4096], region.array[4096:8192]))
