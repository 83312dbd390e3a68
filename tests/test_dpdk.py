"""A probe's shots from one process to another through a memif that DPDK drives: no huge pages, no root, no network."""

from carriers import memif

from common import Probe, Recording, check_balanced, check_samples, record, verify


def test_shots_over_a_memif_are_complete_with_good_icrcs(tmp_path):
    path, carrier = tmp_path / "run.h5", memif(tmp_path)
    # More than the memif holds; with credits nothing is lost at any rate.
    flags = ("--samples", 500, "--shots", 200, "--policy", "block", "--timeout-ms", 60_000, "--pool", "8MiB")
    with Probe("--links", 1, "--pace", "max", *carrier.sender) as probe:
        ended = record(probe, *carrier.receiver, *flags, "--out", path, bind="10.0.0.1:4791").succeeded()
    assert ended["shots_complete"] == 200 and not ended["drops"], ended
    assert ended["icrc"]["good"] == ended["packets"], ended["icrc"]
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording)
    verify(path)
