//! The invariant CRC of RoCE (IBTA annex A17, clause 17.3.3.2; Linux `drivers/infiniband/sw/rxe/rxe_icrc.c`).
//!
//! The ICRC is a CRC-32 over 8 bytes of ones, the IP header, the UDP header and everything from the BTH up to the
//! ICRC itself, with every field that a router may change replaced by ones: type of service, time to live and
//! checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; byte 4 of the BTH. It is
//! stored little-endian at the end of the packet.
//!
//! There are three ways to compute it:
//! * [`of_ip_packet`] and [`verify_ip_packet`] take a whole packet, for captures and raw sockets;
//! * [`Flow::prefix`], [`after_header`] and [`seal`] combine parts that are known at different times, and need only
//!   the [`remainder`](crate::crc::remainder) of the payload;
//! * [`with_field_changed`] and [`solve_ipv4_id`] use the linearity of the CRC.
//!
//! ```
//! use shotline_wire::{crc, icrc};
//! let flow = icrc::Flow {
//!     network: icrc::Network::V4 { src: [192, 168, 0, 1], dst: [192, 168, 0, 2], id: 0 },
//!     src_port: 0xC123,
//!     dst_port: 4791,
//! };
//! let header = [0x64, 0x70, 0xFF, 0xFF, 0, 0, 0, 0x12, 0, 0, 0, 1, 0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0x11];
//! let payload = b"hello\0\0\0"; // padded to a multiple of 4, as the header says
//! let udp_payload = header.len() + payload.len() + 4;
//! let register = icrc::after_header(flow.prefix(udp_payload as u16), &header);
//! let icrc = icrc::seal(register, payload.len() as u64, crc::remainder(payload));
//! assert_eq!(icrc.to_le_bytes(), [0x04, 0x28, 0x63, 0xE3]);
//! ```

use crate::crc::{self, Advance, Shift};
use crate::roce::ICRC_LEN;
use crate::{ParseError, bytes, ethernet, ipv4, ipv6, udp};
use arrayvec::ArrayVec;

/// Placeholder for InfiniBand's local route header (LRH), which RoCE does not have.
const LRH: [u8; 8] = [0xFF; 8];
/// Index of the BTH byte that routers may change: FECN, BECN and reserved bits.
const CONGESTION: usize = 4;

/// IP header fields that the ICRC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4 as a socket sends it: no options, DF set, not a fragment.
    V4 {
        /// Sender's address.
        src: [u8; 4],
        /// Receiver's address.
        dst: [u8; 4],
        /// Identification. A receiving socket cannot see it: see [`solve_ipv4_id`].
        id: u16,
    },
    /// IPv6 without extension headers.
    V6 {
        /// Sender's address.
        src: [u8; 16],
        /// Receiver's address.
        dst: [u8; 16],
    },
}

/// The fields covered by the ICRC that are the same for all packets of one sender to one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IP addresses.
    pub network: Network,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port, [`udp::ROCE_PORT`].
    pub dst_port: u16,
}

impl Flow {
    /// Returns the CRC register after everything before the BTH. `udp_payload_len` counts from the first byte of
    /// the BTH to the last of the ICRC; all packets of one length share the result. A length that no IP packet can
    /// have is clamped to the longest.
    pub fn prefix(&self, udp_payload_len: u16) -> u32 {
        let udp_len = udp_payload_len.saturating_add(udp::Header::LEN as u16);
        let udp: [u8; udp::Header::LEN] =
            bytes::Header::new().u16(self.src_port).u16(self.dst_port).u16(udp_len).u16(0xFFFF).done();
        let start = crc::register(u32::MAX, &LRH);
        let ip = match self.network {
            Network::V4 { src, dst, id } => crc::register(
                start,
                &bytes::Header::<20>::new()
                    .u16(0x45FF)
                    .u16(udp_len.saturating_add(ipv4::Header::LEN as u16))
                    .u16(id)
                    .u16(0x4000)
                    .u8(0xFF)
                    .u8(udp::PROTOCOL)
                    .u16(0xFFFF)
                    .put(&src)
                    .put(&dst)
                    .done(),
            ),
            Network::V6 { src, dst } => crc::register(
                start,
                &bytes::Header::<40>::new()
                    .u32(0x6FFF_FFFF)
                    .u16(udp_len)
                    .u8(udp::PROTOCOL)
                    .u8(0xFF)
                    .put(&src)
                    .put(&dst)
                    .done(),
            ),
        };
        crc::register(ip, &udp)
    }
}

/// Returns the CRC register after a packet's headers. `prefix` comes from [`Flow::prefix`]; `header` begins with
/// the BTH, whose byte 4 is replaced by ones.
#[inline]
pub fn after_header(prefix: u32, header: &[u8]) -> u32 {
    match header.split_at_checked(CONGESTION) {
        Some((before, [_, after @ ..])) => crc::register(crc::register(crc::register(prefix, before), &[0xFF]), after),
        _ => crc::register(prefix, header),
    }
}

/// Returns the ICRC, from the register after the headers and the payload's length and remainder, padding included.
/// The length is a `u64`, or a [`Shift`] precomputed for a common length.
#[inline]
pub fn seal(after_header: u32, payload: impl Advance, payload_remainder: u32) -> u32 {
    !crc::append(after_header, payload, payload_remainder)
}

/// Returns the ICRC of a packet after a covered field has changed from `old` to `new`. Works on any CRC.
/// `bytes_after` is the number of covered bytes after the field.
#[inline]
pub fn with_field_changed<const N: usize>(icrc: u32, old: &[u8; N], new: &[u8; N], bytes_after: impl Advance) -> u32 {
    icrc ^ bytes_after.advance(crc::remainder(old) ^ crc::remainder(new))
}

/// Returns the number of covered bytes after the IPv4 identification, for a UDP payload that includes an ICRC.
pub const fn bytes_after_ipv4_id(udp_payload_len: u16) -> u64 {
    // 14 bytes of the IPv4 header and the UDP header are added; the ICRC is subtracted.
    (udp_payload_len as u64 + 14 + udp::Header::LEN as u64).saturating_sub(ICRC_LEN as u64)
}

/// Returns the IPv4 identification for which the received ICRC is correct, if there is one. For receivers that
/// cannot read the IP header. `with_id_zero` is the ICRC computed with an identification of 0 and
/// `bytes_after_id` comes from [`bytes_after_ipv4_id`].
///
/// Different identifications never give the same ICRC, so there is at most one solution. A corrupted packet has a
/// solution with probability 2^-16; checked against a known identification, it would pass with 2^-32.
pub fn solve_ipv4_id(received: u32, with_id_zero: u32, bytes_after_id: u64) -> Option<u16> {
    solution(crc::unshift(received ^ with_id_zero, bytes_after_id + 2))
}

/// Like [`solve_ipv4_id`], with the table of [`ipv4_id_solver`] as `back`, precomputed for a common length.
#[inline]
pub fn solve_ipv4_id_with(received: u32, with_id_zero: u32, back: &Shift) -> Option<u16> {
    solution(back.apply(received ^ with_id_zero))
}

/// Returns the table for [`solve_ipv4_id_with`].
pub const fn ipv4_id_solver(udp_payload_len: u16) -> Shift {
    Shift::back(bytes_after_ipv4_id(udp_payload_len) + 2)
}

/// Returns the identification, given the difference of the registers shifted back to before the identification. If
/// the packet is intact, this is the identification alone: its first byte in bits 7:0, its second in bits 15:8.
#[inline]
fn solution(difference: u32) -> Option<u16> {
    u16::try_from(difference).ok().map(u16::swap_bytes)
}

/// Computes the ICRC of an IP packet. `packet` begins with its IPv4 or IPv6 header and ends before the ICRC, which
/// its length fields include.
///
/// # Errors
/// If the packet is truncated, a fragment, or not UDP over IPv4 or IPv6.
pub fn of_ip_packet(packet: &[u8]) -> Result<u32, ParseError> {
    let mut masked = ArrayVec::<u8, MAX_MASKED>::new();
    let fragment;
    let protocol;
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let header_len = packet.first().map_or(0, |first| usize::from(first & 0xF) * 4);
            copy(&mut masked, packet, header_len.max(ipv4::Header::LEN) + udp::Header::LEN)?;
            mask(&mut masked, &[1, 8, 10, 11]);
            let word = u16::from_be_bytes(field(packet, 6)?);
            fragment = (u32::from(word & 0x1FFF) * 8, word & 0x2000 != 0);
            protocol = field(packet, 9)?;
        }
        Some(6) => {
            copy(&mut masked, packet, ipv6::Header::LEN + udp::Header::LEN)?;
            mask_ipv6(&mut masked);
            fragment = (0, false);
            protocol = field(packet, 6)?;
        }
        version => {
            let found = u64::from(version.unwrap_or(0));
            return Err(ParseError::Unknown { what: "IP version", found });
        }
    }
    if fragment != (0, false) {
        return Err(ParseError::Fragment { offset: fragment.0, more: fragment.1 });
    }
    let [protocol] = protocol;
    if protocol != udp::PROTOCOL {
        let (expected, found) = (u64::from(udp::PROTOCOL), u64::from(protocol));
        return Err(ParseError::Value { what: "IP protocol", expected, found });
    }
    // The UDP checksum is the last field before the BTH.
    let bth = masked.len();
    mask(&mut masked, &[bth - 2, bth - 1]);
    finish(masked, packet)
}

/// Returns `true` if the ICRC of an IP packet is correct. `packet` begins with its IPv4 or IPv6 header; bytes after
/// its end (an Ethernet frame's padding) are ignored. The IPv4 header checksum is not verified.
///
/// # Errors
/// If the packet is truncated, a fragment, or not UDP over IPv4 or IPv6.
pub fn verify_ip_packet(packet: &[u8]) -> Result<bool, ParseError> {
    let total = match packet.first().map(|first| first >> 4) {
        Some(6) => usize::from(u16::from_be_bytes(field(packet, 4)?)) + ipv6::Header::LEN,
        _ => usize::from(u16::from_be_bytes(field(packet, 2)?)),
    };
    let (covered, icrc) = split_icrc(packet, total)?;
    Ok(of_ip_packet(covered)? == icrc)
}

/// Returns `true` if the ICRC of a RoCEv1 packet is correct. `packet` begins with its GRH, which follows an Ethernet
/// header of type [`ethernet::ROCE_V1`]; bytes after its end are ignored.
///
/// # Errors
/// If the packet is truncated.
pub fn verify_grh_packet(packet: &[u8]) -> Result<bool, ParseError> {
    let total = usize::from(u16::from_be_bytes(field(packet, 4)?)) + ipv6::Header::LEN;
    let (covered, icrc) = split_icrc(packet, total)?;
    let mut masked = ArrayVec::<u8, MAX_MASKED>::new();
    copy(&mut masked, covered, ipv6::Header::LEN)?;
    mask_ipv6(&mut masked);
    Ok(finish(masked, covered)? == icrc)
}

/// Returns `true` if the RoCE packet (v1 or v2) in an Ethernet frame has the correct ICRC.
///
/// # Errors
/// If the frame is truncated, carries another protocol, or the packet is a fragment.
pub fn verify_frame(frame: &[u8]) -> Result<bool, ParseError> {
    let (header, packet) = ethernet::Header::parse(frame)?;
    match header.ether_type {
        ethernet::IPV4 | ethernet::IPV6 => verify_ip_packet(packet),
        ethernet::ROCE_V1 => verify_grh_packet(packet),
        other => Err(ParseError::Unknown { what: "EtherType", found: u64::from(other) }),
    }
}

/// Maximum length of the masked prefix: the longest IP header, the UDP header and the first five bytes of the BTH.
const MAX_MASKED: usize = ipv4::Header::MAX_LEN + udp::Header::LEN + CONGESTION + 1;

/// Finishes an ICRC: `masked` is the packet up to the BTH, with its variant fields masked.
fn finish(masked: ArrayVec<u8, MAX_MASKED>, packet: &[u8]) -> Result<u32, ParseError> {
    let prefix = crc::register(crc::register(u32::MAX, &LRH), &masked);
    let transport = packet.get(masked.len()..).unwrap_or_default();
    if transport.len() < crate::bth::Bth::LEN {
        let needed = masked.len() + crate::bth::Bth::LEN;
        return Err(ParseError::Truncated { what: "RoCE packet", needed, found: packet.len() });
    }
    Ok(!after_header(prefix, transport))
}

/// Splits a packet of `total` bytes into the covered bytes and the ICRC.
fn split_icrc(packet: &[u8], total: usize) -> Result<(&[u8], u32), ParseError> {
    packet
        .get(..total)
        .and_then(|packet| packet.split_last_chunk::<ICRC_LEN>())
        .map(|(covered, icrc)| (covered, u32::from_le_bytes(*icrc)))
        .ok_or(ParseError::Truncated { what: "RoCE packet", needed: total.max(ICRC_LEN), found: packet.len() })
}

fn copy(masked: &mut ArrayVec<u8, MAX_MASKED>, packet: &[u8], len: usize) -> Result<(), ParseError> {
    let front = packet.get(..len).and_then(|front| masked.try_extend_from_slice(front).ok());
    front.ok_or(ParseError::Truncated { what: "IP and UDP headers", needed: len, found: packet.len() })
}

fn mask(bytes: &mut [u8], at: &[usize]) {
    for index in at {
        if let Some(byte) = bytes.get_mut(*index) {
            *byte = 0xFF;
        }
    }
}

/// Masks traffic class, flow label and hop limit, and keeps the version.
fn mask_ipv6(header: &mut [u8]) {
    if let Some(first) = header.first_mut() {
        *first |= 0x0F;
    }
    mask(header, &[1, 2, 3, 7]);
}

fn field<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], ParseError> {
    packet.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(ParseError::Truncated {
        what: "IP header",
        needed: at + N,
        found: packet.len(),
    })
}
