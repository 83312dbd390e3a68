"""Simulations of the FIFOs and clock domain crossings. Their proofs are in hdl/formal."""


def test_fifo_sync_keeps_order_at_one_word_per_clock(simulate):
    assert (
        simulate("shotline_fifo_sync", "cases_fifo_sync", parameters={"WIDTH": 12, "DEPTH_LOG2": 3}, simulator="icarus")
        == 3
    )


def test_fifo_async_keeps_order_at_every_clock_ratio(simulate):
    parameters = {"WIDTH": 9, "DEPTH_LOG2": 3}
    assert simulate("shotline_fifo_async", "cases_fifo_async", parameters=parameters, simulator="icarus") == 6


def test_frame_fifo_delivers_frames_without_a_gap(simulate):
    assert (
        simulate(
            "shotline_frame_fifo_async", "cases_frame_fifo_async", parameters={"DEPTH_LOG2": 4}, simulator="icarus"
        )
        == 5
    )


def test_each_pulse_crosses_once(simulate):
    assert simulate("shotline_cdc_pulse", "cases_cdc_pulse", simulator="icarus") == 6
