//! One GRO batch: peek, pick, one copy, verdicts.

use super::ahead::Ahead;
use super::config::UdpConfig;
use super::posted::{Place, Posted, Took};
use super::small::Small;
use super::sys::{self, Piece, push};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Done, Icrc, Landed, MAX_BATCH, MAX_HEADER, Pick, SCRATCH_BYTES, Seen, Steer};
use arrayvec::ArrayVec;
use rustix::fd::OwnedFd;
use shotline_memory::{Regions, Sge};
use shotline_wire::shot::DropCause;
use std::io;
use std::net::SocketAddr;

/// A header and a trailer for every packet of a batch, side by side as they are in the byte stream.
const HEADS: usize = MAX_BATCH * (MAX_HEADER + ICRC_BYTES) + MAX_HEADER;

/// How one packet is taken.
struct Take {
    /// Offset of its header in the heads.
    at: usize,
    /// Bytes of its header; a runt is all header.
    header: usize,
    /// Bytes of its payload.
    payload: usize,
    /// Bytes of its ICRC.
    trailer: usize,
    /// Offset of its payload in the scratch memory, if it has no place.
    scratch: usize,
    /// What takes its payload, if not the scratch memory.
    place: Option<(Landed, Place)>,
    /// Too short for header and ICRC.
    runt: bool,
}

pub(super) struct Receiver {
    pub(super) posted: Posted,
    heads: Box<[u8; HEADS]>,
    pieces: Vec<Piece>,
    /// How each packet of the batch is taken.
    takes: Vec<Take>,
    ahead: Ahead,
    small: Small,
}

// SAFETY: the addresses in `pieces` and `takes` are made anew for each batch, from `posted`, and are only given to the
// kernel or read through `&mut self`.
unsafe impl std::marker::Send for Receiver {}

impl Receiver {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        Self {
            posted: Posted::new(config, regions),
            heads: Box::new([0; HEADS]),
            pieces: Vec::with_capacity(3 * MAX_BATCH + 1),
            takes: Vec::with_capacity(MAX_BATCH),
            ahead: Ahead::default(),
            small: Small::default(),
        }
    }

    /// Receives one batch, or up to `most` where they are small. An empty datagram is a packet, too.
    pub(super) fn receive<S: Steer>(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
        most: usize,
    ) -> io::Result<Took> {
        if self.posted.scratch.len < SCRATCH_BYTES {
            return Err(io::Error::other("this backend was opened without scratch memory, for sending only"));
        }
        if self.ahead.is_worth_it()
            && let Some(took) = self.ahead.receive(&mut self.posted, fd, local, sealer, steer)?
        {
            return Ok(took);
        }
        if self.small.is_worth_it() {
            return self.small(fd, local, sealer, steer, most);
        }
        let mut first = [Piece { iov_base: self.heads.as_mut_ptr().cast(), iov_len: MAX_HEADER }];
        // SAFETY: the piece is `self.heads`, exclusively ours.
        let Some(seen) = (unsafe { sys::peek(fd, &mut first)? }) else {
            return Ok(Took { batches: 0, packets: 0, was_all: true });
        };
        let leading: [u8; MAX_HEADER] = *self.heads.first_chunk().unwrap_or(&[0; MAX_HEADER]);
        let packets = self.steer(&seen, &leading, steer);
        // SAFETY: every piece lies in `self.heads`, in the scratch element, or in a posted place that its
        // poster leaves alone until it lands; no reference to any of them exists.
        let got = unsafe { sys::take(fd, &mut self.pieces)? };
        if got != Some(seen.total) {
            return Err(io::Error::other("a datagram changed between peek and receive: is the socket shared?"));
        }
        self.report(&seen, local, sealer, steer);
        Ok(Took { batches: 1, packets, was_all: false })
    }

    /// Receives datagrams whole, and copies their payloads to where the steer wants them.
    fn small<S: Steer>(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
        most: usize,
    ) -> io::Result<Took> {
        let (room, came, asked) = self.small.take(fd, most)?;
        let mut packets = 0;
        let mut result = Ok(());
        for index in 0..came {
            match room.datagram(index) {
                Ok((seen, bytes)) => {
                    packets += self.steer(&seen, bytes, steer);
                    // SAFETY: every piece lies in `self.heads`, in the scratch element, or in a place that its owner
                    // leaves alone until it lands; no reference to any of them exists.
                    unsafe { sys::scatter(bytes, &self.pieces) };
                    self.report(&seen, local, sealer, steer);
                }
                Err(error) => result = Err(error),
            }
        }
        self.small.put_back(room);
        result.map(|()| Took { batches: came, packets, was_all: came < asked })
    }

    /// Asks the steer where a batch goes and lists the pieces. `first` are its leading bytes. Returns its packets.
    fn steer<S: Steer>(&mut self, seen: &sys::Received, first: &[u8], steer: &mut S) -> usize {
        let batch = Batch::of(seen);
        self.ahead.note(batch.packets);
        self.small.note(seen.total);
        let view = Seen {
            first: &first[..batch.segment.min(MAX_HEADER).min(first.len())],
            packets: batch.packets,
            segment: batch.segment as u32,
            last: batch.last as u32,
            source: seen.source,
        };
        let header = steer.header_len(&view).min(MAX_HEADER);
        let mut picks = [Pick::default(); MAX_BATCH];
        if batch.segment >= header + self.posted.trailer() {
            steer.pick(&view, &mut picks[..batch.packets]);
        }
        self.gather(&batch, header, &picks[..batch.packets]);
        batch.packets
    }

    /// Lists the pieces in stream order: header, payload, trailer of each packet; a trailer and the next
    /// header are neighbours and make one piece.
    fn gather(&mut self, batch: &Batch, header: usize, picks: &[Pick]) {
        let heads = self.heads.as_mut_ptr();
        let scratch = self.posted.regions.address(self.posted.scratch);
        let trailer = self.posted.trailer();
        let mut open = 0..0; // the run of head bytes not yet listed
        let mut at = 0;
        self.pieces.clear();
        self.takes.clear();
        for (index, pick) in picks.iter().enumerate() {
            let len = batch.len(index);
            // A header that was foretold and is not there is the steer's to sort out; it must not cost a packet.
            let header = match pick.header_len {
                Some(foretold) => usize::from(foretold).min(MAX_HEADER).min(len.saturating_sub(trailer)),
                None => header,
            };
            let mut take = match len.checked_sub(header + trailer) {
                Some(payload) => {
                    Take { at, header, payload, trailer, scratch: index * batch.segment, place: None, runt: false }
                }
                None => Take {
                    at,
                    header: len.min(MAX_HEADER),
                    payload: len.saturating_sub(MAX_HEADER),
                    trailer: 0,
                    scratch: index * batch.segment,
                    place: None,
                    runt: true,
                },
            };
            open.end += take.header;
            if take.payload > 0 {
                push(&mut self.pieces, heads, open);
                take.place = if take.runt { None } else { self.posted.place_of(pick.to, take.payload) };
                match &take.place {
                    Some((_, place)) => {
                        let pieces = place.pieces(take.payload).into_iter().filter(|(_, len)| *len > 0);
                        self.pieces.extend(pieces.map(|(at, iov_len)| Piece { iov_base: at.cast(), iov_len }));
                    }
                    None => self.pieces.push(Piece {
                        // Inside the scratch element: a batch is at most SCRATCH_BYTES.
                        iov_base: scratch.wrapping_add(take.scratch).cast(),
                        iov_len: take.payload,
                    }),
                }
                open = at + take.header..at + take.header;
            }
            open.end += take.trailer;
            at += take.header + take.trailer;
            self.takes.push(take);
        }
        push(&mut self.pieces, heads, open);
    }

    /// Checks every packet of the batch that was just copied and tells the steer.
    fn report<S: Steer>(&self, seen: &sys::Received, local: SocketAddr, sealer: &mut Sealer, steer: &mut S) {
        let scratch = self.posted.regions.address(self.posted.scratch);
        let mut batch = ArrayVec::<Done<'_>, MAX_BATCH>::new();
        for (index, take) in self.takes.iter().enumerate() {
            let mut done = Done {
                landed: Landed::Scratch(Sge::EMPTY),
                header: &self.heads[take.at..take.at + take.header],
                len: 0,
                source: seen.source,
                stamp_ns: seen.stamp_ns,
                icrc: Icrc::Absent,
                payload_crc: 0,
                congested: seen.congested,
                fault: None,
            };
            if take.runt {
                done.fault = Some(DropCause::Malformed);
                batch.push(done);
                continue;
            }
            let payload = take.payload;
            done.len = payload as u32;
            let (landed, pieces) = match &take.place {
                Some((landed, place)) => (*landed, place.pieces(payload)),
                None => {
                    let offset = self.posted.scratch.offset + take.scratch as u64;
                    let sge = Sge { offset, len: payload as u32, ..self.posted.scratch };
                    let at = scratch.wrapping_add(take.scratch);
                    (Landed::Scratch(sge), [(at, payload), (std::ptr::null_mut(), 0)])
                }
            };
            done.landed = landed;
            let trailer = take.at + take.header;
            let icrc = self.heads[trailer..trailer + take.trailer].try_into().ok();
            self.posted.judge(&mut done, index, pieces, icrc, local, sealer);
            batch.push(done);
        }
        steer.landed(&batch);
    }
}

/// A super-packet's segments: all of `segment` bytes, the last perhaps shorter.
#[derive(Clone, Copy)]
struct Batch {
    packets: usize,
    segment: usize,
    last: usize,
}

impl Batch {
    fn of(seen: &sys::Received) -> Self {
        let packets = seen.total.div_ceil(seen.segment.max(1)).max(1);
        if packets > MAX_BATCH {
            // Not made by this kernel's GRO, which stops at 64: taken as one malformed packet.
            return Self { packets: 1, segment: seen.total, last: seen.total };
        }
        Self { packets, segment: seen.segment, last: seen.total - (packets - 1) * seen.segment }
    }
    /// Bytes of a packet.
    fn len(&self, index: usize) -> usize {
        if index + 1 == self.packets { self.last } else { self.segment }
    }
}
