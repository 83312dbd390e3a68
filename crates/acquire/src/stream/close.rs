//! The end of a shot: what its trailer proves, what it is missing, how long it took.

use super::told::Told;
use super::{Item, Open, Stream};
use shotline_memory::{Buffer, Sge};
use shotline_store::shot::{Loss, Shot, ShotMeta};
use shotline_wire::crc;
use shotline_wire::hsb::Metadata;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, MAX_SHOTS, Presence, RECORD_BYTES, Trailer};

impl Stream {
    /// Closes one shot and returns its number, which its own record may have completed to 64 bits.
    pub(super) fn close(&mut self, open: Open, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) -> u64 {
        let Some(entry) = open.entry else {
            self.lose(open.number, open.number + 1, DropCause::NoBuffer, out);
            return open.number;
        };
        let geometry = self.config.geometry;
        let buffer = self.take_buffer(entry);
        let state = &mut self.entries[entry];
        let mut presence = std::mem::replace(&mut state.presence, Presence::empty(self.packets));
        let mut drops = std::mem::take(&mut state.drops);
        let Some(buffer) = buffer else {
            self.lose(open.number, open.number + 1, DropCause::NoBuffer, out);
            return open.number;
        };
        let mut valid_bytes = self.zero_gaps(entry, &buffer, &presence, withdraw);
        let (number, FromTrailer { good: record_good, stamp_tai_ns, flags }) = match geometry.trailer() {
            Trailer::Record | Trailer::Block => self.read_record(open.number, entry, &buffer, &presence, out),
            // Nothing can be told but that everything is there.
            Trailer::None => (open.number, FromTrailer { good: presence.is_complete(), ..FromTrailer::default() }),
            Trailer::Context => (open.number, self.read_context(open.number, &buffer, &presence)),
            Trailer::HsbMetadata => (open.number, self.read_metadata(open.number, &buffer, &presence)),
        };
        let missing = u64::from(presence.packets() - presence.placed());
        if !record_good && self.is_counting() {
            drops.add(DropCause::Unplaced, u64::from(presence.placed()));
            (presence, valid_bytes) = (self.unplace(&buffer, &presence), 0);
        } else if presence.is_complete() && !record_good {
            drops.add(DropCause::BadRecord, 1);
        }
        let first = open.number.saturating_mul(u64::from(self.packets));
        let unsent = self.told.as_ref().map_or(0, |told| {
            presence.missing().filter(|index| told.is_left_out(first + u64::from(*index))).count() as u64
        });
        drops.add(DropCause::WireGap, missing - unsent);
        drops.add(DropCause::Overrun, unsent);
        let completed_tai_ns = self.clock.as_ref().map_or(0, |clock| clock.now_tai_ns());
        let arrived_tai_ns = match &self.clock {
            Some(clock) if open.arrived_ns > 0 => clock.from_realtime(open.arrived_ns),
            _ => 0,
        };
        if completed_tai_ns > 0 && presence.is_complete() {
            for (begun, times) in
                [(stamp_tai_ns, &mut self.times.from_sender), (arrived_tai_ns, &mut self.times.from_kernel)]
            {
                if begun > 0 {
                    times.enter(begun, completed_tai_ns);
                }
            }
        }
        let meta = ShotMeta {
            stream: self.config.stream,
            number,
            stamp_tai_ns,
            arrived_tai_ns,
            completed_tai_ns,
            flags,
            record_good,
            valid_bytes,
            presence: std::sync::Arc::new(presence),
            drops,
        };
        self.books.shots += 1;
        self.books.packets_missing += missing - unsent;
        if meta.is_complete() {
            self.books.complete += 1;
        } else {
            self.books.partial += 1;
        }
        out.push(Item::Shot(Box::new(Shot { meta, buffer })));
        number
    }

    /// Zeroes what did not come, and what no packet brings. Returns the bytes of samples that came.
    fn zero_gaps(&self, entry: usize, buffer: &Buffer, presence: &Presence, withdraw: &mut Vec<u32>) -> u32 {
        let geometry = self.config.geometry;
        let mut valid_bytes = 0;
        for index in 0..self.packets {
            let (offset, bytes) = (geometry.packet_offset(index), geometry.packet_bytes(index));
            if presence.contains(index) {
                valid_bytes += (offset + bytes).min(geometry.sample_bytes()).saturating_sub(offset);
            } else {
                buffer.zero(offset, bytes);
                withdraw.push(self.base_id + entry as u32 * self.packets + index);
            }
        }
        buffer.zero(geometry.shot_bytes(), buffer.len() - geometry.shot_bytes());
        if geometry.cut().trailer_apart || !geometry.trailer().is_sent() {
            buffer.zero(geometry.sample_bytes(), geometry.trailer_offset() - geometry.sample_bytes());
        }
        valid_bytes
    }

    /// The buffer of an entry with all that came. Where a device has places of it, that is a copy, and the entry keeps
    /// its own for another shot; none if there is no other buffer.
    pub(super) fn take_buffer(&mut self, entry: usize) -> Option<Buffer> {
        let line = match &mut self.line {
            Some(line) if line.has_lent(entry) => line,
            _ => return self.entries[entry].buffer.take(),
        };
        line.again.push_back(entry);
        let (geometry, state) = (self.config.geometry, &self.entries[entry]);
        let copy = line.fresh();
        let present = (0..self.packets).filter(|index| state.presence.contains(*index));
        for index in present {
            let (offset, bytes) = (geometry.packet_offset(index), geometry.packet_bytes(index));
            let parked = line.fetch(self.base_id + entry as u32 * self.packets + index);
            let from = parked.or_else(|| state.buffer.as_ref().map(|buffer| buffer.sge(offset, bytes)));
            if let Some((from, copy)) = from.zip(copy.as_ref()) {
                line.regions.copy(Sge { len: bytes, ..from }, copy.sge(offset, bytes));
                self.books.repaired_bytes += u64::from(bytes);
            }
        }
        copy
    }

    /// Enters shots that never came; numbers that were no shots' are told apart.
    pub(super) fn lose(&mut self, mut first: u64, end: u64, cause: DropCause, out: &mut Vec<Item>) {
        while let Some(number) = self.signals.front().copied().filter(|number| *number < end) {
            self.signals.pop_front();
            if number >= first {
                self.lose_run(first, number, cause, out);
                self.lose_run(number, number + 1, DropCause::NotData, out);
                first = number + 1;
            }
        }
        self.lose_run(first, end, cause, out);
    }

    /// The same where none of them is a signal's; of those that never came, the ones that were never sent are told apart.
    fn lose_run(&mut self, mut first: u64, end: u64, cause: DropCause, out: &mut Vec<Item>) {
        let packets = u64::from(self.packets);
        let left_out = self.told.as_ref().filter(|_| cause == DropCause::WireGap).into_iter().flat_map(Told::left_out);
        let whole = left_out.map(|range| range.start.div_ceil(packets)..range.end / packets);
        let whole: Vec<_> = whole.map(|range| range.start.max(first)..range.end.min(end)).collect();
        for unsent in whole.into_iter().filter(|range| !range.is_empty()) {
            self.enter_loss(first, unsent.start, cause, out);
            self.enter_loss(unsent.start, unsent.end, DropCause::Overrun, out);
            first = unsent.end;
        }
        self.enter_loss(first, end, cause, out);
    }

    fn enter_loss(&mut self, first: u64, end: u64, cause: DropCause, out: &mut Vec<Item>) {
        let count = end.saturating_sub(first);
        if count > 0 {
            self.books.shots = self.books.shots.saturating_add(count);
            self.books.shot_drops.add(cause, count);
            if cause == DropCause::WireGap {
                let packets = count.saturating_mul(u64::from(self.packets));
                self.books.packets_missing = self.books.packets_missing.saturating_add(packets);
            }
            out.push(Item::Loss(Loss { stream: self.config.stream, cause, first, count }));
        }
    }

    /// The CRC register over the whole shot, folded from what the packets' own check left behind.
    fn register(&self, entry: usize) -> u32 {
        let (last, full) = self.entries[entry].remainders.split_last().unwrap_or((&0, &[]));
        let register = full.iter().fold(u32::MAX, |register, remainder| self.full.apply(register) ^ remainder);
        crc::shift(register, u64::from(self.config.geometry.packet_bytes(self.packets - 1))) ^ last
    }

    /// What the end-of-shot record tells, and the shot's number, which it may complete to 64 bits.
    fn read_record(
        &mut self,
        mut number: u64,
        entry: usize,
        buffer: &Buffer,
        presence: &Presence,
        out: &mut Vec<Item>,
    ) -> (u64, FromTrailer) {
        // The record is a bus word that never straddles two packets: padding aligned it.
        let record = presence.contains(self.packets - 1).then(|| {
            let mut bytes = [0; RECORD_BYTES as usize];
            buffer.read(self.config.geometry.shot_bytes() - RECORD_BYTES, &mut bytes);
            Record::parse(&bytes).ok()
        });
        let record = record.flatten().filter(|record| record.stream == self.config.stream);
        let whole = presence.is_complete() && self.register(entry) == crc::RESIDUE;
        if let Some(record) = &record
            && whole
        {
            number = self.anchor(number, record.shot, out);
        }
        let told = match record.filter(|record| record.shot == number) {
            Some(record) => FromTrailer { good: whole, stamp_tai_ns: record.tai_ns, flags: record.flags() },
            None => FromTrailer::default(),
        };
        (number, told)
    }

    /// What packets of context told, which becomes the trailer. That everything is there is all that can be known of it.
    fn read_context(&mut self, number: u64, buffer: &Buffer, presence: &Presence) -> FromTrailer {
        let geometry = self.config.geometry;
        let locked =
            self.told.as_mut().is_some_and(|told| told.describe(number, &geometry, buffer).locked == Some(true));
        let flags = Record { clock_locked: locked, ..Record::of(&geometry) }.flags();
        let stamp_tai_ns = self.framing.stamp_tai_ns(number, &geometry);
        FromTrailer { good: presence.is_complete(), stamp_tai_ns, flags }
    }

    /// What the metadata of a sensor bridge tell. Every packet was proven by its ICRC, so they are believed.
    fn read_metadata(&mut self, number: u64, buffer: &Buffer, presence: &Presence) -> FromTrailer {
        let Some(metadata) = self.metadata(buffer, presence) else { return FromTrailer::default() };
        self.note_frame(number, metadata.frame);
        let ended_early = metadata.flags & 1 != 0;
        let whole = metadata.valid_bytes == u64::from(self.config.geometry.sample_bytes()) && !ended_early;
        FromTrailer { good: presence.is_complete() && whole, stamp_tai_ns: metadata.first_ns, flags: 0 }
    }

    /// The metadata of a sensor bridge's frame, if they have come.
    pub(super) fn metadata(&self, buffer: &Buffer, presence: &Presence) -> Option<Metadata> {
        let geometry = self.config.geometry;
        let last = self.packets - 1;
        // A sender that cuts oddly may begin them in the packet before.
        let split = geometry.trailer_offset() < geometry.packet_offset(last);
        if !presence.contains(last) || split && !presence.contains(last.saturating_sub(1)) {
            return None;
        }
        let mut bytes = [0; Metadata::LEN];
        buffer.read(geometry.trailer_offset(), &mut bytes);
        Metadata::parse(&bytes).ok()
    }

    /// A proven record tells the bits of the shot number that the wire does not carry: of the first shot, and of one after
    /// an outage so long that the number came round. What lies between was lost.
    fn anchor(&mut self, number: u64, truth: u64, out: &mut Vec<Item>) -> u64 {
        let bits = self.wire_bits;
        let ahead = truth.checked_sub(number).filter(|_| bits < u64::BITS && truth < MAX_SHOTS);
        let Some(ahead) = ahead.filter(|ahead| ahead & ((1 << bits) - 1) == 0) else { return number };
        self.newest += ahead;
        for open in &mut self.open {
            open.number += ahead;
        }
        if self.anchored {
            self.lose(number, truth, DropCause::WireGap, out);
        } else {
            self.joined += ahead;
            self.anchored = true;
        }
        truth
    }
}

/// What a shot's trailer told.
#[derive(Clone, Copy, Debug, Default)]
struct FromTrailer {
    /// The trailer is there, is right, and proves the shot as far as its kind can.
    good: bool,
    stamp_tai_ns: u64,
    flags: u8,
}
