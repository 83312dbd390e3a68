//! Making and checking ICRCs at the edge, for every backend.
//!
//! A payload is read once: its CRC remainder is a by-product that the layer above folds into the shot's
//! CRC, and the ICRC follows from it and the header by linearity (`wire::icrc`). What depends only on the
//! addresses and the length is kept per flow, so that a packet costs its header's few bytes.

use crate::{Done, Icrc, Seal, Send, payload};
use shotline_memory::Regions;
use shotline_wire::crc::{self, Shift};
use shotline_wire::icrc::{self, Flow, Network};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Bytes of an ICRC on the wire.
pub const ICRC_BYTES: usize = 4;

/// IPv4 identifications that our own senders use: segment `i` of a batch is sent with id `i`.
const OWN_IDS: usize = crate::MAX_BATCH;
/// IPv4 header bytes after the identification, and the UDP header.
const AFTER_ID: u64 = 14 + 8;
/// How far an identification may be ahead of the last one of the same flow: other flows may share its counter, and Linux
/// skips some after a pause, one a clock tick at most.
const FOLLOWS: u16 = 1024;
/// Senders whose last identification is remembered.
const COUNTING: usize = 4096;
/// Flows and lengths remembered; a shot needs two (full packets and its last).
const REMEMBERED: usize = 8;

/// Seals and checks the packets of one local address.
pub struct Sealer {
    contexts: Vec<Context>,
    newest: usize,
    oldest: usize,
    shifts: Shifts,
    /// The last identification of each sender that uses its own, by address and port: Linux has a counter for each
    /// connected socket, and one for all others to an address.
    identifications: HashMap<SocketAddr, u16>,
}

/// What is the same for all packets of one flow and length.
struct Context {
    source: SocketAddr,
    destination: SocketAddr,
    udp_len: u16,
    /// The CRC register after the IP and UDP headers; for IPv4 one per identification.
    prefixes: Vec<u32>,
    /// The identification that is likely next.
    next_id: usize,
}

impl Sealer {
    /// Knows no flow yet.
    pub fn new() -> Self {
        Self { contexts: Vec::new(), newest: 0, oldest: 0, shifts: Shifts::default(), identifications: HashMap::new() }
    }

    /// The ICRC of a packet: `header` is everything between UDP and payload, `remainder` the payload's CRC
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

    /// The ICRC of a packet to send that stands alone, from the first of these addresses to the second.
    pub fn seal_send(
        &mut self,
        regions: &Regions,
        [from, to]: [SocketAddr; 2],
        packet: &Send<'_>,
        payload_len: usize,
    ) -> u32 {
        let remainder = match packet.seal {
            Seal::Forced(value) => return value,
            Seal::Remainder(remainder) => remainder,
            Seal::Compute | Seal::None => payload::remainder(regions, packet.gather),
        };
        self.seal(from, to, 0, packet.header, payload_len, remainder)
    }

    /// The verdict on a received ICRC.
    #[allow(clippy::too_many_arguments)] // the packet's facts, each of another origin
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
            context.next_id = 1; // the next batch begins: lone packets come here every time
            return Icrc::Good;
        }
        match icrc::solve_ipv4_id(received, with_id_0, AFTER_ID + (header.len() + payload_len) as u64) {
            Some(id) if usize::from(id) < OWN_IDS => {
                context.next_id = (usize::from(id) + 1) % OWN_IDS;
                Icrc::Good
            }
            Some(id) => Icrc::Solved { follows: self.follows(source, id) },
            None => Icrc::Bad,
        }
    }

    /// Whether an identification may be the next of a sender, of which it is the last from now on: if it is not, the
    /// packet after it can be. The first of a sender has none before it, and is taken.
    fn follows(&mut self, sender: SocketAddr, id: u16) -> bool {
        if self.identifications.len() >= COUNTING && !self.identifications.contains_key(&sender) {
            self.identifications.clear(); // strangers' most likely: whoever is honest is known again after one packet
        }
        self.identifications.insert(sender, id).is_none_or(|last| id.wrapping_sub(last) <= FOLLOWS)
    }

    /// The verdict on a received ICRC of which every input is known.
    pub fn check_known(&mut self, network: Network, ports: [u16; 2], done: &Done<'_>, received: u32) -> Icrc {
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
            if self.contexts.len() < REMEMBERED {
                self.contexts.push(context);
                self.contexts.len() - 1
            } else {
                self.oldest = (self.oldest + 1) % REMEMBERED;
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

/// Shift operators of the payload lengths in use. A table is built when a length is met twice in a row
/// among the unknown ones, so that a flood of odd lengths builds none.
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
            if self.known.len() < REMEMBERED {
                self.known.push(entry);
            } else {
                self.oldest = (self.oldest + 1) % REMEMBERED;
                self.known[self.oldest] = entry;
            }
        }
        self.candidate = bytes;
        crc::shift(register, bytes as u64)
    }
}
