"""SpaceFibre words as line bits, decoded by the Python code of docs/wire-formats.md alone."""

import itertools
import re
from pathlib import Path

SECTION = "## 10. SpaceFibre words"
LINE = re.compile(r"(\w+)\s+((?:(?:K:)?[0-9A-F]{2} ){4})\s*((?:(?:K:)?[0-9A-F]{2} ){4})\s*([01 ]+)")
K = 256  # added to the value of a K-code


def section():
    """Returns the section of the page, and what its Python code defines."""
    text = (Path(__file__).parent.parent / "docs" / "wire-formats.md").read_text()
    text = text.partition(SECTION)[2].partition("\n## ")[0]
    defined = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, defined)  # noqa: S102
    return text, defined


def characters(text):
    """Returns the characters of a word: `K:FC CE 7F 7F`."""
    return [int(item.removeprefix("K:"), 16) + K * item.startswith("K:") for item in text.split()]


def test_documented_code_decodes_the_documented_bits():
    text, code = section()
    lines = LINE.findall(text)
    assert [name for name, *_ in lines] == ["IDLE", "SDF", "data", "data", "EDF", "FCT"]
    positive = False
    received = []
    for _, _, sent, bits in lines:
        symbols = bits.split()
        for symbol in symbols:
            found = [value for value in range(2 * K) if code["symbol"](value % K, value >= K, positive) == symbol]
            # K-codes that do not exist may have the symbol of a D-code.
            received.append(found[0])
            positive ^= symbol.count("1") != 5
        assert received[-4:] == characters(sent)

    values = [character % K for character in received]
    assert code["crc"](0x8408, 0xFFFF, values[4:18]) == int.from_bytes(values[18:20], "little")
    assert code["crc"](0xE0, 0, values[20:23]) == values[23]
    pairs = zip(received[8:16], code["random_bytes"](), strict=False)
    data = [character ^ random if character < K else character for character, random in pairs]
    assert data == list(itertools.chain.from_iterable(characters(word) for _, word, _, _ in lines[2:4]))
    assert data[:6] == [0, 1, 2, 3, 4, 0xFD + K]
