//! One flow of a capture: the packets from one sender to one queue pair or stream.

use super::shots::{CountedAssembler, ShotAssembler, ShotPacket, Summary};
use serde::Serialize;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::framing::{Kind, ud, udp as plain};
use shotline_wire::icrc::{self, Flow as Sealed, Network};
use shotline_wire::roce::{ICRC_LEN, Packet};
use shotline_wire::shot::PACKET_BYTES;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Length of a plain packet in a batch that the kernel had not split when it was captured.
pub const PLAIN_SEGMENT: usize = plain::HEADER_LEN + PACKET_BYTES as usize;

/// Protocol of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// RoCE v1: directly over Ethernet.
    RoceV1,
    /// RoCE v2: over UDP.
    RoceV2,
    /// RoCE v2 captured as batches before segmentation (loopback, or offload on the sender).
    RoceV2Batched,
    /// Shots over plain UDP.
    Plain,
}

/// Key of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub protocol: Protocol,
    /// Destination queue pair or stream.
    pub number: u32,
}

/// Summary of a flow.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// Address of the sender.
    pub source: String,
    /// Address of the receiver.
    pub destination: String,
    pub protocol: Protocol,
    /// Destination queue pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest_qp: Option<u32>,
    /// Stream number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Number of packets.
    pub packets: u64,
    /// Number of payload bytes.
    pub payload_bytes: u64,
    /// Number of packets by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Number of ICRC checks by result.
    pub icrc: Verdicts,
    /// The framing, if shots were recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<&'static str>,
    /// The shots, if any were recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shots: Option<Summary>,
}

/// Number of ICRC checks by result.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Verdicts {
    /// The ICRC matched.
    pub good: u64,
    /// The ICRC did not match. Such packets are not counted into shots, because a receiver drops them.
    pub bad: u64,
    /// The ICRC could not be computed.
    pub unverified: u64,
}

/// Counters of a flow while its capture is being read.
#[derive(Default)]
pub struct FlowCounters {
    packets: u64,
    payload_bytes: u64,
    opcodes: BTreeMap<u8, u64>,
    icrc: Verdicts,
    numbered: Option<Box<ShotAssembler>>,
    counted: Option<Box<CountedAssembler>>,
}

impl FlowCounters {
    /// Counts a RoCE packet. `verdict` is the result of its ICRC check, if it could be checked.
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
                self.numbered.get_or_insert_default().push(shot.into(), ShotPacket::new(index, last, packet.payload));
            }
            (Opcode::UdSendOnly, _) => {
                self.counted.get_or_insert_default().push(packet.bth.psn, ShotPacket::new(0, last, packet.payload));
            }
            _ => {}
        }
    }

    /// Counts a packet of the plain framing.
    pub fn plain(&mut self, header: &plain::Header, payload: &[u8]) {
        self.packets += 1;
        self.payload_bytes += payload.len() as u64;
        let packet = ShotPacket::new(header.offset / PACKET_BYTES, header.last, payload);
        self.numbered.get_or_insert_default().push(header.shot, packet);
    }

    /// Returns the summary of the flow.
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

/// Formats an address, without its port if the port is 0.
fn endpoint(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// Converts `UdSendOnlyImm` to `ud_send_only_imm`.
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

/// Returns the length of each packet in a UDP payload that holds a batch, or `None` if the payload is one packet.
/// Captures on loopback, or on a sender with segmentation offload, show batches before they are split.
pub fn roce_segment(payload: &[u8]) -> Option<usize> {
    let (bth, _) = Bth::parse(payload).ok()?;
    let segment = bth.opcode.header_len() + PACKET_BYTES as usize + ICRC_LEN;
    (payload.len() > segment).then_some(segment)
}

/// Returns the IP header of packet `index` of a batch. The kernel increments the identification for each packet.
pub fn nth_of_batch(network: Network, index: usize) -> Network {
    match network {
        Network::V4 { src, dst, id } => Network::V4 { src, dst, id: id.wrapping_add(index as u16) },
        v6 => v6,
    }
}

/// Returns `Some(true)` if the ICRC of one packet of a batch is correct, and `None` if it cannot be computed.
pub fn verdict(flow: &Sealed, udp_payload: &[u8]) -> Option<bool> {
    let (packet, stored) = udp_payload.split_last_chunk::<ICRC_LEN>()?;
    let (bth, _) = Bth::parse(packet).ok()?;
    let (header, payload) = packet.split_at_checked(bth.opcode.header_len())?;
    let register = icrc::after_header(flow.prefix(udp_payload.len() as u16), header);
    let right = icrc::seal(register, payload.len() as u64, shotline_wire::crc::remainder(payload));
    Some(right == u32::from_le_bytes(*stored))
}
