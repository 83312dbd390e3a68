"""Probes: requests to them, and emulated ones."""

from __future__ import annotations

import json
import os
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from . import _native
from ._record import Recorder, record
from ._settings import Settings

PACKINGS = {"packed12_msb_first": 12, "int16_le": 16, "int16_be": 16, "uint8": 8}


@dataclass(frozen=True)
class ProbeStatus:
    """State and counters of one link of a probe."""

    link: int
    running: bool
    """Shots are being sent."""
    owned_by_other: bool
    """Another receiver controls the probe."""
    next_shot: int
    """Number of the next shot."""
    shots_sent: int
    packets_sent: int
    triggers_missed: int
    """Triggers that arrived while the probe could not acquire a shot."""
    lost: int
    """Packets that an emulated probe has deliberately dropped, sent twice, out of order, or with a changed bit."""
    duplicated: int
    reordered: int
    corrupted: int


@dataclass(frozen=True)
class ProbeDescription:
    """Properties of a probe."""

    model: str
    links: int
    channels: int
    """Channels of each link."""
    bits: int
    """Resolution of a sample."""
    packing: str
    """Format of samples on the wire."""
    sample_rate_hz: int
    max_samples: int
    """Maximum samples per channel of a shot."""


class Probe:
    """A probe that takes set-up, real or emulated.

        probe = shotline.Probe("192.168.1.20:47910")
        print(probe.description.model, probe.status().shots_sent)
        with probe.record(samples=2000, shots=100) as recorder:
            ...

    Each request is repeated until it is answered, for at most 6.3 s.

    Args:
        address: Address and port of its set-up port; the port may be omitted.
        take_over: Override another receiver that controls the probe.

    Raises:
        ValueError: If the address is not valid.
    """

    def __init__(self, address: str, *, take_over: bool = False) -> None:
        self._native = _native.Probe(address, take_over)
        self._take_over = take_over

    @property
    def address(self) -> str:
        """Address of the set-up port."""
        return self._native.address

    @cached_property
    def description(self) -> ProbeDescription:
        """Properties of the probe.

        Raises:
            TimeoutError: If it does not answer.
        """
        return ProbeDescription(**json.loads(self._native.describe()))

    def status(self, link: int = 0) -> ProbeStatus:
        """Queries the state and the counters of a link.

        Raises:
            TimeoutError: If the probe does not answer.
            ConnectionRefusedError: If it has no such link.
        """
        return ProbeStatus(**json.loads(self._native.status(link)))

    def trigger(self, *, command_only: bool = False) -> int:
        """Sends a trigger command.

        Args:
            command_only: Only check that the command would be accepted.

        Returns:
            The number of the shot that it starts.

        Raises:
            TimeoutError: If the probe does not answer.
            ConnectionRefusedError: If it does not accept the command, for example during a shot, or because a recorder
                controls it, also one of this program: `Probe(address, take_over=True)` triggers it nevertheless.
        """
        return self._native.trigger(command_only)

    def stop(self) -> list[ProbeStatus]:
        """Stops sending after the shot in progress.

        Returns:
            The last status of each link.

        Raises:
            TimeoutError: If the probe does not answer.
            ConnectionRefusedError: If another receiver controls it.
        """
        return [ProbeStatus(**status) for status in json.loads(self._native.stop())]

    def record(self, **settings: Unpack[Settings]) -> Recorder:
        """Receives the probe's shots: `shotline.record` with its address."""
        given: Settings = {"probe": self.address, "take_over": self._take_over, **settings}
        return record(**given)

    def __repr__(self) -> str:
        return f"<probe at {self.address}>"


class Emulator:
    """An emulated ultrasound probe in this process, which receivers set up as a real one.

        with shotline.Emulator(samples=500, loss=1e-4) as emulator:
            with shotline.record(probe=emulator.address, shots=100) as recorder:
                ...

    Args:
        data: Samples to send, of shape (shot, sample, channel) with the channels of all links side by side: the shots in
            turn. None: test patterns, which `shotline verify` checks.
        listen: Address and port for set-up messages; port 0 selects a free one.
        links: Number of links, each with its own stream.
        channels: Channels of each link [default: 96, or those of `data`].
        samples: Samples per channel and shot [default: 2000, or those of `data`].
        packing: Format on the wire: packed12_msb_first, int16_le, int16_be or uint8.
        bits: Resolution of a sample [default: all bits of the format].
        sample_rate_hz: Samples per second of each channel [default: 40 MHz].
        input: HDF5 file with radio-frequency data, instead of `data`.
        phantom: Send the echoes of a phantom: wires, a cyst, speckle and a moving wall.
        rate_hz: Pace of a free-running receiver in shots per second; "max": as fast as the link accepts; None: the
            probe's own pace.
        trigger_hz: Frequency of the trigger input.
        loss: Probability that a packet is not sent. Also `duplicate`, `reorder`, `corrupt`.
        first_shot: Number of the first shot.
        seed: Seed of faults and random numbers [default: random].

    Raises:
        ValueError: If the arguments contradict each other, or a sample does not fit the resolution.
        OSError: If the port is not available, or the file cannot be read.
    """

    def __init__(
        self,
        data: ArrayLike | None = None,
        *,
        listen: str = "[::1]:0",
        links: int = 2,
        channels: int | None = None,
        samples: int | None = None,
        packing: str = "packed12_msb_first",
        bits: int | None = None,
        sample_rate_hz: int | None = None,
        input: str | os.PathLike[str] | None = None,
        phantom: bool = False,
        rate_hz: float | Literal["max"] | None = None,
        trigger_hz: float | None = None,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        corrupt: float = 0.0,
        first_shot: int = 0,
        seed: int | None = None,
    ) -> None:
        given = None
        if data is not None:
            array = _as_shots(data, links)
            channels = channels or array.shape[2] // links
            given = array.reshape(-1), array.shape
        pace: Any = "device" if rate_hz is None else "max" if rate_hz == "max" else {"rate": rate_hz}
        config = {
            "links": links,
            "channels": 96 if channels is None else channels,
            "samples": samples,
            "packing": packing,
            "bits": PACKINGS.get(packing, 12) if bits is None else bits,
            "sample_rate_hz": sample_rate_hz,
            "input": None if input is None else os.fspath(input),
            "phantom": {} if phantom else None,
            "free_running": pace,
            "trigger_hz": trigger_hz,
            "first_shot": first_shot,
            "faults": {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt},
            "seed": seed,
        }
        self._native = _native.Emulator(json.dumps(config), listen, given)
        self._finalizer = weakref.finalize(self, _close_quietly, self._native)

    @property
    def address(self) -> str:
        """Address of the set-up port, for `shotline.record(probe=...)`."""
        return self._native.address

    @property
    def serving(self) -> bool:
        """True while the probe answers receivers."""
        return self._native.serving

    @property
    def counters(self) -> dict[str, Any]:
        """Counters as in the report of `shotline emulate probe --json`, at most 100 ms old.

        `links` has those of each link: `shots`, `packets`, and the injected `faults`.
        """
        counters: dict[str, Any] = json.loads(self._native.counters())
        return counters

    def close(self) -> dict[str, Any]:
        """Ends the probe.

        Returns:
            The final counters.

        Raises:
            OSError: If the probe has failed before.
        """
        counters: dict[str, Any] = json.loads(self._native.close())
        return counters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finalizer()

    def __repr__(self) -> str:
        return f"<emulated probe at {self.address}>"


def _close_quietly(native: _native.Emulator) -> None:
    """Ends a probe whose counters are not wanted."""
    try:
        native.close()
    except (OSError, RuntimeError):
        pass


def _as_shots(data: ArrayLike, links: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Returns samples as an array of shape (shot, sample, channel)."""
    array = np.asarray(data)
    if array.ndim != 3 or array.dtype.kind not in "iu" or (links and array.shape[2] % links):
        raise ValueError(
            f"expected integers of shape (shot, sample, channel) with the channels of {links} links, found {array.dtype} "
            f"of shape {array.shape}"
        )
    if array.size and not (np.iinfo(np.int16).min <= array.min() and array.max() <= np.iinfo(np.int16).max):
        raise ValueError(f"expected samples of at most 16 bits, found {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int16)
