//! Output of an engine: packets to send.

use super::gather::SgeRange;
use crate::api::Remote;
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_wire::roce::MAX_HEADER_LEN;
use std::net::SocketAddr;

/// Part of an operation that a request packet carries. A RoCEv2 packet has these values only where its opcode has a
/// header for them; other links write them to every packet, so that a target can execute each one separately, and check
/// that it continues the operation in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Length of the operation in bytes. A READ that is requested in several packets is several operations.
    pub operation_len: u32,
    /// Offset of the packet's payload in the operation.
    pub offset: u32,
    /// The peer's memory, from the packet's first byte on: for every packet of a WRITE, for READ requests and for
    /// atomic operations. `None` for SENDs.
    pub remote: Option<Remote>,
}

impl Part {
    /// Returns the part that follows this one if it has `len` bytes.
    pub(super) fn next(self, len: u32) -> Self {
        let remote = self.remote.map(|remote| Remote { address: remote.address.wrapping_add(len.into()), ..remote });
        Self { offset: self.offset.wrapping_add(len), remote, ..self }
    }
}

/// One packet to send.
#[derive(Clone, Debug)]
pub struct OutgoingPacket {
    /// BTH and extended headers, without the payload.
    pub header: ArrayVec<u8, MAX_HEADER_LEN>,
    /// Start of its gather list in [`Burst::gather`], and the number of elements.
    pub elements: (u32, u32),
    /// Destination address.
    pub to: SocketAddr,
    /// The part of its operation. For responses, acknowledgements and congestion notifications the default.
    pub part: Part,
    /// Message sequence number of a response, also of one whose opcode has no header for it; 0 in other packets.
    pub msn: u32,
    /// It is a retransmission. The receiver may have dropped the first transmission because the application changed the
    /// payload after its ICRC was computed, so the endpoint must copy the payload before it computes this ICRC.
    pub is_retransmission: bool,
}

/// Packets to send, in order. Reusable: filled by engines, drained by the endpoint.
#[derive(Debug, Default)]
pub struct Burst {
    /// Packets.
    pub packets: Vec<OutgoingPacket>,
    /// Gather elements of all packets.
    pub gather: Vec<Sge>,
}

impl Burst {
    /// Adds a congestion notification.
    #[inline]
    pub fn push(&mut self, to: SocketAddr, header: ArrayVec<u8, MAX_HEADER_LEN>) {
        self.push_response(to, header, 0, &[]);
    }
    /// Adds a response or an acknowledgement with a payload gathered from `elements`.
    #[inline]
    pub fn push_response(&mut self, to: SocketAddr, header: ArrayVec<u8, MAX_HEADER_LEN>, msn: u32, elements: &[Sge]) {
        let start = self.gather.len() as u32;
        self.gather.extend(elements.iter().filter(|sge| sge.len > 0));
        self.packets.push(OutgoingPacket {
            header,
            elements: (start, self.gather.len() as u32 - start),
            to,
            part: Part::default(),
            msn,
            is_retransmission: false,
        });
    }
    /// Adds a request packet with the bytes of `range`, and `padding`, as payload.
    #[inline]
    pub(crate) fn push_request(
        &mut self,
        to: SocketAddr,
        header: ArrayVec<u8, MAX_HEADER_LEN>,
        part: Part,
        range: SgeRange<'_>,
        padding: Sge,
    ) {
        let start = self.gather.len() as u32;
        self.gather.extend(range);
        if padding.len > 0 {
            self.gather.push(padding);
        }
        self.packets.push(OutgoingPacket {
            header,
            elements: (start, self.gather.len() as u32 - start),
            to,
            part,
            msn: 0,
            is_retransmission: false,
        });
    }
    /// Marks the last packet as a retransmission.
    #[inline]
    pub(crate) fn mark_retransmission(&mut self) {
        if let Some(last) = self.packets.last_mut() {
            last.is_retransmission = true;
        }
    }
    /// Returns the gather list of a packet.
    #[inline]
    pub fn elements(&self, packet: &OutgoingPacket) -> &[Sge] {
        &self.gather[packet.elements.0 as usize..][..packet.elements.1 as usize]
    }
    /// Returns the number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }
    /// Returns `true` if there are no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    /// Removes all packets and keeps the allocations.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.gather.clear();
    }
}
