"""The page of a recording, used in a browser."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from common import WAIT_TIMEOUT_S, Probe, Recorder, check_balanced, verify

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "crates" / "dashboard" / "web"
# The picture in README.md: the top of the page, without what is below the window.
SCREENSHOT = ROOT / "docs" / "img" / "page.png"
SCREENSHOT_SIZE = (1440, 1000)


def address_of_page(recorder):
    """Returns the address that the recorder prints, with the token."""
    line = recorder.popen.stderr.readline()
    found = re.match(r"page: (http://\S+/#token=[0-9a-f]{32})$", line)
    assert found, line
    return found[1]


def use_in_browser(url, folder):
    """Clicks through the page in a browser, ends the run by its button, and takes screenshots."""
    command = ["node", "test/browser.mjs", "--url", url, "--stop", "--out", str(folder)]
    # The browser waits for conditions, each of which has its own limit.
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=10 * WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    not shutil.which("chromium") or not (WEB / "node_modules" / "playwright-core").exists(),
    reason="needs Chromium and playwright-core: scripts/setup.sh web",
)
def test_the_page_of_a_recording_works_in_a_browser(tmp_path):
    path = tmp_path / "run.h5"
    with (
        Probe("--phantom", "--loss", "1e-5", "--seed", "1") as probe,
        Recorder(
            probe,
            *("--out", path.name, "--rate-hz", "100", "--keep", "1GiB"),
            *("--serve", "127.0.0.1:0"),
            cwd=tmp_path,
        ) as recorder,
    ):
        use_in_browser(address_of_page(recorder), tmp_path / "shots")
        ended = recorder.end().succeeded()
    assert ended["ended"]["cause"] == "signal", "the page has stopped it"
    check_balanced(ended)
    verify(path)
    with Image.open(tmp_path / "shots" / "desktop-dark.png") as page:
        assert page.width == SCREENSHOT_SIZE[0] and page.height >= SCREENSHOT_SIZE[1]
        if os.environ.get("UPDATE"):
            page.crop((0, 0, *SCREENSHOT_SIZE)).save(SCREENSHOT, optimize=True)
