"""Targets in this process: memory that other programs read and write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from . import _native
from ._native import Region


class ServedTarget:
    """A target in this process, served by a thread of its own, which needs no interpreter: what `serve` returns.

    Initiators write to `regions[name].array` while the program runs, and no call of the program takes part.
    """

    def __init__(self, native: _native.Served) -> None:
        self._native = native
        self._regions = MappingProxyType(dict(native.regions()))

    @property
    def address(self) -> str:
        """Address of control connections, for `connect` and `shotline perf --to`."""
        return self._native.address

    @property
    def token(self) -> str:
        """Token that initiators must present."""
        return self._native.token

    @property
    def regions(self) -> Mapping[str, Region]:
        """The served memory by name: `regions[name].array` is a numpy array of uint8, without a copy."""
        return self._regions

    def state(self) -> dict[str, Any]:
        """Returns connected `initiators`, those `welcomed` so far, and refused connections (`wrong_token`).

        For each region, `region NAME` has the numbers of `writes`, `reads` and `atomics`, and `bytes_in` and
        `bytes_out`, unless an RDMA device serves it, which does not count.

        Raises:
            ClosedError: If the target is closed.
            VerbsError: If its endpoint has failed.
        """
        return self._native.state()

    def close(self) -> None:
        """Disconnects all initiators and ends the target. The arrays of its regions remain.

        Raises:
            VerbsError: If its endpoint has failed before.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<served target at {self.address}: {', '.join(self._regions)}>"


def serve(
    regions: Mapping[str, int | Region],
    *,
    rights: str | Mapping[str, str] = "r",
    token: str | None = None,
    transport: str = "soft",
    bind: str | None = None,
    listen: str | None = None,
    strict_ib: bool = False,
    max_initiators: int = 256,
) -> ServedTarget:
    """Serves memory of this process to initiators: `connect` of other programs, `shotline perf`.

        with shotline.serve({"images": 1 << 20}, rights="rw") as served:
            print(served.address, served.token)
            images = served.regions["images"].array

    Args:
        regions: Memory by name: a length in bytes of new memory, which is zero, or a `Region`.
        rights: Rights of initiators: "r", "w", "rw" or "atomic"; a mapping has those of each region.
        token: Token that initiators must present, 32 hexadecimal digits; None: a random one.
        transport: How the memory is reached: "soft", "ibverbs:DEVICE" or "spacefibre:lanes=N". Shared memory is served by
            `shotline target --transport shm`.
        bind: Local address of the memory's traffic, with or without a port; None: loopback, any port.
        listen: Address of control connections, with or without a port; None: loopback, any port.
        strict_ib: Answer invalid requests with an error, as InfiniBand does, instead of dropping them.
        max_initiators: Maximum number of initiators at once.

    Raises:
        ValueError: If an argument is invalid.
        VerbsError: If an address is in use, or the endpoint cannot be opened.
    """
    granted = {name: rights if isinstance(rights, str) else rights.get(name, "r") for name in regions}
    served = [(name, memory, granted[name]) for name, memory in regions.items()]
    return ServedTarget(_native.Served(served, transport, (bind, listen), token, strict_ib, max_initiators))
