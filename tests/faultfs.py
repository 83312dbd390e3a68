"""A FUSE file system that logs every change and fails on demand: a model of a recorder's drive.

    with FaultDrive(folder) as drive:      # mounts it there; needs root and /dev/fuse
        ...                                # any program writes below `folder`
        drive.fail(3)                      # the third write from now gets an I/O error
        drive.stall(0.5)                   # nothing completes for half a second
    log = drive.log()                      # what happened, in order, with its data

It is one flat folder, held in memory, in a separate process (a reader in this process would wait for itself). It
implements the kernel's protocol (include/uapi/linux/fuse.h) instead of using libfuse, whose threads would reorder the
log, and which admits one write at a time into a file: here as many writes are in flight as the kernel submits, each
completes when the drive decides, and the log has both moments. The kernel caches no file data (FOPEN_DIRECT_IO), so
every write of a program, direct or not, arrives here as the program issued it.
"""

import ctypes
import enum
import errno
import heapq
import os
import random
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

# A drive has its next write queued before the last one completes. Here the next write arrives only afterwards, poll has
# a resolution of milliseconds, and this process may wait for a processor. At a limited speed, idle times up to this
# many seconds therefore do not count.
MAX_QUEUE_GAP_S = 0.2
MAX_WRITE_BYTES = 1 << 20
SECTOR = 512
BLOCK = 4096


# --- the log -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Op:
    """One change or sync. `begin` and `end` are indices of moments in the log: arrival and completion."""

    kind: str  # create write zero size sync rename unlink syncdir
    file: int = 0
    at: int = 0
    size: int = 0  # write and zero: bytes; size: the new size of the file
    data: bytes = b""
    names: tuple = ()
    begin: int = -1
    end: int = -1


@dataclass
class Log:
    """All changes of a drive since `before`, in the order of their completion."""

    before: "Disk"
    ops: list[Op]
    moments: int

    def of(self, kind, **where):
        return [op for op in self.ops if op.kind == kind and all(getattr(op, k) == v for k, v in where.items())]


class Disk:
    """Names and bytes on a drive at some moment."""

    def __init__(self):
        self.names = {}
        self.files = {}

    def copy(self):
        other = Disk()
        other.names = dict(self.names)
        other.files = {file: bytearray(data) for file, data in self.files.items()}
        return other

    def read(self, name):
        """Returns the bytes of a file; None if there is no such name."""
        return bytes(self.files[self.names[name]]) if name in self.names else None

    def put(self, name, data):
        file = self.names.setdefault(name, max(self.files, default=1) + 1)
        self.files[file] = bytearray(data)

    def apply(self, op):
        match op.kind:
            case "create":
                self.names[op.names[0]] = op.file
                self.files.setdefault(op.file, bytearray())
            case "write":
                data = self.files[op.file]
                if len(data) < op.at:
                    data.extend(bytes(op.at - len(data)))
                data[op.at : op.at + op.size] = op.data
            case "zero":
                data = self.files[op.file]
                end = min(op.at + op.size, len(data))
                data[op.at : end] = bytes(max(end - op.at, 0))
            case "size":
                data = self.files[op.file]
                del data[op.size :]
                data.extend(bytes(op.size - len(data)))
            case "rename":
                self.names[op.names[1]] = self.names.pop(op.names[0])
            case "unlink":
                del self.names[op.names[0]]


# --- interface for tests -----------------------------------------------------------------------------


def skip_if_impossible():
    """Skips the test where nothing can be mounted."""
    import pytest  # not needed by the server process

    if os.geteuid() != 0:
        pytest.skip("needs root (to mount a file system that logs writes): run the tests as root to have this proven")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("needs /dev/fuse: without a log of writes nothing here is proven")


class FaultDrive:
    """The file system, mounted on an empty folder for the duration of a `with`."""

    def __init__(self, folder, capacity=1 << 30, seed=0):
        self.folder, self.capacity, self.seed = folder, capacity, seed

    def __enter__(self):
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        words = [sys.executable, __file__, self.folder, theirs.fileno(), self.capacity, self.seed]
        self.process = subprocess.Popen(list(map(str, words)), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.connection = ours
        try:
            self._call("mounted")
        except EOFError:
            self.process.wait(10)
            raise OSError(f"cannot mount a FUSE file system on {self.folder}") from None
        return self

    def __exit__(self, *_):
        self.connection.close()
        code = self.process.wait(120)
        assert code == 0, f"the file system ended with {code}"

    def _call(self, what, *arguments):
        self.connection.send((what, arguments))
        return self.connection.recv()

    def put(self, name, data):
        """Stores a durable file and starts a new log."""
        self._call("put", name, data)

    def log(self):
        """Returns the log so far."""
        return self._call("get_log")

    def fail(self, nth=1, count=1, min_bytes=1, max_bytes=MAX_WRITE_BYTES):
        """Makes `count` writes of `min_bytes` to `max_bytes` bytes fail with EIO, from the n-th such write from now on.

        Half of the bytes of each are written.
        """
        self._call("fail", nth, count, min_bytes, max_bytes)

    def full_from(self, byte):
        """Makes writes beyond this byte of a file fail with ENOSPC; None ends this."""
        self._call("full_from", byte)

    def stall(self, seconds=None):
        """Completes no write and no sync for this time, or until `release`."""
        self._call("stall", seconds)

    def release(self):
        self._call("stall", 0)

    def speed(self, bytes_per_second):
        """Completes writes one after the other at this speed; None: without delay."""
        self._call("speed", bytes_per_second)

    def counts(self):
        """Returns the completed writes, their bytes, and the maximum number of writes in flight."""
        return self._call("counts")


# --- the protocol ------------------------------------------------------------------------------------

HEADER_IN = struct.Struct("<IIQQIIIHH")
HEADER_OUT = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
INIT_BIG_WRITES, INIT_MAX_PAGES = 1 << 5, 1 << 22
OPEN_DIRECT_IO, OPEN_PARALLEL_DIRECT_WRITES = 1 << 0, 1 << 6
SET_MODE, SET_SIZE = 1 << 0, 1 << 3
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
RENAME_NOREPLACE = 1
ROOT = 1
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2


class Opcode(enum.IntEnum):
    """Request codes of the kernel."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    UNLINK = 10
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45


class FuseError(Exception):
    """A request that is answered with an error number."""


class Server:
    """Serves the requests of the kernel and the commands of the tests."""

    def __init__(self, folder, connection, capacity, seed):
        self.connection, self.capacity = connection, capacity
        self.random = random.Random(seed)
        self.modes = {}
        self.disk = Disk()
        self.next_file = ROOT + 1
        self.begin_log()
        self.pending = []  # (completion time, a random number, a unique count that breaks ties, request, op, answer)
        self.count = self.ended = self.ended_bytes = self.max_in_flight = 0
        self.failing = None  # [writes until the first failure, failures, minimum bytes, maximum bytes]
        self.full_at = self.bytes_per_second = None
        self.stalled_until = self.busy_until = 0.0
        self.start_time_s = int(time.time())
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        self.folder = os.fsencode(folder)
        self.libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
        if self.libc.mount(b"faultfs", self.folder, b"fuse", MS_NOSUID | MS_NODEV, options.encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount: {os.strerror(ctypes.get_errno())}")

    def run(self):
        poll = select.poll()
        poll.register(self.device, select.POLLIN)
        poll.register(self.connection.fileno(), select.POLLIN)
        try:
            while True:
                ready = dict(poll.poll(self.poll_timeout_ms()))
                if self.connection.fileno() in ready:
                    what, arguments = self.connection.recv()
                    self.connection.send(getattr(self, f"command_{what}")(*arguments))
                if self.device in ready:
                    self.serve()
                self.complete_finished()
        except EOFError:
            pass
        finally:
            self.libc.umount2(self.folder, MNT_DETACH)

    def poll_timeout_ms(self):
        """Returns the milliseconds until the next completion."""
        if not self.pending:
            return None
        return max(0.0, min(max(self.pending[0][0], self.stalled_until) - time.monotonic(), 1e6)) * 1000

    # Commands of the tests.

    def begin_log(self):
        self.ops, self.moments, self.before = [], 0, self.disk.copy()

    def command_mounted(self):
        return True

    def command_put(self, name, data):
        self.disk.put(name, data)
        self.next_file = max(self.disk.files) + 1
        self.begin_log()

    def command_get_log(self):
        return Log(self.before, list(self.ops), self.moments)

    def command_fail(self, nth, count, min_bytes, max_bytes):
        self.failing = [nth, count, min_bytes, max_bytes]

    def command_full_from(self, byte):
        self.full_at = byte

    def command_stall(self, seconds):
        self.stalled_until = float("inf") if seconds is None else time.monotonic() + seconds

    def command_speed(self, bytes_per_second):
        self.bytes_per_second = bytes_per_second

    def command_counts(self):
        return self.ended, self.ended_bytes, self.max_in_flight

    # Requests of the kernel.

    def serve(self):
        """Serves all pending requests."""
        while True:
            try:
                raw = os.read(self.device, MAX_WRITE_BYTES + BLOCK)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                    return
                raise
            _, opcode, unique, node, *_ = HEADER_IN.unpack_from(raw)
            try:
                answer = self.request(opcode, unique, node, memoryview(raw)[HEADER_IN.size :])
            except FuseError as error:
                self.reply(unique, b"", error.args[0])
            else:
                if answer is not None:
                    self.reply(unique, answer)

    def reply(self, unique, data, error=0):
        try:
            os.write(self.device, HEADER_OUT.pack(HEADER_OUT.size + len(data), -error, unique) + data)
        except FileNotFoundError:
            pass  # the requesting process was killed

    def request(self, opcode, unique, node, body):
        """Returns the bytes of the answer; None if it comes later or never."""
        match opcode:
            case Opcode.INIT:
                _, minor, readahead, _ = struct.unpack_from("<4I", body)
                flags = INIT_BIG_WRITES | INIT_MAX_PAGES
                sizes = (64, 48, MAX_WRITE_BYTES, 1, MAX_WRITE_BYTES // BLOCK, 0)
                return struct.pack("<4I2H2I2H8I", 7, min(minor, 31), readahead, flags, *sizes, *[0] * 8)
            case Opcode.LOOKUP:
                return self.entry(self.file_named(text(body)))
            case Opcode.GETATTR:
                return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
            case Opcode.SETATTR:
                valid, _, _, size = struct.unpack_from("<IIQQ", body)
                if valid & SET_MODE:
                    self.modes[node] = struct.unpack_from("<I", body, 68)[0] & 0o7777
                if valid & SET_SIZE:
                    self.apply_now(Op("size", node, size=size))
                return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
            case Opcode.CREATE:
                _, mode, _, _ = struct.unpack_from("<4I", body)
                file, self.next_file = self.next_file, self.next_file + 1
                self.modes[file] = mode & 0o7777
                self.apply_now(Op("create", file, names=(text(body[16:]),)))
                return self.entry(file) + OPENED
            case Opcode.OPEN | Opcode.OPENDIR:
                return OPENED
            case Opcode.UNLINK:
                self.file_named(text(body))
                self.apply_now(Op("unlink", names=(text(body),)))
                return b""
            case Opcode.RENAME | Opcode.RENAME2:
                flags = struct.unpack_from("<QI", body)[1] if opcode == Opcode.RENAME2 else 0
                names = bytes(body[16 if opcode == Opcode.RENAME2 else 8 :]).split(b"\0")
                old, new = (os.fsdecode(name) for name in names[:2])
                if flags & ~RENAME_NOREPLACE:
                    raise FuseError(errno.EINVAL)
                if flags and new in self.disk.names:
                    raise FuseError(errno.EEXIST)
                self.apply_now(Op("rename", self.file_named(old), names=(old, new)))
                return b""
            case Opcode.READ:
                _, at, size = struct.unpack_from("<QQI", body)
                return bytes(self.disk.files[node][at : at + size])
            case Opcode.WRITE:
                _, at, size = struct.unpack_from("<QQI", body)
                return self.write(unique, node, at, bytes(body[40 : 40 + size]))
            case Opcode.FALLOCATE:
                _, at, length, mode, _ = struct.unpack_from("<QQQII", body)
                return self.allocate(node, at, length, mode)
            case Opcode.FSYNC | Opcode.FSYNCDIR:
                return self.enqueue(unique, Op("sync" if opcode == Opcode.FSYNC else "syncdir", node), b"")
            case Opcode.READDIR:
                _, offset, size = struct.unpack_from("<QQI", body)
                return self.listing(offset, size)
            case Opcode.STATFS:
                free = (self.capacity - self.used()) // BLOCK
                blocks = self.capacity // BLOCK
                return struct.pack("<5Q4I24x", blocks, free, free, 1 << 20, 1 << 20, BLOCK, 255, BLOCK, 0)
            case Opcode.RELEASE | Opcode.RELEASEDIR | Opcode.FLUSH:
                return b""
            case Opcode.FORGET | Opcode.BATCH_FORGET | Opcode.INTERRUPT | Opcode.DESTROY:  # no answer
                return None
        raise FuseError(errno.ENOSYS)

    def file_named(self, name):
        if name not in self.disk.names:
            raise FuseError(errno.ENOENT)
        return self.disk.names[name]

    def used(self):
        return sum(len(self.disk.files[file]) for file in self.disk.names.values())

    def attributes(self, node):
        size = len(self.disk.files.get(node, b""))
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | self.modes.get(node, 0o644)
        times = [self.start_time_s] * 3 + [0] * 3
        links = sum(file == node for file in self.disk.names.values())
        owner = (os.getuid(), os.getgid())
        blocks = -(-size // SECTOR)
        return ATTRIBUTES.pack(node, size, blocks, *times[:3], *times[3:], mode, links, *owner, 0, BLOCK, 0)

    def entry(self, node):
        return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + self.attributes(node)

    def listing(self, offset, size):
        entries = [(".", ROOT), ("..", ROOT), *self.disk.names.items()]
        out = b""
        for index, (name, node) in enumerate(entries[offset:], offset + 1):
            name = os.fsencode(name)
            entry = struct.pack("<QQII", node, index, len(name), 4 if node == ROOT else 8) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    # Changes.

    def apply_now(self, op):
        """Applies a change at once."""
        self.begin(op)
        self.end(op)

    def begin(self, op):
        op.begin, self.moments = self.moments, self.moments + 1

    def end(self, op):
        op.end, self.moments = self.moments, self.moments + 1
        self.disk.apply(op)
        self.ops.append(op)

    def write(self, unique, node, at, data):
        if self.full_at is not None and at + len(data) > self.full_at:
            raise FuseError(errno.ENOSPC)
        error = 0
        if self.failing and self.failing[2] <= len(data) <= self.failing[3]:
            self.failing[0] -= 1
            if self.failing[0] <= 0:
                error = errno.EIO
                self.failing[1] -= 1
                data = data[: len(data) // 2 // SECTOR * SECTOR]
                if self.failing[1] == 0:
                    self.failing = None
        op = Op("write", node, at, len(data), data)
        return self.enqueue(unique, op, struct.pack("<II", len(data), 0), error)

    def allocate(self, node, at, length, mode):
        size = len(self.disk.files[node])
        if self.used() - size + max(size, at + length) > self.capacity:
            raise FuseError(errno.ENOSPC)
        if mode & ~(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE):
            raise FuseError(errno.EOPNOTSUPP)
        if mode & (PUNCH_HOLE | ZERO_RANGE):
            self.apply_now(Op("zero", node, at, length))
        if not mode & KEEP_SIZE and at + length > size:
            self.apply_now(Op("size", node, size=at + length))
        return b""

    def enqueue(self, unique, op, answer, error=0):
        """Enqueues a write or sync.

        Those in flight complete in random order, or at a limited speed one after the other.
        """
        self.begin(op)
        finish = 0.0
        if self.bytes_per_second:
            now, free = time.monotonic(), max(self.busy_until, self.stalled_until)
            if now - free > MAX_QUEUE_GAP_S:
                free = now
            finish = self.busy_until = free + op.size / self.bytes_per_second
        self.count += 1
        heapq.heappush(self.pending, (finish, self.random.random(), self.count, unique, op, answer, error))
        self.max_in_flight = max(self.max_in_flight, sum(entry[4].kind == "write" for entry in self.pending))

    def complete_finished(self):
        now = time.monotonic()
        while self.pending and now >= max(self.pending[0][0], self.stalled_until):
            *_, unique, op, answer, error = heapq.heappop(self.pending)
            self.end(op)
            if op.kind == "write":
                self.ended, self.ended_bytes = self.ended + 1, self.ended_bytes + op.size
            self.reply(unique, b"" if error else answer, error)


OPENED = struct.pack("<QII", 0, OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES, 0)


def text(raw):
    return os.fsdecode(bytes(raw).split(b"\0")[0])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Its objects are pickled for the tests, which import this module as `faultfs`.
    import faultfs

    folder, channel, capacity, seed = sys.argv[1:]
    faultfs.Server(folder, Connection(int(channel)), int(capacity), int(seed)).run()
