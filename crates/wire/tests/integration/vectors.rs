//! Published packets: parsed, verified, and encoded again to the same bytes.

use crate::common::{Layer, VECTORS, hex, vector};
use shotline_wire::aeth::{NakCode, Syndrome};
use shotline_wire::bth::Opcode;
use shotline_wire::reth::Reth;
use shotline_wire::{ethernet, icrc, ipv4, ipv6, roce, udp};

/// Parses a packet from its outermost header on, and encodes it again.
fn parse_and_emit(bytes: &[u8], begins_with: Layer) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut ether_type = if bytes[0] >> 4 == 6 { ethernet::IPV6 } else { ethernet::IPV4 };
    if begins_with == Layer::Ethernet {
        let (header, remaining) = ethernet::Header::parse(rest).unwrap();
        (ether_type, rest) = (header.ether_type, remaining);
        out.extend(header.emit());
    }
    rest = match ether_type {
        ethernet::IPV4 => {
            let (header, remaining) = ipv4::Header::parse(rest).unwrap();
            out.extend(header.emit());
            remaining
        }
        _ => {
            let (header, remaining) = ipv6::Header::parse(rest).unwrap();
            out.extend(header.emit());
            remaining
        }
    };
    if ether_type != ethernet::ROCE_V1 {
        let (header, remaining) = udp::Header::parse(rest).unwrap();
        assert_eq!(header.destination, udp::ROCE_PORT);
        out.extend(header.emit());
        rest = remaining;
    }
    let packet = roce::Packet::parse(rest).unwrap();
    assert_eq!(packet.wire_len(), rest.len());
    out.extend(packet.emit_header());
    out.extend(packet.payload);
    out.extend(vec![0; packet.bth.pad.into()]);
    out.extend(packet.icrc.to_le_bytes());
    out
}

fn verify(bytes: &[u8], begins_with: Layer) -> bool {
    match begins_with {
        Layer::Ethernet => icrc::verify_frame(bytes).unwrap(),
        Layer::Ip => icrc::verify_ip_packet(bytes).unwrap(),
    }
}

#[test]
fn vectors_are_encoded_to_the_same_bytes() {
    for vector in VECTORS {
        let bytes = hex(vector.bytes);
        assert_eq!(parse_and_emit(&bytes, vector.begins_with), bytes, "{}", vector.name);
    }
}

#[test]
fn vectors_verify_and_changed_bits_do_not() {
    for vector in VECTORS {
        let mut bytes = hex(vector.bytes);
        assert!(verify(&bytes, vector.begins_with), "{}", vector.name);
        let last = bytes.len() - 1;
        for at in [last - 3, last - 4, last] {
            bytes[at] ^= 0x10;
            assert!(!verify(&bytes, vector.begins_with), "{} with byte {at} changed", vector.name);
            bytes[at] ^= 0x10;
        }
        // The padding of an Ethernet frame is not part of the packet.
        bytes.extend([0xEE; 7]);
        assert!(verify(&bytes, vector.begins_with), "{} with padding", vector.name);
    }
}

#[test]
fn truncated_vectors_are_refused() {
    for vector in VECTORS {
        let bytes = hex(vector.bytes);
        for len in 0..bytes.len() {
            let result = match vector.begins_with {
                Layer::Ethernet => icrc::verify_frame(&bytes[..len]),
                Layer::Ip => icrc::verify_ip_packet(&bytes[..len]),
            };
            assert!(result.is_err(), "{} truncated to {len}", vector.name);
        }
    }
}

/// Returns the RoCE packet of a vector over IPv4 without an Ethernet header.
fn roce_of(bytes: &[u8]) -> roce::Packet<'_> {
    roce::Packet::parse(&bytes[28..]).unwrap()
}

#[test]
fn vectors_have_the_published_fields() {
    let g1 = vector("g1");
    let packet = roce_of(&g1);
    let deth = packet.extensions.deth.unwrap();
    assert_eq!((packet.bth.opcode, packet.bth.dest_qp, packet.bth.psn), (Opcode::UdSendOnly, 0x12, 1));
    assert_eq!((deth.q_key, deth.src_qp, packet.payload), (0x1111_1111, 0x11, b"hello".as_slice()));

    let g2 = vector("g2");
    assert_eq!(roce_of(&g2).extensions.imm.unwrap().0, 0xDEAD_BEEF);
    let ud = roce::ud_header(&g2[28..]).unwrap();
    assert_eq!((ud.dest_qp, ud.src_qp, ud.q_key, ud.psn), (0x12, 0x11, 0x1111_1111, 2));
    assert_eq!((ud.imm, ud.solicited, ud.pad, ud.header_len()), (Some(0xDEAD_BEEF), false, 0, 24));

    let g4 = vector("g4");
    let reth = Reth { address: 0x7f00_1234_5678, r_key: 0xa1b2_c3d4, length: 6 };
    assert_eq!((roce_of(&g4).extensions.reth, roce_of(&g4).payload), (Some(reth), b"ABCDEF".as_slice()));
    assert!(roce_of(&g4).bth.ack_request && roce_of(&g4).bth.psn == 0xFF_FFFF);

    let g7 = vector("g7");
    assert_eq!(roce_of(&g7).extensions.aeth.unwrap().syndrome, Syndrome::Nak(NakCode::PsnSequenceError));
    let g6 = vector("g6");
    assert_eq!(roce_of(&g6).extensions.aeth.unwrap().syndrome, Syndrome::ACK);

    let g10 = vector("g10");
    let atomic = roce_of(&g10).extensions.atomic.unwrap();
    assert_eq!((atomic.swap_or_add, atomic.compare), (0x1111_1111_2222_2222, 0x3333_3333_4444_4444));

    let c = vector("c");
    let packet = roce_of(&c[14..]);
    assert_eq!(
        (packet.bth.opcode, packet.bth.becn, packet.payload),
        (Opcode::CongestionNotification, true, [0; 16].as_slice())
    );
}
