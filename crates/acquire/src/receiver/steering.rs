//! Steering: chooses a packet's destination before it lands, and checks it afterwards.

use super::repair::{self, Move};
use super::resplit::Resplit;
use crate::counters::StreamCounters;
use crate::stream::{Arrival, Stream};
use shotline_memory::{Pool, Regions, Sge};
use shotline_transport::{BatchInfo, Icrc, PayloadDestination, PayloadLocation, Pick, Recv, RxPacket, Steer};
use shotline_wire::framing::Framing;
use shotline_wire::roce::ICRC_LEN;
use shotline_wire::shot::DropCause;
use std::sync::Arc;

/// Streams, and the state of steering that is kept between batches.
pub(super) struct Steering {
    /// Bytes of ICRC after each payload.
    icrc_len: u32,
    pub(super) streams: Vec<Stream>,
    pub(super) pool: Arc<Pool>,
    regions: Regions,
    spare: Sge,
    pub(super) unknown: StreamCounters,
    pub(super) posts: Vec<Recv>,
    pub(super) withdraws: Vec<u32>,
    moves: Vec<Move>,
    resplit: Resplit,
    /// The packet placed last, for predicting the next ones: stream, shot, index.
    newest: Option<(usize, u64, u32)>,
    /// Number of predictions to skip after a wrong one.
    skip_predictions: u32,
    pub(super) now_ns: u64,
    /// Set if the device consumes receives in order, without steering.
    in_order: bool,
}

/// The [`Steer`] that the backend calls. It borrows the framing for a batch: a call through an `Arc` would compute the
/// address of the value each time, from the alignment in its vtable.
pub(super) struct Framed<'a> {
    framing: &'a dyn Framing,
    steering: &'a mut Steering,
}

/// Number of predictions to skip after a wrong one: meanwhile headers are read before packets land.
const PREDICTIONS_SKIPPED: u32 = 32;

/// Destination of a valid packet.
struct Target {
    stream: usize,
    entry: usize,
    index: u32,
    number: u64,
}

impl Steering {
    pub(super) fn new(
        framing: &dyn Framing,
        streams: Vec<Stream>,
        pool: Arc<Pool>,
        regions: Regions,
        spare: Sge,
        in_order: bool,
    ) -> Self {
        Self {
            icrc_len: if framing.has_icrc() { ICRC_LEN as u32 } else { 0 },
            streams,
            pool,
            regions,
            spare,
            unknown: StreamCounters::default(),
            posts: Vec::new(),
            withdraws: Vec::new(),
            moves: Vec::new(),
            resplit: Resplit::default(),
            newest: None,
            skip_predictions: 0,
            now_ns: 0,
            in_order,
        }
    }

    /// Withdraws a receive whose destination is filled by a copy instead.
    fn withdraw(&mut self, id: u32) {
        self.posts.retain(|receive| receive.id != id);
        self.withdraws.push(id);
    }

    /// Returns the stream of a receive id.
    fn stream_at(&self, id: u32) -> Option<usize> {
        self.streams.iter().position(|stream| stream.slots.ids().contains(&id))
    }

    /// Returns the stream, entry and packet index of a receive id.
    fn owner(&self, id: u32) -> Option<(usize, usize, u32)> {
        let stream = self.stream_at(id)?;
        let (entry, index) = self.streams[stream].slots.slot(id);
        Some((stream, entry, index))
    }

    /// Returns the steer of these streams, with the framing that they were created for.
    pub(super) fn framed<'a>(&'a mut self, framing: &'a dyn Framing) -> Framed<'a> {
        Framed { framing, steering: self }
    }
}

impl Framed<'_> {
    fn stream_of(&self, header: &[u8]) -> Option<usize> {
        let key = self.framing.key(header).ok()?;
        self.steering.streams.iter().position(|stream| stream.config.key == key)
    }

    /// Validates a packet that landed and counts it.
    ///
    /// # Errors
    /// The cause for which it is dropped.
    fn admit(&mut self, rx: &RxPacket<'_>) -> Result<Target, DropCause> {
        let stream = if rx.fault.is_some() { None } else { self.stream_of(rx.header) };
        let Some(index) = stream else {
            self.steering.unknown.packets += 1;
            let cause = rx.fault.unwrap_or(DropCause::UnknownStream);
            self.steering.unknown.packet_drops.add(cause, 1);
            return Err(cause);
        };
        let admitted = self.admit_to(index, rx);
        let counters = &mut self.steering.streams[index].counters;
        counters.packets += 1;
        match rx.icrc {
            Icrc::Good => counters.icrc_good += 1,
            Icrc::Solved { .. } => counters.icrc_solved += 1,
            Icrc::Device => counters.icrc_device += 1,
            Icrc::Unverified => counters.icrc_unverified += 1,
            Icrc::Absent | Icrc::Bad => {}
        }
        match &admitted {
            Ok(_) => {
                counters.placed += 1;
                counters.placed_bytes += u64::from(rx.len);
            }
            Err(cause) => counters.packet_drops.add(*cause, 1),
        }
        admitted
    }

    fn admit_to(&mut self, index: usize, rx: &RxPacket<'_>) -> Result<Target, DropCause> {
        let stream = &mut self.steering.streams[index];
        let Ok(place) = self.framing.place(rx.header, rx.len, &stream.config.geometry) else {
            let Some(signal) = self.framing.signal(rx.header, &stream.config.geometry) else {
                return Err(DropCause::Malformed);
            };
            if !stream.accepts(rx.source, self.steering.now_ns) {
                return Err(DropCause::UnknownStream);
            }
            stream.note_signal(signal);
            return Err(DropCause::NotData);
        };
        if rx.icrc == Icrc::Unverified {
            // An unverified ICRC counts as bad.
            return Err(DropCause::BadIcrc);
        }
        if !stream.accepts(rx.source, self.steering.now_ns) {
            return Err(DropCause::UnknownStream);
        }
        let (number, packet) = stream.locate(&place).inspect_err(|cause| {
            if *cause == DropCause::Late {
                stream.note_late(place.position, *cause, self.steering.now_ns);
            }
        })?;
        // Padding is not accepted: it would be part of the shot's CRC.
        if place.len != rx.len || place.len != stream.config.geometry.packet_bytes(packet) {
            stream.note_drop(number, DropCause::Malformed);
            return Err(DropCause::Malformed);
        }
        let RxPacket { payload_crc: remainder, stamp_ns, .. } = *rx;
        let arrival = Arrival { position: place.position, remainder, now_ns: self.steering.now_ns, stamp_ns };
        let entry = stream.admit((number, packet), arrival)?;
        stream.note_count(self.framing, (number, packet), rx.header);
        Ok(Target { stream: index, entry, index: packet, number })
    }

    /// Returns `true` if the header's length differs from that at which the packet was split.
    fn is_split_wrong(&self, rx: &RxPacket<'_>) -> bool {
        rx.fault.is_none() && self.framing.header_len(rx.header) != rx.header.len()
    }

    /// Handles a packet that was split at the wrong offset: its payload is copied to its destination.
    fn place_split_packet(&mut self, rx: &RxPacket<'_>) {
        let landed = match rx.landed {
            PayloadLocation::Scratch(sge) => Some(sge),
            PayloadLocation::Posted(id) => self.steering.owner(id).and_then(|(stream, entry, index)| {
                self.steering.streams[stream].slots.destination(entry, index).map(|sge| Sge { len: rx.len, ..sge })
            }),
            // This steer only chooses posted destinations.
            PayloadLocation::Memory(_) => None,
        };
        let Some(landed) = landed else { return };
        let bytes = Resplit::joined(&self.steering.regions, rx.header, landed);
        let split = self.framing.header_len(&bytes).min(bytes.len());
        let (header, payload) = bytes.split_at(split);
        let resplit =
            RxPacket { header, len: payload.len() as u32, landed: PayloadLocation::Scratch(Sge::EMPTY), ..*rx };
        let Ok(target) = self.admit(&resplit) else { return };
        let stream = &mut self.steering.streams[target.stream];
        if let Some(to) = stream.slots.destination(target.entry, target.index) {
            stream.counters.repaired += 1;
            stream.counters.repaired_bytes += payload.len() as u64;
            let id = stream.slots.id(target.entry, target.index);
            self.steering.withdraw(id);
            self.steering.resplit.push(payload, to);
        }
    }

    /// Handles packets that a device put into the oldest receives, and moves those that did not land in their
    /// destination.
    fn landed_in_order(&mut self, batch: &[RxPacket<'_>]) {
        for rx in batch {
            let PayloadLocation::Posted(at) = rx.landed else { continue };
            let Some(owner) = self.steering.stream_at(at) else { continue };
            if !self.steering.streams[owner].slots.note_landed(at) {
                continue;
            }
            self.set_count(owner, at, rx);
            let admitted = self.admit(rx);
            let is_foreign = matches!(admitted, Err(DropCause::UnknownStream | DropCause::Malformed));
            let Steering { streams, regions, .. } = &mut *self.steering;
            let stream = &mut streams[owner];
            if !is_foreign && stream.is_counted() {
                stream.count();
            }
            match admitted {
                Ok(target) => {
                    if let Some((from, to)) = stream.slots.assign(at, target.entry, target.index) {
                        regions.copy(Sge { len: rx.len, ..from }, to);
                        stream.counters.repaired += 1;
                        stream.counters.repaired_bytes += u64::from(rx.len);
                    }
                }
                Err(_) => stream.slots.note_no_destination(),
            }
            // The landing place is free now: move the parked payload that belongs there.
            let Some((from, to)) = stream.slots.unpark(at) else { continue };
            regions.copy(Sge { len: to.len, ..from }, to);
            stream.counters.repaired_bytes += u64::from(to.len);
        }
    }

    /// Sets a stream's packet count by a packet that ends a shot, where packets have no position.
    fn set_count(&mut self, owner: usize, at: u32, rx: &RxPacket<'_>) {
        let stream = &mut self.steering.streams[owner];
        let is_own = self.framing.key(rx.header).is_ok_and(|key| key == stream.config.key);
        if stream.is_counted() && is_own && stream.accepts(rx.source, self.steering.now_ns) {
            stream.set_count(at, rx.len);
        }
    }
}

impl Steer for Framed<'_> {
    fn header_len(&mut self, seen: &BatchInfo<'_>) -> usize {
        self.framing.header_len(seen.first)
    }

    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]) {
        let header_len = self.framing.header_len(seen.first);
        let Some(header) = seen.first.get(..header_len) else { return };
        let Some(index) = self.stream_of(header) else { return };
        let first = if seen.packets == 1 { seen.last } else { seen.segment };
        let Some(payload) = first.checked_sub(header_len as u32 + self.steering.icrc_len) else { return };
        let stream = &mut self.steering.streams[index];
        let Ok(place) = self.framing.place(header, payload, &stream.config.geometry) else { return };
        let Ok((mut number, mut packet)) = stream.locate(&place) else { return };
        let mut fresh = 0;
        for (position, pick) in picks.iter_mut().enumerate() {
            pick.destination = destination_of(stream.pick(number, packet, fresh));
            if position > 0 {
                // Only the header of the first packet is visible, the lengths of the others are predicted.
                let predicted = self.framing.header_len_at(packet, &stream.config.geometry);
                pick.header_len = predicted.and_then(|len| u16::try_from(len).ok());
            }
            packet += 1;
            if packet == stream.config.geometry.packets() {
                fresh += usize::from(!stream.is_open(number));
                (number, packet) = (number + 1, 0);
            }
        }
    }

    fn predict(&mut self, picks: &mut [Pick]) -> usize {
        if self.steering.skip_predictions > 0 {
            self.steering.skip_predictions -= 1;
            return 0;
        }
        let Some((stream, mut number, mut packet)) = self.steering.newest else { return 0 };
        let stream = &self.steering.streams[stream];
        let geometry = stream.config.geometry;
        let constant = self.framing.header_len(&[]);
        let (mut fresh, mut passed) = (0, false);
        for pick in picks.iter_mut() {
            packet += 1;
            if packet == geometry.packets() {
                // The newest shot has its entry, or has left with it: it uses none of the ready ones.
                fresh += usize::from(passed && !stream.is_open(number));
                passed = true;
                (number, packet) = (number + 1, 0);
            }
            let header_len = self.framing.header_len_at(packet, &geometry).unwrap_or(constant);
            *pick = Pick {
                destination: destination_of(stream.pick(number, packet, fresh)),
                header_len: u16::try_from(header_len).ok(),
            };
        }
        picks.len()
    }

    fn margins(&self, to: PayloadDestination) -> [u32; 2] {
        let PayloadDestination::Posted(id) = to else { return [0; 2] };
        let Some((stream, _, packet)) = self.steering.owner(id) else { return [0; 2] };
        let geometry = self.steering.streams[stream].config.geometry;
        let end = geometry.packet_offset(packet) + geometry.packet_bytes(packet);
        [geometry.packet_offset(packet), geometry.shot_bytes().saturating_sub(end)]
    }

    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        if self.steering.in_order {
            return self.landed_in_order(batch);
        }
        let mut in_place = 0_u64; // one bit for each packet of the batch
        for (position, rx) in batch.iter().enumerate() {
            if self.is_split_wrong(rx) {
                self.place_split_packet(rx);
                continue;
            }
            let Ok(target) = self.admit(rx) else { continue };
            self.steering.newest = Some((target.stream, target.number, target.index));
            let stream = &mut self.steering.streams[target.stream];
            let id = stream.slots.id(target.entry, target.index);
            if rx.landed == PayloadLocation::Posted(id) {
                in_place |= 1 << position;
                continue;
            }
            let Some(to) = stream.slots.destination(target.entry, target.index) else { continue };
            stream.counters.repaired += 1;
            self.steering.withdraw(id);
            if matches!(rx.landed, PayloadLocation::Posted(_)) {
                self.steering.skip_predictions = PREDICTIONS_SKIPPED;
            }
            let from = match rx.landed {
                PayloadLocation::Scratch(sge) => sge,
                PayloadLocation::Posted(other) => match self.steering.owner(other) {
                    Some((stream, entry, index)) => match self.steering.streams[stream].slots.destination(entry, index)
                    {
                        Some(sge) => Sge { len: rx.len, ..sge },
                        None => continue,
                    },
                    None => continue,
                },
                PayloadLocation::Memory(_) => continue,
            };
            self.steering.moves.push(Move { from, to });
            self.steering.streams[target.stream].counters.repaired_bytes += u64::from(rx.len);
        }
        repair::carry_out(&self.steering.regions, &mut self.steering.moves, self.steering.spare);
        self.steering.resplit.carry_out(&self.steering.regions);
        // A receive that was consumed by another packet is posted again.
        for (position, rx) in batch.iter().enumerate() {
            if in_place >> position & 1 == 0
                && let PayloadLocation::Posted(id) = rx.landed
                && let Some((stream, entry, index)) = self.steering.owner(id)
                && !self.steering.streams[stream].slots.is_filled(entry, index)
                && let Some(sge) = self.steering.streams[stream].slots.destination(entry, index)
            {
                self.steering.posts.push(Recv { id, sge: [sge, Sge::EMPTY] });
            }
        }
    }
}

/// Returns the destination for a receive id: its posted receive, or scratch memory without an id.
fn destination_of(id: Option<u32>) -> PayloadDestination {
    id.map_or(PayloadDestination::Scratch, PayloadDestination::Posted)
}
