//! The datagrams of a capture, sent again.
//!
//! They need not be anybody's shots. Datagrams of RoCEv2 get their ICRC made anew, since it covers the addresses; all
//! others go as they are.

use crate::probe::pace::Pace;
use serde::Serialize;
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_transport::{IoError, MAX_HEADER, PacketIo, Seal, Send};
use shotline_wire::bth::Bth;
use shotline_wire::roce::ICRC_LEN;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// Datagrams handed to the transport at a time.
const BATCH: usize = 60;
/// Bytes of the largest datagram.
const LARGEST: usize = 1 << 16;

/// Some datagrams, in the order of the capture.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Their payloads, one behind the other.
    pub bytes: Vec<u8>,
    /// Of each: when it was captured in nanoseconds (0 unknown), and where it is.
    pub datagrams: Vec<(u64, Range<usize>)>,
}

/// What was sent of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// Datagrams that the transport has taken.
    pub datagrams: u64,
    /// Bytes in them, behind the UDP header.
    pub bytes: u64,
    /// RoCEv2 packets that end within their headers: they cannot be sealed, and were left out.
    pub malformed: u64,
    /// Datagrams without a byte, which were left out.
    pub empty: u64,
    /// Datagrams that were due more than a millisecond before they were sent.
    pub late: u64,
    /// Times that the path was full.
    pub full: u64,
}

/// A datagram counts as late from here on.
const LATE_NS: u64 = 1_000_000;

/// Sends the datagrams of one flow to one address.
#[derive(Debug)]
pub struct Flow<Io> {
    io: Io,
    to: SocketAddr,
    sealed: bool,
    pace: Pace,
    region: Arc<Region>,
    id: RegionId,
    /// When the first was sent, and when it had been captured.
    begun: Option<(u64, u64)>,
    /// Time of the latest datagram that has one.
    captured_ns: u64,
    counts: FlowCounts,
}

/// A datagram in two pieces, as the transport wants it: where they are in the chunk.
#[derive(Clone, Debug)]
struct Cut {
    header: Range<usize>,
    payload: Range<usize>,
}

impl<Io: PacketIo> Flow<Io> {
    /// Takes the memory that payloads are sent from. `open` makes the transport; `sealed` says that these are RoCEv2
    /// packets.
    pub fn new(
        to: SocketAddr,
        sealed: bool,
        pace: Pace,
        open: impl FnOnce(&shotline_memory::Regions) -> Result<Io, IoError>,
    ) -> Result<Self, FlowError> {
        let region = Region::host(BATCH * LARGEST)?;
        let mut registrar = Registrar::new();
        let id = registrar.add(Arc::clone(&region));
        let io = open(&registrar.finish())?;
        let counts = FlowCounts::default();
        Ok(Self { io, to, sealed, pace, region, id, begun: None, captured_ns: 0, counts })
    }

    /// Sends datagrams at their times. `wait` lets time pass until the one given, and tells what time it is then; none
    /// ends it. While a path is full, `again` says whether to go on trying.
    pub fn send(
        &mut self,
        chunk: &Chunk,
        wait: &mut dyn FnMut(u64) -> Option<u64>,
        again: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FlowError> {
        let mut batch: Vec<Cut> = Vec::with_capacity(BATCH);
        let Some(mut now) = wait(0) else { return Ok(false) };
        for (captured_ns, range) in &chunk.datagrams {
            let Some(cut) = self.cut(chunk, range.clone()) else { continue };
            let due = self.due(*captured_ns, now);
            if due > now || batch.len() == BATCH {
                if !self.flush(chunk, &mut batch, again)? {
                    return Ok(false);
                }
                let Some(then) = wait(due) else { return Ok(false) };
                now = then;
            }
            self.counts.late += u64::from(now.saturating_sub(due) > LATE_NS && self.pace != Pace::Max);
            self.counts.bytes += range.len() as u64;
            self.counts.datagrams += 1;
            batch.push(cut);
        }
        self.flush(chunk, &mut batch, again)
    }

    /// What was sent.
    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// When the next datagram is to be sent.
    fn due(&mut self, captured_ns: u64, now: u64) -> u64 {
        // One without a time comes right behind the one before.
        self.captured_ns = self.captured_ns.max(captured_ns);
        if self.captured_ns == 0 && matches!(self.pace, Pace::Recorded(_)) {
            return now;
        }
        let (begun, first) = *self.begun.get_or_insert((now, self.captured_ns));
        let after = match self.pace {
            Pace::Recorded(speed) => (self.captured_ns - first) as f64 / speed,
            Pace::Rate(hz) => self.counts.datagrams as f64 * 1e9 / hz,
            Pace::Bandwidth(gbps) => self.counts.bytes as f64 * 8.0 / gbps,
            Pace::Device | Pace::Max => return now,
        };
        begun.saturating_add(after.round() as u64)
    }

    /// Where a datagram's header and payload are; none, and a count, for one that cannot be sent.
    fn cut(&mut self, chunk: &Chunk, range: Range<usize>) -> Option<Cut> {
        if range.is_empty() {
            self.counts.empty += 1;
            return None;
        }
        if !self.sealed {
            let header = range.start..range.end.min(range.start + MAX_HEADER);
            return Some(Cut { payload: header.end..range.end, header });
        }
        let header_len = Bth::parse(&chunk.bytes[range.clone()]).map(|(bth, _)| bth.opcode.header_len());
        let header = header_len.ok().map(|len| range.start..range.start + len);
        let cut = header.filter(|header| header.end + ICRC_LEN <= range.end).map(|header| {
            let payload = header.end..range.end - ICRC_LEN;
            Cut { header, payload }
        });
        self.counts.malformed += u64::from(cut.is_none());
        cut
    }

    /// Sends a batch; false if `again` gave up.
    fn flush(
        &mut self,
        chunk: &Chunk,
        batch: &mut Vec<Cut>,
        again: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FlowError> {
        let seal = if self.sealed { Seal::Compute } else { Seal::None };
        let mut payloads = Vec::with_capacity(batch.len());
        let mut at = 0;
        for cut in &*batch {
            self.region.write(at, &chunk.bytes[cut.payload.clone()]);
            payloads.push([Sge { region: self.id, offset: at as u64, len: cut.payload.len() as u32 }]);
            at += cut.payload.len();
        }
        let sends: Vec<_> = batch
            .iter()
            .zip(&payloads)
            .map(|(cut, gather)| Send { header: &chunk.bytes[cut.header.clone()], gather, seal })
            .collect();
        let mut rest = sends.as_slice();
        while !rest.is_empty() {
            rest = &rest[self.io.send(self.to, rest)?..];
            if !rest.is_empty() {
                self.counts.full += 1;
                if !again() {
                    self.counts.datagrams -= rest.len() as u64;
                    return Ok(false);
                }
            }
        }
        batch.clear();
        Ok(true)
    }
}

/// Why a flow could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The link failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No room.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeLink, Log};
    use shotline_memory::Regions;

    /// Datagrams, and when they were sent.
    type Sent = Vec<(u64, Vec<u8>)>;

    /// Sends datagrams of these times and lengths; returns when each was sent with its bytes, and the counts.
    fn send(sealed: bool, pace: Pace, room: usize, datagrams: &[(u64, Vec<u8>)]) -> (Sent, FlowCounts) {
        let log = Log::default();
        log.now.set(1000);
        let link = |regions: &Regions| Ok(FakeLink { link: 0, regions: regions.clone(), room, log: log.clone() });
        let mut flow = Flow::new(([127, 0, 0, 1], 9).into(), sealed, pace, link).unwrap();
        for half in datagrams.chunks(datagrams.len().div_ceil(2).max(1)) {
            let mut chunk = Chunk::default();
            for (time, bytes) in half {
                let at = chunk.bytes.len();
                chunk.bytes.extend(bytes);
                chunk.datagrams.push((*time, at..chunk.bytes.len()));
            }
            let mut wait = |until: u64| {
                log.now.set(until.max(log.now.get()));
                Some(log.now.get())
            };
            assert!(flow.send(&chunk, &mut wait, &mut || true).unwrap());
        }
        let counts = flow.counts();
        (log.sent.take().into_iter().map(|sent| (sent.at, sent.bytes)).collect(), counts)
    }

    fn datagrams(count: usize) -> Vec<(u64, Vec<u8>)> {
        (0..count).map(|i| (5_000_000 + 100 * i as u64, vec![i as u8; 1 + i * 37 % 3000])).collect()
    }

    #[test]
    fn every_byte_is_sent_in_order_whatever_the_path_takes_at_a_time() {
        let all = datagrams(200);
        for room in [1, 7, usize::MAX] {
            let (sent, counts) = send(false, Pace::Max, room, &all);
            assert!(sent.iter().map(|(_, bytes)| bytes).eq(all.iter().map(|(_, bytes)| bytes)));
            assert_eq!((counts.datagrams, counts.late), (200, 0));
            assert_eq!(counts.bytes, all.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        }
    }

    #[test]
    fn the_pace_is_that_of_the_capture_or_the_one_asked_for() {
        let all = datagrams(100);
        let times = |pace| send(false, pace, usize::MAX, &all).0.into_iter().map(|(time, _)| time).collect::<Vec<_>>();
        let expected = |ns: fn(u64) -> u64| (0..100).map(|i| 1000 + ns(i)).collect::<Vec<_>>();
        assert_eq!(times(Pace::Recorded(1.0)), expected(|i| 100 * i));
        assert_eq!(times(Pace::Recorded(0.5)), expected(|i| 200 * i));
        assert_eq!(times(Pace::Rate(1e6)), expected(|i| 1000 * i));
        let bytes: u64 = all[..99].iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert_eq!(times(Pace::Bandwidth(0.008))[99], 1000 + bytes * 1000);
    }

    #[test]
    fn a_datagram_without_a_time_follows_the_one_before_and_time_never_runs_backwards() {
        let all = vec![(0, vec![1]), (700, vec![2]), (0, vec![3]), (650, vec![4]), (900, vec![5])];
        let times: Vec<_> = send(false, Pace::Recorded(1.0), 9, &all).0.into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, [1000, 1000, 1000, 1000, 1200]);
    }

    #[test]
    fn what_cannot_be_sealed_or_is_empty_is_left_out_and_counted() {
        let mut roce = vec![0x64, 0x40, 0xFF, 0xFF, 0, 0, 0, 9, 0, 0, 0, 1];
        roce.extend([7; 8 + 100 + 4]);
        let all = vec![(0, roce.clone()), (0, roce[..19].to_vec()), (0, vec![]), (0, vec![0x64])];
        let (sent, counts) = send(true, Pace::Max, 9, &all);
        assert_eq!(sent, [(1000, roce[..120].to_vec())], "the transport adds the ICRC");
        assert_eq!((counts.datagrams, counts.malformed, counts.empty), (1, 2, 1));
    }
}
