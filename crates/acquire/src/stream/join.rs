//! Where a stream is joined that nobody has announced.
//!
//! It is joined where a shot begins. The first packets may be out of order, so they are placed from the first one on, and
//! nothing leaves until some have come. Then the shots that were under way before are given up: those that lack packets
//! that may have been sent before the first one that came.

use super::{Item, Open, Stream};
use shotline_wire::shot::{DropCause, Presence};

/// Places by which packets may be out of order where a stream is joined.
const PLACES: u64 = 8;
/// What was sent before the first packet that came has come after so long at the latest.
const JOIN_NS: u64 = 20_000_000;

/// A stream that is being joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining {
    /// The packet that came first, counted from the stream's beginning.
    first: u64,
    since_ns: u64,
    /// Packets that have come.
    packets: u64,
    newest: u64,
    /// Some came behind newer ones: then others may have come before the first.
    reordered: bool,
}

impl Joining {
    /// What was sent before this place may have come before all that did.
    fn begins(&self) -> u64 {
        self.first.saturating_add(if self.reordered { PLACES } else { 0 })
    }
}

impl Stream {
    /// Takes note of a packet while the stream is joined. Returns the lowest shot that may begin it.
    pub(super) fn join(&mut self, number: u64, index: u32, now_ns: u64) -> u64 {
        let at = self.nth(number, index);
        if self.joining.is_none() {
            self.newest = number;
        }
        let joining = self.joining.get_or_insert(Joining {
            first: at,
            since_ns: now_ns,
            packets: 0,
            newest: at,
            reordered: false,
        });
        joining.packets += 1;
        joining.reordered |= at < joining.newest;
        joining.newest = joining.newest.max(at);
        let lowest = joining.first / u64::from(self.packets);
        // Shots of one packet each may be out of order, too.
        self.joined = self.goes_on.unwrap_or(lowest.saturating_sub(PLACES));
        self.joined
    }

    /// Which packet of the stream one is. Whoever sends may choose numbers that make this more than 64 bits hold; such a
    /// stream is joined at a whole shot all the same.
    fn nth(&self, number: u64, index: u32) -> u64 {
        number.saturating_mul(self.packets.into()).saturating_add(index.into())
    }

    /// Why a packet of a shot before all numbers is dropped.
    pub(super) fn before(&self) -> DropCause {
        if self.next.is_none() { DropCause::BeforeStart } else { DropCause::Late }
    }

    /// Begins the stream with the first shot of which nothing was sent before: when enough packets have come, or time has
    /// passed. Without a time, now.
    pub(super) fn begin(&mut self, now_ns: Option<u64>, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(joining) = self.joining else { return };
        let longest_ns = self.config.timeout_ns.min(JOIN_NS);
        let stale = now_ns.is_none_or(|now| now.saturating_sub(joining.since_ns) > longest_ns);
        if !stale && joining.packets < 2 * PLACES && self.open.len() as u64 <= self.config.window {
            return;
        }
        self.joining = None;
        let before = self.open.iter().take_while(|open| self.began_before(open, joining.begins())).count();
        let cause = self.goes_on.map_or(DropCause::BeforeStart, |_| DropCause::SenderRestart);
        let given_up: Vec<Open> = self.open.drain(..before).collect();
        let end = given_up.last().map_or(self.newest, |open| open.number + 1);
        given_up.into_iter().for_each(|open| self.give_up(open, cause, withdraw));
        let start = self.open.first().map_or(end, |open| open.number);
        if let Some(from) = self.goes_on.take() {
            self.lose(from, start, DropCause::SenderRestart, out);
        }
        self.joined = start;
        self.newest = self.newest.max(start);
        self.next = Some(start);
    }

    /// Whether a shot lacks packets that may have been sent before the first one that came.
    fn began_before(&self, open: &Open, begins: u64) -> bool {
        open.entry.is_some_and(|entry| {
            let mut missing = self.entries[entry].presence.missing();
            missing.any(|index| self.nth(open.number, index) < begins)
        })
    }

    /// Takes back what has come of a shot: it is none of this run's.
    fn give_up(&mut self, open: Open, cause: DropCause, withdraw: &mut Vec<u32>) {
        let Some(entry) = open.entry else { return };
        drop(self.take_buffer(entry));
        let state = &mut self.entries[entry];
        let presence = std::mem::replace(&mut state.presence, Presence::empty(self.packets));
        state.drops = Default::default();
        for index in 0..self.packets {
            if presence.contains(index) {
                self.books.placed -= 1;
                self.books.placed_bytes -= u64::from(self.config.geometry.packet_bytes(index));
                self.books.packet_drops.add(cause, 1);
            } else {
                withdraw.push(self.id(entry, index));
            }
        }
    }
}
