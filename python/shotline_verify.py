#!/usr/bin/env python3
"""Verifies a Shotline recording with h5py and numpy alone.

It shares no code with the recorder: samples are read with HDF5's own filters, the end-of-shot records are checked
with zlib's CRC-32 over the raw chunks, and test patterns are generated from their definition. The file format is in
docs/file-format.md. Compressed recordings need hdf5plugin, too.

    shotline_verify.py FILE [--no-pattern] [--rows N]

FILE is one file, or the master of a run of several files, which verifies every part through the master.

Prints one JSON object; the exit code is 0 if the file is consistent, 1 if it is not, 2 if it cannot be read.
"""

import argparse
import json
import struct
import sys
import zlib
from functools import lru_cache
from pathlib import Path

import h5py
import numpy as np

LOST, PARTIAL, COMPLETE = 0, 1, 2
NEVER_ARRIVED = ("wire_gap", "overrun")
NO_NUMBER = 2**64 - 1
WHOLE_RUN = 0xFFFFFFFF
DESCRIPTION_BYTES = 192  # a digitizer's description of its block, before the end-of-shot record
RECORD = struct.Struct(">4sBBBBQQIIIIHHI12s")
MASK = (1 << 64) - 1
BITSHUFFLE = 32008
BATCH_BYTES = 8 << 20  # samples per read


@lru_cache(maxsize=256)
def prbs(stream, pattern, channels, samples, bits):
    """Returns the test pattern of one shot: (samples, channels) int16. The most recent ones are cached."""
    state = np.empty(channels, np.uint32)
    for channel in range(channels):
        s = (stream * 0xBF58476D1CE4E5B9 + pattern * 0x9E3779B97F4A7C15 + channel * 0x94D049BB133111EB) & MASK
        z = ((s ^ (s >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        state[channel] = (z >> 32) or 1
    out = np.empty((samples, channels), np.int16)
    for sample in range(samples):
        state ^= state << np.uint32(13)
        state ^= state >> np.uint32(17)
        state ^= state << np.uint32(5)
        out[sample] = state.view(np.int32) >> (32 - bits)
    out.flags.writeable = False
    return out


def cut(about):
    """Returns the begin and end of each packet of a shot: `first` bytes, then pieces of `packet_bytes`, then the rest.

    A trailer with `separate_trailer` has its own packet, after padding that is not sent.
    """
    # The receiver writes the contents of context packets after the samples; they are in no data packet.
    end = about["sample_bytes"] if about["separate_trailer"] or about["trailer"] == "context" else about["shot_bytes"]
    begins = [0, *range(about["first"], end, about["packet_bytes"])]
    pieces = [(begin, min(after, end)) for begin, after in zip(begins, [*begins[1:], end], strict=True)]
    return pieces + ([(about["trailer_offset"], about["shot_bytes"])] if about["separate_trailer"] else [])


def packets_of_samples(about):
    """Returns the indexes of the packets with the first and the last bit of each sample."""
    width = (16, 12, 8, 16)[about["packing"]]
    bit = np.arange(about["samples"] * about["channels"], dtype=np.int64) * width
    begins = np.array([begin for begin, _ in about["cut"]])
    return [np.searchsorted(begins, at // 8, side="right") - 1 for at in (bit, bit + width - 1)]


def filters(dataset):
    """Returns the ids of a dataset's filters in their order."""
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]


def packed(samples, packing):
    """Returns samples in the packing of the wire."""
    if packing == 0:
        return samples.astype("<i2").tobytes()
    if packing == 3:
        return samples.astype(">i2").tobytes()
    if packing == 2:
        return samples.astype("u1").tobytes()
    pairs = samples.reshape(-1, 2).astype(np.uint16) & 0xFFF
    first, second = pairs[:, 0], pairs[:, 1]
    return np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype("u1").tobytes()


def bytes_after_samples(raw, samples, element):
    """Returns the bytes after the samples in a compressed chunk, skipping its blocks without decompressing them."""
    at = 12
    block = struct.unpack(">I", raw[8:12])[0] // element
    whole = samples - samples % 8
    for first in range(0, whole, block):
        at += 4 + struct.unpack(">I", raw[at : at + 4])[0]
    return raw[at + (samples - whole) * element :]


class Verifier:
    """Verifies one recording and collects the mismatches."""

    def __init__(self, file, pattern, rows):
        self.file = file
        self.mismatches = 0
        self.first_mismatches = []
        self.period = int(file.attrs.get("test_pattern_period", 0)) if pattern else 0
        self.limit = rows
        # The master of a run of several files: its datasets are virtual, and each row is stored in a part.
        self.is_master = "parts" in file.attrs
        self.locations = {}  # dataset and row of each row of the master, by dataset name
        self.opened = {}  # files of the run, by name
        self.datasets = {}  # of samples, by link
        self.codecs = {}  # True for each dataset with compressed chunks
        # Packets of these framings have no CRC.
        self.sealed = file.attrs.get("framing") not in ("udp", "spead", "digitizer", "vita49")

    def mismatch(self, text):
        """Counts a mismatch, and keeps the texts of the first 20."""
        self.mismatches += 1
        if len(self.first_mismatches) < 20:
            self.first_mismatches.append(text)

    def run(self):
        """Verifies the file and returns the verdict.

        Raises:
            ValueError: If the file is not a recording, or hdf5plugin is missing.
            KeyError: If a dataset or an attribute is missing.
            OSError: If the file cannot be read.
        """
        file = self.file
        if file.attrs.get("format") != "shotline" or file.attrs.get("format_version") != 2:
            raise ValueError("expected the attributes format = shotline and format_version = 2")
        try:
            import hdf5plugin  # noqa: F401  (registers the filters with HDF5)
        except ImportError:
            if BITSHUFFLE in filters(file["rf"] if "rf" in file else file["link0/rf"]):
                raise ValueError("its chunks are compressed: pip install hdf5plugin") from None
        links = [self.link(index) for index in range(int(file.attrs["links"]))]
        row_counts = {link["rows"] for link in links} | ({file["rf"].shape[0]} if "rf" in file else set())
        # While a run is in progress, a master may show rows that one of its drives has not written yet.
        if len(row_counts) != 1 and not (self.is_master and not file["counters"].shape[0]):
            self.mismatch("/rf and the links differ in their number of rows")
        self.counters(links)
        if self.is_master and not self.limit:
            self.parts()
        for part in self.opened.values():
            part.close()
        return {
            "verified": self.mismatches == 0,
            "finished": file["counters"].shape[0] > 0,
            "pattern": self.period > 0,
            "links": links,
            "lost_shots": int(sum(int(loss["count"]) for loss in file["losses"][...])),
            "mismatches": self.mismatches,
            "first_mismatches": self.first_mismatches,
        }

    def link(self, index):
        """Verifies the rows of a link and returns their counts."""
        group = self.file[f"link{index}"]
        about = {
            name: int(group.attrs[name])
            for name in (
                "stream",
                "channels",
                "samples",
                "bits",
                "packing",
                "sample_bytes",
                "record_offset",
                "shot_bytes",
                "slot_bytes",
                "packets",
                "packet_bytes",
            )
        }
        about["first"] = int(group.attrs["first_packet_bytes"])
        about["separate_trailer"] = bool(group.attrs["trailer_apart"])
        about["trailer"] = group.attrs["trailer"]
        described = DESCRIPTION_BYTES if about["trailer"] == "block" else 0
        about["trailer_offset"] = about["record_offset"] - described
        about["cut"] = cut(about)
        view = group["rf"]
        rows = view.shape[0]
        table = group["shots"][:rows]
        if len(table) < rows:
            self.mismatch(f"link {index}: {rows} shots, but {len(table)} rows in its table")
            rows = len(table)
        if self.is_master:
            absent = np.flatnonzero(table["packets"] == 0)
            rows = int(absent[0]) if len(absent) else rows
            table = table[:rows]
            if rows < len(view) and self.file["counters"].shape[0]:
                self.mismatch(f"link {index}: the run has ended, but row {rows} of the master is in no part")
        found = {
            "stream": about["stream"],
            "rows": rows,
            "complete": 0,
            "partial": 0,
            "lost": 0,
            "sink_error": 0,
            "records": 0,
            "pattern_packets": 0,
        }
        self.row_crcs(index, table)
        rows = min(rows, self.limit or rows)
        for row, samples in enumerate(self.samples(index, view, rows)):
            self.row(index, about, samples, row, table[row], found)
        if not self.limit:
            self.account(about["stream"], table)
        return found

    def row_crcs(self, link, table):
        """Checks each row's CRC-32, which covers the run's id and all fields of the row but the last."""
        plain = np.zeros(len(table), table.dtype)  # padding between fields is zero in the file, but undefined in memory
        for name in table.dtype.names:
            plain[name] = table[name]
        end = table.dtype.fields["row_crc32"][1]
        seed = zlib.crc32(self.file.attrs["run_id"].encode())
        for row in range(min(len(table), self.limit or len(table))):
            if zlib.crc32(plain[row].tobytes()[:end], seed) != table[row]["row_crc32"]:
                self.mismatch(f"row {row} of link {link}: the CRC-32 of its table row does not match")

    def samples(self, link, view, rows):
        """Yields the samples of each row, reading several rows at once; None for a row that HDF5 cannot read."""
        batch = max(1, BATCH_BYTES // max(1, view.dtype.itemsize * int(np.prod(view.shape[1:]))))
        for first in range(0, rows, batch):
            last = min(first + batch, rows)
            try:
                yield from view[first:last]
            except OSError:
                yield from (self.samples_of(link, view, row) for row in range(first, last))

    def samples_of(self, link, view, row):
        """Returns the samples of one row, None if HDF5 cannot read it."""
        try:
            return view[row]
        except OSError as error:
            self.mismatch(f"row {row} of link {link}: HDF5 cannot read it: {error}")
            return None

    def row(self, link, about, samples, row, entry, found):
        """Verifies one row against its bytes, samples and table entry, and counts it in `found`."""
        where = f"row {row} of link {link}, shot {entry['number']}"
        state = int(entry["state"])
        if state not in (LOST, PARTIAL, COMPLETE):
            self.mismatch(f"{where}: its state is unknown")
            return
        found[("lost", "partial", "complete")[state]] += 1
        if state == LOST and entry["sink_error"]:
            found["sink_error"] += 1
        if samples is None:
            return
        chunk = self.chunk(link, about, row, samples)
        if chunk is None:
            return
        present = np.unpackbits(entry["presence"], bitorder="little")[: about["packets"]].astype(bool)
        if entry["packets"] != about["packets"] or entry["placed"] != present.sum():
            self.mismatch(f"{where}: its packet counts do not match its presence map")
        if chunk[about["shot_bytes"] :].any():
            self.mismatch(f"{where}: bytes after the shot that are not zero")
        if state == LOST:
            if chunk.any() or samples.any():
                self.mismatch(f"{where}: it is lost, but not all zeros")
            return
        for packet in np.flatnonzero(~present):
            begin, end = about["cut"][packet]
            if chunk[begin:end].any():
                self.mismatch(f"{where}: packet {packet} is missing, but not all zeros")
        crc = entry["slot_crc32"]
        if crc and zlib.crc32(chunk[: about["shot_bytes"]].tobytes()) != crc:
            self.mismatch(f"{where}: the CRC-32 of its bytes does not match")
        good = bool(entry["record_good"])
        if (state == COMPLETE) != (bool(present.all()) and good):
            self.mismatch(f"{where}: its state contradicts its packets and record")
        if good and about["trailer"] in ("record", "block"):
            self.record(where, about, chunk, entry, found)
        elif good and about["trailer"] == "hsb_metadata":
            self.metadata(where, about, chunk, entry, found)
        # If the packets have no CRC, only a valid record validates their bytes.
        if self.period and (good or (self.sealed and not present.all())):
            self.compare(where, about, samples, present, int(entry["number"]) % self.period, found)

    def chunk(self, link, about, row, samples):
        """Returns the raw bytes of a slot, None if the chunk has an unexpected size.

        For a compressed chunk they are packed again from the samples that HDF5 has read, followed by the bytes that the
        chunk has after them.
        """
        dataset, stored_row, channel = self.stored(link, about, row)
        mask, raw = dataset.id.read_direct_chunk((stored_row, 0, channel))
        # Of the filters bitshuffle and n-bit, the second is skipped for a compressed chunk, the first for any other.
        if dataset not in self.codecs:
            self.codecs[dataset] = BITSHUFFLE in filters(dataset)
        has_codec = self.codecs[dataset]
        if has_codec and mask == 2:
            trailer_bytes = bytes_after_samples(raw, samples.size, samples.dtype.itemsize)
            slot = packed(samples, about["packing"]).ljust(about["trailer_offset"], b"\0") + trailer_bytes
            if len(slot) != about["shot_bytes"]:
                expected = f"{about['shot_bytes'] - about['trailer_offset']} bytes after the samples of its chunk"
                self.mismatch(f"row {row} of link {link}: expected {expected}, found {len(trailer_bytes)}")
                return None
            return np.frombuffer(slot.ljust(about["slot_bytes"], b"\0"), np.uint8)
        if mask != int(has_codec) or len(raw) != about["slot_bytes"]:
            expected = f"{about['slot_bytes']} stored bytes with the filter mask {int(has_codec)}"
            self.mismatch(f"row {row} of link {link}: expected {expected}, found {len(raw)} with {mask}")
            return None
        return np.frombuffer(raw, np.uint8)

    def stored(self, link, about, row):
        """Returns the dataset that stores a row of a link, and the row and the first channel there."""
        if link not in self.datasets:
            name, channel = ("rf", link * about["channels"]) if "rf" in self.file else (f"link{link}/rf", 0)
            self.datasets[link] = name, self.file[name], channel
        name, dataset, channel = self.datasets[link]
        return (*self.locate(name, row), channel) if self.is_master else (dataset, row, channel)

    def part(self, name):
        """Returns a part by its name in the master, searched where HDF5 searches it."""
        if name not in self.opened:
            folder = Path(self.file.filename).parent
            path = folder / name
            self.opened[name] = h5py.File(path if path.exists() else folder / Path(name).name, "r")
        return self.opened[name]

    def locate(self, name, row):
        """Returns the dataset of a part that stores a row of the master, and the row there."""
        if name not in self.locations:
            of_rows = {}
            for source in self.file[name].virtual_sources():
                (first, *_), (stride, *_), (count, *_), (block, *_) = source.vspace.get_regular_hyperslab()
                (first_stored, *_), *_ = source.src_space.get_regular_hyperslab()
                dataset = self.part(source.file_name)[source.dset_name]
                if count == h5py.h5s.UNLIMITED:
                    count = len(dataset) - first_stored
                else:
                    if source.src_space.get_select_npoints() != source.vspace.get_select_npoints():
                        self.mismatch(f"{name}: the mapping of {source.file_name} differs in the number of rows")
                    if count == 1:  # HDF5 merges adjacent rows into one block
                        count, stride = block, 1
                for index in range(count):
                    of_rows[first + index * stride] = (dataset, first_stored + index)
            self.locations[name] = of_rows
        return self.locations[name][row]

    def parts(self):
        """Checks that each file belongs to this run and counts its rows correctly, and that the parts are in order."""
        names, last = {}, -1
        for entry in self.file["parts"][...]:
            name = entry["file"].decode()
            part = self.part(name)
            names[name] = part
            if part.attrs["run_id"] != self.file.attrs["run_id"]:
                self.mismatch(f"{name} belongs to another run")
            if (int(part.attrs["part"]), int(part.attrs["stripe"])) != (int(entry["part"]), int(entry["stripe"])):
                self.mismatch(f"{name} is not the part that the master names")
            tables = [part[f"link{index}/shots"]["state"] for index in range(int(part.attrs["links"]))]
            totals = {row["name"].decode(): int(row["value"]) for row in part["counters"][...]}
            for state, word in enumerate(("lost", "partial", "complete")):
                found = sum(int((table == state).sum()) for table in tables)
                if totals and totals[f"rows_{word}"] != found:
                    self.mismatch(f"the counters of {name} and its rows disagree about rows_{word}")
            if int(entry["rows"]) and int(entry["stripe"]) == 0:
                if int(entry["first"]) <= last:
                    self.mismatch(f"{name} does not follow the part before it")
                last = int(entry["last"])

    def record(self, where, about, chunk, entry, found):
        """Checks the end-of-shot record and counts it in `found`."""
        at = about["record_offset"]
        raw = chunk[at : at + 64].tobytes()
        (crc,) = struct.unpack("<I", raw[60:])
        if zlib.crc32(chunk[: at + 60].tobytes()) != crc:
            self.mismatch(f"{where}: the CRC-32 of its record does not match")
            return
        (
            magic,
            version,
            packing,
            bits,
            flags,
            number,
            stamp,
            stream,
            _event,
            sample_bytes,
            samples,
            channels,
            packets,
            _rate,
            _zeros,
        ) = RECORD.unpack(raw[:60])
        actual = (magic, version, packing, bits, number, stamp, stream, sample_bytes, samples, channels, packets)
        expected = (
            b"SHOT",
            1,
            about["packing"],
            about["bits"],
            int(entry["number"]),
            int(entry["stamp_tai_ns"]),
            about["stream"],
            about["sample_bytes"],
            about["samples"],
            about["channels"],
            about["packets"],
        )
        if actual != expected:
            self.mismatch(f"{where}: expected the record {expected}, found {actual}")
        elif flags != entry["flags"]:
            self.mismatch(f"{where}: expected the flags {entry['flags']} in its record, found {flags}")
        else:
            found["records"] += 1

    def metadata(self, where, about, chunk, entry, found):
        """Checks the end-of-frame metadata of a sensor bridge, after the frame at the next multiple of 128."""
        at = about["record_offset"]
        flags, seconds, nanoseconds, valid = struct.unpack(">I8xQIQ", chunk[at : at + 32].tobytes())
        actual = (flags & 1, seconds * 10**9 + nanoseconds, valid)
        expected = (0, int(entry["stamp_tai_ns"]), about["sample_bytes"])
        if actual != expected:
            self.mismatch(f"{where}: expected metadata of {expected}, found {actual}")
        else:
            found["records"] += 1

    def compare(self, where, about, samples, present, number, found):
        """Compares the samples of the packets received with the test pattern."""
        pattern = prbs(about["stream"], number, about["channels"], about["samples"], about["bits"])
        # Only samples of which all packets arrived are compared.
        differs = samples != pattern.astype(samples.dtype, copy=False)  # 8-bit samples are stored unsigned
        if not present.all():
            if "packets_of_samples" not in about:
                about["packets_of_samples"] = packets_of_samples(about)
            first, last = about["packets_of_samples"]
            differs &= (present[first] & present[last]).reshape(differs.shape)
        differing = np.flatnonzero(differs)
        found["pattern_packets"] += int(present.sum())
        if len(differing):
            sample, channel = divmod(int(differing[0]), about["channels"])
            self.mismatch(
                f"{where}: {len(differing)} samples do not match pattern {number}, "
                f"the first is sample {sample} of channel {channel}"
            )

    def account(self, stream, table):
        """Checks that each number from first to last is in one row or one loss; a lost row may also be in a loss."""
        losses = [
            (int(loss["first"]), int(loss["count"])) for loss in self.file["losses"][...] if loss["stream"] == stream
        ]
        lost = np.concatenate(
            [np.arange(first, first + count, dtype=np.uint64) for first, count in losses] or [np.empty(0, np.uint64)]
        )
        # If rows are aligned by timestamps, the number of a link's missing shot is unknown.
        table = table[(table["state"] != LOST) | (table["number"] != NO_NUMBER)]
        numbers = table["number"]
        if not self.file["counters"].shape[0]:
            # The run is in progress or was interrupted: shots before a loss may not be visible yet, those before a row
            # are.
            lost = lost[lost <= numbers.max()] if len(numbers) else lost[:0]
        recorded = numbers[table["state"] != LOST]
        removed = self.file.attrs.get("ring_removed_last")
        if removed is not None:
            # Losses in removed parts of a bounded run were checked before the removal.
            lost = lost[lost > removed]
        if len(np.unique(numbers)) != len(numbers) or len(np.unique(lost)) != len(lost):
            self.mismatch(f"stream {stream}: a shot is in two rows or two losses")
        if len(np.intersect1d(recorded, lost)):
            self.mismatch(f"stream {stream}: a shot is in a row with data and in /losses")
        if int(self.file.attrs.get("stripes", 1)) > 1 and not self.is_master:
            return  # the numbers in between are in the other files of the run
        every = np.union1d(numbers, lost)
        if len(every) and int(every[-1]) - int(every[0]) + 1 != len(every):
            self.mismatch(f"stream {stream}: not every shot from {every[0]} to {every[-1]} is in a row or in /losses")

    def counters(self, links):
        """Checks the run's counters against each other and against the rows."""
        streams = {}
        for entry in self.file["counters"][...]:
            streams.setdefault(int(entry["stream"]), {})[entry["name"].decode()] = int(entry["value"])
        totals = streams.pop(WHOLE_RUN, None)
        for stream, counts in streams.items():
            causes = sum(
                value
                for name, value in counts.items()
                if name.startswith("packets_") and name[8:] not in ("in", "placed") + NEVER_ARRIVED
            )
            if counts["packets_in"] != counts["packets_placed"] + causes:
                self.mismatch(f"the packets of stream {stream} do not balance")
            causes = sum(
                value
                for name, value in counts.items()
                if name.startswith("shots_") and name[6:] not in ("seen", "complete", "partial")
            )
            if counts["shots_seen"] != counts["shots_complete"] + counts["shots_partial"] + causes:
                self.mismatch(f"the shots of stream {stream} do not balance")
            for link in links if not self.limit else ():
                recorded = link["complete"] + link["partial"] + link["sink_error"] + counts.get("ring_removed_shots", 0)
                if link["stream"] == stream and counts["shots_complete"] + counts["shots_partial"] != recorded:
                    self.mismatch(f"stream {stream}: the counters and the rows disagree about the shots recorded")
        if totals is not None and not self.limit:
            for name in ("complete", "partial", "lost"):
                if totals[f"rows_{name}"] != sum(link[name] for link in links):
                    self.mismatch(f"the counters and the rows disagree about rows_{name}")


def main():
    """Parses the arguments, prints the verdict and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--no-pattern", action="store_true", help="do not compare with test patterns")
    parser.add_argument("--rows", type=int, default=0, help="check only the first N rows")
    arguments = parser.parse_args()
    try:
        with h5py.File(arguments.file, "r") as file:
            verdict = Verifier(file, not arguments.no_pattern, arguments.rows).run()
    except (OSError, KeyError, ValueError) as error:
        print(json.dumps({"verified": False, "error": f"{arguments.file} cannot be verified: {error}"}))
        return 2
    print(json.dumps(verdict, indent=2))
    return 0 if verdict["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
