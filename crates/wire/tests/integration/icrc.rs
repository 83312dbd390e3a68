//! The three ways to compute the ICRC agree, on published and on random packets.

use crate::common::{self, VECTORS, hex, vector};
use proptest::prelude::*;
use shotline_wire::crc::{self, Shift};
use shotline_wire::icrc::{self, Flow, Network};
use shotline_wire::{ParseError, ipv4, ipv6, udp};

/// Returns the flow and the UDP payload of an IP packet as a socket sends it.
fn split(packet: &[u8]) -> (Flow, &[u8]) {
    let (network, rest) = if packet[0] >> 4 == 4 {
        let (ip, rest) = ipv4::Header::parse(packet).unwrap();
        assert!(ip.dont_fragment);
        (Network::V4 { src: ip.source, dst: ip.destination, id: ip.id }, rest)
    } else {
        let (ip, rest) = ipv6::Header::parse(packet).unwrap();
        (Network::V6 { src: ip.source, dst: ip.destination }, rest)
    };
    let (udp, payload) = udp::Header::parse(rest).unwrap();
    (Flow { network, src_port: udp.source, dst_port: udp.destination }, payload)
}

/// Returns the ICRC computed from flow, header and payload remainder.
fn assemble(flow: &Flow, udp_payload: &[u8], header_len: usize) -> u32 {
    let covered = udp_payload.len() - 4;
    let (header, payload) = udp_payload[..covered].split_at(header_len);
    let register = icrc::after_header(flow.prefix(udp_payload.len() as u16), header);
    icrc::seal(register, payload.len() as u64, crc::remainder(payload))
}

fn stored(packet: &[u8]) -> u32 {
    u32::from_le_bytes(*packet.last_chunk().unwrap())
}

/// Returns all vectors over IP, from the IP header on.
fn ip_vectors() -> impl Iterator<Item = Vec<u8>> {
    VECTORS.iter().filter_map(|vector| {
        let bytes = hex(vector.bytes);
        match (vector.begins_with, &bytes[12..14]) {
            (common::Layer::Ip, _) => Some(bytes),
            (common::Layer::Ethernet, [0x08, 0x00]) => Some(bytes[14..].to_vec()),
            _ => None, // RoCEv1
        }
    })
}

#[test]
fn vectors_assemble_for_any_header_length() {
    for packet in ip_vectors() {
        let (flow, udp_payload) = split(&packet);
        for header_len in 12..=udp_payload.len() - 4 {
            assert_eq!(assemble(&flow, udp_payload, header_len), stored(&packet));
        }
    }
}

#[test]
fn identification_of_captured_packets_is_solved() {
    for (name, id) in [("c", 0x718C), ("f", 0xBE10)] {
        let frame = vector(name);
        let packet = &frame[14..];
        let (mut flow, udp_payload) = split(packet);
        let Network::V4 { id: flow_id, .. } = &mut flow.network else { unreachable!() };
        assert_eq!(std::mem::take(flow_id), id);
        let len = udp_payload.len() as u16;
        let with_id_zero = assemble(&flow, udp_payload, 12);
        assert_eq!(icrc::solve_ipv4_id(stored(packet), with_id_zero, icrc::bytes_after_ipv4_id(len)), Some(id));
        assert_eq!(icrc::solve_ipv4_id_with(stored(packet), with_id_zero, &icrc::ipv4_id_solver(len)), Some(id));
        // No identification explains a changed bit.
        for bit in 0..32 {
            let received = stored(packet) ^ 1 << bit;
            assert_eq!(icrc::solve_ipv4_id(received, with_id_zero, icrc::bytes_after_ipv4_id(len)), None);
        }
    }
}

#[test]
fn immediate_is_changed_without_the_payload() {
    let packet = vector("g2");
    let (flow, udp_payload) = split(&packet);
    let mut changed = udp_payload.to_vec();
    changed[20..24].copy_from_slice(&[0, 1, 2, 3]);
    let bytes_after = 4_u64; // the payload
    let icrc = icrc::with_field_changed(stored(&packet), &[0xDE, 0xAD, 0xBE, 0xEF], &[0, 1, 2, 3], bytes_after);
    assert_eq!(icrc, assemble(&flow, &changed, 24));
}

#[test]
fn fragments_and_other_protocols_are_refused() {
    let mut packet = vector("g1");
    packet[6] = 0x20;
    assert_eq!(icrc::verify_ip_packet(&packet), Err(ParseError::Fragment { offset: 0, more: true }));
    packet[6] = 0x40;
    packet[9] = 6;
    assert_eq!(icrc::verify_ip_packet(&packet), Err(ParseError::Value { what: "IP protocol", expected: 17, found: 6 }));
    packet[0] = 0x55;
    assert!(icrc::verify_ip_packet(&packet).is_err());
}

fn flow() -> impl Strategy<Value = Flow> {
    let network = prop_oneof![
        any::<([u8; 4], [u8; 4], u16)>().prop_map(|(src, dst, id)| Network::V4 { src, dst, id }),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| Network::V6 { src, dst }),
    ];
    (network, any::<u16>(), any::<u16>()).prop_map(|(network, src_port, dst_port)| Flow { network, src_port, dst_port })
}

/// Returns the packet that a socket sends.
fn packet(flow: &Flow, udp_payload: &[u8]) -> Vec<u8> {
    let payload_len = udp_payload.len() as u16;
    let udp = udp::Header { source: flow.src_port, destination: flow.dst_port, payload_len, checksum: 0 };
    let mut packet = match flow.network {
        Network::V4 { src, dst, id } => ipv4::Header {
            tos: 0,
            id,
            dont_fragment: true,
            ttl: 64,
            protocol: udp::PROTOCOL,
            source: src,
            destination: dst,
            payload_len: payload_len + 8,
        }
        .emit()
        .to_vec(),
        Network::V6 { src, dst } => ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: payload_len + 8,
            next_header: udp::PROTOCOL,
            hop_limit: 64,
            source: src,
            destination: dst,
        }
        .emit()
        .to_vec(),
    };
    packet.extend(udp.emit());
    packet.extend(udp_payload);
    packet
}

proptest! {
    #[test]
    fn assembled_icrc_agrees_with_verify(
        flow in flow(), mut udp_payload in prop::collection::vec(any::<u8>(), 16..600), cut: prop::sample::Index,
    ) {
        let header_len = 12 + cut.index(udp_payload.len() - 15);
        let icrc = assemble(&flow, &udp_payload, header_len);
        let covered = udp_payload.len() - 4;
        udp_payload[covered..].copy_from_slice(&icrc.to_le_bytes());
        prop_assert_eq!(icrc::verify_ip_packet(&packet(&flow, &udp_payload)), Ok(true));
    }

    #[test]
    fn only_variant_fields_may_change(
        flow in flow(), mut udp_payload in prop::collection::vec(any::<u8>(), 16..200), bit: prop::sample::Index,
    ) {
        let icrc = assemble(&flow, &udp_payload, 12);
        let covered = udp_payload.len() - 4;
        udp_payload[covered..].copy_from_slice(&icrc.to_le_bytes());
        let mut packet = packet(&flow, &udp_payload);
        let bit = bit.index(packet.len() * 8);
        packet[bit / 8] ^= 1 << (bit % 8);
        let (variant, lengths): (&[usize], &[usize]) = match flow.network {
            // Type of service, time to live, checksum, UDP checksum, BTH byte 4.
            Network::V4 { .. } => (&[1, 8, 10, 11, 26, 27, 32], &[0, 2, 3, 6, 7, 9]),
            // Traffic class, flow label, hop limit, UDP checksum, BTH byte 4.
            Network::V6 { .. } => (&[1, 2, 3, 7, 46, 47, 52], &[0, 4, 5, 6]),
        };
        let verdict = icrc::verify_ip_packet(&packet);
        if variant.contains(&(bit / 8)) {
            prop_assert_eq!(verdict, Ok(true));
        } else if bit / 8 == 0 && matches!(flow.network, Network::V6 { .. }) && bit % 8 < 4 {
            prop_assert_eq!(verdict, Ok(true), "upper half of the traffic class");
        } else if lengths.contains(&(bit / 8)) {
            prop_assert_ne!(verdict, Ok(true), "version, lengths, fragmentation, protocol");
        } else {
            prop_assert_eq!(verdict, Ok(false));
        }
    }

    #[test]
    fn every_identification_is_solved(
        src: [u8; 4], dst: [u8; 4], id: u16, src_port: u16,
        udp_payload in prop::collection::vec(any::<u8>(), 16..5000),
    ) {
        let flow = |id| Flow { network: Network::V4 { src, dst, id }, src_port, dst_port: 4791 };
        let received = assemble(&flow(id), &udp_payload, 12);
        let with_id_zero = assemble(&flow(0), &udp_payload, 12);
        let bytes_after = icrc::bytes_after_ipv4_id(udp_payload.len() as u16);
        prop_assert_eq!(icrc::solve_ipv4_id(received, with_id_zero, bytes_after), Some(id));
        let changed = icrc::with_field_changed(with_id_zero, &[0, 0], &id.to_be_bytes(), bytes_after);
        prop_assert_eq!(changed, received);
    }

    #[test]
    fn seal_with_a_table_equals_seal_with_a_length(register: u32, remainder: u32, len in 0_u64..10_000) {
        prop_assert_eq!(icrc::seal(register, &Shift::new(len), remainder), icrc::seal(register, len, remainder));
    }

    #[test]
    fn parse_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in 4_u8..7) {
        let _ = (icrc::verify_frame(&bytes), icrc::verify_grh_packet(&bytes), icrc::of_ip_packet(&bytes));
        if let Some(first) = bytes.first_mut() { *first = *first & 0xF | version << 4; }
        let _ = (icrc::verify_ip_packet(&bytes), icrc::of_ip_packet(&bytes));
        let _ = icrc::after_header(0, &bytes);
    }
}
