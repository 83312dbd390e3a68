//! Several single packets by one system call, into the places where they will belong if they come in order.
//!
//! Packets that no GRO has joined cost a peek each if each is to be seen before it is copied. In a steady stream the
//! steer knows what comes next, so here `recvmmsg` fills its forecast places. What comes otherwise than forecast is
//! whole all the same: a packet of the right length for another place is the steer's to move, and one of another
//! length, or a GRO batch after all, runs over into memory that takes any datagram, and is laid out anew.

use super::posted::{Place, Posted, Took};
use super::sys::{Many, Piece, Received};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Done, Icrc, Landed, MAX_HEADER, Pick, Steer};
use arrayvec::ArrayVec;
use rustix::fd::OwnedFd;
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use std::io;
use std::net::SocketAddr;

/// Packets taken at once.
pub(super) const DEPTH: usize = 16;
/// Single packets in a row after which a stream counts as one of single packets.
const SETTLED: u32 = 64;
/// Any datagram or GRO batch.
const MOST_BYTES: usize = 1 << 16;

/// What taking packets unseen needs.
#[derive(Default)]
pub(super) struct Ahead {
    /// Single packets in a row.
    singles: u32,
    /// None until it is used for the first time.
    room: Option<Box<Room>>,
}

struct Room {
    many: Many<DEPTH>,
    heads: [[u8; MAX_HEADER + ICRC_BYTES]; DEPTH],
    overflow: Vec<u8>,
    wanted: [Wanted; DEPTH],
}

/// What one packet was forecast to be.
#[derive(Clone, Copy)]
struct Wanted {
    header: usize,
    payload: usize,
    place: Option<(Landed, Place)>,
}

impl Ahead {
    /// A batch of so many packets came.
    pub(super) fn note(&mut self, packets: usize) {
        self.singles = if packets == 1 { (self.singles + 1).min(SETTLED) } else { 0 };
    }

    /// Whether single packets are what comes.
    pub(super) fn is_worth_it(&self) -> bool {
        self.singles == SETTLED
    }

    /// Receives packets unseen into the places that the steer forecasts; none if it forecasts none.
    pub(super) fn receive<S: Steer>(
        &mut self,
        posted: &mut Posted,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) -> io::Result<Option<Took>> {
        let mut picks = [Pick::default(); DEPTH];
        let forecast = steer.expect(&mut picks);
        if forecast < 2 {
            return Ok(None);
        }
        let mut room = self.room.take().unwrap_or_default();
        let received = take_unseen(posted, fd, &mut room, &picks[..forecast]);
        let result = received.and_then(|received| self.report_unseen(posted, &room, received, local, sealer, steer));
        // Places that nothing came for are still posted.
        let received = result.as_ref().map_or(forecast, |(received, _)| *received);
        for Wanted { place, .. } in &room.wanted[received..forecast] {
            posted.put_back(*place);
        }
        self.room = Some(room);
        result.map(|(received, packets)| Some(Took { batches: 1, packets, was_all: received < forecast }))
    }

    /// Tells the steer of so many datagrams. What lies in places is told at once: the steer may move payloads into
    /// any place then, so nothing may wait there. What came otherwise than forecast is copied out before, and told
    /// afterwards. Returns datagrams and packets.
    fn report_unseen<S: Steer>(
        &mut self,
        posted: &mut Posted,
        room: &Room,
        received: usize,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) -> io::Result<(usize, usize)> {
        let mut batch = ArrayVec::<Done<'_>, DEPTH>::new();
        let mut others = ArrayVec::<(Received, Vec<u8>), DEPTH>::new();
        let trailer = posted.trailer();
        for index in 0..received {
            let seen = room.many.received(index)?;
            let Wanted { header, payload, place } = room.wanted[index];
            if seen.total != header + payload + trailer || seen.segment != seen.total {
                others.push((seen, copy_out(posted, room, index, &seen)));
                continue;
            }
            let head = &room.heads[index];
            let mut done = Done {
                landed: Landed::Scratch(Sge::EMPTY),
                header: &head[..header],
                len: payload as u32,
                source: seen.source,
                stamp_ns: seen.stamp_ns,
                icrc: Icrc::Absent,
                payload_crc: 0,
                congested: seen.congested,
                fault: None,
            };
            if let Some((landed, _)) = place {
                done.landed = landed;
            }
            let pieces = place.map_or([(std::ptr::null_mut(), 0); 2], |(_, place)| place.pieces(payload));
            let icrc = head[header..header + trailer].try_into().ok();
            posted.judge(&mut done, 0, pieces, icrc, local, sealer);
            batch.push(done);
        }
        let mut packets = batch.len();
        if !batch.is_empty() {
            steer.landed(&batch);
        }
        if !others.is_empty() {
            self.note(2); // back to looking first
        }
        for (seen, bytes) in &others {
            packets += hand_on(posted, bytes, seen, local, sealer, steer);
        }
        Ok((received, packets))
    }
}

/// One `recvmmsg`: of each packet the header and the ICRC beside each other, the payload in its place, and room
/// for whatever is longer.
fn take_unseen(posted: &mut Posted, fd: &OwnedFd, room: &mut Room, picks: &[Pick]) -> io::Result<usize> {
    let trailer = posted.trailer();
    let mut pieces = [[Piece { iov_base: std::ptr::null_mut(), iov_len: 0 }; 5]; DEPTH];
    for (index, pick) in picks.iter().enumerate() {
        let header = usize::from(pick.header_len.unwrap_or(0)).min(MAX_HEADER);
        let place = posted.take_place(pick.to);
        let payload = place.map_or(0, |(_, place)| place.len[0] as usize + place.len[1] as usize);
        room.wanted[index] = Wanted { header, payload, place };
        let head = room.heads[index].as_mut_ptr();
        let overflow = room.overflow.as_mut_ptr().wrapping_add(index * MOST_BYTES);
        let list = &mut pieces[index];
        list[0] = Piece { iov_base: head.cast(), iov_len: header };
        if let Some((_, place)) = place {
            for (piece, (address, len)) in list[1..3].iter_mut().zip(place.pieces(payload)) {
                *piece = Piece { iov_base: address.cast(), iov_len: len };
            }
        }
        list[3] = Piece { iov_base: head.wrapping_add(header).cast(), iov_len: trailer };
        list[4] = Piece { iov_base: overflow.cast(), iov_len: MOST_BYTES };
    }
    // SAFETY: every piece lies in `room`, which is exclusively ours, or in a posted place that its poster leaves
    // alone until it lands; no reference to any of them exists.
    let received = unsafe { room.many.receive(fd, &mut pieces[..picks.len()]) };
    if received.is_err() {
        picks.iter().zip(&room.wanted).for_each(|(_, wanted)| posted.put_back(wanted.place));
    }
    received
}

/// The bytes of a datagram that was not as forecast. Its place is free again.
fn copy_out(posted: &mut Posted, room: &Room, index: usize, seen: &Received) -> Vec<u8> {
    let Wanted { header, payload, place } = room.wanted[index];
    let mut bytes = Vec::with_capacity(seen.total);
    bytes.extend_from_slice(&room.heads[index][..header]);
    for (address, len) in place.iter().flat_map(|(_, place)| place.pieces(payload)).filter(|(_, len)| *len > 0) {
        // SAFETY: the kernel is done with these bytes of a place that only its poster and we know, in memory of this
        // process alone, and whose poster has not heard of it yet.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address, len) });
    }
    bytes.extend_from_slice(&room.heads[index][header..header + posted.trailer()]);
    let rest = seen.total.saturating_sub(bytes.len()).min(MOST_BYTES);
    bytes.extend_from_slice(&room.overflow[index * MOST_BYTES..][..rest]);
    bytes.truncate(seen.total);
    posted.put_back(place);
    bytes
}

/// Hands a whole datagram or batch on by way of scratch memory.
fn hand_on<S: Steer>(
    posted: &mut Posted,
    bytes: &[u8],
    seen: &Received,
    local: SocketAddr,
    sealer: &mut Sealer,
    steer: &mut S,
) -> usize {
    let (trailer, segment) = (posted.trailer(), seen.segment.max(1));
    let mut packets = 0;
    let datagrams: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(segment).collect() };
    for (index, packet) in datagrams.into_iter().enumerate() {
        let first = &packet[..packet.len().min(MAX_HEADER)];
        let len = packet.len() as u32;
        let view = crate::Seen { first, packets: 1, segment: len, last: len, source: seen.source };
        let header = steer.header_len(&view).min(MAX_HEADER);
        let mut done = Done {
            landed: Landed::Scratch(Sge::EMPTY),
            header: first,
            len: 0,
            source: seen.source,
            stamp_ns: seen.stamp_ns,
            icrc: Icrc::Absent,
            payload_crc: 0,
            congested: seen.congested,
            fault: Some(DropCause::Malformed),
        };
        if let Some(payload) = packet.len().checked_sub(header + trailer) {
            let scratch = Sge { len: payload as u32, ..posted.scratch };
            if payload > 0 {
                let region = posted.regions.get(scratch.region);
                region.write(scratch.offset as usize, &packet[header..header + payload]);
            }
            let address = posted.regions.address(scratch);
            done.landed = Landed::Scratch(scratch);
            done.header = &packet[..header];
            done.len = payload as u32;
            done.fault = None;
            let icrc = packet[header + payload..].try_into().ok();
            posted.judge(&mut done, index, [(address, payload), (std::ptr::null_mut(), 0)], icrc, local, sealer);
        }
        steer.landed(&[done]);
        packets += 1;
    }
    packets
}

impl Default for Room {
    fn default() -> Self {
        Self {
            many: Many::new(),
            heads: [[0; MAX_HEADER + ICRC_BYTES]; DEPTH],
            overflow: vec![0; DEPTH * MOST_BYTES],
            wanted: [Wanted { header: 0, payload: 0, place: None }; DEPTH],
        }
    }
}
