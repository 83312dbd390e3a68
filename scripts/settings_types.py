"""Writes python/shotline/_settings.py, the types of a run's settings, from docs/schemas/settings.json.

`--check` compares the file with the schema instead.
"""

import json
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "python" / "shotline" / "_settings.py"
SCHEMA = ROOT / "docs" / "schemas" / "settings.json"

HEADER = '''"""Settings of a run, as of `shotline record`. Written by scripts/settings_types.py from docs/schemas/settings.json."""

import os
from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """Settings of a run: the keys of a settings file, which are the flags of `shotline record`."""
'''
TYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}
PATHS = {"out": "str | os.PathLike[str] | list[str | os.PathLike[str]]"}


def main():
    text = HEADER + "".join(map(entry, *zip(*json.loads(SCHEMA.read_text())["properties"].items(), strict=True)))
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.relative_to(ROOT)} differs from the schema: run python3 scripts/settings_types.py")


def entry(name, schema):
    """Returns the line of one setting, and its documentation."""
    words = " ".join(schema["description"].split()).replace("--", "").replace("\\", "\\\\")
    lines = textwrap.wrap(f'"""{words}."""', 112)
    return f"\n    {name}: {PATHS.get(name) or typed(schema)}\n" + "".join(f"    {line}\n" for line in lines)


def typed(schema):
    """Returns the Python type of a schema."""
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    if "anyOf" in schema:
        return " | ".join(map(typed, schema["anyOf"]))
    if schema["type"] == "array":
        return f"list[{typed(schema['items'])}]"
    return TYPES[schema["type"]]


if __name__ == "__main__":
    main()
