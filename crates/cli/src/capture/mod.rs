//! Analysis of a pcap or pcapng capture: flows, opcodes, ICRC checks, and shots.

pub mod flow;
mod shots;
#[cfg(test)]
mod tests;

use crate::Result;
pub use flow::Flow;
use flow::{FlowCounters, FlowKey, Protocol};
use serde::Serialize;
use shotline_store::pcapng::{Frame, LinkType, for_each_frame, network};
use shotline_wire::framing::udp as plain;
use shotline_wire::icrc::Network;
use shotline_wire::{ParseError, ethernet, icrc, ipv4, ipv6, udp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Next-header number of an InfiniBand packet that follows a GRH (RoCE v1).
const GRH_PAYLOAD: u8 = 0x1B;
/// Maximum number of flows that are tracked.
const MAX_FLOWS: usize = 4096;
/// Maximum number of reasons for malformed packets that are counted separately.
const MAX_REASONS: usize = 64;

/// Summary of a capture.
#[derive(Debug, Serialize)]
pub struct Capture {
    /// Path of the capture file.
    pub path: PathBuf,
    /// Why the file could not be read to its end, if it could not.
    pub damage: Option<String>,
    /// Number of frames.
    pub frames: u64,
    /// Length of all frames on the wire, in bytes.
    pub wire_bytes: u64,
    /// Time from the first frame to the last, in seconds.
    pub seconds: f64,
    /// Number of frames that the capture truncated.
    pub truncated_frames: u64,
    /// Number of frames that carry neither RoCE nor shots, by what they carry.
    pub other: BTreeMap<String, u64>,
    /// Number of packets that contradict their headers, by reason.
    pub malformed: BTreeMap<String, u64>,
    /// Number of packets of flows beyond the maximum number of tracked flows.
    pub untracked_packets: u64,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// Reads a capture. UDP ports in `roce_ports` carry RoCE in addition to 4791, even if their ICRCs are wrong.
pub fn read(path: &Path, roce_ports: &[u16]) -> Result<Capture> {
    let roce_ports = roce_ports.iter().copied().chain([udp::ROCE_PORT]).collect();
    let mut analysis = Analysis { roce_ports, ..Analysis::default() };
    let damage = for_each_frame(path, |frame| analysis.frame(&frame))?;
    let unsupported = analysis.unsupported_links.iter().next();
    if let (Some((number, _)), true) =
        (unsupported, analysis.unsupported_links.values().sum::<u64>() == analysis.frames)
    {
        return Err(format!(
            "{} has link type {number}; expected Ethernet (1), raw IP (101) or Linux cooked (113, 276): capture on an Ethernet interface, such as tcpdump -i eth0 -w run.pcap",
            path.display()
        )
        .into());
    }
    let (first, last): (u64, u64) = analysis.times.unwrap_or_default();
    Ok(Capture {
        path: path.to_owned(),
        damage,
        frames: analysis.frames,
        wire_bytes: analysis.wire_bytes,
        seconds: (last - first) as f64 / 1e9,
        truncated_frames: analysis.truncated_frames,
        other: analysis.other,
        malformed: analysis.malformed,
        untracked_packets: analysis.untracked_packets,
        flows: analysis.flows.into_iter().map(|(key, counters)| counters.finish(key)).collect(),
    })
}

#[derive(Default)]
struct Analysis {
    roce_ports: BTreeSet<u16>,
    frames: u64,
    wire_bytes: u64,
    times: Option<(u64, u64)>,
    truncated_frames: u64,
    unsupported_links: BTreeMap<i32, u64>,
    other: BTreeMap<String, u64>,
    malformed: BTreeMap<String, u64>,
    untracked_packets: u64,
    flows: BTreeMap<FlowKey, FlowCounters>,
}

impl Analysis {
    fn frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        self.wire_bytes += u64::from(frame.wire_bytes);
        if frame.time_ns > 0 {
            let (first, last) = self.times.unwrap_or((frame.time_ns, frame.time_ns));
            self.times = Some((first.min(frame.time_ns), last.max(frame.time_ns)));
        }
        if frame.data.len() < frame.wire_bytes as usize {
            self.truncated_frames += 1;
            return;
        }
        if let Err(error) = self.packet(frame) {
            self.malformed(error.to_string());
        }
    }

    fn malformed(&mut self, reason: String) {
        let known = self.malformed.len() < MAX_REASONS || self.malformed.contains_key(&reason);
        let reason = if known { reason } else { "other reasons".into() };
        *self.malformed.entry(reason).or_default() += 1;
    }

    fn other(&mut self, what: impl Into<String>) {
        *self.other.entry(what.into()).or_default() += 1;
    }

    fn packet(&mut self, frame: &Frame<'_>) -> std::result::Result<(), ParseError> {
        let Some((ether_type, packet)) = network(frame)? else {
            if let LinkType::Other(number) = frame.link {
                *self.unsupported_links.entry(number).or_default() += 1;
                self.other(format!("link type {number}"));
            }
            return Ok(());
        };
        match ether_type {
            ethernet::IPV4 => {
                let (ip, rest) = ipv4::Header::parse(packet)?;
                let network = Network::V4 { src: ip.source, dst: ip.destination, id: ip.id };
                let ips = (ip.source.into(), ip.destination.into());
                self.transport(ip.protocol, ips, network, packet, rest)
            }
            ethernet::IPV6 => {
                let (ip, rest) = ipv6::Header::parse(packet)?;
                let network = Network::V6 { src: ip.source, dst: ip.destination };
                let ips = (ip.source.into(), ip.destination.into());
                self.transport(ip.next_header, ips, network, packet, rest)
            }
            ethernet::ROCE_V1 => {
                let (grh, rest) = ipv6::Header::parse(packet)?;
                if grh.next_header != GRH_PAYLOAD {
                    let (expected, found) = (GRH_PAYLOAD.into(), grh.next_header.into());
                    return Err(ParseError::Value { what: "GRH next header", expected, found });
                }
                let ends = [grh.source, grh.destination].map(|ip| SocketAddr::new(ip.into(), 0));
                let verdict = icrc::verify_grh_packet(packet).ok();
                self.roce(Protocol::RoceV1, ends, rest, verdict)
            }
            other => {
                self.other(format!("EtherType {other:#06x}"));
                Ok(())
            }
        }
    }

    fn transport(
        &mut self,
        protocol: u8,
        (source, destination): (IpAddr, IpAddr),
        network: Network,
        packet: &[u8],
        rest: &[u8],
    ) -> std::result::Result<(), ParseError> {
        if protocol != udp::PROTOCOL {
            let name = match protocol {
                1 => "ICMP".into(),
                6 => "TCP".into(),
                58 => "ICMPv6".into(),
                other => format!("IP protocol {other}"),
            };
            self.other(name);
            return Ok(());
        }
        let (header, payload) = udp::Header::parse(rest)?;
        let ends = [SocketAddr::new(source, header.source), SocketAddr::new(destination, header.destination)];
        if self.is_roce(header.destination, packet, payload) {
            // Senders spread one flow over several source ports, so the source port is not part of the key.
            let ends = [SocketAddr::new(source, 0), ends[1]];
            let Some(segment) = flow::roce_segment(payload) else {
                let verdict = icrc::verify_ip_packet(packet).ok();
                return self.roce(Protocol::RoceV2, ends, payload, verdict);
            };
            for (index, packet) in payload.chunks(segment).enumerate() {
                let flow = icrc::Flow {
                    network: flow::nth_of_batch(network, index),
                    src_port: header.source,
                    dst_port: header.destination,
                };
                self.roce(Protocol::RoceV2Batched, ends, packet, flow::verdict(&flow, packet))?;
            }
            Ok(())
        } else if payload.starts_with(&plain::MAGIC) {
            for packet in payload.chunks(flow::PLAIN_SEGMENT) {
                let (header, rest) = plain::Header::parse(packet)?;
                if let Some(counters) = self.counters(Protocol::Plain, ends, header.stream) {
                    counters.plain(&header, rest);
                }
            }
            Ok(())
        } else {
            self.other("UDP");
            Ok(())
        }
    }

    /// Returns `true` if a datagram is RoCE: by its port, or because its ICRC is correct. A correct ICRC also marks the
    /// port, so that every later datagram to it is RoCE.
    fn is_roce(&mut self, port: u16, packet: &[u8], payload: &[u8]) -> bool {
        self.roce_ports.contains(&port)
            || !payload.starts_with(&plain::MAGIC)
                && icrc::verify_ip_packet(packet) == Ok(true)
                && self.roce_ports.insert(port)
    }

    fn roce(
        &mut self,
        protocol: Protocol,
        ends: [SocketAddr; 2],
        payload: &[u8],
        verdict: Option<bool>,
    ) -> std::result::Result<(), ParseError> {
        let packet = shotline_wire::roce::Packet::parse(payload)?;
        if let Some(counters) = self.counters(protocol, ends, packet.bth.dest_qp) {
            counters.roce(&packet, verdict);
        }
        Ok(())
    }

    fn counters(
        &mut self,
        protocol: Protocol,
        [source, destination]: [SocketAddr; 2],
        number: u32,
    ) -> Option<&mut FlowCounters> {
        let key = FlowKey { source, destination, protocol, number };
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&key) {
            self.untracked_packets += 1;
            return None;
        }
        Some(self.flows.entry(key).or_default())
    }
}
