"""Possible contents of a drive after a kill or a power cut, derived from the log of a `FaultDrive`.

After a **kill** every completed write is present; of a write in flight, any subset of its sectors.

After a **power cut** everything is present that a completed sync covered: writes to a file that ended before its
fsync or fdatasync began, and name changes made before the sync of the folder. Of the rest,

- each write, including later ones, is present, absent, or torn at sectors of 512 bytes, in any combination. A sector
  holds one of the states that it went through, never a mixture: a page cache and a drive write sectors, not bytes;
- a file has one of the sizes that it went through since its last sync;
- names are as they were after one of the changes since the last sync of the folder: file systems keep these in order.
"""

import random
import struct
import zlib

import h5py
from faultfs import SECTOR, Disk

TORN = (0.0, 0.0, 0.3)  # probability that a write is torn
PRESENT = (0.0, 0.1, 0.5, 0.9, 1.0)  # probability that a write is present


class Replay:
    """A log replayed moment by moment; moments must be requested in ascending order."""

    def __init__(self, log):
        self.log = log
        self.now = log.before.copy()  # all completed changes
        self.durable = log.before.copy()  # all changes that a sync covered
        self.pending = []  # changes completed since their last sync, in order
        self.ended = 0
        self.moment = -1

    def forward(self, moment):
        """Advances to just after this moment."""
        assert moment >= self.moment, "a log is replayed forwards"
        self.moment = moment
        while self.ended < len(self.log.ops) and self.log.ops[self.ended].end <= moment:
            op = self.log.ops[self.ended]
            self.ended += 1
            if op.kind in ("sync", "syncdir"):
                self._sync(op)
            else:
                self.now.apply(op)
                self.pending.append(op)

    def _sync(self, sync):
        kept = []
        for op in self.pending:
            covered = sync.kind == "syncdir" if op.names else (sync.kind == "sync" and op.file == sync.file)
            if covered and op.end < sync.begin:
                self._make_durable(op)
            else:
                kept.append(op)
        self.pending = kept

    def _make_durable(self, op):
        # A file may be synced before its name is.
        if not op.names:
            self.durable.files.setdefault(op.file, bytearray())
        self.durable.apply(op)

    def in_flight(self):
        """Returns the changes that had begun and not ended."""
        return [op for op in self.log.ops[self.ended :] if op.begin <= self.moment]

    def killed(self, seed):
        """Returns the contents after a kill at this moment."""
        rng = random.Random(f"kill {self.moment} {seed}")
        disk = self.now.copy()
        for op in self.in_flight():
            if op.kind in ("write", "zero"):
                apply_sectors(disk, op, torn(op, rng))
            elif rng.random() < 0.5:
                disk.apply(op)
        return disk

    def cut(self, seed):
        """Returns possible contents after a power cut at this moment."""
        rng = random.Random(f"cut {self.moment} {seed}")
        disk = self.durable.copy()
        pending = self.pending + self.in_flight()
        names = [op for op in pending if op.names]
        for op in names[: rng.randint(0, len(names))]:
            disk.apply(op)
        present, tear = rng.choice(PRESENT), rng.choice(TORN)
        for file in {op.file for op in pending if not op.names}:
            ops = [op for op in pending if op.file == file and not op.names and op.kind not in ("sync", "syncdir")]
            cut_file(disk, file, ops, present, tear, rng)
        return disk


def cut_file(disk, file, ops, present, tear, rng):
    data = disk.files.setdefault(file, bytearray())
    sizes = [len(data)]
    last = {}  # sector -> index of the last operation that reached it
    for index, op in enumerate(ops):
        after = op.size if op.kind == "size" else max(sizes[-1], op.at + op.size) if op.kind == "write" else sizes[-1]
        sizes.append(after)
        if op.kind == "size" or rng.random() >= present:
            continue
        for sector in torn(op, rng) if rng.random() < tear else sectors(op):
            last[sector] = index
    # Bytes beyond the chosen size are removed at the end, not before a write has stored them.
    disk.files[file] = data
    for index, op in enumerate(ops):
        if op.kind != "size":
            apply_sectors(disk, op, [sector for sector in sectors(op) if last.get(sector, -1) >= index])
    size = rng.choice((sizes[0], sizes[-1], rng.choice(sizes)))
    del data[size:]
    data.extend(bytes(size - len(data)))


def sectors(op):
    return range(op.at // SECTOR, (op.at + op.size - 1) // SECTOR + 1)


def torn(op, rng):
    """Returns some of the sectors of a write."""
    share = rng.random()
    return [sector for sector in sectors(op) if rng.random() < share]


def apply_sectors(disk, op, chosen):
    """Applies those parts of a write that lie in these sectors."""
    data = disk.files[op.file]
    for sector in chosen:
        begin, end = max(op.at, sector * SECTOR), min(op.at + op.size, (sector + 1) * SECTOR)
        if len(data) < end and op.kind == "write":
            data.extend(bytes(end - len(data)))
        end = min(end, len(data))
        part = op.data[begin - op.at : end - op.at] if op.kind == "write" else bytes(end - begin)
        data[begin:end] = part


# --- recordings --------------------------------------------------------------------------------------


def open_image(data):
    """Opens a recording in memory with h5py."""
    return h5py.File(h5py.h5f.open_file_image(bytes(data)))


class Shots:
    """Every shot that a run passed to the drive, with the expected contents of its slot and its table row."""

    def __init__(self, log, name):
        disk = log.before.copy()
        for op in log.ops:
            disk.apply(op)
        self.file = disk.names[name]
        self.end = bytes(disk.files[self.file])
        with open_image(self.end) as file:
            self.recycled = bool(file.attrs.get("recycled", 0))
            tables = [file[f"link{index}/shots"] for index in range(int(file.attrs["links"]))]
            # The tables of a killed run are still at the offsets of the layout.
            self.tables = [(t.id.get_chunk_info(0).byte_offset, t.dtype.itemsize) for t in tables if len(t)]
            links = [dict(file[f"link{index}"].attrs) for index in range(int(file.attrs["links"]))]
            first = file["rf"] if "rf" in file else file["link0/rf"]
            self.data_start = first.id.get_chunk_info_by_coord((0,) * 3).byte_offset
        self.slots = []  # (link, row, op, number or None)
        links_at = {}  # offset within a row -> (link, slot bytes, record offset)
        offset = 0
        for index, link in enumerate(links):
            links_at[offset] = index, int(link["slot_bytes"]), int(link["record_offset"])
            offset += int(link["slot_bytes"])
        for op in log.ops:
            if op.kind != "write" or op.file != self.file or op.at < self.data_start:
                continue
            row, within = divmod(op.at - self.data_start, offset)
            link, size, record = links_at.get(within, (None, 0, 0))
            if op.size == size:
                self.slots.append((link, row, op, shot_number(op.data, record)))

    def complete_shots(self, data):
        """Returns (link, number) of every verified shot whose bytes are all present.

        In a recycled file, where slots hold shots of an older run, the shot's row must be present too.
        """
        data = memoryview(data)
        return {
            (link, number)
            for link, row, op, number in self.slots
            if number is not None
            and data[op.at : op.at + op.size] == op.data
            and (not self.recycled or self._has_row(data, link, row))
        }

    def _has_row(self, data, link, row):
        start, size = self.tables[link]
        entry = slice(start + row * size, start + (row + 1) * size)
        return any(self.end[entry]) and data[entry] == self.end[entry]


def shot_number(slot, record_offset):
    """Returns the number in a slot's end-of-shot record; None if its CRC does not match."""
    record = slot[record_offset : record_offset + 64]
    is_valid = record[:4] == b"SHOT" and zlib.crc32(slot[: record_offset + 60]) == struct.unpack("<I", record[60:])[0]
    return struct.unpack_from(">Q", record, 8)[0] if is_valid else None


def final_disk(log):
    """Returns the final contents of the drive."""
    disk = log.before.copy()
    for op in log.ops:
        disk.apply(op)
    return disk


__all__ = ["Disk", "Replay", "Shots", "final_disk", "open_image"]
