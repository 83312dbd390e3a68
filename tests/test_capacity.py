"""A request for more memory than the machine has is refused before it is allocated, by every command.

The requested size exceeds the address space of a processor, so that a program without the check fails, too, and the
kernel kills no other process.
"""

import pytest

from common import run

UNUSED_ADDRESS = "[::1]:9"


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (["record", "--discard", "--probe", UNUSED_ADDRESS, "--pool", "1024TiB"], "--pool"),
        (["emulate", "probe", "--listen", "[::1]:0", "--pattern-shots", 2**32 - 1], "fewer distinct shots"),
        (["emulate", "probe", "--listen", "[::1]:0", "--links", 255, "--pattern-shots", 2**32 - 1], "distinct shots"),
        (["emulate", "digitizer", "--to", UNUSED_ADDRESS, "--distinct", 2**32 - 1], "--distinct"),
        (["emulate", "digitizer", "--to", UNUSED_ADDRESS, "--distinct", 2**31, "--streams", 2], "--distinct"),
    ],
)
def test_more_memory_than_available_is_refused(command, remedy):
    message = run(*command).refused()
    assert all(words in message for words in ["of memory are needed", "are available", remedy]), message


def test_a_region_larger_than_memory_suggests_file_or_huge_pages():
    message = run("target", "--region", "a=1024T", "--listen", "127.0.0.1:0").refused()
    assert all(words in message for words in ["1024.0 TiB", "are available", "file=PATH", "huge"]), message
