//! Encoding and ICRC check of packets.

use super::Datagram;
use shotline_wire::icrc::{self, Flow, Network};
use shotline_wire::{bth::Bth, crc, roce};
use std::net::{IpAddr, SocketAddr};

/// Returns a complete packet: `header` from the BTH on, payload with its padding, and the ICRC for these addresses.
pub fn seal(source: SocketAddr, destination: SocketAddr, header: &[u8], payload: &[u8]) -> Datagram {
    let mut bytes = Vec::with_capacity(header.len() + payload.len() + roce::ICRC_LEN);
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(payload);
    let icrc = icrc_of(source, destination, &bytes);
    bytes.extend_from_slice(&icrc.to_le_bytes());
    Datagram { source, destination, bytes, marked: false }
}

/// Returns `true` if a packet is long enough and has a valid ICRC.
pub fn is_intact(packet: &Datagram) -> bool {
    packet.bytes.split_last_chunk().is_some_and(|(covered, stored)| {
        let long_enough = covered.len() >= Bth::LEN;
        long_enough && icrc_of(packet.source, packet.destination, covered) == u32::from_le_bytes(*stored)
    })
}

fn icrc_of(source: SocketAddr, destination: SocketAddr, covered: &[u8]) -> u32 {
    let network = match (source.ip(), destination.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Network::V4 { src: src.octets(), dst: dst.octets(), id: 0 },
        (src, dst) => Network::V6 { src: v6(src), dst: v6(dst) },
    };
    let flow = Flow { network, src_port: source.port(), dst_port: destination.port() };
    let udp_payload = (covered.len() + roce::ICRC_LEN) as u16;
    let (header, rest) = covered.split_at(covered.len().min(Bth::LEN));
    icrc::seal(icrc::after_header(flow.prefix(udp_payload), header), rest.len() as u64, crc::remainder(rest))
}

fn v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icrc_matches_a_published_packet_and_covers_every_bit() {
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let header = [0x64, 0x70, 0xFF, 0xFF, 0, 0, 0, 0x12, 0, 0, 0, 1, 0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0x11];
        let packet = seal(at("192.168.0.1", 0xC123), at("192.168.0.2", 4791), &header, b"hello\0\0\0");
        assert_eq!(packet.bytes[28..], [0x04, 0x28, 0x63, 0xE3]);
        assert!(is_intact(&packet));
        for bit in (0..packet.bytes.len() * 8).filter(|bit| bit / 8 != 4) {
            let mut changed = packet.clone();
            changed.bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&changed), "bit {bit}");
        }
        let elsewhere = Datagram { source: at("192.168.0.3", 0xC123), ..packet };
        assert!(!is_intact(&elsewhere));
    }
}
