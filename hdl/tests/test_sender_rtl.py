"""Simulations of the sender, and checks that generated files are current.

The model of crates/rtl tests every packet length in every framing.
"""

import subprocess
import sys

import pytest
from content import HDL


def test_icrc_is_right_at_every_length(simulate):
    assert simulate("shotline_icrc", "cases_icrc", simulator="icarus") == 3


def test_sender_frames_match_the_wire_format(simulate):
    assert simulate("shotline_roce_ud_tx", "cases_sender", simulator="icarus") == 5


@pytest.mark.parametrize("script", ["registers.py", "crc_tables.py"])
def test_generated_files_are_current(script):
    subprocess.run([sys.executable, HDL / "scripts" / script, "--check"], check=True)
