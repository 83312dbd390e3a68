//! Ethernet, IP and UDP headers of datagrams: parsed with the checks that a kernel makes, and built.

use arrayvec::ArrayVec;
use shotline_wire::icrc::Network;
use shotline_wire::{ParseError, ethernet, ipv4, ipv6, udp};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Maximum bytes of the headers in front of a datagram.
pub const MAX_HEADERS: usize = ethernet::Header::LEN + ipv6::Header::LEN + udp::Header::LEN;

/// A datagram parsed from its frame.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    pub mac: Mac,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The addresses as the ICRC covers them, with the received identification.
    pub network: Network,
    /// The network marked it as having experienced congestion (ECN).
    pub congested: bool,
    /// The bytes from the IP header on, including the frame's padding.
    pub packet: &'a [u8],
    /// The bytes after the UDP header.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Returns the datagrams that an offload has merged into this one, of `segment` bytes each except the last. Over
    /// IPv4 each gets the identification that it would have had on the wire.
    pub fn segments(self, segment: Option<NonZeroU16>) -> impl Iterator<Item = Self> {
        let segment = segment.map(|segment| usize::from(segment.get())).filter(|segment| *segment < self.payload.len());
        let several = segment.is_some();
        let len = segment.unwrap_or(self.payload.len());
        (0..self.payload.len().div_ceil(len.max(1)).max(1)).map(move |index| {
            let begin = index * len;
            let mut one = self;
            one.payload = &self.payload[begin..self.payload.len().min(begin + len)];
            if several {
                one.packet = &[]; // the individual packet never existed
            }
            if let Network::V4 { id, .. } = &mut one.network {
                *id = id.wrapping_add(index as u16);
            }
            one
        })
    }
}

/// Parses a frame.
pub fn parse(frame: &[u8]) -> Result<Datagram<'_>, ParseError> {
    let (ethernet, packet) = ethernet::Header::parse(frame)?;
    let (network, class, protocol, rest) = if ethernet.ether_type == ethernet::IPV6 {
        let (header, rest) = ipv6::Header::parse(packet)?;
        let network = Network::V6 { src: header.source, dst: header.destination };
        (network, header.traffic_class, header.next_header, rest)
    } else {
        let (header, rest) = ipv4::Header::parse(packet)?;
        let network = Network::V4 { src: header.source, dst: header.destination, id: header.id };
        (network, header.tos, header.protocol, rest)
    };
    if protocol != udp::PROTOCOL {
        let (expected, found) = (u64::from(udp::PROTOCOL), u64::from(protocol));
        return Err(ParseError::Value { what: "IP protocol", expected, found });
    }
    let (udp, payload) = udp::Header::parse(rest)?;
    let (source, destination): (IpAddr, IpAddr) = match network {
        Network::V4 { src, dst, .. } => (src.into(), dst.into()),
        Network::V6 { src, dst } => (src.into(), dst.into()),
    };
    Ok(Datagram {
        mac: ethernet.source,
        source: SocketAddr::new(source, udp.source),
        destination: SocketAddr::new(destination, udp.destination),
        network,
        congested: class & 3 == 3,
        packet,
        payload,
    })
}

/// Builds the headers of a datagram with a payload of `payload_len` bytes; `None` if the addresses are of different
/// families or the packet would be too long. Over IPv4 the packet must not be fragmented, and its identification is 0,
/// as that of a socket.
pub fn headers(
    macs: [Mac; 2],
    from: SocketAddr,
    to: SocketAddr,
    payload_len: usize,
    ecn: bool,
) -> Option<ArrayVec<u8, MAX_HEADERS>> {
    const HOPS: u8 = 64;
    let class = if ecn { 0b10 } else { 0 }; // ECT(0)
    let udp_len = u16::try_from(payload_len + udp::Header::LEN).ok()?;
    let mut out = ArrayVec::new();
    let mut ethernet = ethernet::Header { destination: macs[1], source: macs[0], vlan: None, ether_type: 0 };
    let (ethernet, v4, v6) = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            udp_len.checked_add(ipv4::Header::LEN as u16)?;
            ethernet.ether_type = ethernet::IPV4;
            let header = ipv4::Header {
                tos: class,
                id: 0,
                dont_fragment: true,
                ttl: HOPS,
                protocol: udp::PROTOCOL,
                source: source.octets(),
                destination: destination.octets(),
                payload_len: udp_len,
            };
            (ethernet, Some(header.emit()), None)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet.ether_type = ethernet::IPV6;
            let header = ipv6::Header {
                traffic_class: class,
                flow_label: 0,
                payload_len: udp_len,
                next_header: udp::PROTOCOL,
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
            };
            (ethernet, None, Some(header.emit()))
        }
        _ => return None,
    };
    out.extend(ethernet.emit());
    out.extend(v4.into_iter().flatten());
    out.extend(v6.into_iter().flatten());
    // No UDP checksum: the ICRC covers the same bytes, and RoCEv2 sends none.
    let payload_len = payload_len as u16;
    out.extend(udp::Header { source: from.port(), destination: to.port(), payload_len, checksum: 0 }.emit());
    Some(out)
}

/// Returns `true` if both addresses have the same host and port. Scope ids are ignored: only one of the two has one.
pub fn is_same(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip(), a.port()) == (b.ip(), b.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_headers_parse_for_both_families_and_ignore_padding() {
        for (from, to) in [("10.0.0.1:49152", "10.0.0.2:4791"), ("[fd00::1]:49152", "[fd00::2]:4791")] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let mut frame = headers([[2; 6], [4; 6]], from, to, 5, true).unwrap().to_vec();
            frame.extend(*b"hello");
            frame.resize(80, 0);
            let datagram = parse(&frame).unwrap();
            assert_eq!((datagram.mac, datagram.source, datagram.destination), ([2; 6], from, to));
            assert_eq!((datagram.payload, datagram.congested), (b"hello".as_slice(), false));
            frame[15] |= if from.is_ipv4() { 0b11 } else { 0b11 << 4 };
            let marked = parse(&frame);
            if from.is_ipv4() {
                assert!(matches!(marked, Err(ParseError::Checksum { .. })), "the mark changes the checksum");
            } else {
                assert!(marked.unwrap().congested);
            }
        }
    }

    #[test]
    fn segments_of_a_merged_frame_have_consecutive_ids() {
        let (from, to) = ("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
        let mut frame = headers([[2; 6], [4; 6]], from, to, 10, false).unwrap().to_vec();
        frame.extend(*b"aaaabbbbcc");
        let whole = parse(&frame).unwrap();
        let found = |segment| -> Vec<(&[u8], u16)> {
            let id =
                |one: &Datagram<'_>| if let Network::V4 { id, .. } = one.network { id } else { panic!("not IPv4") };
            whole.segments(NonZeroU16::new(segment)).map(|one| (one.payload, id(&one))).collect()
        };
        assert_eq!(found(4), [(&b"aaaa"[..], 0), (b"bbbb", 1), (b"cc", 2)]);
        assert_eq!(found(5), [(&b"aaaab"[..], 0), (b"bbbcc", 1)]);
        for one in [0, 10, 11] {
            assert_eq!(found(one), [(&b"aaaabbbbcc"[..], 0)]);
        }
        let empty = headers([[2; 6], [4; 6]], from, to, 0, false).unwrap();
        assert_eq!(parse(&empty).unwrap().segments(NonZeroU16::new(4)).count(), 1, "an empty datagram is one");
    }

    #[test]
    fn headers_of_impossible_packets_are_not_built() {
        let (v4, v6) = ("10.0.0.1:1".parse().unwrap(), "[fd00::1]:1".parse().unwrap());
        assert!(headers([[0; 6]; 2], v4, v6, 5, false).is_none());
        assert!(headers([[0; 6]; 2], v4, v4, 65_507, false).is_some());
        assert!(headers([[0; 6]; 2], v4, v4, 65_508, false).is_none());
        assert!(headers([[0; 6]; 2], v6, v6, 65_527, false).is_some());
        assert!(headers([[0; 6]; 2], v6, v6, usize::MAX - 8, false).is_none());
    }
}
