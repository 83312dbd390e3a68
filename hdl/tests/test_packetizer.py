"""Simulations of the packetizer's modules, and of the whole at several ratios of its three clocks."""

import pytest

# Periods in ps: converters, processing, MAC. Those of Cossettini et al. (docs/plan.md), processing at 160 or 200 MHz.
PAPER_160, PAPER_200 = "8334,6250,3104", "8334,5000,3104"
# Small FIFOs that overflow early: 64 beats (21 instants) at the input, 128 words (less than two frames) at the output.
SMALL = {"AFE_FIFO_LOG2": 6, "CMAC_FIFO_LOG2": 7, "TIMEOUT_LOG2": 8}


@pytest.mark.parametrize("afes, lanes, adjacent", [(3, 16, 1), (3, 4, 0), (1, 3, 1)])
def test_deinterleaver_orders_the_samples(simulate, afes, lanes, adjacent):
    parameters = {"AFES": afes, "LANES": lanes, "ADJACENT": adjacent}
    assert (
        simulate("shotline_jesd_deinterleave", "cases_jesd_deinterleave", parameters=parameters, simulator="icarus")
        == 2
    )


@pytest.mark.parametrize("samples", [32, 42])
def test_packer_matches_the_wire_format(simulate, samples):
    parameters = {"SAMPLES": samples}
    assert simulate("shotline_sample_packer", "cases_sample_packer", parameters=parameters, simulator="icarus") == 2


def test_decoder_accepts_triggers_and_nothing_else(simulate):
    assert simulate("shotline_trigger_decoder", "cases_trigger_decoder", simulator="icarus") == 5


def test_packetizer_sends_shots_complete_or_marked_damaged(simulate):
    assert (
        simulate(
            "shotline_shot_packetizer", "cases_shot_packetizer", parameters=SMALL, env={"SHOTLINE_CLOCKS": PAPER_160}
        )
        == 7
    )


def test_packetizer_orders_channels_of_interleaved_lanes(simulate):
    only = ["shots_arrive_with_every_sample_at_its_offset"]
    parameters = {**SMALL, "ADJACENT": 0}
    ran = simulate(
        "shotline_shot_packetizer", "cases_shot_packetizer", parameters=parameters, simulator="icarus", only=only
    )
    assert ran == 1


# Processing at 200 MHz; the MAC slower than the rest; the processing domain barely fast enough (49.2 of 46.1
# Gbit/s); all clocks equal.
@pytest.mark.parametrize("clocks", [PAPER_200, "8334,5000,6666", "8334,7800,3104", "8000,8000,8000"])
def test_packetizer_is_independent_of_clock_ratios(simulate, clocks):
    only = [
        "shots_arrive_with_every_sample_at_its_offset",
        "a_stalled_mac_damages_one_shot_and_not_the_next",
    ]
    ran = simulate(
        "shotline_shot_packetizer",
        "cases_shot_packetizer",
        parameters=SMALL,
        env={"SHOTLINE_CLOCKS": clocks},
        only=only,
    )
    assert ran >= 2
