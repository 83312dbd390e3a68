"""Contents and gaps of a recording, read with h5py according to the documents: what every export must reproduce."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from common import PACKET, PROGRAM, ROOT, WAIT_TIMEOUT_S, Recording, run

DATA = next((parent / "shared" / "data" for parent in ROOT.parents if (parent / "shared" / "data").is_dir()), None)


class Source(Recording):
    """A recording, shot by shot."""

    def __init__(self, path):
        super().__init__(path)
        self.bits_per_sample = 12 if self.links[0]["packing"] == 1 else 16
        self.rate = int(self.links[0]["sample_rate_hz"])
        self.samples, self.channels = int(self.links[0]["samples"]), int(self.links[0]["channels"])
        ahead = int(self.attributes["start_tai_ns"]) - int(self.attributes["start_utc_ns"])
        self.tai_minus_utc_ns = int(self.attributes.get("tai_minus_utc_s", round(ahead / 1e9))) * 10**9

    def missing_mask(self, link):
        """Returns (row, sample, channel): samples of which some bit is in a missing packet."""
        mask = np.zeros((len(self.tables[link]), self.samples * self.channels), bool)
        for row, packet in zip(*np.nonzero(~self.presence(link))):
            start, end = packet * PACKET * 8, (packet + 1) * PACKET * 8
            mask[row, start // self.bits_per_sample : -(-end // self.bits_per_sample)] = True
        size = int(self.links[link]["sample_bytes"])
        ends = np.minimum(np.arange(1, self.presence(link).shape[1] + 1) * PACKET, size)
        for row, present in enumerate(self.presence(link)):
            # A source that ended within a packet: the rest of that packet is padding.
            padding = int(np.diff(ends, prepend=0)[present].sum()) - int(self.tables[link]["valid_bytes"][row])
            if padding > 0:
                end = int(ends[present].max())
                mask[row, (end - padding) * 8 // self.bits_per_sample : end * 8 // self.bits_per_sample] = True
        mask[self.tables[link]["state"] == 0] = True
        return mask.reshape(-1, self.samples, self.channels)

    def iterate_shots(self, link):
        """Yields (number, stamp, samples, missing, state) of every row."""
        mask, table = self.missing_mask(link), self.tables[link]
        for row, number in enumerate(self.numbers(link)):
            yield number, int(table["stamp_tai_ns"][row]), self.rf[link][row], mask[row], int(table["state"][row])

    def side_by_side(self):
        """Returns number -> (samples, missing) over all links; a link without the shot is missing entirely."""
        out = {}
        for link in range(len(self.links)):
            for number, _, samples, missing, _ in self.iterate_shots(link):
                nothing = np.zeros((self.samples, self.channels * len(self.links)), np.int16)
                joined, missing_there = out.setdefault(number, (nothing, np.ones_like(nothing, bool)))
                part = np.s_[:, link * self.channels : (link + 1) * self.channels]
                joined[part], missing_there[part] = samples, missing
        return out


def export(path, to, *arguments, **options):
    return run("export", path, to, "--json", *arguments, **options).succeeded()


def import_file(path, to, *arguments, **options):
    return run("import", path, to, "--json", *arguments, **options).succeeded()


def zea(what, path, npz):
    """Runs zea's own code in a separate process and returns its last line of output."""
    script = Path(__file__).with_name("zea_file.py")
    done = subprocess.run(
        [sys.executable, script, what, path, npz], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] if done.stdout else ""


def run_with_memory_limit(limit, *arguments):
    """Runs the program, which must succeed, with a limit on its own memory in bytes (RLIMIT_DATA)."""
    command = ["prlimit", f"--data={limit}", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False, env=os.environ)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done
