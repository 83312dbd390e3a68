//! One GRO batch: peek, pick, one copy, verdicts.

use super::UdpConfig;
use super::sys::{self, Piece, push};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Done, Icrc, Landed, MAX_BATCH, MAX_HEADER, Pick, Recv, SCRATCH_BYTES, Seen, Steer};
use arrayvec::ArrayVec;
use rustix::fd::OwnedFd;
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::io;
use std::net::SocketAddr;

/// A header and a trailer for every packet of a batch, side by side as they are in the byte stream.
const HEADS: usize = MAX_BATCH * (MAX_HEADER + ICRC_BYTES) + MAX_HEADER;

/// A posted place, as addresses. Length 0: nothing is posted.
#[derive(Clone, Copy)]
struct Place {
    address: [*mut u8; 2],
    len: [u32; 2],
}

impl Place {
    const NONE: Self = Self { address: [std::ptr::null_mut(); 2], len: [0; 2] };

    fn holds(&self, bytes: usize) -> bool {
        self.len[0] > 0 && bytes <= self.len[0] as usize + self.len[1] as usize
    }
}

pub(super) struct Receiver {
    sealed: bool,
    posted: Vec<Place>,
    /// Keeps every region alive that `posted` points into.
    regions: Regions,
    scratch: Sge,
    heads: Box<[u8; HEADS]>,
    pieces: Vec<Piece>,
    /// For each packet of the batch the posted receive that takes it.
    places: Vec<Option<(u32, Place)>>,
}

// SAFETY: the raw addresses point into regions that `regions` keeps alive, and are only given to the
// kernel or read through `&mut self`.
unsafe impl std::marker::Send for Receiver {}

impl Receiver {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        if config.scratch.len > 0 {
            regions.address(config.scratch); // panics now rather than at the first packet
        }
        Self {
            sealed: config.sealed,
            posted: vec![Place::NONE; config.capacity],
            regions: regions.clone(),
            scratch: config.scratch,
            heads: Box::new([0; HEADS]),
            pieces: Vec::with_capacity(3 * MAX_BATCH + 1),
            places: Vec::with_capacity(MAX_BATCH),
        }
    }

    pub(super) fn post(&mut self, receives: &[Recv]) -> usize {
        for receive in receives {
            let address = receive.sge.map(|sge| self.regions.address(sge));
            self.posted[receive.id as usize] = Place { address, len: receive.sge.map(|sge| sge.len) };
        }
        receives.len()
    }

    pub(super) fn withdraw(&mut self, ids: &[u32]) {
        for id in ids {
            self.posted[*id as usize] = Place::NONE;
        }
    }

    /// Receives one batch; 0 if none is there. An empty datagram is a packet, too.
    pub(super) fn batch<S: Steer>(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) -> io::Result<usize> {
        if self.scratch.len < SCRATCH_BYTES {
            return Err(io::Error::other("this backend was opened without scratch memory, for sending only"));
        }
        let heads = self.heads.as_mut_ptr();
        let mut first = [Piece { iov_base: heads.cast(), iov_len: MAX_HEADER }];
        // SAFETY: the piece is `self.heads`, exclusively ours.
        let Some(seen) = (unsafe { sys::receive(fd, &mut first, true)? }) else { return Ok(0) };
        let batch = Batch::of(&seen);
        let leading = batch.segment.min(MAX_HEADER);
        let view = Seen {
            first: &self.heads[..leading],
            packets: batch.packets,
            segment: batch.segment as u32,
            last: batch.last as u32,
            source: seen.source,
        };
        let trailer = if self.sealed { ICRC_BYTES } else { 0 };
        let header = steer.header_len(&view).min(MAX_HEADER);
        let mut picks = [Pick::default(); MAX_BATCH];
        if batch.segment >= header + trailer {
            steer.pick(&view, &mut picks[..batch.packets]);
        }
        let shape = Shape { header, trailer, batch };
        self.gather(&shape, &picks);

        // SAFETY: every piece lies in `self.heads`, in the scratch element, or in a posted place that its
        // poster leaves alone until it lands; no reference to any of them exists.
        let got = unsafe { sys::receive(fd, &mut self.pieces, false)? };
        if got.is_none_or(|got| got.total != seen.total) {
            return Err(io::Error::other("a datagram changed between peek and receive: is the socket shared?"));
        }
        self.report(&shape, local, seen.source, sealer, steer);
        Ok(batch.packets)
    }

    /// Lists the pieces in stream order: header, payload, trailer of each packet; a trailer and the next
    /// header are neighbours and make one piece.
    fn gather(&mut self, shape: &Shape, picks: &[Pick]) {
        let heads = self.heads.as_mut_ptr();
        let scratch = self.regions.address(self.scratch);
        let mut open = 0..0; // the run of head bytes not yet listed
        self.pieces.clear();
        self.places.clear();
        for (index, pick) in picks.iter().enumerate().take(shape.batch.packets) {
            let payload = shape.payload(index);
            let at = shape.head_at(index);
            if open.end != at {
                push(&mut self.pieces, heads, open.clone());
                open = at..at;
            }
            open.end += shape.header_of(index);
            if payload > 0 {
                push(&mut self.pieces, heads, open);
                let place = pick.id.and_then(|id| {
                    let posted = self.posted.get_mut(id as usize)?;
                    posted.holds(payload).then(|| (id, std::mem::replace(posted, Place::NONE)))
                });
                match place {
                    Some((_, place)) => {
                        let in_first = payload.min(place.len[0] as usize);
                        self.pieces.push(Piece { iov_base: place.address[0].cast(), iov_len: in_first });
                        if in_first < payload {
                            self.pieces.push(Piece { iov_base: place.address[1].cast(), iov_len: payload - in_first });
                        }
                    }
                    None => self.pieces.push(Piece {
                        // Inside the scratch element: a batch is at most SCRATCH_BYTES.
                        iov_base: scratch.wrapping_add(shape.scratch_at(index)).cast(),
                        iov_len: payload,
                    }),
                }
                self.places.push(place);
                let after = at + shape.header;
                open = after..after;
            } else {
                self.places.push(None);
            }
            open.end += shape.trailer_of(index);
        }
        push(&mut self.pieces, heads, open);
    }

    /// Checks every packet of the batch that was just copied and tells the steer.
    fn report<S: Steer>(
        &self,
        shape: &Shape,
        local: SocketAddr,
        source: SocketAddr,
        sealer: &mut Sealer,
        steer: &mut S,
    ) {
        let scratch = self.regions.address(self.scratch);
        let mut batch = ArrayVec::<Done<'_>, MAX_BATCH>::new();
        for index in 0..shape.batch.packets {
            let at = shape.head_at(index);
            let mut done = Done {
                landed: Landed::Scratch(Sge::EMPTY),
                header: &self.heads[at..at + shape.header_of(index)],
                len: 0,
                source,
                icrc: Icrc::Absent,
                payload_crc: 0,
                fault: None,
            };
            let payload = shape.payload(index);
            if shape.is_runt(index) {
                done.fault = Some(DropCause::Malformed);
                batch.push(done);
                continue;
            }
            done.len = payload as u32;
            let (landed, pieces) = match &self.places[index] {
                Some((id, place)) => {
                    let in_first = payload.min(place.len[0] as usize);
                    (Landed::Slot(*id), [(place.address[0], in_first), (place.address[1], payload - in_first)])
                }
                None => {
                    let at = shape.scratch_at(index);
                    let sge = Sge { offset: self.scratch.offset + at as u64, len: payload as u32, ..self.scratch };
                    (Landed::Scratch(sge), [(scratch.wrapping_add(at), payload), (std::ptr::null_mut(), 0)])
                }
            };
            done.landed = landed;
            for (address, len) in pieces.into_iter().filter(|(_, len)| *len > 0) {
                // SAFETY: the kernel has just filled these bytes and is done with them; the place left
                // `posted`, so nothing writes it before its poster hears of it below.
                let bytes = unsafe { std::slice::from_raw_parts(address, len) };
                done.payload_crc = crc::register(done.payload_crc, bytes);
            }
            if self.sealed {
                let trailer = at + shape.header;
                let received = self.heads[trailer..trailer + ICRC_BYTES].try_into().map_or(0, u32::from_le_bytes);
                done.icrc = sealer.check(source, local, index, done.header, payload, done.payload_crc, received);
                if done.icrc == Icrc::Bad {
                    done.fault = Some(DropCause::BadIcrc);
                }
            }
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
}

/// Where each part of each packet goes.
struct Shape {
    header: usize,
    trailer: usize,
    batch: Batch,
}

impl Shape {
    fn len(&self, index: usize) -> usize {
        if index + 1 == self.batch.packets { self.batch.last } else { self.batch.segment }
    }
    /// Too short for header and trailer.
    fn is_runt(&self, index: usize) -> bool {
        self.len(index) < self.header + self.trailer
    }
    /// Offset of a packet's header in the heads.
    fn head_at(&self, index: usize) -> usize {
        index * (self.header + self.trailer)
    }
    /// Header bytes; a runt is all header.
    fn header_of(&self, index: usize) -> usize {
        if self.is_runt(index) { self.len(index) } else { self.header }
    }
    fn trailer_of(&self, index: usize) -> usize {
        if self.is_runt(index) { 0 } else { self.trailer }
    }
    fn payload(&self, index: usize) -> usize {
        self.len(index).saturating_sub(self.header + self.trailer)
    }
    /// Offset of a payload without a place in the scratch memory.
    fn scratch_at(&self, index: usize) -> usize {
        index * self.batch.segment
    }
}
