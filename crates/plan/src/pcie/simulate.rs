//! Simulation of a card TLP by TLP.
//!
//! Time is counted in [`TICKS_PER_NS`] ticks a nanosecond, in which a byte of the line, a byte of every link, a block of
//! the card and a beat of the requester stream are whole numbers at the default clocks.

use super::LINE_EXTRA_BYTES;
use super::card::REPORT_BYTES;
use super::limits::System;
use super::link::{BLOCK_BYTES, DLLP_BYTES, Link, SKP_BLOCKS, Tlp};
use std::collections::VecDeque;

/// Ticks in a nanosecond: the unit of time of a [`Transmitter`]. A byte takes 65 / 8 / (GT/s of all lanes) ns on the link
/// and 2 / 25 ns on the line.
pub const TICKS_PER_NS: u64 = 4096 * 25;
/// Ticks of a byte on the line, at 100 Gbit/s.
const LINE_BYTE_TICKS: u64 = TICKS_PER_NS * 2 / 25;
/// TLPs that the PCIe block holds before the link.
pub const HELD_TLPS: usize = 16;

/// Credits of the host for posted requests (PCI Express base specification 5.0, 2.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Posted headers (PH), at least 1.
    pub headers: u32,
    /// Posted data (PD) in units of 16 bytes, at least one maximum payload.
    pub data: u32,
    /// Time in ns from the end of a TLP to the return of its credits.
    pub latency_ns: u32,
}

impl Default for Credits {
    /// Returns credits for 64 KiB in 512 TLPs that return after 500 ns, which limit no link up to generation 5 x16: an
    /// assumption, as hosts differ.
    fn default() -> Self {
        Self { headers: 512, data: 4096, latency_ns: 500 }
    }
}

/// Start and end of a TLP on the link, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

/// Sending end of a link: TLPs in order, DLLPs and SKP ordered sets between them, credits.
#[derive(Debug)]
pub struct Transmitter {
    link: Link,
    credits: Credits,
    byte_ticks: u64,
    free: u64,
    tlps: u32,
    bytes_since_skp: u64,
    /// Credits in use, a header each: time of return in ticks, and units of data.
    used: VecDeque<(u64, u32)>,
    used_data: u32,
}

impl Transmitter {
    /// Creates an idle transmitter with all credits.
    pub fn new(link: &Link, credits: Credits) -> Self {
        let lanes_gt = u64::from(link.generation.lane_gt_per_s() * link.lanes).max(1);
        let byte_ticks = TICKS_PER_NS * 65 / 8 / lanes_gt;
        let used = VecDeque::new();
        Self { link: *link, credits, byte_ticks, free: 0, tlps: 0, bytes_since_skp: 0, used, used_data: 0 }
    }

    /// Sends a TLP that is complete at `ready`, in ticks, once the link is free and credits suffice. Read requests use
    /// other credits, which are not counted.
    pub fn offer(&mut self, ready: u64, tlp: Tlp) -> Sent {
        let data = tlp.payload_bytes().div_ceil(16);
        let is_posted = matches!(tlp, Tlp::Write(_));
        let mut start = ready.max(self.free);
        while let Some((returns, returned)) = self.used.front().copied() {
            let suffice = self.used.len() < self.credits.headers as usize && self.used_data + data <= self.credits.data;
            if returns > start && (suffice || !is_posted) {
                break;
            }
            start = start.max(returns);
            self.used.pop_front();
            self.used_data -= returned;
        }
        let end = start + self.send_bytes(tlp.link_bytes());
        self.free = end;
        self.tlps += 1;
        if self.link.tlps_per_dllp.is_some_and(|tlps| self.tlps.is_multiple_of(tlps.max(1))) {
            self.free += self.send_bytes(DLLP_BYTES);
        }
        if is_posted {
            self.used.push_back((end + u64::from(self.credits.latency_ns) * TICKS_PER_NS, data));
            self.used_data += data;
        }
        Sent { start, end }
    }

    /// Returns the ticks of so many bytes, with the SKP ordered sets that are due within them.
    fn send_bytes(&mut self, bytes: u32) -> u64 {
        let block = u64::from(BLOCK_BYTES * self.link.lanes);
        self.bytes_since_skp += u64::from(bytes);
        let sets = self.bytes_since_skp / (block * u64::from(SKP_BLOCKS));
        self.bytes_since_skp %= block * u64::from(SKP_BLOCKS);
        (u64::from(bytes) + sets * block) * self.byte_ticks
    }
}

/// Requester stream: the half beats that are taken, and the TLPs that the PCIe block holds.
struct Stream {
    half_ticks: u64,
    /// The next free half beat, counted from the start.
    next_half: u64,
    /// Start of the last TLPs on the link.
    held: VecDeque<u64>,
}

impl Stream {
    /// Passes a TLP of `halves` half beats that is ready at `ready`. Returns when it is complete.
    fn pass(&mut self, ready: u64, halves: u64) -> u64 {
        let room = if self.held.len() < HELD_TLPS { 0 } else { self.held.pop_front().unwrap_or(0) };
        // The beat that begins when the TLP is ready or later; its second half only follows a TLP in the first.
        let first_beat = ready.max(room).div_ceil(2 * self.half_ticks);
        let start = self.next_half.max(2 * first_beat);
        self.next_half = start + halves;
        self.next_half * self.half_ticks
    }
}

/// Simulates `packets` packets of `length` bytes with FCS that arrive at line rate. Returns the packets per second that
/// leave, measured over the last three quarters.
pub fn simulate(system: &System, credits: Credits, length: u32, packets: u32) -> f64 {
    let ticks_per_s = TICKS_PER_NS as f64 * 1e9;
    let card_ticks = (ticks_per_s / system.card.clock_hz / f64::from(system.card.word_blocks)).round() as u64;
    let half_ticks = (ticks_per_s / system.requester.clock_hz / 2.0).round() as u64;
    let mut transmitter = Transmitter::new(&system.link, credits);
    let mut stream = Stream { half_ticks, next_half: 0, held: VecDeque::new() };
    let writes = system.writes.of(&system.link, length);
    let (mut card_free, mut end, mut warm) = (0, 0, 0);
    let warm_up = packets / 4;
    for packet in 1..=packets {
        let arrived = u64::from(packet) * u64::from(length + LINE_EXTRA_BYTES) * LINE_BYTE_TICKS;
        card_free = arrived.max(card_free) + u64::from(system.card.blocks(length)) * card_ticks;
        let mut send = |tlp| {
            let complete = stream.pass(card_free, u64::from(system.requester.half_beats(tlp)));
            let sent = transmitter.offer(complete, tlp);
            stream.held.push_back(sent.start);
            end = sent.end;
        };
        for (count, payload) in writes {
            (0..count).for_each(|_| send(Tlp::Write(payload)));
        }
        if let Some(load) = system.load {
            if packet.is_multiple_of(load.packets_per_read.max(1)) {
                send(Tlp::Read);
            }
            if packet.is_multiple_of(load.packets_per_report.max(1)) {
                send(Tlp::Write(REPORT_BYTES));
            }
        }
        if packet == warm_up {
            warm = end;
        }
    }
    f64::from(packets - warm_up) * ticks_per_s / end.saturating_sub(warm).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::{Generation, LENGTHS, Load, Requester, Writes};
    use super::*;

    fn link(generation: Generation, lanes: u32, max_payload: u32) -> Link {
        Link { generation, lanes, max_payload, ..Link::default() }
    }

    fn agrees(system: &System) {
        for length in LENGTHS {
            let formula = system.limits(length).packets_hz();
            let simulated = simulate(system, Credits::default(), length, 4000);
            assert!((simulated / formula - 1.0).abs() < 0.01, "{system:?}, {length}: {simulated} and {formula}");
        }
    }

    #[test]
    fn formula_and_simulation_agree_on_gen_3_x16() {
        for payload in [128, 256, 512] {
            agrees(&System::new(link(Generation::Three, 16, payload)));
        }
    }

    #[test]
    fn formula_and_simulation_agree_on_gen_4_x8() {
        for payload in [256, 512] {
            agrees(&System::new(link(Generation::Four, 8, payload)));
        }
    }

    #[test]
    fn formula_and_simulation_agree_on_writes_of_64_bytes() {
        let system = System { writes: Writes::Words, ..System::new(Link::default()) };
        agrees(&system);
        agrees(&System { load: None, ..system });
    }

    #[test]
    fn formula_and_simulation_agree_on_headers_of_their_own() {
        let load = Some(Load::of_pairs());
        agrees(&System { writes: Writes::Split(64), load, ..System::new(Link::default()) });
    }

    #[test]
    fn formula_and_simulation_agree_without_straddle() {
        let requester = Requester { straddle: false, ..Requester::default() };
        let load = Some(Load { packets_per_report: 1, ..Load::default() });
        agrees(&System { requester, load, ..System::new(Link::default()) });
    }

    #[test]
    fn few_credits_limit_the_rate_to_a_window_per_round_trip() {
        let system = System { load: None, ..System::new(Link::default()) };
        // Eight packets, then a wait of 1 us from the end of each.
        let few = Credits { headers: 8, data: 4096, latency_ns: 1000 };
        let hz = simulate(&system, few, 64, 4000);
        assert!(hz < 8e6 && hz > 7.8e6, "{hz}");
        // 76 bytes are five units of data: 40 units are eight packets.
        let few = Credits { headers: 512, data: 40, latency_ns: 1000 };
        assert!((simulate(&system, few, 64, 4000) / hz - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_dllp_and_a_skp_ordered_set_delay_the_next_tlp() {
        let mut transmitter = Transmitter::new(&Link { tlps_per_dllp: Some(2), ..Link::default() }, Credits::default());
        let byte = TICKS_PER_NS * 65 / 8 / 128;
        let sent = [(); 3].map(|()| transmitter.offer(0, Tlp::Write(256)));
        assert_eq!(sent[0], Sent { start: 0, end: 280 * byte });
        assert_eq!(sent[1].start, 280 * byte);
        assert_eq!(sent[2].start, (560 + 8) * byte);
        // 370 blocks of 256 bytes hold 336 pairs of TLPs and part of the next.
        let last = (3..=680).map(|_| transmitter.offer(0, Tlp::Write(256))).last().unwrap();
        assert_eq!(last.end, (681 * 280 + 340 * 8 + 2 * 256) * byte);
    }
}
