"""Transports between two programs: UDP sockets, and memif, af_packet and af_xdp if the program was built with DPDK."""

import socket
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from requirements import need_root

from common import Namespaces, command, run, until


@cache
def has_dpdk():
    outcome = run("record", "--transport", "dpdk:net_null0", "--listen", "10.0.0.1:9", "--discard", "--seconds", 0)
    return "built without DPDK" not in outcome.stderr


def need_dpdk():
    """Skips the test where the program was built without DPDK."""
    if not has_dpdk():
        pytest.skip("this shotline was built without DPDK (libdpdk-dev was not there)")


class Carrier:
    """The command-line arguments that select the transport on each side."""

    def __init__(self, receiver, sender, to, netns=(None, None), memif=None):
        self.receiver, self.sender, self.to, self.netns, self.memif = receiver, sender, to, netns, memif

    def until_listening(self, receiver):
        """Waits until the receiver's socket or ring exists, so that nothing sent from then on is lost."""

        def listens():
            if receiver.popen.poll() is not None:
                return True  # The caller sees that the receiver has ended, and why.
            if self.memif:
                return self.memif.exists()
            if "af_packet" in str(self.receiver):
                # The namespace has no other af_packet socket. This one is bound to the interface once it has its ring.
                sockets = command("nsenter", f"--net=/run/netns/{self.netns[0]}", "cat", "/proc/net/packet")
                return any(int(line.split()[4]) for line in sockets.splitlines()[1:])
            if self.receiver:
                return "xdp" in command("ip", "-n", self.netns[0], "link", "show", "cable")
            return f":{int(self.to.rsplit(':', 1)[1]):04X} " in Path("/proc/net/udp").read_text()

        until(listens, what="the transport of the receiver")


def udp():
    """Returns a carrier over a UDP port of this host that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return Carrier([], [], f"127.0.0.1:{probe.getsockname()[1]}")


def memif(folder):
    """Returns a carrier over shared memory (memif); the sender waits while its ring is full."""
    need_dpdk()
    settings = f"id=0,socket={folder}/memif.sock,socket-abstract=no"
    receiver = ["--transport", f"dpdk:net_memif0,role=server,{settings}"]
    sender = ["--transport", f"dpdk:net_memif1,role=client,{settings}"]
    return Carrier(receiver, sender, "10.0.0.1:9000", memif=folder / "memif.sock")


def interface_carrier(kind):
    """Returns two namespaces joined by a cable, and a carrier with a DPDK packet driver at each end."""
    need_dpdk()
    need_root("ip", "nsenter", "ethtool")
    device, mtu = {"af_packet": ("net_af_packet", 9000), "af_xdp": ("net_af_xdp", 1500)}[kind]
    spaces = Namespaces(mtu=mtu)
    flags = [["--transport", f"dpdk:{device}{side},iface=cable", "--mtu", mtu] for side in (0, 1)]
    return spaces, Carrier(flags[0], flags[1], "10.91.8.1:9000", netns=spaces.names)


@contextmanager
def open_carrier(kind, folder):
    """Yields the carrier of this name."""
    if kind == "udp":
        yield udp()
    elif kind == "memif":
        yield memif(folder)
    else:
        spaces, carrier = interface_carrier(kind)
        with spaces:
            yield carrier
