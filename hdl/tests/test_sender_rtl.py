"""The sender in simulation, and that what scripts make is what is committed. Every length of packet in every framing goes
through the model of crates/rtl.
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
