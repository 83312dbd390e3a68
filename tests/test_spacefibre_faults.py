"""SpaceFibre links between processes that die, lie or damage what they send."""

from spacefibre_words import broadcast_frame, crc8


def test_a_broadcast_frame_says_whether_it_is_late():
    # Figure 5-46 of ECSS-E-ST-50-11C.
    figure = bytes.fromhex("FC5D0000 00000000 01010101 5C004129")
    assert (crc8(figure), broadcast_frame(figure).late, broadcast_frame(figure).delayed) == (0, False, False)
    for status, late, delayed in ((1, True, False), (2, False, True), (3, True, True)):
        words = figure[:13] + bytes([status]) + figure[14:15]
        frame = broadcast_frame(words + bytes([crc8(words)]))
        assert (frame.seq, frame.late, frame.delayed) == (0x41, late, delayed)
