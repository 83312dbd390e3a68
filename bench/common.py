"""Shared code of the benchmarks: running Shotline and its peers, medians of lossless runs, output.

Command lines of `shotline` and keys of its JSON that several benchmarks use are defined only in this file.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEND_CPU, RECEIVE_CPU = 0, 1
PAYLOAD = 4096
MIB = 1 << 20
POOL_MIB = 256
PROBE_PORT, LOOP_PORT, SPEAD2_PORT = 14791, 14792, 14793
SOCKET_BUFFER = 256 * MIB
ATTEMPTS = 4  # maximum runs for each lossless run wanted
TIME_LIMIT = 120  # seconds for one run: far more than any takes


class Failed(Exception):
    """Raised with the reason if a run gave no figures."""


@dataclass
class Run:
    """Figures of one run. `gbps` is the payload received, in 10^9 bit/s."""

    gbps: float
    packets: int
    lost: int
    seconds: float
    send_cpu_s: float = float("nan")
    receive_cpu_s: float = float("nan")
    copies: float = float("nan")


# --- geometry ----------------------------------------------------------------------------------------


def shot_bytes(samples):
    """Returns the bytes of a shot of one link on the wire: 96 channels of 12 bits padded to 64 bytes, and the record."""
    return -(-samples * 96 * 12 // 8 // 64) * 64 + 64


def slot_bytes(samples):
    return -(-shot_bytes(samples) // PAYLOAD) * PAYLOAD


def pattern_shots(samples):
    """Returns the number of distinct shots that the probe prepares: one fewer than the receiver's pool has slots.

    The two counts are then coprime, so no buffer receives the same shot twice in a row.
    """
    return POOL_MIB * MIB // slot_bytes(samples) - 1


# --- Shotline ----------------------------------------------------------------------------------------


def shotline_probe(samples):
    return [
        *(program(), "emulate", "probe", "--json"),
        *("--listen", f"[::1]:{PROBE_PORT}", "--links", "1", "--samples", str(samples)),
        *("--pace", "max", "--pattern-shots", str(pattern_shots(samples)), "--cpu", str(SEND_CPU)),
    ]


def shotline_record(samples, seconds, pace, framing="ud", out=None):
    return [
        *(program(), "record", "--json", "--probe", f"[::1]:{PROBE_PORT}"),
        *(("--out", str(out)) if out else ("--discard",)),
        *("--framing", framing, "--samples", str(samples)),
        *("--pool", f"{POOL_MIB}MiB", "--seconds", f"{seconds:g}", "--cpu", str(RECEIVE_CPU)),
        *(("--gbps", f"{pace:.3f}") if pace else ()),
    ]


def run_shotline(samples, seconds, pace, framing="ud", out=None):
    """Runs probe and receiver as two processes; returns the run's figures and the receiver's complete report."""
    with background(shotline_probe(samples)) as probe:
        wait_for_port("udp6", PROBE_PORT, probe)
        report = json_of(foreground(shotline_record(samples, seconds, pace, framing, out)))
        probe.send_signal(2)  # Ctrl-C: it prints its summary and exits
        sent = json_of(probe.communicate(timeout=TIME_LIMIT)[0])
    run = Run(
        gbps=report["receive_gbps"],
        packets=report["packets"],
        lost=sum(report["drops"].values()) + report["shots_partial"],
        seconds=report["seconds"],
        send_cpu_s=sent["cpu_user_s"] + sent["cpu_sys_s"],
        receive_cpu_s=report["cpu_user_s"] + report["cpu_sys_s"],
        copies=report["copies_per_byte"],
    )
    if run.packets == 0:
        raise Failed("no packet arrived")
    if framing == "ud" and report["icrc"]["good"] != run.packets:
        raise Failed(f"ICRC good for {report['icrc']['good']} of {run.packets} packets")
    return run, report


def program():
    """Returns the path of the release build."""
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")
    path = Path(target) / "release" / "shotline"
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline")
    return str(path)


# --- the peers ---------------------------------------------------------------------------------------


def build_socket_loop(folder):
    binary = Path(folder) / "socket_loop"
    subprocess.run(["gcc", "-O2", "-march=native", "-o", binary, HERE / "socket_loop.c"], check=True)
    return str(binary)


@contextlib.contextmanager
def socket_loop(binary, seconds, pace):
    """Starts receiver and sender; yields a function that waits for their figures."""
    with background([binary, "recv", str(LOOP_PORT), str(RECEIVE_CPU), str(POOL_MIB)]) as receiver:
        wait_for_port("udp6", LOOP_PORT, receiver)
        sender = [binary, "send", LOOP_PORT, SEND_CPU, POOL_MIB, seconds, pace or 0]
        with background([str(word) for word in sender]) as sender:

            def figures():
                received = json_of(receiver.communicate(timeout=TIME_LIMIT)[0])
                sent = json_of(sender.communicate(timeout=TIME_LIMIT)[0])
                return Run(
                    gbps=received["gbps"],
                    packets=received["packets"],
                    lost=received["lost"],
                    seconds=received["seconds"],
                    send_cpu_s=sent["cpu_user_s"] + sent["cpu_sys_s"],
                    receive_cpu_s=received["cpu_user_s"] + received["cpu_sys_s"],
                )

            yield figures


def run_socket_loop(binary, seconds, pace):
    with socket_loop(binary, seconds, pace) as figures:
        return figures()


def run_spead2(samples):
    """Runs spead2's own benchmark, which searches for the highest rate without loss. Heaps have a shot's size."""
    bench = str(Path(sys.executable).parent / "spead2_bench.py")
    with background([sys.executable, bench, "agent", str(SPEAD2_PORT)]) as agent:
        wait_for_port("tcp", SPEAD2_PORT, agent)
        text = foreground(
            [
                *(sys.executable, bench, "master", f"127.0.0.1:{SPEAD2_PORT}", "--quiet"),
                *("--packet", str(PAYLOAD), "--heap-size", str(shot_bytes(samples))),
                *("--recv-buffer", str(64 * MIB), "--send-buffer", str(8 * MIB)),
                *("--send-affinity", str(SEND_CPU), "--recv-affinity", str(RECEIVE_CPU)),
            ]
        )
    try:
        gbps = float(text.split()[-1])
    except (IndexError, ValueError):
        raise Failed(f"spead2_bench gave no rate: {text.strip()!r}") from None
    return Run(gbps=gbps, packets=0, lost=0, seconds=0)


# --- processes ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def background(command):
    """Runs a process, and kills it when the block ends. Its standard error is shown only if the block fails."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield process
        except Exception as error:
            process.kill()
            errors.seek(0)
            output = errors.read().strip()
            raise Failed(f"{type(error).__name__}: {error}\n{output}".strip()) from error
        finally:
            process.kill()
            process.wait()


def foreground(command):
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name}: did not end within {TIME_LIMIT} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def json_of(text):
    """Returns the last JSON object that a program printed, one per line."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(f"no JSON in {text.strip()!r}")
    return json.loads(lines[-1])


def wait_for_port(protocol, port, process, timeout=20):
    """Waits until a process has bound the port in its network namespace, as listed in /proc; sends nothing to it."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            rows = Path(f"/proc/{process.pid}/net/{protocol}").read_text().splitlines()[1:]
        except OSError:  # it has ended
            rows = []
        if any(int(row.split()[1].rsplit(":", 1)[1], 16) == port for row in rows):
            return
        if process.poll() is not None:
            raise Failed(f"{Path(process.args[0]).name} ended with status {process.returncode}")
        time.sleep(0.02)
    raise Failed(f"no process bound {protocol} port {port} within {timeout} s")


@contextlib.contextmanager
def wide_socket_buffers():
    """Raises the limits of socket buffers during the block, which only root can do.

    Every contender then gets the receive buffer that it requests. Without root the same limits apply to all.
    """
    paths = [Path("/proc/sys/net/core/rmem_max"), Path("/proc/sys/net/core/wmem_max")]
    before = [path.read_text() for path in paths]
    try:
        for path, value in zip(paths, before):
            path.write_text(str(max(int(value), SOCKET_BUFFER)))
        print(f"net.core.rmem_max and wmem_max: {SOCKET_BUFFER // MIB} MiB during the benchmark")
    except OSError:
        print(f"net.core.rmem_max: {before[0].strip()} bytes (only root can raise it for the run)")
    try:
        yield
    finally:
        for path, value in zip(paths, before):
            with contextlib.suppress(OSError):
                path.write_text(value)


# --- medians of lossless runs --------------------------------------------------------------------------


@dataclass
class Contender:
    """A program that is run until it has enough lossless runs.

    It starts at full speed or at a given pace. After two lossy runs in a row it continues 3 % below the rate last
    received, so the search ends near the highest pace without loss. With `paced` false it is repeated unchanged.
    """

    name: str
    run: object  # pace in Gbit/s (None: full speed) -> Run
    wanted: int
    paced: bool = True
    pace: float | None = None
    good: list = field(default_factory=list)
    tried: int = 0
    lossy_in_a_row: int = 0

    def is_unfinished(self):
        return len(self.good) < self.wanted and self.tried < ATTEMPTS * self.wanted

    def step(self):
        self.tried += 1
        at = "" if not self.paced else f" at {self.pace:.1f} Gbit/s" if self.pace else " at full speed"
        try:
            run = self.run(self.pace)
        except (Failed, OSError) as error:
            say(f"  FAILED {self.name}{at}: {error}")
            return
        if run.lost:
            say(f"  LOSSY  {self.name}{at}: {run.lost} lost of {run.packets + run.lost}")
            self.lossy_in_a_row += 1
            if self.paced and self.lossy_in_a_row == 2:
                self.pace = 0.97 * min(run.gbps, self.pace or run.gbps)
                self.lossy_in_a_row = 0
            return
        self.lossy_in_a_row = 0
        self.good.append(run)
        say(f"  ok     {self.name}{at}: {run.gbps:.2f} Gbit/s")

    def median(self):
        """Returns the lossless run with the median rate, None if too few runs were lossless."""
        if len(self.good) < self.wanted:
            return None
        return sorted(self.good, key=lambda run: run.gbps)[len(self.good) // 2]


def interleave(contenders):
    """Runs rounds in which each contender gets one more lossless run, so that disturbances affect all of them.

    Returns `True` if each has as many lossless runs as wanted.
    """
    for number in range(max(c.wanted for c in contenders)):
        for contender in contenders:
            while len(contender.good) <= number and contender.is_unfinished():
                contender.step()
    short = [c for c in contenders if c.median() is None]
    for c in short:
        say(f"  INCOMPLETE {c.name}: {len(c.good)} lossless runs of {c.tried}, {c.wanted} wanted")
    return not short


def say(line):
    print(line, flush=True)


def ratio(what, ours, peer_name, peer, unit):
    say(f"RATIO {what} {ours / peer:.3f} (ours {ours:.2f} {unit}, {peer_name} {peer:.2f} {unit})")
