"""Fixtures that several test files use, and the distribution of tests among workers."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import recordings
from c_programs import library  # noqa: F401
from faultfs import FaultDrive, skip_if_impossible
from guest_setup import bar, booting, drives, guest  # noqa: F401
from python_endpoints import connect_to, start_target  # noqa: F401
from requirements import NETWORK_TOOLS, need_root
from xdist.scheduler import LoadScopeScheduling

from common import PROGRAM, WAIT_TIMEOUT_S, Namespaces, command

TESTS = Path(__file__).resolve().parent


def pytest_configure():
    # A shell's background job ignores SIGINT, and child processes inherit that until the handler is reset.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not Path(PROGRAM).exists():
        pytest.exit(f"there is no program at {PROGRAM}: cargo build, or set SHOTLINE_BIN", returncode=2)


# The longest tests begin first, so that no worker has much left when the others have finished.
FIRST = ("test_guest", "test_formal", "test_crash", "test_long_runs")


def pytest_collection_modifyitems(items):
    def rank(item):
        return next((position for position, name in enumerate(FIRST) if item.path.stem.startswith(name)), len(FIRST))

    items.sort(key=rank)


def pytest_xdist_make_scheduler(config, log):
    return GroupScheduler(config, log)


class GroupScheduler(LoadScopeScheduling):
    """Assigns each file to one worker, because its tests share fixtures; tests of hdl/ are assigned one by one.

    The files that use the guest form two groups, test_guest_nvme and the others. Each worker that runs one of them
    boots a guest.
    """

    def _split_scope(self, nodeid):
        file = nodeid.split("::")[0]
        if Path(file).stem.startswith("test_guest") and Path(file).stem != "test_guest_nvme":
            return "guest"
        return nodeid if file.startswith("hdl/") else file


@pytest.fixture(scope="module")
def cable():
    """Two network namespaces joined by a cable."""
    need_root(*NETWORK_TOOLS)
    with Namespaces() as namespaces:
        yield namespaces


@pytest.fixture
def loopback_netns():
    """A network namespace with only loopback, in which default ports are free; None without root."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        yield None
        return
    name = f"shotline{os.getpid()}alone"
    command("ip", "netns", "add", name)
    try:
        command("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=WAIT_TIMEOUT_S, check=False)


@pytest.fixture
def drive(tmp_path):
    """Creates small file systems: `drive` takes MiB and returns the folder of a new one on a loop device."""
    need_root("mkfs.ext4", "mount", "fsfreeze")
    mounted = []

    def make(mebibytes):
        image, folder = tmp_path / f"drive{len(mounted)}.img", tmp_path / f"drive{len(mounted)}"
        folder.mkdir()
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        command("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image)
        command("mount", "-o", "loop", image, folder)
        mounted.append((image, folder))
        return folder

    yield make
    for image, folder in mounted:
        # Already thawed unless a test was aborted.
        subprocess.run(["fsfreeze", "--unfreeze", folder], capture_output=True, timeout=WAIT_TIMEOUT_S, check=False)
        subprocess.run(["umount", folder], capture_output=True, timeout=WAIT_TIMEOUT_S, check=False)
        image.unlink()


@pytest.fixture
def fault_drive(tmp_path):
    """A mounted `FaultDrive`, which fails, is full or is slow on command."""
    skip_if_impossible()
    mount = tmp_path / "drive"
    mount.mkdir()
    with FaultDrive(mount) as drive:
        yield drive


@pytest.fixture(scope="session")
def shotline(tmp_path_factory):
    """The Python package, built from this tree."""
    base = tmp_path_factory.getbasetemp()
    recordings.build(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    import shotline

    return shotline


@pytest.fixture(scope="session")
def runs(tmp_path_factory, shotline):
    """Recordings of several kinds by name: the file, and the values that were sent."""
    return recordings.several(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def broken(tmp_path_factory, shotline):
    """A recording that lost shots and packets: the file, and what was sent."""
    return recordings.with_losses(tmp_path_factory.mktemp("broken") / "run.h5")
