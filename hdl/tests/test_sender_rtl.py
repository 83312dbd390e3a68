"""The sender in simulation, and that what scripts make is what is committed. Every length of packet in every framing goes
through the model of crates/rtl.
"""

import subprocess
import sys

import pytest
from content import HDL


def test_the_icrc_is_right_at_every_length(simulate):
    assert simulate("icrc", "cases_icrc", simulator="icarus") == 3


def test_the_sender_makes_the_frames_of_the_format(simulate):
    assert simulate("roce_ud_tx", "cases_sender", simulator="icarus") == 5


@pytest.mark.parametrize("script", ["registers.py", "crc_tables.py"])
def test_what_scripts_make_is_what_is_committed(script):
    subprocess.run([sys.executable, HDL / "scripts" / script, "--check"], check=True)
