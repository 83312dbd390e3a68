//! One flow of a capture: packets of one sender to one queue pair or stream.

use super::shots::{Counted, Piece, Shots, Summary};
use serde::Serialize;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::framing::{Kind, ud, udp as plain};
use shotline_wire::icrc::{self, Flow as Sealed, Network};
use shotline_wire::roce::{ICRC_LEN, Packet};
use shotline_wire::shot::PACKET_BYTES;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A plain packet of a batch that the kernel had not yet split when it was captured.
pub const PLAIN_SEGMENT: usize = plain::HEADER_LEN + PACKET_BYTES as usize;

/// What a flow's packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// RoCE over Ethernet.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
    /// The same, captured as batches before segmentation (loopback, or offload on the sender's side).
    RoceV2Batched,
    /// Shots over plain UDP.
    Plain,
}

/// What tells flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub protocol: Protocol,
    /// Destination queue pair or stream.
    pub number: u32,
}

/// A flow in short.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// Who sent it.
    pub source: String,
    /// Who received it.
    pub destination: String,
    /// What its packets are.
    pub protocol: Protocol,
    /// Destination queue pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest_qp: Option<u32>,
    /// Stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Packets.
    pub packets: u64,
    /// Payload bytes.
    pub payload_bytes: u64,
    /// Packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Verdicts on ICRCs.
    pub icrc: Verdicts,
    /// The framing, if shots were recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<&'static str>,
    /// The shots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shots: Option<Summary>,
}

/// Verdicts on ICRCs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Verdicts {
    /// They match.
    pub good: u64,
    /// They do not: such packets are not counted into shots, since a receiver drops them.
    pub bad: u64,
    /// They could not be computed.
    pub unverified: u64,
}

/// A flow in the making.
#[derive(Default)]
pub struct Tally {
    packets: u64,
    payload_bytes: u64,
    opcodes: BTreeMap<u8, u64>,
    icrc: Verdicts,
    numbered: Option<Box<Shots>>,
    counted: Option<Box<Counted>>,
}

impl Tally {
    /// A RoCE packet, with the verdict on its ICRC if there could be one.
    pub fn roce(&mut self, packet: &Packet<'_>, verdict: Option<bool>) {
        self.packets += 1;
        self.payload_bytes += packet.payload.len() as u64;
        *self.opcodes.entry(packet.bth.opcode as u8).or_default() += 1;
        match verdict {
            Some(true) => self.icrc.good += 1,
            Some(false) => {
                self.icrc.bad += 1;
                return;
            }
            None => self.icrc.unverified += 1,
        }
        let last = packet.bth.solicited;
        match (packet.bth.opcode, packet.extensions.imm) {
            (Opcode::UdSendOnlyImm, Some(imm)) => {
                let (shot, index) = ud::split_immediate(imm.0);
                self.numbered.get_or_insert_default().push(shot.into(), Piece::new(index, last, packet.payload));
            }
            (Opcode::UdSendOnly, _) => {
                self.counted.get_or_insert_default().push(packet.bth.psn, Piece::new(0, last, packet.payload));
            }
            _ => {}
        }
    }

    /// A packet of the plain framing.
    pub fn plain(&mut self, header: &plain::Header, payload: &[u8]) {
        self.packets += 1;
        self.payload_bytes += payload.len() as u64;
        let piece = Piece::new(header.offset / PACKET_BYTES, header.last, payload);
        self.numbered.get_or_insert_default().push(header.shot, piece);
    }

    /// The flow, summed up.
    pub fn finish(self, key: FlowKey) -> Flow {
        let is_plain = key.protocol == Protocol::Plain;
        let numbered = self.numbered.and_then(|shots| shots.finish());
        let (framing, shots) = match (numbered, self.counted.and_then(|shots| shots.finish())) {
            (Some(shots), _) => (Some(if is_plain { Kind::Udp } else { Kind::Ud }), Some(shots)),
            (None, Some(shots)) => (Some(Kind::Counted), Some(shots)),
            (None, None) => (None, None),
        };
        let opcode = |(number, count)| Some((opcode_name(Opcode::from_u8(number)?), count));
        Flow {
            source: endpoint(key.source),
            destination: endpoint(key.destination),
            protocol: key.protocol,
            dest_qp: (!is_plain).then_some(key.number),
            stream: is_plain.then_some(key.number),
            packets: self.packets,
            payload_bytes: self.payload_bytes,
            opcodes: self.opcodes.into_iter().filter_map(opcode).collect(),
            icrc: self.icrc,
            framing: framing.map(Kind::name),
            shots,
        }
    }
}

/// Without the port where it tells nothing.
fn endpoint(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// `UdSendOnlyImm` as `ud_send_only_imm`.
fn opcode_name(opcode: Opcode) -> String {
    let mut name = String::new();
    for letter in format!("{opcode:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Bytes of each packet in a UDP payload that holds a batch of them: the kernel's loopback and a sender's own
/// offload show batches before they are split. None for a payload that is one packet.
pub fn roce_segment(payload: &[u8]) -> Option<usize> {
    let (bth, _) = Bth::parse(payload).ok()?;
    let segment = bth.opcode.header_len() + PACKET_BYTES as usize + ICRC_LEN;
    (payload.len() > segment).then_some(segment)
}

/// The IP header of packet `index` of a batch: the kernel counts the identification up.
pub fn nth_of_batch(network: Network, index: usize) -> Network {
    match network {
        Network::V4 { src, dst, id } => Network::V4 { src, dst, id: id.wrapping_add(index as u16) },
        v6 => v6,
    }
}

/// Whether the ICRC of one packet of a batch is right.
pub fn verdict(flow: &Sealed, udp_payload: &[u8]) -> Option<bool> {
    let (packet, stored) = udp_payload.split_last_chunk::<ICRC_LEN>()?;
    let (bth, _) = Bth::parse(packet).ok()?;
    let (header, payload) = packet.split_at_checked(bth.opcode.header_len())?;
    let register = icrc::after_header(flow.prefix(udp_payload.len() as u16), header);
    let right = icrc::seal(register, payload.len() as u64, shotline_wire::crc::remainder(payload));
    Some(right == u32::from_le_bytes(*stored))
}
