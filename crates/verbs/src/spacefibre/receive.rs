//! Packets that arrive from the link, put together and checked, one of each virtual channel at a time.
//!
//! A packet changes nothing before it is complete and its data CRC matches: its data are collected in memory of the
//! endpoint first. So a packet that a link reset or an EEP cuts leaves no trace.

use super::counters::{SpaceFibreCounters, SpaceFibreDropCounters};
use super::options::SEGMENT;
use super::packet;
use crate::api::QpType;
use crate::endpoint::Core;
use crate::engine::{IncomingPacket, Payload};
use arrayvec::ArrayVec;
use shotline_spacefibre::frames::Sink;
use shotline_spacefibre::link::BroadcastMessage;
use shotline_wire::crc;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::{
    Command, CompareSwap, DATA_CRC_LEN, DEFAULT_LOGICAL_ADDRESS, Header, Recipient, Reply,
};
use std::net::SocketAddr;

/// Maximum number of data bytes of a packet.
pub(super) const MAX_DATA: u32 = SEGMENT.bytes();

/// Selects the counter of a drop cause.
type DropCounter = fn(&mut SpaceFibreDropCounters) -> &mut u64;

/// State of the packet that is being received on a channel.
#[derive(Debug)]
enum State {
    /// Its header is incomplete.
    Head,
    /// Its header is valid.
    Body(Header),
    /// It is a command with an intact header whose fields are not valid. It is dropped for this reason, and rejected on
    /// its connection.
    Invalid(Recipient, DropCounter),
    /// It is dropped for this reason, once it ends.
    Dropped(DropCounter),
}

/// A packet that has ended.
#[derive(Debug)]
enum Ended {
    /// It is whole, and its data CRC matches.
    Whole(Header),
    /// As [`State::Invalid`]: what follows the header does not matter.
    Invalid(Recipient, DropCounter),
}

/// The packet that is being received on one virtual channel.
#[derive(Debug)]
struct Assembly {
    state: State,
    /// Header bytes; then the operands of an atomic operation.
    head: ArrayVec<u8, { Command::LEN }>,
    operands: ArrayVec<u8, { CompareSwap::LEN }>,
    /// Other data.
    data: Vec<u8>,
    /// Bytes of the data CRC.
    crc_bytes: ArrayVec<u8, DATA_CRC_LEN>,
}

impl Assembly {
    fn new() -> Self {
        Self {
            state: State::Head,
            head: ArrayVec::new(),
            operands: ArrayVec::new(),
            data: Vec::new(),
            crc_bytes: ArrayVec::new(),
        }
    }

    fn restart(&mut self) {
        let mut data = std::mem::take(&mut self.data);
        data.clear();
        *self = Self { data, ..Self::new() };
    }

    /// Returns the number of data bytes received.
    fn received(&self) -> usize {
        self.data.len() + self.operands.len()
    }

    fn is_empty(&self) -> bool {
        matches!(self.state, State::Head) && self.head.is_empty()
    }

    /// Adds bytes of the packet.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match &self.state {
                State::Head => self.write_head(bytes),
                State::Body(header) => {
                    let header = *header;
                    self.write_body(&header, bytes)
                }
                State::Invalid(..) | State::Dropped(_) => return,
            };
        }
    }

    fn write_head<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        // The packet type is in the third byte, and a reply's header is the shorter one.
        let needed = match self.head.get(2).or_else(|| bytes.get(2 - self.head.len().min(2))) {
            Some(instruction) if instruction >> 6 == 0 => Reply::LEN,
            _ => Command::LEN,
        };
        let (head, rest) = bytes.split_at((needed - self.head.len()).min(bytes.len()));
        let fits = self.head.try_extend_from_slice(head);
        debug_assert!(fits.is_ok());
        if self.head.len() == needed {
            let cause: DropCounter = match Header::parse(&self.head) {
                Ok((header, _)) if data_len(&header) <= MAX_DATA => {
                    self.state = State::Body(header);
                    return rest;
                }
                Ok(_) => |drops| &mut drops.too_long,
                Err(_) => |drops| &mut drops.malformed,
            };
            let recipient = Command::recipient(&self.head);
            self.state = recipient.map_or(State::Dropped(cause), |recipient| State::Invalid(recipient, cause));
        }
        rest
    }

    fn write_body<'b>(&mut self, header: &Header, bytes: &'b [u8]) -> &'b [u8] {
        let left = data_len(header) as usize - self.received();
        if left > 0 {
            let (data, rest) = bytes.split_at(left.min(bytes.len()));
            if packet::has_operands(header) {
                let fits = self.operands.try_extend_from_slice(data);
                debug_assert!(fits.is_ok(), "the header has checked the length");
            } else {
                self.data.extend_from_slice(data);
            }
            return rest;
        }
        let crc_left = if self.received() > 0 { DATA_CRC_LEN - self.crc_bytes.len() } else { 0 };
        let (part, rest) = bytes.split_at(crc_left.min(bytes.len()));
        let fits = self.crc_bytes.try_extend_from_slice(part);
        debug_assert!(fits.is_ok());
        if !rest.is_empty() {
            self.state = State::Dropped(|drops| &mut drops.too_much_data);
        }
        rest
    }

    /// Returns the CRC of the data. Of a whole packet it takes half the time of one piece after the other.
    fn data_crc(&self, header: &Header) -> u32 {
        crc::crc32(if packet::has_operands(header) { &self.operands } else { &self.data })
    }

    /// Checks the packet at its end.
    fn finish(&self, end: PacketEnd) -> Result<Ended, DropCounter> {
        let header = match self.state {
            _ if end == PacketEnd::Eep => return Err(|drops| &mut drops.eep),
            State::Dropped(cause) => return Err(cause),
            State::Invalid(recipient, cause) => return Ok(Ended::Invalid(recipient, cause)),
            State::Head => return Err(|drops| &mut drops.early_eop),
            State::Body(header) => header,
        };
        let has_crc = self.received() > 0;
        if self.received() < data_len(&header) as usize || has_crc && !self.crc_bytes.is_full() {
            return Err(|drops| &mut drops.early_eop);
        }
        if has_crc && self.data_crc(&header).to_le_bytes() != *self.crc_bytes {
            return Err(|drops| &mut drops.bad_data_crc);
        }
        Ok(Ended::Whole(header))
    }
}

fn data_len(header: &Header) -> u32 {
    match header {
        Header::Command(command) => command.data_len,
        Header::Reply(reply) => reply.data_len,
    }
}

/// The packets that are being received.
#[derive(Debug)]
pub(super) struct Assemblies(Vec<Assembly>);

impl Assemblies {
    /// Creates the state for a number of channels.
    pub(super) fn new(vcs: usize) -> Self {
        Self(std::iter::repeat_with(Assembly::new).take(vcs).collect())
    }
}

/// The receiver of packets, during one call of the link.
pub(super) struct PacketSink<'a> {
    pub(super) assemblies: &'a mut Assemblies,
    pub(super) core: &'a mut Core,
    pub(super) counters: &'a mut SpaceFibreCounters,
    pub(super) peer: SocketAddr,
    /// Number and index of the last packet's queue pair.
    last: Option<(u32, u32)>,
}

impl<'a> PacketSink<'a> {
    pub(super) fn new(
        assemblies: &'a mut Assemblies,
        core: &'a mut Core,
        counters: &'a mut SpaceFibreCounters,
        peer: SocketAddr,
    ) -> Self {
        Self { assemblies, core, counters, peer, last: None }
    }

    /// Reschedules the queue pairs of the packets that have arrived.
    pub(super) fn finish(&mut self) {
        if let Some((_, index)) = self.last.take() {
            self.core.reschedule(index);
        }
    }

    /// Passes a packet to its queue pair.
    fn deliver(&mut self, vc: usize, ended: &Ended) -> Result<(), DropCounter> {
        let (logical_address, dest_qp) = match ended {
            Ended::Whole(Header::Command(command)) => (Some(command.target), command.dest_qp),
            Ended::Whole(Header::Reply(reply)) => (Some(reply.initiator), reply.dest_qp),
            Ended::Invalid(recipient, _) => (self.assemblies.0[vc].head.first().copied(), recipient.dest_qp),
        };
        let unknown: DropCounter = |drops| &mut drops.unknown_qp;
        // Nodes of this provider have no logical address of their own.
        if logical_address != Some(DEFAULT_LOGICAL_ADDRESS) {
            return Err(unknown);
        }
        let index = index_of(self.core, &mut self.last, dest_qp).ok_or(unknown)?;
        if self.core.pair(index).is_none_or(|pair| pair.engine.config().kind != QpType::Rc) {
            return Err(|drops| &mut drops.wrong_service);
        }
        match ended {
            Ended::Whole(header) => self.pass(vc, index, header),
            Ended::Invalid(Recipient { transaction_id, .. }, cause) => {
                self.core.with(index, |engine, context| engine.reject(context, *transaction_id, self.peer));
                Err(*cause)
            }
        }
    }

    /// Passes a complete packet to an engine.
    fn pass(&mut self, vc: usize, index: u32, header: &Header) -> Result<(), DropCounter> {
        let assembly = &self.assemblies.0[vc];
        let (mut bth, extensions) =
            packet::decode(header, &assembly.operands).ok_or((|drops| &mut drops.malformed) as DropCounter)?;
        let len = assembly.data.len() as u32;
        // The engines' packets are padded to a multiple of 4 bytes.
        let padded = len.next_multiple_of(4);
        bth.pad = (padded - len) as u8;
        let (extensions, payload) = (&extensions, Payload::Bytes(&assembly.data));
        let (part, source) = (packet::part(header), self.peer);
        let packet = IncomingPacket { bth, extensions, part, payload, len: padded, congested: false, source };
        self.core.with(index, |engine, context| engine.receive(context, &packet));
        Ok(())
    }
}

/// Returns the index of a queue pair, and reschedules the previous one if it is another. `last` is the number and index of
/// the previous one.
fn index_of(core: &mut Core, last: &mut Option<(u32, u32)>, number: u32) -> Option<u32> {
    match *last {
        Some((last, index)) if last == number => Some(index),
        _ => {
            let index = core.index_of(number)?;
            if let Some((_, previous)) = last.replace((number, index)) {
                core.reschedule(previous);
            }
            Some(index)
        }
    }
}

impl Sink for PacketSink<'_> {
    fn write(&mut self, vc: u8, data: &[u8], end: Option<PacketEnd>) -> bool {
        let vc = usize::from(vc);
        let assembly = &mut self.assemblies.0[vc];
        assembly.write(data);
        if let Some(end) = end {
            self.counters.packets_in += 1;
            let outcome = self.assemblies.0[vc].finish(end).and_then(|ended| self.deliver(vc, &ended));
            if let Err(cause) = outcome {
                *cause(&mut self.counters.drops) += 1;
            }
            self.assemblies.0[vc].restart();
        }
        true
    }

    fn broadcast(&mut self, _message: &BroadcastMessage) {
        self.counters.broadcasts_in += 1;
    }

    fn on_reset(&mut self) {
        for assembly in self.assemblies.0.iter_mut().filter(|assembly| !assembly.is_empty()) {
            self.counters.packets_in += 1;
            self.counters.drops.link_reset += 1;
            assembly.restart();
        }
    }
}
