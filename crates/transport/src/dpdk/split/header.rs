//! Headers of a datagram whose payload is elsewhere.

use crate::frame::Mac;
use crate::seal::ICRC_BYTES;
use shotline_wire::icrc::Network;
use shotline_wire::{ethernet, ipv4, udp};
use std::net::{Ipv4Addr, SocketAddr};

/// Bytes of the headers in front of a datagram: Ethernet without a tag, IPv4 without options, UDP.
pub const DATAGRAM_HEADERS: usize = ethernet::Header::LEN + ipv4::Header::LEN + udp::Header::LEN;

/// Headers of a datagram with an ICRC and without a UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    pub mac: Mac,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The addresses as the ICRC covers them.
    pub network: Network,
    /// The network marked it as having experienced congestion (ECN).
    pub congested: bool,
    /// Bytes between the UDP header and the payload.
    pub header: &'a [u8],
    /// Length of the payload.
    pub payload_len: u32,
}

/// Parses headers that end where the payload begins, of a frame with `rest` bytes behind them. `None` for a frame that
/// has other headers, is malformed, or whose payload a checksum covers.
pub fn parse(head: &[u8], rest: usize) -> Option<Headers<'_>> {
    const TOTAL_AT: std::ops::Range<usize> = 2..4;
    const FLAGS_AT: std::ops::Range<usize> = 6..8;
    let (ethernet, packet) = ethernet::Header::parse(head).ok()?;
    if ethernet.vlan.is_some() || ethernet.ether_type != ethernet::IPV4 || packet.first() != Some(&0x45) {
        return None;
    }
    let (ip, datagram) = packet.split_at_checked(ipv4::Header::LEN)?;
    let (udp, header) = datagram.split_at_checked(udp::Header::LEN)?;
    let word = |bytes: &[u8], at: std::ops::Range<usize>| Some(u16::from_be_bytes(bytes.get(at)?.try_into().ok()?));
    let is_fragment = word(ip, FLAGS_AT)? & 0x3FFF != 0;
    if is_fragment || ip[9] != udp::PROTOCOL || ipv4::checksum(ip) != 0 {
        return None;
    }
    let total = usize::from(word(ip, TOTAL_AT)?);
    let udp_len = total.checked_sub(ipv4::Header::LEN)?;
    let payload_len = udp_len.checked_sub(udp::Header::LEN + header.len() + ICRC_BYTES)?;
    if usize::from(word(udp, 4..6)?) != udp_len || word(udp, 6..8)? != 0 || payload_len + ICRC_BYTES > rest {
        return None;
    }
    let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).ok();
    let (src, dst, id) = (address(12)?, address(16)?, word(ip, 4..6)?);
    Some(Headers {
        mac: ethernet.source,
        source: SocketAddr::new(Ipv4Addr::from(src).into(), word(udp, 0..2)?),
        destination: SocketAddr::new(Ipv4Addr::from(dst).into(), word(udp, 2..4)?),
        network: Network::V4 { src, dst, id },
        congested: ip[1] & 3 == 3,
        header,
        payload_len: payload_len as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use proptest::prelude::*;

    fn built(payload: usize) -> Vec<u8> {
        let (from, to) = ("10.0.0.1:49152".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
        let mut frame = frame::headers([[2; 6], [4; 6]], from, to, 20 + payload + ICRC_BYTES, true).unwrap().to_vec();
        frame.resize(frame.len() + 20 + payload + ICRC_BYTES, 7);
        frame
    }

    #[test]
    fn split_headers_are_those_of_the_whole_frame() {
        let frame = built(100);
        let (head, rest) = frame.split_at(DATAGRAM_HEADERS + 20);
        let split = parse(head, rest.len()).unwrap();
        let whole = frame::parse(&frame).unwrap();
        assert_eq!((split.mac, split.source, split.destination), (whole.mac, whole.source, whole.destination));
        assert_eq!((split.network, split.congested), (whole.network, whole.congested));
        assert_eq!((split.header, split.payload_len), (&whole.payload[..20], 100));
        assert_eq!(parse(head, rest.len() + 60), Some(split), "padding");
        assert_eq!(parse(head, rest.len() - 1), None, "truncated");
        assert_eq!(parse(&head[..41], rest.len()), None);
    }

    proptest! {
        #[test]
        fn no_frame_is_accepted_that_is_not_whole(at in 0_usize..62, value: u8, payload in 0_usize..60) {
            let mut frame = built(payload);
            frame[at] = value;
            let (head, rest) = frame.split_at(DATAGRAM_HEADERS + 20);
            if let Some(split) = parse(head, rest.len()) {
                let whole = frame::parse(&frame).unwrap();
                prop_assert_eq!((split.source, split.destination), (whole.source, whole.destination));
                prop_assert_eq!(split.network, whole.network);
                prop_assert_eq!(split.payload_len as usize + 24, whole.payload.len());
            }
        }
    }
}
