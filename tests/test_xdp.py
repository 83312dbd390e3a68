"""Shots over a cable by AF_XDP, in driver and generic mode, and by AF_PACKET."""

import json
import signal

import pytest
from file_state import wait_for_rows

from common import Probe, Recorder, Recording, check_balanced, check_samples, command, record, run, until, verify


def receiver_address(cable, v4, port=0):
    """Returns the receiver's address."""
    return f"{cable.ipv4[1]}:{port}" if v4 else f"[{cable.ipv6[1]}]:{port}"


def probe_address(cable, v4):
    """Returns the probe's address."""
    return f"{cable.ipv4[0]}:0" if v4 else f"[{cable.ipv6[0]}]:0"


def received_frames(cable):
    """Returns the number of frames received at the receiver's end of the cable, coalesced ones counted once."""
    message = command("ip", "-n", cable.names[1], "-json", "-statistics", "link", "show", "dev", "cable")
    return json.loads(message)[0]["stats64"]["rx"]["packets"]


# Each path over both address families and with each framing that differs there.
CASES = [
    ("xdp:cable", True, "ud"),
    ("xdp:cable", False, "counted"),
    ("xdp:cable", True, "udp"),
    ("xdp:cable,mode=generic", False, "ud"),
    ("packet:cable", False, "ud"),
    ("packet:cable", True, "udp"),
]
OTHERS = [("xdp:cable", False, "ud"), ("xdp:cable,mode=generic", True, "ud"), ("packet:cable", True, "ud")]
# The rings of every path hold all packets of a run, in case this machine stalls meanwhile.
LOW_RATE = ("--timeout-ms", 60_000, "--rate-hz", 100)


@pytest.mark.parametrize(
    ("transport", "v4", "framing"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in OTHERS)]
)
def test_every_shot_of_a_probe_is_in_the_file(tmp_path, cable, transport, v4, framing):
    path = tmp_path / "run.h5"
    flags = ("--framing", framing, "--samples", 300, "--shots", 40, *LOW_RATE, "--transport", transport)
    with Probe(listen=probe_address(cable, v4), netns=cable.names[0]) as probe:
        ended = record(probe, *flags, "--out", path, bind=receiver_address(cable, v4), netns=cable.names[1]).succeeded()
    assert ended["shots_complete"] == 80 and not ended["drops"], ended
    if framing != "udp":
        icrc = ended["icrc"]
        assert icrc["good"] == ended["packets"] and not icrc["solved"], "every input of the ICRC must be known"
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording)
    verify(path)


@pytest.mark.parametrize("v4", [True, False])
def test_coalesced_packets_are_split_and_each_icrc_is_checked(tmp_path, cable, v4):
    for name in cable.names:
        words = [word for offload in ("tx", "gso", "tx-udp-segmentation") for word in (offload, "on")]
        command("nsenter", f"--net=/run/netns/{name}", "ethtool", "-K", "cable", *words)
    path, before = tmp_path / "run.h5", received_frames(cable)
    flags = ("--samples", 2000, "--shots", 12, *LOW_RATE, "--transport", "packet:cable")
    with Probe(listen=probe_address(cable, v4), netns=cable.names[0]) as probe:
        ended = record(probe, *flags, "--out", path, bind=receiver_address(cable, v4), netns=cable.names[1]).succeeded()
    assert ended["shots_complete"] == 24 and not ended["drops"], ended
    assert ended["icrc"]["good"] == ended["packets"], ended["icrc"]
    frames = received_frames(cable) - before
    assert 0 < frames < ended["packets"] / 2, f"{frames} frames for {ended['packets']} packets: they arrived split"
    check_balanced(ended, Recording(path))
    verify(path)


def test_a_killed_recorder_leaves_a_usable_interface(tmp_path, cable):
    flags = ("--samples", 100, *LOW_RATE, "--transport", "xdp:cable", "--take-over")
    link_state = lambda: command("ip", "-n", cable.names[1], "link", "show", "dev", "cable")
    with Probe(listen=probe_address(cable, True), netns=cable.names[0]) as probe:
        first = tmp_path / "first.h5"
        to = {"bind": receiver_address(cable, True), "netns": cable.names[1]}
        with Recorder(probe, *flags, "--out", first, **to) as recorder:
            wait_for_rows(first, 1)
            assert "xdp" in link_state(), "the filter must be attached"
            recorder.signal(signal.SIGKILL)
            recorder.popen.wait()
        until(lambda: "xdp" not in link_state(), what="an interface without a filter")
        path = tmp_path / "second.h5"
        ended = record(probe, *flags, "--shots", 20, "--out", path, **to).succeeded()
    assert ended["shots_complete"] == 40 and not ended["drops"], ended
    verify(path)


@pytest.mark.parametrize(
    ("transport", "message"),
    [
        ("xdp:eth77", "ip link lists"),
        ("xdp:cable,queues=77", "queue 77 of cable"),
        ("xdp:cable,copy=zero", "leave out copy=zero"),
        ("packet:eth77", "the interface must be up"),
    ],
)
def test_an_unusable_interface_is_refused_with_a_remedy(tmp_path, cable, transport, message):
    path = tmp_path / "run.h5"
    flags = ("--samples", 100, "--shots", 10, "--transport", transport, "--out", path)
    with Probe(listen=probe_address(cable, True), netns=cable.names[0]) as probe:
        assert message in record(probe, *flags, bind=receiver_address(cable, True), netns=cable.names[1]).refused()
    assert not path.exists()


def test_auto_falls_back_to_sockets_and_reports_why(tmp_path, cable):
    path = tmp_path / "run.h5"
    flags = ("--samples", 100, "--shots", 20, *LOW_RATE, "--transport", "auto", "--out", path)
    with Probe(listen=probe_address(cable, True), netns=cable.names[0]) as probe:
        ended = record(probe, *flags, bind=receiver_address(cable, True), netns=cable.names[1])
        # Queried while the probe is there, so that the query does not wait for a timeout.
        checks = run("doctor", "--json", "--probe", probe.address, "--out", path, netns=cable.names[1]).json["checks"]
    assert ended.succeeded()["shots_complete"] == 40
    reason = "transport: sockets: zero-copy AF_XDP is not available on cable"
    assert ended.stderr.startswith(reason), ended.stderr
    verify(path)
    (check,) = [check for check in checks if check["name"] == "transport"]
    assert (
        check["state"] == "warn" and check["found"].startswith("sockets: zero-copy AF_XDP") and "mlx5" in check["fix"]
    ), check
