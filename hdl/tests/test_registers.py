"""Checks of the register map's generator: overlaps, copies of a block, constants."""

import pytest
from registers import SOURCE, parse, rust, verilog

MAP = """
[[device]]
name = "a"
address_bits = 12
constants = "a.svh"
description = "A device."

[[device]]
name = "b"
address_bits = 12
constants = "b.svh"
description = "A device."

[[block]]
name = "plain"
device = "a"
module = "m"
base = 0x200
description = "A block."

[[block.register]]
name = "one"
offset = 0
access = "rw"
description = "A register."

[[block]]
name = "copied"
device = "b"
module = "m"
base = 0x100
copies = 4
stride = 0x80
description = "A block."

[[block.register]]
name = "two"
offset = 8
access = "ct"
description = "A register."
"""


def test_offsets_of_copies_have_the_bits_of_the_stride():
    first, second = parse(MAP)
    assert "localparam logic [11:0] REG_PLAIN_ONE = 12'h200;" in verilog(first)
    assert "localparam logic [6:0] REG_COPIED_TWO = 7'h08;" in verilog(second)
    assert "localparam logic [6:0] REG_COPIED_TWO_HIGH = 7'h0C;" in verilog(second)
    text = rust([first, second])
    for line in ("COPIES: u16 = 4;", "STRIDE: u16 = 0x80;", "TWO: u16 = 0x108;"):
        assert f"    pub const {line}" in text


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('device = "a"\nmodule = "m"\nbase = 0x200', 'device = "b"\nmodule = "m"\nbase = 0x208', "share address 0x208"),
        ("offset = 8", "offset = 0x7C", "not within the stride"),
        ("offset = 8", "offset = 6", "not a word"),
        ("stride = 0x80", "stride = 0x60", "power of two"),
        ("base = 0x100", "base = 0x140", "divides the base"),
        ("copies = 4", "copies = 32", "address 0x1008 is not a word"),
        ('device = "a"\n', 'device = "c"\n', "no device 'c'"),
    ],
)
def test_map_with_conflicting_addresses_is_refused(old, new, message):
    assert MAP.count(old) == 1
    with pytest.raises(ValueError, match=message):
        parse(MAP.replace(old, new))


def test_channels_of_the_card_fill_the_upper_half():
    (channel,) = (block for device in parse(SOURCE.read_text()) for block in device.blocks if block.copies > 1)
    assert (channel.base, channel.base + channel.copies * channel.stride) == (0x8000, 0x10000)
