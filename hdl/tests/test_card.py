"""Simulations of the packet card's modules."""

import pytest

# A buffer of 32 words, for which 1526 bytes (24 words) are long, shows a rate that is too low at once.
SMALL = {"CHANNELS_LOG2": 4, "TABLE_LOG2": 6, "BUFFER_LOG2": 5}
LARGE = {"CHANNELS_LOG2": 7, "TABLE_LOG2": 7, "BUFFER_LOG2": 10}
TOP, CASES = "shotline_card_distributor", "cases_card_distributor"


def test_distributor_delivers_or_counts_every_frame(simulate):
    only = [
        "hashes_match_the_published_vectors",
        "frames_of_every_length_arrive_whole",
        "bad_frames_are_counted_once_by_cause",
        "no_packet_is_longer_than_its_length_field",
        "queued_packets_leave_without_a_gap",
    ]
    assert simulate(TOP, CASES, parameters=LARGE, only=only) == 5


def test_distributor_with_a_small_buffer_keeps_the_line_rate(simulate):
    only = ["overflow_drops_whole_frames_and_counts_them", "no_length_overflows_at_the_rate_of_the_wire"]
    assert simulate(TOP, CASES, parameters=SMALL, only=only) == 2


def test_distributor_has_no_undefined_output(simulate):
    only = ["hashes_match_the_published_vectors", "queued_packets_leave_without_a_gap"]
    assert simulate(TOP, CASES, parameters=SMALL, simulator="icarus", only=only) == 2


DMA = {"CHANNELS_LOG2": 3, "PREFETCH_LOG2": 5, "TAGS_LOG2": 2, "ROWS_LOG2": 5}


@pytest.mark.parametrize("blocks_log2", [3, 4])
def test_dma_delivers_or_counts_every_packet(simulate, blocks_log2):
    assert simulate("shotline_card_dma", "cases_card_dma", parameters=DMA | {"BLOCKS_LOG2": blocks_log2}) == 3


def test_dma_has_no_undefined_output(simulate):
    assert simulate("shotline_card_dma", "cases_card_dma", parameters=DMA, simulator="icarus") == 3


PCIE = {"CHANNELS_LOG2": 7, "TAGS_LOG2": 6, "LANE_LOG2": 6}


def test_pcie_adapter_keeps_the_rules_of_the_streams(simulate):
    assert simulate("shotline_card_pcie", "cases_card_pcie", parameters=PCIE) == 14


def test_pcie_adapter_has_no_undefined_output(simulate):
    only = ["requests_of_all_kinds_keep_the_rules", "the_host_reads_and_writes_registers"]
    only += ["completions_become_beats_of_their_tags"]
    assert simulate("shotline_card_pcie", "cases_card_pcie", parameters=PCIE, simulator="icarus", only=only) == 3


CARD = {"CHANNELS_LOG2": 3, "PREFETCH_LOG2": 5, "TAGS_LOG2": 4, "ROWS_LOG2": 7, "LANE_LOG2": 6}


def test_card_on_a_model_of_the_integrated_block(simulate):
    assert simulate("shotline_card", "cases_card_host", parameters=CARD) == 2


# Small memories, but a table with several entries for each channel.
PORT = DMA | {"TABLE_LOG2": 5, "BUFFER_LOG2": 6, "CROSSING_LOG2": 3}


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_frames_reach_the_channels_that_their_hashes_choose(simulate, simulator):
    assert simulate("shotline_card_port", "cases_card_port", parameters=PORT, simulator=simulator) == 3


# Lanes as small as they may be, and several words of a long frame in the buffer.
ETHERNET = PORT | {"BUFFER_LOG2": 7, "TAGS_LOG2": 4, "ROWS_LOG2": 7, "LANE_LOG2": 6}


@pytest.mark.parametrize("channels_log2", [3, 8])
def test_frames_of_a_mac_reach_the_memory_of_a_host(simulate, channels_log2):
    parameters = ETHERNET | {"CHANNELS_LOG2": channels_log2}
    assert simulate("shotline_card_ethernet", "cases_card_ethernet", parameters=parameters) == 4


def test_card_with_a_mac_has_no_undefined_output(simulate):
    only = ["registers_of_both_blocks_are_in_the_bar", "a_channel_is_stopped_while_its_frames_come"]
    options = {"parameters": ETHERNET, "simulator": "icarus", "only": only}
    assert simulate("shotline_card_ethernet", "cases_card_ethernet", **options) == 2
