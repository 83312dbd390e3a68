//! Assembles the packets of a captured stream into shots, without keeping their payloads.

use serde::Serialize;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::MAX_PACKETS;
use shotline_wire::{crc, framing};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of open shots. When another one begins, the oldest is closed.
const MAX_OPEN: usize = 64;
/// Number of closed shots whose numbers are kept, so that a late packet does not open a new shot.
const MAX_CLOSED: usize = 1024;
/// Maximum number of partial shots that are described one by one.
const MAX_DESCRIBED: usize = 100;
/// Maximum number of packets without an immediate that are kept until a record shows where shots begin.
const MAX_WAITING: usize = 2 * MAX_PACKETS as usize;

/// One packet of a shot.
#[derive(Clone, Copy, Debug)]
pub struct ShotPacket {
    /// Index of the packet in the shot.
    pub index: u32,
    /// The packet is marked as the last one.
    pub last: bool,
    /// Number of payload bytes.
    pub len: u32,
    /// CRC remainder of the payload.
    pub remainder: u32,
    /// The end-of-shot record at the end of the payload.
    pub record: Option<Record>,
}

impl ShotPacket {
    /// Creates packet `index` from its payload.
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

/// Summary of the shots of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Number of shots with all packets.
    pub complete: u64,
    /// Number of complete shots whose end-of-shot record does not match their bytes.
    pub bad_record: u64,
    /// Number of shots with packets missing.
    pub partial: u64,
    /// Number of packets whose index in the shot was received before.
    pub duplicates: u64,
    /// Number of packets that could not be assigned to a shot.
    pub unassigned: u64,
    /// Number of packets missing in all partial shots.
    pub packets_missing: u64,
    /// Number of packets in each shot.
    pub packets_per_shot: Option<u32>,
    /// Number of channels, from the end-of-shot records.
    pub channels: Option<u16>,
    /// Number of samples per channel, from the end-of-shot records.
    pub samples: Option<u32>,
    /// Number of the first shot, as far as the packets carry it.
    pub first: Option<u64>,
    /// Number of the last shot.
    pub last: Option<u64>,
    /// The first partial shots.
    pub partial_shots: Vec<PartialShot>,
}

/// A shot with packets missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartialShot {
    /// Shot number.
    pub shot: u64,
    /// Number of packets received.
    pub packets: u32,
    /// Indexes of the missing packets, as inclusive ranges: `3, 7-9`.
    pub missing: String,
    /// The capture begins or ends within the shot, so the packets need not have been lost.
    pub at_edge: bool,
}

#[derive(Debug, Default)]
struct OpenShot {
    packets: BTreeMap<u32, (u32, u32)>,
    last: Option<u32>,
    record: Option<Record>,
}

/// Assembler for shots whose packets carry the shot number.
#[derive(Debug, Default)]
pub struct ShotAssembler {
    open: VecDeque<(u64, OpenShot)>,
    closed: VecDeque<u64>,
    summary: Summary,
    /// A packet had a length that no shot has, so the stream does not carry shots.
    not_shots: bool,
    ended: bool,
}

impl ShotAssembler {
    /// Adds a packet of shot `number`.
    pub fn push(&mut self, number: u64, packet: ShotPacket) {
        if packet.index >= MAX_PACKETS {
            self.summary.unassigned += 1;
            return;
        }
        self.not_shots |= !packet.last && packet.len != shotline_wire::shot::PACKET_BYTES;
        if let Some(record) = packet.record {
            self.summary.packets_per_shot = Some(record.packets.into());
            (self.summary.channels, self.summary.samples) = (Some(record.channels), Some(record.samples));
        } else if packet.last {
            self.summary.packets_per_shot.get_or_insert(packet.index + 1);
        }
        let position = match self.open.iter().rposition(|(open, _)| *open == number) {
            Some(position) => position,
            None if self.closed.contains(&number) => {
                self.summary.duplicates += 1;
                return;
            }
            None => {
                if self.open.len() == MAX_OPEN {
                    self.close(0);
                }
                self.summary.first.get_or_insert(number);
                self.summary.last = Some(number);
                self.open.push_back((number, OpenShot::default()));
                self.open.len() - 1
            }
        };
        let shot = &mut self.open[position].1;
        if shot.packets.insert(packet.index, (packet.len, packet.remainder)).is_some() {
            self.summary.duplicates += 1;
            return;
        }
        if packet.last {
            (shot.last, shot.record) = (Some(packet.index), packet.record);
        }
        if shot.last.is_some_and(|last| shot.packets.len() as u32 == last + 1) {
            self.close(position);
        }
    }

    /// Returns the summary, or `None` if the packets were not shots.
    pub fn finish(mut self) -> Option<Summary> {
        self.ended = true;
        while !self.open.is_empty() {
            self.close(0);
        }
        let recognised = !self.not_shots && self.summary.packets_per_shot.is_some();
        recognised.then_some(self.summary)
    }

    fn close(&mut self, position: usize) {
        let Some((number, shot)) = self.open.remove(position) else { return };
        if self.closed.len() == MAX_CLOSED {
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
        if self.summary.partial_shots.len() < MAX_DESCRIBED {
            let ranges = ranges_without(shot.packets.keys().copied(), packets);
            let is_last = self.ended && self.summary.last == Some(number);
            let at_edge = matches!(ranges[..], [(first, last)]
                if (self.summary.first == Some(number) && first == 0) || (is_last && last == packets - 1));
            let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
            self.summary.partial_shots.push(PartialShot {
                shot: number,
                packets: shot.packets.len() as u32,
                missing: ranges.into_iter().map(text).collect::<Vec<_>>().join(", "),
                at_edge,
            });
        }
    }
}

/// Returns the inclusive ranges of the numbers below `end` that are not in `present`, which ascends. There is at most
/// one range more than numbers in `present`.
fn ranges_without(present: impl Iterator<Item = u32>, end: u32) -> Vec<(u32, u32)> {
    let mut next = 0;
    let gap_before =
        |number| Some((std::mem::replace(&mut next, number + 1), number)).filter(|(first, end)| first < end);
    present.chain([end]).filter_map(gap_before).map(|(first, end)| (first, end - 1)).collect()
}

/// Assembler for packets that carry only a sequence number: the end-of-shot records show where shots begin.
#[derive(Debug, Default)]
pub struct CountedAssembler {
    shots: ShotAssembler,
    /// The latest sequence number, unwrapped.
    latest: Option<i64>,
    waiting: VecDeque<(i64, ShotPacket)>,
    phase: Option<Phase>,
}

/// Alignment of shots to sequence numbers: shot `shot` begins at position `begins`, and each has `packets` packets.
#[derive(Clone, Copy, Debug)]
struct Phase {
    begins: i64,
    shot: u64,
    packets: u32,
}

impl CountedAssembler {
    /// Adds a packet. Its index is ignored.
    pub fn push(&mut self, psn: u32, packet: ShotPacket) {
        let position = self.unwrap(psn);
        if let Some(record) = packet.record {
            let packets = u32::from(record.packets);
            let known = self.phase.is_some_and(|phase| {
                let index = (position - phase.begins).rem_euclid(phase.packets.into());
                phase.packets == packets && index + 1 == i64::from(packets)
            });
            if !known {
                self.phase = Some(Phase { begins: position + 1 - i64::from(packets), shot: record.shot, packets });
            }
        }
        self.waiting.push_back((position, packet));
        match self.phase {
            Some(phase) => {
                for (position, packet) in self.waiting.drain(..) {
                    let offset = position - phase.begins;
                    let packets = i64::from(phase.packets);
                    let shot = phase.shot.wrapping_add_signed(offset.div_euclid(packets));
                    self.shots.push(shot, ShotPacket { index: offset.rem_euclid(packets) as u32, ..packet });
                }
            }
            None if self.waiting.len() > MAX_WAITING => {
                self.waiting.pop_front();
                self.shots.summary.unassigned += 1;
            }
            None => {}
        }
    }

    /// Returns the summary, or `None` if the packets were not shots.
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

    /// Returns the packets of a complete shot.
    fn packets_of(shot: u64) -> Vec<ShotPacket> {
        let geometry = Geometry::new(16, 1000, 12, Packing::Packed12, 0).unwrap();
        let mut bytes = vec![shot as u8; geometry.trailer_offset() as usize];
        let record = Record { shot, ..Record::of(&geometry) }.finish(crc::register(u32::MAX, &bytes));
        bytes.extend(record);
        let packets = geometry.packets();
        bytes.chunks(4096).zip(0..).map(|(payload, i)| ShotPacket::new(i, i + 1 == packets, payload)).collect()
    }

    #[test]
    fn losses_duplicates_and_bad_records_are_counted() {
        let mut shots = ShotAssembler::default();
        for number in 0..5 {
            for mut packet in packets_of(number) {
                match (number, packet.index) {
                    (1, 2) | (1, 3) => continue,
                    (2, 1) => shots.push(2, packet),
                    (3, 0) => packet.remainder ^= 1,
                    (4, 5..) => continue,
                    _ => {}
                }
                shots.push(number, packet);
            }
        }
        let summary = shots.finish().unwrap();
        assert_eq!((summary.complete, summary.bad_record, summary.partial, summary.duplicates), (3, 1, 2, 1));
        assert_eq!(summary.partial_shots[0].missing, "2-3");
        assert!(!summary.partial_shots[0].at_edge && summary.partial_shots[1].at_edge);
        assert_eq!((summary.packets_per_shot, summary.samples), (Some(6), Some(1000)));
    }

    #[test]
    fn only_the_last_shot_may_end_after_the_capture() {
        let mut shots = ShotAssembler::default();
        for number in 0..3 {
            packets_of(number)
                .into_iter()
                .filter(|packet| packet.index != 5)
                .for_each(|packet| shots.push(number, packet));
        }
        packets_of(3).into_iter().for_each(|packet| shots.push(3, packet));
        shots.push(4, packets_of(4)[0]);
        let at_edge: Vec<_> =
            shots.finish().unwrap().partial_shots.iter().map(|shot| (shot.shot, shot.at_edge)).collect();
        assert_eq!(at_edge, [(0, false), (1, false), (2, false), (4, true)]);
    }

    #[test]
    fn counted_packets_are_assigned_across_wrap_around() {
        let mut counted = CountedAssembler::default();
        let mut psn = (1 << 24) - 9;
        for number in 7..12 {
            for packet in packets_of(number) {
                // The capture begins within a shot, and one packet is lost later.
                if (number, packet.index) != (7, 0) && (number, packet.index) != (10, 4) {
                    counted.push(psn, ShotPacket { index: 0, ..packet });
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
    fn out_of_range_index_is_unassigned() {
        let mut shots = ShotAssembler::default();
        packets_of(0).into_iter().for_each(|packet| shots.push(0, packet));
        for index in [MAX_PACKETS, MAX_PACKETS * 2, u32::MAX] {
            shots.push(1, ShotPacket { last: true, ..ShotPacket::new(index, false, &[1; 4096]) });
        }
        let summary = shots.finish().unwrap();
        assert_eq!((summary.complete, summary.partial, summary.unassigned), (1, 0, 3));
    }

    #[test]
    fn missing_ranges_stay_small_for_sparse_shots() {
        let mut shots = ShotAssembler::default();
        for number in 0..100_000 {
            shots.push(number, ShotPacket { last: true, ..ShotPacket::new(MAX_PACKETS - 1, false, &[1; 4096]) });
        }
        let summary = shots.finish().unwrap();
        assert_eq!(summary.packets_missing, 100_000 * u64::from(MAX_PACKETS - 1));
        assert_eq!((summary.partial, summary.partial_shots.len()), (100_000, MAX_DESCRIBED));
        assert_eq!(summary.partial_shots[0].missing, format!("0-{}", MAX_PACKETS - 2));
    }

    #[test]
    fn datagrams_of_other_lengths_are_not_shots() {
        let mut shots = ShotAssembler::default();
        shots.push(0, ShotPacket::new(0, false, &[1; 100]));
        shots.push(0, ShotPacket::new(1, true, &[1; 100]));
        assert!(shots.finish().is_none());
    }
}
