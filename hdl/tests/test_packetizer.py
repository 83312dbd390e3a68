"""The packetizer in simulation: its parts, and all of it at several ratios of its three clocks."""

import pytest

# Periods in ps: converters, processing, MAC. The paper's with 160 and with 200 MHz.
PAPER_160, PAPER_200 = "8334,6250,3104", "8334,5000,3104"
# Small FIFOs overflow soon: 64 beats (21 instants) in front, 128 words (not two frames) behind.
SMALL = {"AFE_FIFO_LOG2": 6, "CMAC_FIFO_LOG2": 7, "TIMEOUT_LOG2": 8}


@pytest.mark.parametrize("afes, lanes, adjacent", [(3, 16, 1), (3, 4, 0), (1, 3, 1)])
def test_the_deinterleaver_puts_every_sample_at_its_place(simulate, afes, lanes, adjacent):
    parameters = {"AFES": afes, "LANES": lanes, "ADJACENT": adjacent}
    assert simulate("jesd_deinterleave", "cases_jesd_deinterleave", parameters=parameters, simulator="icarus") == 2


@pytest.mark.parametrize("samples", [32, 42])
def test_the_packer_packs_as_the_wire_format_says(simulate, samples):
    parameters = {"SAMPLES": samples}
    assert simulate("sample_packer", "cases_sample_packer", parameters=parameters, simulator="icarus") == 2


def test_the_decoder_takes_triggers_and_nothing_else(simulate):
    assert simulate("trigger_decoder", "cases_trigger_decoder", simulator="icarus") == 5


def test_shots_go_through_three_clock_domains_whole_or_visibly_damaged(simulate):
    assert (
        simulate("shot_packetizer", "cases_shot_packetizer", parameters=SMALL, env={"SHOTLINE_CLOCKS": PAPER_160}) == 7
    )


def test_channels_that_are_not_neighbours_on_a_lane_arrive_at_their_places(simulate):
    only = ["shots_arrive_with_every_sample_in_its_place"]
    parameters = {**SMALL, "ADJACENT": 0}
    ran = simulate("shot_packetizer", "cases_shot_packetizer", parameters=parameters, simulator="icarus", only=only)
    assert ran == 1


# The paper's fast processing clock; the MAC slower than the rest; the processing domain barely fast enough (49.2 of 46.1
# Gbit/s); all clocks equal.
@pytest.mark.parametrize("clocks", [PAPER_200, "8334,5000,6666", "8334,7800,3104", "8000,8000,8000"])
def test_the_ratio_of_the_clocks_changes_no_byte(simulate, clocks):
    only = [
        "shots_arrive_with_every_sample_in_its_place",
        "a_mac_that_stops_damages_one_shot_visibly_and_the_next_is_right",
    ]
    ran = simulate(
        "shot_packetizer", "cases_shot_packetizer", parameters=SMALL, env={"SHOTLINE_CLOCKS": clocks}, only=only
    )
    assert ran >= 2
