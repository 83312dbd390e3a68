"""Linux's own RDMA stack accepts what the RTL of `hdl/` sends.

The RTL, compiled by Verilator, sends raw frames over the cable of a QEMU guest, in which Soft-RoCE checks every ICRC,
queue key and header, and drops every packet that fails: every recorded packet was accepted by Linux.
"""

import pytest
from test_guest_probe import PACKETS, Run
from test_rtl import require_rtl  # noqa: F401


@pytest.mark.parametrize("framing", ["ud", "counted"])
def test_soft_roce_accepts_every_frame_of_the_rtl(guest, framing):
    with Run(guest, "--rtl", "--transport", "packet:cable") as run:
        ended, report, recording = run.end(run.spawn("--shots", 30, "--framing", framing))
    assert report["links"][0]["packets"] == ended["packets"] == 30 * PACKETS
    assert ended["packet_drops"] == {} and ended["icrc"]["device"] == ended["packets"], ended
    assert not recording.missing(0) and ended["shots_complete"] == 30, ended
