"""Requirements of a test on the machine. Where one is not met, the test is skipped with the reason."""

import os
import shutil

import pytest

NETWORK_TOOLS = ("ip", "nsenter", "ethtool")


def need_root(*tools):
    """Skips the test unless it runs as root and has these programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root (network namespaces, mounts): run the tests as root to have this proven")
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: scripts/setup.sh test installs what Debian has")
