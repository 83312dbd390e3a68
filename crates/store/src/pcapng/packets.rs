//! Rebuilds the packets of recorded shots, with Ethernet headers.

use arrayvec::ArrayVec;
use shotline_wire::framing::{self, Framing, Hsb, Kind, Link, MAX_HEADER, Packet, Spead, Vita49};
use shotline_wire::icrc::{self, Flow, Network};
use shotline_wire::roce::ICRC_LEN;
use shotline_wire::shot::Geometry;
use shotline_wire::spead::Flavour;
use shotline_wire::{crc, ethernet, hsb, ipv4, ipv6, udp};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Supported numbers of pages in the ring of a Holoscan sensor bridge. If the number of the first frame plus one is
/// among them, the ring has that number of pages, so that the first frame is in the page of its own number.
const HSB_PAGES: std::ops::RangeInclusive<u64> = 4..=64;
/// Locally administered MAC addresses of source and destination.
const MACS: [[u8; 6]; 2] = [[0x02, 0x53, 0x48, 0, 0, 1], [0x02, 0x53, 0x48, 0, 0, 2]];

/// Source and destination of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPair {
    /// Address of the sender.
    pub source: SocketAddr,
    /// Address of the receiver, of the same family.
    pub destination: SocketAddr,
}

/// Returns the framing that a sender of these shots would use.
///
/// `first` is the number of the first shot; `stamp` is the number of any shot and its TAI time, 0 if unknown.
/// Parameters that are not recorded are fixed: the SPEAD flavour is 64-48, and the ring of a sensor bridge starts at
/// address 0 with remote key 1.
pub fn framing(kind: Kind, geometry: &Geometry, first: u64, stamp: (u64, u64)) -> Arc<dyn Framing> {
    match kind {
        Kind::Ud => Arc::new(framing::Ud),
        Kind::Counted => Arc::new(framing::Counted),
        Kind::Udp => Arc::new(framing::Udp),
        Kind::Digitizer => Arc::new(framing::Digitizer),
        Kind::Vita49 => Arc::new(Vita49::for_blocks(geometry, stamp)),
        Kind::Spead => Arc::new(Spead { flavour: Flavour::F48, first_items: 4, items: 4 }),
        Kind::Hsb => {
            let pages = if HSB_PAGES.contains(&first.saturating_add(1)) { first + 1 } else { *HSB_PAGES.start() };
            let last = geometry.packets() - 1;
            let bytes = geometry.packet_offset(last) + geometry.packet_bytes(last);
            Arc::new(Hsb { base: 0, step: bytes.next_multiple_of(hsb::PAGE_UNIT), pages: pages as u32, r_key: 1 })
        }
    }
}

/// Builds the packets of the shots of a link as Ethernet frames.
#[derive(Debug)]
pub struct Packets {
    framing: Arc<dyn Framing>,
    keys: Link,
    addresses: AddressPair,
    geometry: Geometry,
    /// Number of the shot whose first packet has sequence number 0.
    first: u64,
    headers: Vec<u8>,
}

impl Packets {
    /// Creates a builder for shots of a geometry, starting with number `first`.
    pub fn new(framing: Arc<dyn Framing>, keys: Link, addresses: AddressPair, geometry: Geometry, first: u64) -> Self {
        Self { framing, keys, addresses, geometry, first, headers: Vec::new() }
    }

    /// Passes a packet of a shot to `take`, in pieces. `bytes` is the shot as it was on the wire.
    ///
    /// # Panics
    /// If the geometry has no packet `index`, or `bytes` is shorter than a shot.
    pub fn packet<R>(&mut self, number: u64, index: u32, bytes: &[u8], take: impl FnOnce(&[&[u8]]) -> R) -> R {
        let geometry = &self.geometry;
        let (offset, len) = (geometry.packet_offset(index), geometry.packet_bytes(index));
        let payload = &bytes[offset as usize..(offset + len) as usize];
        let psn = number.wrapping_sub(self.first).wrapping_mul(geometry.packets().into()) as u32;
        let packet = Packet {
            psn: psn.wrapping_add(index) & 0xff_ffff,
            shot: number,
            index,
            offset,
            len,
            shot_bytes: geometry.sent_bytes(),
            last: index + 1 == geometry.packets(),
        };
        let mut header = ArrayVec::<u8, MAX_HEADER>::new();
        self.framing.emit(&self.keys, &packet, &mut header);
        let sealed = self.framing.has_icrc();
        let udp_len = header.len() + payload.len() + if sealed { ICRC_LEN } else { 0 };
        let AddressPair { source, destination } = self.addresses;
        self.headers.clear();
        let network = ip_headers(&self.addresses, udp_len as u16, &mut self.headers);
        let checksum = if sealed { 0 } else { udp_checksum(&self.addresses, &[&header, payload]) };
        let (source, destination) = (source.port(), destination.port());
        self.headers.extend(udp::Header { source, destination, payload_len: udp_len as u16, checksum }.emit());
        self.headers.extend_from_slice(&header);
        if !sealed {
            return take(&[&self.headers, payload]);
        }
        let flow = Flow { network, src_port: source, dst_port: destination };
        let register = icrc::after_header(flow.prefix(udp_len as u16), &header);
        let seal = icrc::seal(register, payload.len() as u64, crc::remainder(payload));
        take(&[&self.headers, payload, &seal.to_le_bytes()])
    }
}

/// Appends the Ethernet and IP headers of a datagram and returns the fields that the ICRC covers.
fn ip_headers(addresses: &AddressPair, udp_payload: u16, out: &mut Vec<u8>) -> Network {
    let payload_len = udp_payload.saturating_add(udp::Header::LEN as u16);
    let [source, destination] = MACS;
    let ethernet = |ether_type| ethernet::Header { destination, source, vlan: None, ether_type }.emit();
    match (addresses.source.ip(), addresses.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let protocol = udp::PROTOCOL;
            let ip = ipv4::Header {
                tos: 0,
                id: 0,
                dont_fragment: true,
                ttl: 64,
                protocol,
                source,
                destination,
                payload_len,
            };
            out.extend(ethernet(ethernet::IPV4));
            out.extend(ip.emit());
            Network::V4 { src: source, dst: destination, id: 0 }
        }
        (source, destination) => {
            let [source, destination] = [source, destination].map(|ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            });
            let next_header = udp::PROTOCOL;
            let ip = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len,
                next_header,
                hop_limit: 64,
                source,
                destination,
            };
            out.extend(ethernet(ethernet::IPV6));
            out.extend(ip.emit());
            Network::V6 { src: source, dst: destination }
        }
    }
}

/// Computes the UDP checksum (RFC 768) over two pieces of a payload, the first of even length.
fn udp_checksum(addresses: &AddressPair, pieces: &[&[u8]; 2]) -> u16 {
    let len = (udp::Header::LEN + pieces.iter().map(|piece| piece.len()).sum::<usize>()) as u16;
    let mut pseudo = Vec::with_capacity(48);
    for ip in [addresses.source.ip(), addresses.destination.ip()] {
        match ip {
            IpAddr::V4(ip) => pseudo.extend(ip.octets()),
            IpAddr::V6(ip) => pseudo.extend(ip.octets()),
        }
    }
    pseudo.extend([0, udp::PROTOCOL]);
    for word in [len, addresses.source.port(), addresses.destination.port(), len] {
        pseudo.extend(word.to_be_bytes());
    }
    let sum = [&pseudo, pieces[0], pieces[1]].iter().fold(0_u32, |sum, piece| sum + u32::from(!ipv4::checksum(piece)));
    let folded = (sum & 0xFFFF) + (sum >> 16);
    match !(((folded & 0xFFFF) + (folded >> 16)) as u16) {
        0 => 0xFFFF, // 0 means "no checksum"
        checksum => checksum,
    }
}
