"""The packet card's DPDK driver between programs: the simulated card, and DPDK's own testpmd as an application."""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from common import ROOT, WAIT_TIMEOUT_S, Process, command, run

DRIVER = ROOT / "target" / "dpdk" / "librte_net_shotline.so"
MEMORY_MIB = 384
PROMPT = "testpmd> "


def need_driver():
    """Skips the test unless there are the driver, testpmd, and a program with the RTL."""
    if not shutil.which("dpdk-testpmd"):
        pytest.skip("needs dpdk-testpmd: scripts/setup.sh dpdk installs it")
    if not DRIVER.exists():
        pytest.skip("needs the packet card's DPDK driver: make pmd")
    if "built without the RTL" in run("emulate", "card", "--packets", 1, "--json").stderr:
        pytest.skip("needs a program with the RTL: cargo build --features rtl")


class Output:
    """What a program prints, as it comes."""

    def __init__(self, descriptor):
        self.descriptor, self.text = descriptor, ""
        os.set_blocking(descriptor, False)

    def take(self, timeout):
        """Reads what is there, waiting at most so long. Returns False at the end."""
        if not select.select([self.descriptor], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self.descriptor, 1 << 16)
        except OSError:  # a terminal whose other side is closed
            return False
        self.text += data.decode(errors="replace").replace("\r", "")
        return bool(data)

    def wait_for(self, pattern, start=0):
        """Waits for a pattern behind an index, and returns its match."""
        end = time.monotonic() + WAIT_TIMEOUT_S
        while not (match := re.compile(pattern, re.MULTILINE).search(self.text, start)):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in\n{self.text[-20_000:]}"
            assert self.take(left), f"the program ended without {pattern!r}:\n{self.text[-20_000:]}"
        return match


class Card(Process):
    """`shotline emulate card --listen`."""

    def __init__(self, folder, *arguments, name="card", **options):
        self.socket = Path(folder) / f"{name}.sock"
        super().__init__("emulate", "card", "--listen", self.socket, "--json", *arguments, **options)
        self.log = Output(self.popen.stderr.fileno())
        self.log.wait_for("waits for a driver on")

    def report(self):
        """Ends the card and returns its JSON object."""
        self.signal(2)
        stdout, _ = self.popen.communicate(timeout=WAIT_TIMEOUT_S)
        assert self.popen.returncode == 0, self.log.text
        return json.loads(stdout)


def eal_options(card):
    """Returns EAL's options for an application on normal pages with a port of the card."""
    return [
        *("--no-huge", "-m", str(MEMORY_MIB), "--no-pci", "--no-telemetry", "--no-shconf", "--iova-mode=va"),
        *(f"--file-prefix=shotline{os.getpid()}{card.pid}", "--lcores=0@0-1,1@0-1"),
        *("-d", DRIVER.name, "--vdev", f"net_shotline0,socket={card.socket}"),
    ]


def environment():
    """Returns the environment in which an application finds the driver by its name.

    DPDK refuses the path of a driver below a folder that all users may write to, such as /tmp.
    """
    return os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent)}


def build(folder, source):
    """Compiles an application of DPDK, and returns its path."""
    path = folder / Path(source).stem
    flags = command("pkg-config", "--cflags", "--libs", "libdpdk").split()
    command("cc", "-O2", "-Wall", "-o", path, Path(__file__).parent / source, *flags)
    return path


class Application:
    """An application that was built."""

    def __init__(self, path, card, *arguments):
        words = [str(path), *eal_options(card), "--", *map(str, arguments)]
        self.popen = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
        )
        self.output = Output(self.popen.stdout.fileno())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.communicate()

    def end(self):
        """Waits until it ends, and returns what it printed: words, of which the last is the value."""
        while self.output.take(WAIT_TIMEOUT_S):
            pass
        assert self.popen.wait(WAIT_TIMEOUT_S) == 0, self.output.text
        return dict(line.rsplit(" ", 1) for line in self.output.text.splitlines() if " " in line)


def run_application(path, card, *arguments):
    """Runs an application until it ends, and returns what it printed."""
    with Application(path, card, *arguments) as application:
        return application.end()


class Testpmd:
    """An unmodified dpdk-testpmd with a port of the driver, on its command line.

    With a file of commands it has no command line: it forwards until it is to quit. What its thread prints for each packet
    would mix with the prompts, which are written byte by byte.
    """

    __test__ = False

    def __init__(self, card, *arguments, queues=1, descriptors=256, commands=None):
        self.has_prompt = commands is None
        # Each queue has a ring of mbufs; the others are in caches and in rings of sent frames.
        mbufs = queues * (descriptors + 256) + 2048
        # On a terminal its lines come in order with its prompts, which are not buffered.
        terminal, other = pty.openpty()
        self.popen = subprocess.Popen(
            [
                *("dpdk-testpmd", *eal_options(card), "--"),
                *(["--interactive"] if self.has_prompt else [f"--cmdline-file={commands}"]),
                *("--nb-cores=1", f"--rxq={queues}", f"--txq={queues}", f"--rxd={descriptors}"),
                *("--txd=256", f"--total-num-mbufs={mbufs}", "--no-flush-rx", *map(str, arguments)),
            ],
            stdin=subprocess.PIPE,
            stdout=other,
            stderr=other,
            text=True,
            env=environment(),
        )
        os.close(other)
        self.terminal, self.output = terminal, Output(terminal)

    def __enter__(self):
        self.at = self.output.wait_for(PROMPT).end() if self.has_prompt else 0
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        os.close(self.terminal)
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()

    def command(self, line):
        """Gives a command and returns what it prints until the next prompt."""
        begin = self.at
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()
        prompt = self.output.wait_for(PROMPT, begin)
        self.at = prompt.end()
        return self.output.text[begin : prompt.start()]

    def more(self):
        """Returns all that was printed until now."""
        self.output.take(0.1)
        return self.output.text

    def statistics(self):
        """Returns the port's extended statistics."""
        text = self.command("show port xstats 0")
        return {name: int(value) for name, value in re.findall(r"^(\w+): (\d+)$", text, re.MULTILINE)}

    def quit(self):
        """Ends it, and asserts that it ended in order."""
        self.popen.stdin.write("quit\n")
        self.popen.stdin.flush()
        while self.output.take(WAIT_TIMEOUT_S):
            pass
        assert self.popen.wait(WAIT_TIMEOUT_S) == 0, self.output.text[-20_000:]
        return self.output.text
