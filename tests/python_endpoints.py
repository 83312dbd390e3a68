"""What the tests of endpoints in Python share: targets, connections to them, and their fixtures."""

import numpy as np
import pytest
from memory_target import Target

REGIONS = ("--region", "images=1M,rights=rw", "--region", "counters=4K,rights=atomic", "--region", "fixed=4K,rights=r")
TRANSPORTS = ["soft", "shm", "spacefibre:lanes=2", "spacefibre:shm,lanes=2"]
LONG_S = 60.0  # a wait that must end before, for another reason


@pytest.fixture
def start_target(tmp_path_factory):
    """Starts `shotline target`: takes a transport and further arguments."""
    targets = []

    def make(transport="soft", *arguments):
        listen = str(tmp_path_factory.mktemp("s") / "a") if "shm" in transport else "127.0.0.1:0"
        target = Target(*REGIONS, "--messages", "--transport", transport, *arguments, listen=listen).__enter__()
        target.transport = transport
        targets.append(target)
        return target

    yield make
    for target in targets:
        target.__exit__()


@pytest.fixture
def connect_to(shotline):
    """Connects to a target that was started."""
    opened = []

    def make(target, transport=None):
        endpoint = shotline.connect(target.address, token=target.token, transport=transport or target.transport)
        opened.append(endpoint)
        return endpoint

    yield make
    for endpoint in opened:
        endpoint.close()


def pattern(seed, length):
    return np.random.default_rng(seed).integers(0, 256, length).astype(np.uint8)


def done(cq, count=1):
    """Returns this number of completions, which must be successful."""
    completions = []
    while len(completions) < count:
        found = cq.wait(LONG_S)
        assert found, f"{len(completions)} of {count} completions"
        completions += [completion.check() for completion in found]
    return completions
