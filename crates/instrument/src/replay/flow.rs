//! Replay of the datagrams of a capture.
//!
//! The datagrams need not form shots. The ICRC of RoCEv2 datagrams is recomputed, because it covers the addresses;
//! other datagrams are sent unchanged.

use crate::probe::pace::Pace;
use serde::Serialize;
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_transport::{IoError, MAX_HEADER, PacketIo, Seal, TxPacket};
use shotline_wire::bth::Bth;
use shotline_wire::roce::ICRC_LEN;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of datagrams passed to the transport at a time.
const BATCH: usize = 60;
/// Upper bound of a datagram's length in bytes.
const MAX_DATAGRAM_BYTES: usize = 1 << 16;

/// Consecutive datagrams of a capture.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Concatenated UDP payloads.
    pub bytes: Vec<u8>,
    /// Capture time in ns (0 if unknown) and byte range of each datagram.
    pub datagrams: Vec<(u64, Range<usize>)>,
}

/// Counters of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounters {
    /// Datagrams accepted by the transport.
    pub datagrams: u64,
    /// Bytes of UDP payload in them.
    pub bytes: u64,
    /// RoCEv2 packets skipped because they end within their headers, so no ICRC can be computed.
    pub malformed: u64,
    /// Empty datagrams skipped.
    pub empty: u64,
    /// Datagrams sent more than a millisecond late.
    pub late: u64,
    /// Send calls that did not accept all datagrams.
    pub tx_full: u64,
}

/// Delay above which a datagram counts as late, in ns.
const MAX_DELAY_NS: u64 = 1_000_000;

/// Sender of one flow's datagrams to one address.
#[derive(Debug)]
pub struct Flow<Io> {
    io: Io,
    to: SocketAddr,
    sealed: bool,
    pace: Pace,
    region: Arc<Region>,
    id: RegionId,
    /// Send time and capture time of the first datagram, in ns.
    first: Option<(u64, u64)>,
    /// Latest capture time so far, in ns.
    captured_ns: u64,
    counters: FlowCounters,
}

/// Byte ranges of a datagram's header and payload in a chunk.
#[derive(Clone, Debug)]
struct DatagramParts {
    header: Range<usize>,
    payload: Range<usize>,
}

impl<Io: PacketIo> Flow<Io> {
    /// Allocates memory for payloads and opens the transport with `open`. `sealed` must be `true` for RoCEv2 packets.
    ///
    /// # Errors
    /// If memory cannot be allocated or the transport cannot be opened.
    pub fn new(
        to: SocketAddr,
        sealed: bool,
        pace: Pace,
        open: impl FnOnce(&shotline_memory::Regions) -> Result<Io, IoError>,
    ) -> Result<Self, FlowError> {
        let region = Region::host(BATCH * MAX_DATAGRAM_BYTES)?;
        let mut registrar = Registrar::new();
        let id = registrar.add(Arc::clone(&region));
        let io = open(&registrar.finish())?;
        let counters = FlowCounters::default();
        Ok(Self { io, to, sealed, pace, region, id, first: None, captured_ns: 0, counters })
    }

    /// Sends datagrams at their times. `wait` sleeps until the given time and returns the current time, or `None` to
    /// stop; it also gets the counters so far. While the path is full, calls `retry` and stops trying once it returns `false`. Returns `false` if
    /// stopped.
    ///
    /// # Errors
    /// If the transport fails.
    pub fn send(
        &mut self,
        chunk: &Chunk,
        wait: &mut dyn FnMut(u64, &FlowCounters) -> Option<u64>,
        retry: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FlowError> {
        let mut batch: Vec<DatagramParts> = Vec::with_capacity(BATCH);
        let Some(mut now) = wait(0, &self.counters) else { return Ok(false) };
        for (captured_ns, range) in &chunk.datagrams {
            let Some(parts) = self.split(chunk, range.clone()) else { continue };
            let start = self.send_time(*captured_ns, now);
            if start > now || batch.len() == BATCH {
                if !self.flush(chunk, &mut batch, retry)? {
                    return Ok(false);
                }
                let Some(time) = wait(start, &self.counters) else { return Ok(false) };
                now = time;
            }
            self.counters.late += u64::from(now.saturating_sub(start) > MAX_DELAY_NS && self.pace != Pace::Max);
            self.counters.bytes += range.len() as u64;
            self.counters.datagrams += 1;
            batch.push(parts);
        }
        self.flush(chunk, &mut batch, retry)
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Returns the send time of the next datagram, in ns.
    fn send_time(&mut self, captured_ns: u64, now: u64) -> u64 {
        // A datagram without a capture time directly follows the previous one.
        self.captured_ns = self.captured_ns.max(captured_ns);
        if self.captured_ns == 0 && matches!(self.pace, Pace::Recorded(_)) {
            return now;
        }
        let (sent, captured) = *self.first.get_or_insert((now, self.captured_ns));
        let after = match self.pace {
            Pace::Recorded(speed) => (self.captured_ns - captured) as f64 / speed,
            Pace::Rate(hz) => self.counters.datagrams as f64 * 1e9 / hz,
            Pace::Bandwidth(gbps) => self.counters.bytes as f64 * 8.0 / gbps,
            Pace::Device | Pace::Max => return now,
        };
        sent.saturating_add(after.round() as u64)
    }

    /// Splits a datagram into header and payload; counts it and returns `None` if it cannot be sent.
    fn split(&mut self, chunk: &Chunk, range: Range<usize>) -> Option<DatagramParts> {
        if range.is_empty() {
            self.counters.empty += 1;
            return None;
        }
        if !self.sealed {
            let header = range.start..range.end.min(range.start + MAX_HEADER);
            return Some(DatagramParts { payload: header.end..range.end, header });
        }
        let header_len = Bth::parse(&chunk.bytes[range.clone()]).map(|(bth, _)| bth.opcode.header_len());
        let header = header_len.ok().map(|len| range.start..range.start + len);
        let parts = header.filter(|header| header.end + ICRC_LEN <= range.end).map(|header| {
            let payload = header.end..range.end - ICRC_LEN;
            DatagramParts { header, payload }
        });
        self.counters.malformed += u64::from(parts.is_none());
        parts
    }

    /// Sends a batch; returns `false` if `retry` ended it early.
    fn flush(
        &mut self,
        chunk: &Chunk,
        batch: &mut Vec<DatagramParts>,
        retry: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FlowError> {
        let seal = if self.sealed { Seal::Compute } else { Seal::None };
        let mut payloads = Vec::with_capacity(batch.len());
        let mut at = 0;
        for parts in &*batch {
            self.region.write(at, &chunk.bytes[parts.payload.clone()]);
            payloads.push([Sge { region: self.id, offset: at as u64, len: parts.payload.len() as u32 }]);
            at += parts.payload.len();
        }
        let sends: Vec<_> = batch
            .iter()
            .zip(&payloads)
            .map(|(parts, gather)| TxPacket { header: &chunk.bytes[parts.header.clone()], gather, seal })
            .collect();
        let mut rest = sends.as_slice();
        while !rest.is_empty() {
            rest = &rest[self.io.send(self.to, rest)?..];
            if !rest.is_empty() {
                self.counters.tx_full += 1;
                if !retry() {
                    self.counters.datagrams -= rest.len() as u64;
                    return Ok(false);
                }
            }
        }
        batch.clear();
        Ok(true)
    }
}

/// Reason why a flow could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The link failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Memory allocation failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeLink, Log};
    use shotline_memory::Regions;

    /// Datagrams with their send times.
    type Sent = Vec<(u64, Vec<u8>)>;

    /// Sends datagrams with these capture times; returns the sent datagrams and the counters.
    fn send(sealed: bool, pace: Pace, capacity: usize, datagrams: &[(u64, Vec<u8>)]) -> (Sent, FlowCounters) {
        let log = Log::default();
        log.now.set(1000);
        let link = |regions: &Regions| Ok(FakeLink { link: 0, regions: regions.clone(), capacity, log: log.clone() });
        let mut flow = Flow::new(([127, 0, 0, 1], 9).into(), sealed, pace, link).unwrap();
        for half in datagrams.chunks(datagrams.len().div_ceil(2).max(1)) {
            let mut chunk = Chunk::default();
            for (time, bytes) in half {
                let at = chunk.bytes.len();
                chunk.bytes.extend(bytes);
                chunk.datagrams.push((*time, at..chunk.bytes.len()));
            }
            let mut wait = |until: u64, _: &FlowCounters| {
                log.now.set(until.max(log.now.get()));
                Some(log.now.get())
            };
            assert!(flow.send(&chunk, &mut wait, &mut || true).unwrap());
        }
        let counters = flow.counters();
        (log.sent.take().into_iter().map(|sent| (sent.sent_ns, sent.bytes)).collect(), counters)
    }

    fn datagrams(count: usize) -> Vec<(u64, Vec<u8>)> {
        (0..count).map(|i| (5_000_000 + 100 * i as u64, vec![i as u8; 1 + i * 37 % 3000])).collect()
    }

    #[test]
    fn every_byte_is_sent_in_order_at_any_path_capacity() {
        let all = datagrams(200);
        for capacity in [1, 7, usize::MAX] {
            let (sent, counts) = send(false, Pace::Max, capacity, &all);
            assert!(sent.iter().map(|(_, bytes)| bytes).eq(all.iter().map(|(_, bytes)| bytes)));
            assert_eq!((counts.datagrams, counts.late), (200, 0));
            assert_eq!(counts.bytes, all.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        }
    }

    #[test]
    fn the_pace_is_recorded_or_as_requested() {
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
    fn missing_and_decreasing_times_follow_the_previous_one() {
        let all = vec![(0, vec![1]), (700, vec![2]), (0, vec![3]), (650, vec![4]), (900, vec![5])];
        let times: Vec<_> = send(false, Pace::Recorded(1.0), 9, &all).0.into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, [1000, 1000, 1000, 1000, 1200]);
    }

    #[test]
    fn malformed_and_empty_datagrams_are_skipped_and_counted() {
        let mut roce = vec![0x64, 0x40, 0xFF, 0xFF, 0, 0, 0, 9, 0, 0, 0, 1];
        roce.extend([7; 8 + 100 + 4]);
        let all = vec![(0, roce.clone()), (0, roce[..19].to_vec()), (0, vec![]), (0, vec![0x64])];
        let (sent, counts) = send(true, Pace::Max, 9, &all);
        assert_eq!(sent, [(1000, roce[..120].to_vec())], "the transport adds the ICRC");
        assert_eq!((counts.datagrams, counts.malformed, counts.empty), (1, 2, 1));
    }
}
