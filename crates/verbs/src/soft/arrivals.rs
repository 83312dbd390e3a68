//! What arrives: to which queue pair, and whether at all.
//!
//! A packet is complete for its opcode, its queue pair exists and is of the opcode's transport service, its ICRC is good:
//! else it is dropped here without an answer, and counted by the first of these that fails ([`Drops`]). Then the queue
//! pair's engine checks that it receives in its state, that the source is its peer, that they share a partition, and
//! counts what it refuses in its [`crate::engine::Books`]. (Linux `rxe_recv.c` looks at the ICRC last, because it
//! computes it there; here the transport has computed it already. What is dropped is the same.)
//! An ICRC that is [`Icrc::Good`], [`Icrc::Solved`] or [`Icrc::Device`] is good; one that could not be checked
//! ([`Icrc::Unverified`], [`Icrc::Absent`]) never is: a packet that nobody vouches for may change nothing. One-sided
//! operations, which bring an address or change memory that nobody offered for the purpose, take a solved ICRC only if
//! the identification follows the sender's last ([`QpConfig::lax`](crate::api::QpConfig::lax) takes any): otherwise one of 65,536
//! packets that were damaged on their way would be taken.

use super::core::Core;
use super::statistics::Drops;
use crate::api::QpType;
use crate::engine::{Ahead, Arrived};
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_transport::{Done, Icrc, Landed, MAX_BATCH, Pick, Seen, Steer, To};
use shotline_wire::bth::{Bth, Opcode, Service};
use shotline_wire::roce::{self, ICRC_LEN, MAX_HEADER_LEN};
use shotline_wire::shot::DropCause;

/// Names the counter of a cause.
type Cause = fn(&mut Drops) -> &mut u64;

/// The steer of an endpoint, for one call.
pub(super) struct Arrivals<'a> {
    pub(super) core: &'a mut Core,
    /// The queue pair of the last packet: a batch is mostly one's.
    last: Option<(u32, u32)>,
}

impl<'a> Arrivals<'a> {
    pub(super) fn new(core: &'a mut Core) -> Self {
        Self { core, last: None }
    }

    /// The place of a queue pair. Whoever leaves the last one has its wishes noted.
    fn place(&mut self, number: u32) -> Option<u32> {
        match self.last {
            Some((last, place)) if last == number => Some(place),
            _ => {
                let place = self.core.pairs.place(number)?;
                if let Some((_, left)) = self.last.replace((number, place)) {
                    self.core.touch(left);
                }
                Some(place)
            }
        }
    }

    /// The place of the queue pair that may have this packet.
    fn admit(&mut self, bth: &Bth) -> Result<u32, Cause> {
        let place = self.place(bth.dest_qp).ok_or((|drops| &mut drops.unknown_qp) as Cause)?;
        let Some(pair) = self.core.pairs.get(place) else { return Err(|drops| &mut drops.unknown_qp) };
        let kind = pair.engine.config().kind;
        let fits = match bth.opcode.service() {
            Service::ReliableConnection => kind == QpType::Rc,
            Service::UnreliableConnection => kind == QpType::Uc,
            Service::UnreliableDatagram => kind == QpType::Ud,
            Service::CongestionNotification => true,
        };
        if !fits {
            return Err(|drops| &mut drops.wrong_service);
        }
        Ok(place)
    }

    fn arrive(&mut self, done: &Done<'_>) -> Result<(), Cause> {
        let malformed: Cause = |drops| &mut drops.malformed;
        if done.fault.is_some_and(|fault| fault != DropCause::BadIcrc) {
            return Err(malformed);
        }
        let opcode = done.header.first().copied().and_then(Opcode::from_u8).ok_or(malformed)?;
        let (mut landed, mut len) = (done.landed, done.len);
        let mut whole = ArrayVec::<u8, MAX_HEADER_LEN>::new();
        let mut header = done.header;
        if header.len() != opcode.header_len() {
            (landed, len) = self.lay_out(done, opcode.header_len(), &mut whole).ok_or(malformed)?;
            header = &whole;
        }
        let (bth, extensions) = roce::header(header).map_err(|_| malformed)?;
        if len < u32::from(bth.pad) {
            return Err(malformed);
        }
        let place = self.admit(&bth)?;
        let lax = || self.core.pairs.get(place).is_some_and(|pair| pair.engine.config().lax);
        match done.icrc {
            Icrc::Good | Icrc::Solved { follows: true } | Icrc::Device => {}
            Icrc::Solved { follows: false } if !bth.opcode.is_one_sided() || lax() => {}
            Icrc::Solved { .. } => return Err(|drops| &mut drops.unverified),
            Icrc::Bad => return Err(|drops| &mut drops.bad_icrc),
            Icrc::Unverified | Icrc::Absent => return Err(|drops| &mut drops.unverified),
        }
        let (congested, source) = (done.congested, done.source);
        let packet = Arrived { bth, extensions: &extensions, landed, len, congested, source };
        self.core.with(place, |engine, context| engine.receive(context, &packet));
        Ok(())
    }

    /// Lays a packet out anew whose header is longer or shorter than it was taken for: its first bytes into `header`,
    /// the others into memory of the endpoint. None if it is too short for its header.
    fn lay_out(
        &mut self,
        done: &Done<'_>,
        needed: usize,
        header: &mut ArrayVec<u8, MAX_HEADER_LEN>,
    ) -> Option<(Landed, u32)> {
        let Core { regions, again, statistics, .. } = &mut *self.core;
        let pieces = match done.landed {
            Landed::Memory(sges) => sges,
            Landed::Scratch(sge) => [sge, Sge::EMPTY],
            Landed::Slot(_) => return None, // nothing was posted
        };
        let mut bytes = [0; MAX_HEADER_LEN];
        let known = done.header.len().min(needed);
        bytes[..known].copy_from_slice(&done.header[..known]);
        // Bytes taken for header that are payload, and bytes taken for payload that are header.
        let surplus = &done.header[known..];
        let missing = needed - known;
        let mut left = done.len as usize;
        if missing > left || surplus.len() + left > again.len as usize {
            return None;
        }
        regions.get(again.region).write(again.offset as usize, surplus);
        let (mut at, mut to) = (known, surplus.len());
        for piece in pieces {
            let len = (piece.len as usize).min(left);
            if len == 0 {
                continue;
            }
            left -= len;
            let from = regions.get(piece.region);
            let head = (needed - at).min(len);
            from.read(piece.offset as usize, &mut bytes[at..at + head]);
            at += head;
            let (begin, rest) = (piece.offset as usize + head, len - head);
            regions.get(again.region).copy_from(again.offset as usize + to, from, begin, rest);
            to += rest;
        }
        if left > 0 {
            return None;
        }
        header.try_extend_from_slice(&bytes[..needed]).ok()?;
        statistics.bytes_moved += to as u64;
        Some((Landed::Scratch(Sge { len: to as u32, ..*again }), to as u32))
    }
}

/// Sees to it that no two payloads of a batch are copied to the same bytes: each is checked only when all are there, so
/// one would spoil the other. Receives may share their memory (benchmarks like to), and lists may overlap.
fn part(picks: &mut [Pick]) {
    let mut taken = ArrayVec::<Sge, { 2 * MAX_BATCH }>::new();
    let overlap = |a: &Sge, b: &Sge| {
        let end = |sge: &Sge| sge.offset + u64::from(sge.len);
        a.region == b.region && a.offset < end(b) && b.offset < end(a)
    };
    // Places mostly follow each other: only one that does not is held against all.
    let follows = |last: &Sge, sge: &Sge| last.region == sge.region && last.offset + u64::from(last.len) <= sge.offset;
    let mut rising = true;
    for pick in picks {
        let To::Memory(sges) = pick.to else { continue };
        for sge in sges.iter().filter(|sge| sge.len > 0) {
            rising &= taken.last().is_none_or(|last| follows(last, sge));
            if !rising && taken.iter().any(|other| overlap(other, sge)) {
                pick.to = To::Scratch;
                break;
            }
            if taken.try_push(*sge).is_err() {
                pick.to = To::Scratch;
            }
        }
    }
}

impl Steer for Arrivals<'_> {
    fn header_len(&mut self, seen: &Seen<'_>) -> usize {
        seen.first.first().copied().and_then(Opcode::from_u8).map_or(Bth::LEN, Opcode::header_len)
    }

    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]) {
        let bare = |bytes: u32| bytes.saturating_sub(ICRC_LEN as u32);
        // An acknowledgement behind a request is shorter than the request's header: it is all header.
        if let Some(last) = picks.last_mut().filter(|_| bare(seen.last) < self.header_len(seen) as u32) {
            last.header_len = u16::try_from(bare(seen.last)).ok();
        }
        let Ok((bth, extensions)) = roce::header(seen.first) else { return };
        let Ok(place) = self.admit(&bth) else { return };
        let Some(pair) = self.core.pairs.get(place) else { return };
        // A stranger's payload stays out of a connection's memory.
        if !pair.engine.is_from_peer(seen.source) {
            return;
        }
        let receives = match pair.srq() {
            Some(srq) => match self.core.shared.get(srq.0) {
                Some(shared) => &shared.receives,
                None => return,
            },
            None => &pair.receives,
        };
        let ahead = Ahead {
            bth,
            extensions: &extensions,
            first: bare(seen.segment).saturating_sub(bth.opcode.header_len() as u32),
            segment: bare(seen.segment),
            last: bare(seen.last),
            source: seen.source,
        };
        pair.engine.pick(&self.core.protection, receives, &ahead, picks);
        part(picks);
        if self.core.foreign {
            // The transport cannot write a device's memory: by way of scratch memory, from where the engine copies it.
            let regions = &self.core.regions;
            let reaches = |to: To| match to {
                To::Memory(sges) => sges.iter().all(|sge| sge.len == 0 || regions.get(sge.region).is_mapped()),
                To::Scratch | To::Posted(_) => true,
            };
            picks.iter_mut().filter(|pick| !reaches(pick.to)).for_each(|pick| pick.to = To::Scratch);
        }
    }

    fn expect(&mut self, _picks: &mut [Pick]) -> usize {
        0
    }

    fn around(&self, _to: To) -> [u32; 2] {
        [0; 2]
    }

    fn landed(&mut self, batch: &[Done<'_>]) {
        self.core.statistics.batches_in += 1;
        self.core.statistics.packets_in += batch.len() as u64;
        for done in batch {
            if let Err(cause) = self.arrive(done) {
                *cause(&mut self.core.statistics.drops) += 1;
            }
        }
        if let Some((_, place)) = self.last {
            self.core.touch(place);
        }
    }
}
