//! The integrated block for PCIe and the link behind it: streams of the card on one side, host memory on the other.

use super::access::{Access, Answer};
use super::addresses::is_report;
use super::host::Host;
use super::reads::Completion;
use super::requests::{Request, Requests};
use super::sys::{Model, PcieInputs, PcieOutputs};
use shotline_plan::pcie::{Credits, HELD_TLPS, Link, TICKS_PER_NS, Tlp, Transmitter};
use std::collections::VecDeque;

/// Periods of the card's clock, 200 MHz, and of the block's, 250 MHz.
const CARD_NS: u64 = 5;
const BLOCK_NS: u64 = 4;
/// TLPs that end in one beat.
const BEAT_TLPS: usize = 2;
/// Clocks of the block's pipeline, within which its number of credits still counts those of a read.
const PIPELINE: usize = 24;
/// The highest number of credits that the block shows.
const MAX_CREDITS: usize = 15;
/// Bytes of the descriptor of a completion on the requester completion stream.
const COMPLETION_HEAD: u32 = 12;

/// TLPs on the link from one write of payload to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Writes of payload.
    pub writes: u64,
    /// Writes of reports.
    pub reports: u64,
    /// Descriptor reads.
    pub reads: u64,
    /// Beginning of the first write of payload and end of the last, in ticks.
    span: Option<(u64, u64)>,
}

impl Traffic {
    /// Returns the time from the beginning of the first write of payload to the end of the last.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| (last - first) as f64 / TICKS_PER_NS as f64 / 1e9)
    }
}

/// What the card did in a clock of the block.
#[derive(Debug)]
pub(crate) struct Tick {
    /// Requests, in order.
    pub requests: Vec<Request>,
    /// Channel of an interrupt.
    pub interrupt: Option<usize>,
    /// Answer to the register access.
    pub answer: Option<Answer>,
}

/// The block, set up as `shotline_card_pcie` expects it.
///
/// It takes requests while it holds less than [`HELD_TLPS`] that the link has not begun to send, and sends completions of
/// 64 bytes. The other direction of the link is not limited, except that the completion stream carries one completion in
/// two clocks. A read needs a credit: the card must not send it without one, because writes would wait behind it.
#[derive(Debug)]
pub struct Block {
    /// Credits of the host for reads.
    pub read_credits: usize,
    /// What was sent until the last write of payload, and until now.
    traffic: (Traffic, Traffic),
    link: Link,
    transmitter: Transmitter,
    requests: Requests,
    clocks: u64,
    /// Start on the link of the requests that it holds, in ticks.
    held: VecDeque<u64>,
    /// When the credits of reads return, in ticks.
    credits: VecDeque<u64>,
    /// The number of credits in use that the block shows from now on, clock by clock.
    shown: VecDeque<usize>,
    /// The stream had a beat in the last clock.
    offered: bool,
    /// Beats of completions, the next first: contents, and whether it is the last.
    completions: VecDeque<([u64; 8], bool)>,
}

impl Block {
    pub(crate) fn new(link: &Link) -> Self {
        Self {
            read_credits: 64,
            traffic: Default::default(),
            credits: VecDeque::new(),
            shown: VecDeque::from([0; PIPELINE]),
            link: *link,
            transmitter: Transmitter::new(link, Credits::default()),
            requests: Requests::default(),
            clocks: 0,
            held: VecDeque::new(),
            offered: false,
            completions: VecDeque::new(),
        }
    }

    /// Returns the link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns what was sent since the last call, from the first write of payload to the last.
    pub(crate) fn take_traffic(&mut self) -> Traffic {
        std::mem::take(&mut self.traffic).0
    }

    /// Returns `true` if requests or completions are on their way.
    pub(crate) fn is_busy(&self) -> bool {
        self.offered || !self.held.is_empty() || !self.completions.is_empty()
    }

    /// Returns `true` if the clock of the block has an edge before the end of a clock of the card.
    pub(crate) fn is_due(&self, card_clock: u64) -> bool {
        (self.clocks + 1) * BLOCK_NS <= (card_clock + 1) * CARD_NS
    }

    /// Runs for one clock of the block.
    ///
    /// # Errors
    /// If the card violates a rule of the streams.
    pub(crate) fn tick(
        &mut self,
        card_clock: u64,
        model: &mut Model,
        host: &mut Host,
        access: Option<&mut Access>,
    ) -> Result<Tick, String> {
        let mut inputs = PcieInputs::default();
        let now = self.clocks * BLOCK_NS * TICKS_PER_NS;
        while self.held.front().is_some_and(|&start| start <= now) {
            self.held.pop_front();
        }
        inputs.rq_ready = self.held.len() + BEAT_TLPS <= HELD_TLPS && host.accepts();
        while self.credits.front().is_some_and(|&returns| returns <= now) {
            self.credits.pop_front();
        }
        self.shown.push_back(self.credits.len());
        let used = self.shown.pop_front().unwrap_or(0);
        inputs.read_credits = self.read_credits.saturating_sub(used).min(MAX_CREDITS) as u8;
        if self.completions.is_empty() {
            self.completions.extend(host.complete(card_clock).iter().flat_map(beats));
        }
        if let Some(&(data, last)) = self.completions.front() {
            (inputs.rc_valid, inputs.rc_data, inputs.rc_last) = (true, data, last);
        }
        if let Some(access) = access.as_deref().filter(|access| !access.accepted) {
            (inputs.cq_valid, inputs.cq_data) = (true, request(access));
        }
        let outputs = model.tick_pcie(&inputs);
        self.clocks += 1;
        self.offered = outputs.rq_valid == 1;
        if outputs.rc_ready == 1 {
            self.completions.pop_front();
        }
        let answer = access.and_then(|access| answered(access, &outputs));
        let mut requests = Vec::new();
        self.requests.take(&outputs, inputs.rq_ready, &mut requests)?;
        requests.iter().try_for_each(|request| self.send(request))?;
        let interrupt = (outputs.interrupt_valid == 1).then_some(outputs.interrupt_channel.into());
        Ok(Tick { requests, interrupt, answer })
    }

    /// Sends a request that is complete at the end of this clock.
    ///
    /// # Errors
    /// If it is a read, and there is no credit.
    fn send(&mut self, request: &Request) -> Result<(), String> {
        let tlp = match request {
            Request::Write { bytes, .. } => Tlp::Write(bytes.len() as u32),
            Request::Read { .. } => Tlp::Read,
        };
        let sent = self.transmitter.offer(self.clocks * BLOCK_NS * TICKS_PER_NS, tlp);
        self.held.push_back(sent.start);
        let (until_payload, now) = &mut self.traffic;
        match request {
            Request::Read { .. } => {
                now.reads += 1;
                self.credits.push_back(sent.end + u64::from(Credits::default().latency_ns) * TICKS_PER_NS);
                if self.credits.len() > self.read_credits {
                    return Err(format!("{request:x?} without a credit"));
                }
            }
            Request::Write { address, .. } if is_report(*address) => now.reports += 1,
            Request::Write { .. } => {
                now.writes += 1;
                now.span = Some((now.span.map_or(sent.start, |(first, _)| first), sent.end));
                *until_payload = *now;
            }
        }
        Ok(())
    }
}

/// Returns a register access as a request of the host on the completer request stream: one dword in BAR 0.
fn request(access: &Access) -> [u64; 8] {
    let kind = u64::from(access.value.is_some());
    [access.address.into(), 1 | kind << 11, access.value.unwrap_or(0).into(), 0, 0, 0, 0, 0]
}

/// Returns the answer to an access. A write has none on PCIe; the next access comes after it.
fn answered(access: &mut Access, outputs: &PcieOutputs) -> Option<Answer> {
    access.accepted |= outputs.cq_ready == 1;
    match access.value {
        Some(_) => access.accepted.then_some(Answer { refused: false, data: 0 }),
        None => (outputs.cc_valid == 1).then_some(Answer { refused: false, data: (outputs.cc_data[1] >> 32) as u32 }),
    }
}

/// Returns a completion as beats of the requester completion stream (PG213: dword-aligned, without straddle).
fn beats(completion: &Completion) -> Vec<([u64; 8], bool)> {
    // Completer abort: an error of the host.
    let (error, count) = if completion.error { (4, 0) } else { (0, 2 * completion.words.len() as u64) };
    let head = [count << 32 | error << 43, u64::from(completion.tag)];
    let words = if completion.error { &[] } else { completion.words.as_slice() };
    let mut dwords = head.iter().chain(words).flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect::<Vec<_>>();
    dwords.remove(COMPLETION_HEAD as usize / 4);
    let word = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
    let last = dwords.len().div_ceil(16) - 1;
    let beat = |dwords: &[u32]| {
        let mut data = [0; 8];
        data.iter_mut().zip(dwords.chunks(2)).for_each(|(to, pair)| *to = word(pair));
        data
    };
    dwords.chunks(16).enumerate().map(|(index, dwords)| (beat(dwords), index == last)).collect()
}
