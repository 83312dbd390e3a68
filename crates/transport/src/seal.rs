//! Computation and verification of ICRCs, for every backend.
//!
//! A payload is read once: its CRC remainder is a by-product that the layer above folds into the shot's CRC, and the
//! ICRC follows from it and the header by linearity (`wire::icrc`). State that depends only on the addresses and the
//! length is cached per flow, so each packet costs only the CRC of its header.

use crate::{Icrc, RxPacket, Seal, TxPacket, payload};
use shotline_memory::Regions;
use shotline_wire::crc::{self, Shift};
use shotline_wire::icrc::{self, Flow, Network};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Bytes of an ICRC on the wire.
pub const ICRC_BYTES: usize = 4;

/// Number of IPv4 identifications that our own senders use: segment `i` of a batch is sent with id `i`.
const OWN_IDS: usize = crate::MAX_BATCH;
/// Bytes of the IPv4 header after the identification, plus the UDP header.
const AFTER_ID_BYTES: u64 = 14 + 8;
/// Maximum distance of an identification from the previous one of the same flow: other flows may share its counter, and
/// after a pause Linux skips up to one per clock tick.
const MAX_ID_GAP: u16 = 1024;
/// Maximum number of senders whose last identification is remembered.
const MAX_SENDERS: usize = 4096;
/// Maximum number of cached flows and lengths; a shot needs two (full packets and its last).
const MAX_FLOWS: usize = 8;

/// Seals and verifies the packets of one local address.
pub struct Sealer {
    contexts: Vec<Context>,
    newest: usize,
    oldest: usize,
    shifts: Shifts,
    /// The last identification of each sender that numbers its packets, by address and port: Linux has a counter for
    /// each connected socket, and one for all others to an address.
    identifications: HashMap<SocketAddr, u16>,
}

/// CRC state common to all packets of one flow and length.
struct Context {
    source: SocketAddr,
    destination: SocketAddr,
    udp_len: u16,
    /// The CRC register after the IP and UDP headers; for IPv4 one per identification.
    prefixes: Vec<u32>,
    /// The most likely next identification.
    next_id: usize,
}

impl Sealer {
    /// Creates a sealer with empty caches.
    pub fn new() -> Self {
        Self { contexts: Vec::new(), newest: 0, oldest: 0, shifts: Shifts::default(), identifications: HashMap::new() }
    }

    /// Returns the ICRC of a packet: `header` is everything between UDP and payload, `remainder` the payload's CRC
    /// remainder, `segment` the packet's position in its batch (over IPv4 its identification).
    pub fn seal(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        segment: usize,
        header: &[u8],
        payload_len: usize,
        remainder: u32,
    ) -> u32 {
        let context = self.context(source, destination, header.len() + payload_len + ICRC_BYTES);
        let prefix = self.contexts[context].prefix(segment);
        let after = icrc::after_header(prefix, header);
        !(self.shifts.shift(after, payload_len) ^ remainder)
    }

    /// Returns the ICRC of a packet that is sent alone (not in a batch), from the first of these addresses to the
    /// second.
    pub fn seal_send(
        &mut self,
        regions: &Regions,
        [from, to]: [SocketAddr; 2],
        packet: &TxPacket<'_>,
        payload_len: usize,
    ) -> u32 {
        let remainder = match packet.seal {
            Seal::Forced(value) => return value,
            Seal::Remainder(remainder) => remainder,
            Seal::Compute | Seal::None => payload::remainder(regions, packet.gather),
        };
        self.seal(from, to, 0, packet.header, payload_len, remainder)
    }

    /// Verifies a received ICRC.
    #[allow(clippy::too_many_arguments)] // the fields of a packet have different sources
    pub fn check(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        segment: usize,
        header: &[u8],
        payload_len: usize,
        remainder: u32,
        received: u32,
    ) -> Icrc {
        if source.is_ipv4() != destination.is_ipv4() {
            return Icrc::Unverified;
        }
        let index = self.context(source, destination, header.len() + payload_len + ICRC_BYTES);
        let context = &mut self.contexts[index];
        let v4 = context.prefixes.len() > 1;
        let guess = if v4 && segment == 0 { context.next_id } else { segment };
        let after = icrc::after_header(context.prefix(guess), header);
        let expected = !(self.shifts.shift(after, payload_len) ^ remainder);
        if expected == received {
            context.next_id = (guess + 1) % OWN_IDS;
            return Icrc::Good;
        }
        if !v4 {
            return Icrc::Bad;
        }
        let after = icrc::after_header(context.prefix(0), header);
        let with_id_0 = !(self.shifts.shift(after, payload_len) ^ remainder);
        if with_id_0 == received {
            context.next_id = 1; // a new batch begins; single packets take this path every time
            return Icrc::Good;
        }
        match icrc::solve_ipv4_id(received, with_id_0, AFTER_ID_BYTES + (header.len() + payload_len) as u64) {
            Some(id) if usize::from(id) < OWN_IDS => {
                context.next_id = (usize::from(id) + 1) % OWN_IDS;
                Icrc::Good
            }
            Some(id) => Icrc::Solved { is_in_sequence: self.follows(source, id) },
            None => Icrc::Bad,
        }
    }

    /// Returns `true` if an identification plausibly follows the sender's previous one, and stores it as the new
    /// previous one: after one that does not follow, the next packet can. The first packet of a sender has no
    /// predecessor and is accepted.
    fn follows(&mut self, sender: SocketAddr, id: u16) -> bool {
        if self.identifications.len() >= MAX_SENDERS && !self.identifications.contains_key(&sender) {
            // Most entries are probably spoofed; an honest sender is known again after one packet.
            self.identifications.clear();
        }
        self.identifications.insert(sender, id).is_none_or(|last| id.wrapping_sub(last) <= MAX_ID_GAP)
    }

    /// Verifies a received ICRC of which every input is known.
    pub fn check_known(&mut self, network: Network, ports: [u16; 2], done: &RxPacket<'_>, received: u32) -> Icrc {
        let payload_len = done.len as usize;
        let udp_payload_len = u16::try_from(done.header.len() + payload_len + ICRC_BYTES).unwrap_or(u16::MAX);
        let prefix = Flow { network, src_port: ports[0], dst_port: ports[1] }.prefix(udp_payload_len);
        let after = icrc::after_header(prefix, done.header);
        let expected = !(self.shifts.shift(after, payload_len) ^ done.payload_crc);
        if expected == received { Icrc::Good } else { Icrc::Bad }
    }

    fn context(&mut self, source: SocketAddr, destination: SocketAddr, udp_len: usize) -> usize {
        let udp_len = u16::try_from(udp_len).unwrap_or(u16::MAX);
        let fits = |c: &Context| c.udp_len == udp_len && c.source == source && c.destination == destination;
        if self.contexts.get(self.newest).is_some_and(fits) {
            return self.newest;
        }
        self.newest = if let Some(found) = self.contexts.iter().position(fits) {
            found
        } else {
            let context = Context::new(source, destination, udp_len);
            if self.contexts.len() < MAX_FLOWS {
                self.contexts.push(context);
                self.contexts.len() - 1
            } else {
                self.oldest = (self.oldest + 1) % MAX_FLOWS;
                self.contexts[self.oldest] = context;
                self.oldest
            }
        };
        self.newest
    }
}

impl Default for Sealer {
    fn default() -> Self {
        Self::new()
    }
}

impl Context {
    fn new(source: SocketAddr, destination: SocketAddr, udp_len: u16) -> Self {
        let prefix = |network| Flow { network, src_port: source.port(), dst_port: destination.port() }.prefix(udp_len);
        let prefixes = match (source.ip(), destination.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                (0..OWN_IDS as u16).map(|id| prefix(Network::V4 { src: src.octets(), dst: dst.octets(), id })).collect()
            }
            (src, dst) => vec![prefix(Network::V6 { src: v6_octets(src), dst: v6_octets(dst) })],
        };
        Self { source, destination, udp_len, prefixes, next_id: 0 }
    }

    fn prefix(&self, id: usize) -> u32 {
        self.prefixes[id % self.prefixes.len()]
    }
}

fn v6_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Cached shift operators for the payload lengths in use. A table is built when an uncached length occurs twice in a
/// row, so a flood of random lengths builds none.
#[derive(Default)]
struct Shifts {
    known: Vec<(usize, Shift)>,
    oldest: usize,
    candidate: usize,
}

impl Shifts {
    fn shift(&mut self, register: u32, bytes: usize) -> u32 {
        if let Some((_, shift)) = self.known.iter().find(|(known, _)| *known == bytes) {
            return shift.apply(register);
        }
        if self.candidate == bytes {
            let entry = (bytes, Shift::new(bytes as u64));
            if self.known.len() < MAX_FLOWS {
                self.known.push(entry);
            } else {
                self.oldest = (self.oldest + 1) % MAX_FLOWS;
                self.known[self.oldest] = entry;
            }
        }
        self.candidate = bytes;
        crc::shift(register, bytes as u64)
    }
}
