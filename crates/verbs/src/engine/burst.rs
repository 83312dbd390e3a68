//! What an engine gives: packets to send.

use super::places::Part;
use arrayvec::ArrayVec;
use shotline_memory::Sge;
use shotline_wire::roce::MAX_HEADER_LEN;
use std::net::SocketAddr;

/// One packet to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// BTH and what follows it, before the payload.
    pub header: ArrayVec<u8, MAX_HEADER_LEN>,
    /// Where its gather list begins in [`Burst::gather`], and how many elements it has.
    pub elements: (u32, u32),
    /// Where it goes.
    pub to: SocketAddr,
    /// It is sent again. Perhaps its payload changed between its ICRC and its copy: both are to be made of one copy now.
    pub again: bool,
}

/// Packets to send, in order. Reused: filled by engines, emptied by the endpoint.
#[derive(Debug, Default)]
pub struct Burst {
    /// The packets.
    pub packets: Vec<Outgoing>,
    /// The elements of all of them.
    pub gather: Vec<Sge>,
}

impl Burst {
    /// Adds a packet with a payload gathered from `elements`.
    #[inline]
    pub fn push(&mut self, to: SocketAddr, header: ArrayVec<u8, MAX_HEADER_LEN>, elements: &[Sge]) {
        let start = self.gather.len() as u32;
        self.gather.extend(elements.iter().filter(|sge| sge.len > 0));
        self.packets.push(Outgoing { header, elements: (start, self.gather.len() as u32 - start), to, again: false });
    }
    /// Adds a packet with `len` bytes of `elements` from `offset`, and `padding`, as payload.
    #[inline]
    pub(crate) fn push_part(
        &mut self,
        to: SocketAddr,
        header: ArrayVec<u8, MAX_HEADER_LEN>,
        part: Part<'_>,
        padding: Sge,
    ) {
        let start = self.gather.len() as u32;
        self.gather.extend(part);
        if padding.len > 0 {
            self.gather.push(padding);
        }
        self.packets.push(Outgoing { header, elements: (start, self.gather.len() as u32 - start), to, again: false });
    }
    /// Notes that the last packet is sent again.
    #[inline]
    pub(crate) fn sent_again(&mut self) {
        if let Some(last) = self.packets.last_mut() {
            last.again = true;
        }
    }
    /// The gather list of a packet.
    #[inline]
    pub fn elements(&self, packet: &Outgoing) -> &[Sge] {
        &self.gather[packet.elements.0 as usize..][..packet.elements.1 as usize]
    }
    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.gather.clear();
    }
}
