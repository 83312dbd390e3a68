//! Packets and datagrams in captured frames.

use super::frames::{Frame, LinkType};
use shotline_wire::{ParseError, ethernet, ipv4, ipv6, udp};
use std::net::{IpAddr, SocketAddr};

/// A UDP datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub source: SocketAddr,
    /// Address of the receiver.
    pub destination: SocketAddr,
    /// Payload after the UDP header.
    pub payload: &'a [u8],
}

/// Reason why a frame contains no complete UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SkipReason {
    /// The frame was truncated by the snapshot length.
    Truncated,
    /// The frame contains an IP fragment.
    Fragment,
    /// Not UDP over IP.
    Other,
    /// The contents contradict the headers.
    Malformed,
}

impl SkipReason {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Fragment => "fragment",
            Self::Other => "other",
            Self::Malformed => "malformed",
        }
    }
}

/// Returns the EtherType (after VLAN tags) and the payload of a frame, or `None` if its link type is not supported.
///
/// # Errors
/// If the frame is shorter than its header.
pub fn network<'a>(frame: &Frame<'a>) -> Result<Option<(u16, &'a [u8])>, ParseError> {
    let data = frame.data;
    let ether_type = |at: usize| data.get(at..).and_then(|rest| rest.first_chunk().copied());
    let cooked = |len: usize| ParseError::Truncated { what: "cooked header", needed: len, found: data.len() };
    Ok(Some(match frame.link {
        LinkType::Ethernet => {
            let (header, packet) = ethernet::Header::parse(data)?;
            (header.ether_type, packet)
        }
        LinkType::RawIp if data.first().is_some_and(|first| first >> 4 == 6) => (ethernet::IPV6, data),
        LinkType::RawIp => (ethernet::IPV4, data),
        LinkType::LinuxCooked => {
            (u16::from_be_bytes(ether_type(14).ok_or(cooked(16))?), data.get(16..).unwrap_or_default())
        }
        LinkType::LinuxCooked2 => {
            (u16::from_be_bytes(ether_type(0).ok_or(cooked(20))?), data.get(20..).unwrap_or_default())
        }
        LinkType::Other(_) => return Ok(None),
    }))
}

/// Returns the UDP datagram of a frame.
///
/// # Errors
/// The reason why the frame contains no complete UDP datagram.
pub fn datagram<'a>(frame: &Frame<'a>) -> Result<Datagram<'a>, SkipReason> {
    let malformed = |error: ParseError| match error {
        ParseError::Fragment { .. } => SkipReason::Fragment,
        _ => SkipReason::Malformed,
    };
    if frame.data.len() < frame.wire_bytes as usize {
        return Err(SkipReason::Truncated);
    }
    let (source, destination, protocol, rest): (IpAddr, IpAddr, _, _) = match network(frame).map_err(malformed)? {
        Some((ethernet::IPV4, packet)) => {
            let (ip, rest) = ipv4::Header::parse(packet).map_err(malformed)?;
            (ip.source.into(), ip.destination.into(), ip.protocol, rest)
        }
        Some((ethernet::IPV6, packet)) => {
            let (ip, rest) = ipv6::Header::parse(packet).map_err(malformed)?;
            (ip.source.into(), ip.destination.into(), ip.next_header, rest)
        }
        _ => return Err(SkipReason::Other),
    };
    if protocol != udp::PROTOCOL {
        return Err(SkipReason::Other);
    }
    let (header, payload) = udp::Header::parse(rest).map_err(malformed)?;
    let (source, destination) =
        (SocketAddr::new(source, header.source), SocketAddr::new(destination, header.destination));
    Ok(Datagram { source, destination, payload })
}
