"""The FIFOs and clock-domain crossings in simulation. Their proofs are in hdl/formal."""


def test_the_fifo_keeps_words_and_order_and_moves_one_a_clock(simulate):
    assert simulate("fifo_sync", "cases_fifo_sync", parameters={"WIDTH": 12, "DEPTH_LOG2": 3}, simulator="icarus") == 3


def test_the_dual_clock_fifo_keeps_words_and_order_at_every_ratio(simulate):
    parameters = {"WIDTH": 9, "DEPTH_LOG2": 3}
    assert simulate("fifo_async", "cases_fifo_async", parameters=parameters, simulator="icarus") == 6


def test_the_frame_fifo_gives_whole_frames_without_a_gap(simulate):
    assert simulate("frame_fifo_async", "cases_frame_fifo_async", parameters={"DEPTH_LOG2": 4}, simulator="icarus") == 5


def test_pulses_cross_once_each(simulate):
    assert simulate("cdc_pulse", "cases_cdc_pulse", simulator="icarus") == 6
