//! Puts the packets of a captured stream together into shots, without keeping their payloads.

use serde::Serialize;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::MAX_PACKETS;
use shotline_wire::{crc, framing};
use std::collections::{BTreeMap, VecDeque};

/// Shots that may be under way at once; the oldest is closed when another begins.
const WINDOW: usize = 64;
/// Closed shots that are remembered, so that a late packet is not taken for a new shot.
const REMEMBERED: usize = 1024;
/// Partial shots that are described one by one.
const DESCRIBED: usize = 100;
/// Packets without an immediate that are kept until a record tells where shots begin.
const WAITING: usize = 2 * MAX_PACKETS as usize;

/// One packet of a shot.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its place in the shot.
    pub index: u32,
    /// It says that it is the last.
    pub last: bool,
    /// Bytes of payload.
    pub len: u32,
    /// The payload's CRC remainder.
    pub remainder: u32,
    /// The end-of-shot record at its end.
    pub record: Option<Record>,
}

impl Piece {
    /// The packet `index` with this payload.
    pub fn new(index: u32, last: bool, payload: &[u8]) -> Self {
        let record = payload.last_chunk().filter(|_| last).and_then(|bytes| Record::parse(bytes).ok());
        Self {
            index,
            last,
            len: payload.len() as u32,
            remainder: crc::remainder(payload),
            record: record.filter(|record| record.geometry().is_ok()),
        }
    }
}

/// The shots of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Shots whose packets are all there.
    pub complete: u64,
    /// Of these, shots whose end-of-shot record does not fit their bytes.
    pub bad_record: u64,
    /// Shots with packets missing.
    pub partial: u64,
    /// Packets whose place was taken already.
    pub duplicates: u64,
    /// Packets that could not be assigned to a shot.
    pub unassigned: u64,
    /// Packets missing in all partial shots.
    pub packets_missing: u64,
    /// Packets of a shot.
    pub packets_per_shot: Option<u32>,
    /// Channels, by the records.
    pub channels: Option<u16>,
    /// Samples per channel, by the records.
    pub samples: Option<u32>,
    /// The first shot's number, as far as the packets carry it.
    pub first: Option<u64>,
    /// The last shot's number.
    pub last: Option<u64>,
    /// The first partial shots.
    pub partial_shots: Vec<Partial>,
}

/// A shot with packets missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partial {
    /// Its number.
    pub shot: u64,
    /// Packets there.
    pub packets: u32,
    /// Indexes of those that are not, as ranges with both ends: `3, 7-9`.
    pub missing: String,
    /// The capture begins or ends within it, so nothing need have been lost.
    pub at_edge: bool,
}

#[derive(Debug, Default)]
struct Open {
    packets: BTreeMap<u32, (u32, u32)>,
    last: Option<u32>,
    record: Option<Record>,
}

/// Assembles shots whose packets name them.
#[derive(Debug, Default)]
pub struct Shots {
    open: VecDeque<(u64, Open)>,
    closed: VecDeque<u64>,
    summary: Summary,
    /// Something spoke against these being shots.
    foreign: bool,
    ended: bool,
}

impl Shots {
    /// Takes a packet of shot `number`.
    pub fn push(&mut self, number: u64, piece: Piece) {
        if piece.index >= MAX_PACKETS {
            self.summary.unassigned += 1;
            return;
        }
        self.foreign |= !piece.last && piece.len != shotline_wire::shot::PACKET_BYTES;
        if let Some(record) = piece.record {
            self.summary.packets_per_shot = Some(record.packets.into());
            (self.summary.channels, self.summary.samples) = (Some(record.channels), Some(record.samples));
        } else if piece.last {
            self.summary.packets_per_shot.get_or_insert(piece.index + 1);
        }
        let position = match self.open.iter().rposition(|(open, _)| *open == number) {
            Some(position) => position,
            None if self.closed.contains(&number) => {
                self.summary.duplicates += 1;
                return;
            }
            None => {
                if self.open.len() == WINDOW {
                    self.close(0);
                }
                self.summary.first.get_or_insert(number);
                self.summary.last = Some(number);
                self.open.push_back((number, Open::default()));
                self.open.len() - 1
            }
        };
        let shot = &mut self.open[position].1;
        if shot.packets.insert(piece.index, (piece.len, piece.remainder)).is_some() {
            self.summary.duplicates += 1;
            return;
        }
        if piece.last {
            (shot.last, shot.record) = (Some(piece.index), piece.record);
        }
        if shot.last.is_some_and(|last| shot.packets.len() as u32 == last + 1) {
            self.close(position);
        }
    }

    /// The summary; none if these were no shots.
    pub fn finish(mut self) -> Option<Summary> {
        self.ended = true;
        while !self.open.is_empty() {
            self.close(0);
        }
        let recognised = !self.foreign && self.summary.packets_per_shot.is_some();
        recognised.then_some(self.summary)
    }

    fn close(&mut self, position: usize) {
        let Some((number, shot)) = self.open.remove(position) else { return };
        if self.closed.len() == REMEMBERED {
            self.closed.pop_front();
        }
        self.closed.push_back(number);
        let highest = shot.packets.keys().next_back().map_or(0, |index| index + 1);
        let packets = shot.last.map(|last| last + 1).or(self.summary.packets_per_shot).unwrap_or(highest).max(highest);
        let missing = packets - shot.packets.len() as u32;
        if missing == 0 {
            self.summary.complete += 1;
            let register = shot
                .packets
                .values()
                .fold(u32::MAX, |register, (len, remainder)| crc::append(register, u64::from(*len), *remainder));
            self.summary.bad_record += u64::from(shot.record.is_none() || !record::is_whole(register));
            return;
        }
        self.summary.partial += 1;
        self.summary.packets_missing += u64::from(missing);
        if self.summary.partial_shots.len() < DESCRIBED {
            let ranges = ranges_without(shot.packets.keys().copied(), packets);
            let at_edge = matches!(ranges[..], [(first, last)]
                if (self.summary.first == Some(number) && first == 0) || (self.ended && last == packets - 1));
            let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
            self.summary.partial_shots.push(Partial {
                shot: number,
                packets: shot.packets.len() as u32,
                missing: ranges.into_iter().map(text).collect::<Vec<_>>().join(", "),
                at_edge,
            });
        }
    }
}

/// Ranges, with both ends, of the numbers below `end` that are not in `there`, which ascends. At most one more than are there.
fn ranges_without(there: impl Iterator<Item = u32>, end: u32) -> Vec<(u32, u32)> {
    let mut next = 0;
    let gap_before = |number| Some((std::mem::replace(&mut next, number + 1), number)).filter(|(from, to)| from < to);
    there.chain([end]).filter_map(gap_before).map(|(from, to)| (from, to - 1)).collect()
}

/// Assembles shots of packets that carry nothing but a sequence number: the end-of-shot records tell where
/// shots begin.
#[derive(Debug, Default)]
pub struct Counted {
    shots: Shots,
    /// The latest sequence number, unwrapped.
    latest: Option<i64>,
    waiting: VecDeque<(i64, Piece)>,
    phase: Option<Phase>,
}

/// A shot that begins at a known position.
#[derive(Clone, Copy, Debug)]
struct Phase {
    begins: i64,
    shot: u64,
    packets: u32,
}

impl Counted {
    /// Takes a packet; its index is not looked at.
    pub fn push(&mut self, psn: u32, piece: Piece) {
        let position = self.unwrap(psn);
        if let Some(record) = piece.record {
            let packets = u32::from(record.packets);
            let known = self.phase.is_some_and(|phase| {
                let index = (position - phase.begins).rem_euclid(phase.packets.into());
                phase.packets == packets && index + 1 == i64::from(packets)
            });
            if !known {
                self.phase = Some(Phase { begins: position + 1 - i64::from(packets), shot: record.shot, packets });
            }
        }
        self.waiting.push_back((position, piece));
        match self.phase {
            Some(phase) => {
                for (position, piece) in self.waiting.drain(..) {
                    let after = position - phase.begins;
                    let packets = i64::from(phase.packets);
                    let shot = phase.shot.wrapping_add_signed(after.div_euclid(packets));
                    self.shots.push(shot, Piece { index: after.rem_euclid(packets) as u32, ..piece });
                }
            }
            None if self.waiting.len() > WAITING => {
                self.waiting.pop_front();
                self.shots.summary.unassigned += 1;
            }
            None => {}
        }
    }

    /// The summary; none if these were no shots.
    pub fn finish(mut self) -> Option<Summary> {
        self.shots.summary.unassigned += self.waiting.len() as u64;
        self.shots.finish()
    }

    fn unwrap(&mut self, psn: u32) -> i64 {
        const WRAP: i64 = 1 << framing::counted::SEQUENCE_BITS;
        let psn = i64::from(psn);
        let position = match self.latest {
            None => psn,
            Some(latest) => {
                let ahead = (psn - latest).rem_euclid(WRAP);
                latest + if ahead < WRAP / 2 { ahead } else { ahead - WRAP }
            }
        };
        self.latest = self.latest.max(Some(position));
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::{Geometry, Packing};

    /// The packets of a whole shot.
    fn pieces(shot: u64) -> Vec<Piece> {
        let geometry = Geometry::new(16, 1000, 12, Packing::Packed12, 0).unwrap();
        let mut bytes = vec![shot as u8; geometry.trailer_offset() as usize];
        let record = Record { shot, ..Record::of(&geometry) }.finish(crc::register(u32::MAX, &bytes));
        bytes.extend(record);
        let packets = geometry.packets();
        bytes.chunks(4096).zip(0..).map(|(payload, i)| Piece::new(i, i + 1 == packets, payload)).collect()
    }

    #[test]
    fn losses_doubles_and_wrong_records_are_told_apart() {
        let mut shots = Shots::default();
        for number in 0..5 {
            for mut piece in pieces(number) {
                match (number, piece.index) {
                    (1, 2) | (1, 3) => continue,
                    (2, 1) => shots.push(2, piece),
                    (3, 0) => piece.remainder ^= 1,
                    (4, 5..) => continue,
                    _ => {}
                }
                shots.push(number, piece);
            }
        }
        let summary = shots.finish().unwrap();
        assert_eq!((summary.complete, summary.bad_record, summary.partial, summary.duplicates), (3, 1, 2, 1));
        assert_eq!(summary.partial_shots[0].missing, "2-3");
        assert!(!summary.partial_shots[0].at_edge && summary.partial_shots[1].at_edge);
        assert_eq!((summary.packets_per_shot, summary.samples), (Some(6), Some(1000)));
    }

    #[test]
    fn counted_packets_find_their_shots_across_the_wrap_and_before_the_first_record() {
        let mut counted = Counted::default();
        let mut psn = (1 << 24) - 9;
        for number in 7..12 {
            for piece in pieces(number) {
                // The capture begins within a shot; later one packet is lost.
                if (number, piece.index) != (7, 0) && (number, piece.index) != (10, 4) {
                    counted.push(psn, Piece { index: 0, ..piece });
                }
                psn = (psn + 1) % (1 << 24);
            }
        }
        let summary = counted.finish().unwrap();
        assert_eq!((summary.complete, summary.partial, summary.unassigned), (3, 2, 0));
        let partial: Vec<_> = summary.partial_shots.iter().map(|p| (p.shot, p.missing.as_str(), p.at_edge)).collect();
        assert!(partial.contains(&(10, "4", false)) && partial.contains(&(7, "0", true)), "{partial:?}");
    }

    #[test]
    fn an_index_that_no_shot_has_is_of_no_shot() {
        let mut shots = Shots::default();
        pieces(0).into_iter().for_each(|piece| shots.push(0, piece));
        for index in [MAX_PACKETS, MAX_PACKETS * 2, u32::MAX] {
            shots.push(1, Piece { last: true, ..Piece::new(index, false, &[1; 4096]) });
        }
        let summary = shots.finish().unwrap();
        assert_eq!((summary.complete, summary.partial, summary.unassigned), (1, 0, 3));
    }

    #[test]
    fn ranges_of_missing_packets_are_as_many_as_packets_are_there() {
        let mut shots = Shots::default();
        for number in 0..100_000 {
            shots.push(number, Piece { last: true, ..Piece::new(MAX_PACKETS - 1, false, &[1; 4096]) });
        }
        let summary = shots.finish().unwrap();
        assert_eq!(summary.packets_missing, 100_000 * u64::from(MAX_PACKETS - 1));
        assert_eq!((summary.partial, summary.partial_shots.len()), (100_000, DESCRIBED));
        assert_eq!(summary.partial_shots[0].missing, format!("0-{}", MAX_PACKETS - 2));
    }

    #[test]
    fn datagrams_of_other_lengths_are_no_shots() {
        let mut shots = Shots::default();
        shots.push(0, Piece::new(0, false, &[1; 100]));
        shots.push(0, Piece::new(1, true, &[1; 100]));
        assert!(shots.finish().is_none());
    }
}
