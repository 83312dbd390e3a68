"""`shotline target` as a process, and `shotline perf` against it."""

import json
import os
import select

from common import Process, run

ROCE = 4791
CAUSES = ["wrong_token", "wrong_version", "malformed", "slow", "displaced", "closed_by_peer"]


class Target(Process):
    """`shotline target` on ports of the kernel's choice; over shared memory it has neither a port nor an address."""

    def __init__(self, *arguments, bind="127.0.0.1:0", listen="127.0.0.1:0"):
        transport = arguments[arguments.index("--transport") + 1] if "--transport" in arguments else ""
        bind_flags = () if "shm" in transport else ("--bind", bind)
        super().__init__("target", *bind_flags, "--listen", listen, "--json", *arguments)
        self.token = self.memory = self.address = None
        self.buffer = b""
        while self.address is None:
            line = self.popen.stderr.readline()  # an empty line: the target did not start
            if not line:
                self.popen.kill()
                raise AssertionError(f"the target did not start: {self.popen.communicate()[1]}")
            word, last = line.split()[0], line.split()[-1]
            if word == "token":
                self.token = last
            if word == "memory":
                self.memory = last
            if word == "target":
                self.address = last

    def reports(self):
        """Returns its JSON lines since the last call, for a target with --every."""
        while select.select([self.popen.stdout], [], [], 0)[0] and (data := os.read(self.popen.stdout.fileno(), 65536)):
            self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def end_report(self):
        """Ends the target in order and returns its last report, whose counters balance."""
        ended = self.interrupt()
        assert ended.code == 0, ended.stderr
        report = json.loads((self.buffer.decode() + ended.stdout).splitlines()[-1])
        assert report["kind"] == "end" and report["balanced"] is True, report
        control = report["control"]
        assert control["accepted"] == control["welcomed"] + sum(control[cause] for cause in CAUSES), control
        dropped = sum(report["endpoint"]["drops"].values())
        assert report["endpoint"]["packets_in"] == report["queue_pairs"]["packets_in"] + dropped, report
        return report


def perf(target, *arguments, **options):
    to = () if target is None else ("--to", target.address, "--token", target.token)
    return run("perf", *arguments, *to, **options)


def region(report, name):
    (found,) = [region for region in report["regions"] if region["name"] == name]
    return found
