//! Reference frames for the sender, built by `shotline_wire`.

use super::config::{Config, Shot};
use arrayvec::ArrayVec;
use shotline_wire::framing::{Link, MAX_HEADER, Packet};
use shotline_wire::icrc::Network;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::{Geometry, PAD_BYTES, Packetization, Trailer};
use shotline_wire::{bth, crc, ethernet, icrc, ipv4, ipv6, udp};

/// Returns the frames of one shot of `samples`, without FCS, and the next sequence number.
///
/// Returns `None` if the configuration has no geometry, one of another size than the samples, or one that needs more
/// packets than a shot can have.
pub fn shot(config: &Config, psn: u32, shot: &Shot, samples: &[u8]) -> Option<(Vec<Vec<u8>>, u32)> {
    let geometry = config.geometry?.sent_as(Trailer::Record, Packetization::uniform(config.mtu)).ok()?;
    if geometry.sample_bytes() as usize != samples.len() {
        return None;
    }
    let bytes = shot_bytes(config, &geometry, shot, samples);
    let mut frames = Vec::with_capacity(geometry.packets() as usize);
    let mut next = psn;
    for index in 0..geometry.packets() {
        let packet = Packet::nth(&geometry, next, shot.number, index).ok()?;
        let start = packet.offset as usize;
        frames.push(frame(config, shot, &packet, &bytes[start..start + packet.len as usize]));
        next = (next + 1) & 0xFF_FFFF;
    }
    Some((frames, next))
}

/// Returns the frame of one packet in packet mode.
pub fn packet(config: &Config, psn: u32, shot: &Shot, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let packet = Packet { psn, shot: shot.number, index: 0, offset: 0, len, shot_bytes: len, last: true };
    frame(config, shot, &packet, payload)
}

/// Returns samples, padding and record.
fn shot_bytes(config: &Config, geometry: &Geometry, shot: &Shot, samples: &[u8]) -> Vec<u8> {
    let mut bytes = samples.to_vec();
    bytes.resize(samples.len().next_multiple_of(PAD_BYTES as usize), 0);
    let record = Record {
        clock_locked: shot.flags & 1 != 0,
        triggered: shot.flags & 2 != 0,
        shot: shot.number,
        tai_ns: shot.time,
        stream: config.stream.unwrap_or(shot.stream),
        event: shot.event,
        ..Record::of(geometry)
    };
    bytes.extend(record.finish(crc::register(u32::MAX, &bytes)));
    debug_assert!(record::is_whole(crc::register(u32::MAX, &bytes)));
    bytes
}

/// Returns one frame, from the Ethernet header to the ICRC.
fn frame(config: &Config, shot: &Shot, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let framing = config.framing.wire_framing();
    let link = Link { stream: config.stream.unwrap_or(shot.stream), ..config.link };
    let mut header = ArrayVec::<u8, MAX_HEADER>::new();
    framing.emit(&link, packet, &mut header);
    if framing.has_icrc() {
        // A framing always writes the default partition key.
        header[2..4].copy_from_slice(&config.partition_key.to_be_bytes());
        debug_assert!(config.partition_key != bth::DEFAULT_P_KEY || header[2..4] == [0xFF, 0xFF]);
    }
    let mut transport = header.to_vec();
    transport.extend(payload);
    if framing.has_icrc() {
        transport.resize(header.len() + payload.len().next_multiple_of(4), 0);
    }
    let udp_len = transport.len() + if framing.has_icrc() { 4 } else { 0 };
    let datagram = udp::Header {
        source: config.flow.src_port,
        destination: config.flow.dst_port,
        payload_len: udp_len as u16,
        checksum: 0,
    };
    let ip_payload = (udp_len + udp::Header::LEN) as u16;
    let (ether_type, ip) = match config.flow.network {
        Network::V4 { src, dst, .. } => {
            let header = ipv4::Header {
                tos: config.class,
                id: 0,
                dont_fragment: true,
                ttl: config.hop_limit,
                protocol: udp::PROTOCOL,
                source: src,
                destination: dst,
                payload_len: ip_payload,
            };
            (ethernet::IPV4, header.emit().to_vec())
        }
        Network::V6 { src, dst } => {
            let header = ipv6::Header {
                traffic_class: config.class,
                flow_label: 0,
                payload_len: ip_payload,
                next_header: udp::PROTOCOL,
                hop_limit: config.hop_limit,
                source: src,
                destination: dst,
            };
            (ethernet::IPV6, header.emit().to_vec())
        }
    };
    let ethernet =
        ethernet::Header { destination: config.destination_mac, source: config.source_mac, vlan: None, ether_type };
    let mut frame = ethernet.emit().to_vec();
    frame.extend(ip);
    frame.extend(datagram.emit());
    frame.extend(transport);
    if framing.has_icrc() {
        let icrc = icrc::of_ip_packet(&frame[ethernet::Header::LEN..]).expect("the IP header was written above");
        frame.extend(icrc.to_le_bytes());
    }
    frame
}
