//! Learned Ethernet addresses of the hosts on the link, and replies to requests for ours.
//!
//! An interface used by DPDK is not used by the kernel, which then does not answer ARP (RFC 826) and neighbour
//! solicitations (RFC 4861, 7.2). Without answers, hosts that do not know our Ethernet address cannot send to us.

use crate::frame::Mac;
use arrayvec::ArrayVec;
use shotline_wire::{ethernet, ipv6};
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of cached hosts.
const MAX_HOSTS: usize = 64;
const BROADCAST: Mac = [0xFF; 6];
const ARP: u16 = 0x0806;
/// Hardware type Ethernet, protocol type IPv4, their lengths, and operation 1 (request).
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ICMP6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Bytes of a solicitation without options, and of an advertisement with one.
const SOLICITATION_BYTES: usize = 24;
const ADVERTISEMENT_BYTES: usize = 32;

/// The frame of a reply.
pub type ReplyFrame = ArrayVec<u8, { ethernet::Header::MAX_LEN + ipv6::Header::LEN + ADVERTISEMENT_BYTES }>;

/// Cache of the Ethernet addresses of the hosts on one link.
pub struct HostCache {
    /// The address used for every host, if configured.
    fixed: Option<Mac>,
    entries: ArrayVec<(IpAddr, Mac), MAX_HOSTS>,
    newest: usize,
    oldest: usize,
}

impl HostCache {
    /// Creates an empty cache, or one that returns `fixed` for every host.
    pub fn new(fixed: Option<Mac>) -> Self {
        Self { fixed, entries: ArrayVec::new(), newest: 0, oldest: 0 }
    }

    /// Learns the address of a host. A known entry is not replaced.
    pub fn learn(&mut self, ip: IpAddr, mac: Mac) {
        if self.fixed.is_some() || self.entries.get(self.newest).is_some_and(|(host, _)| *host == ip) {
            return;
        }
        if let Some(index) = self.entries.iter().position(|(host, _)| *host == ip) {
            self.newest = index;
        } else if self.entries.is_full() {
            self.oldest = (self.oldest + 1) % MAX_HOSTS;
            self.newest = self.oldest;
            self.entries[self.newest] = (ip, mac);
        } else {
            self.newest = self.entries.len();
            self.entries.push((ip, mac));
        }
    }

    /// Returns the address of a host; the broadcast address if it is unknown.
    pub fn find(&self, ip: IpAddr) -> Mac {
        let newest = self.entries.get(self.newest).filter(|(host, _)| *host == ip);
        let known = || newest.or_else(|| self.entries.iter().find(|(host, _)| *host == ip));
        self.fixed.or_else(|| known().map(|(_, mac)| *mac)).unwrap_or(BROADCAST)
    }

    /// Builds the reply to a frame that requests our address.
    pub fn reply(&mut self, frame: &[u8], mac: Mac, ip: IpAddr) -> Option<ReplyFrame> {
        let (header, packet) = ethernet::Header::parse(frame).ok()?;
        let (body, requester) = match ip {
            IpAddr::V4(ip) if header.ether_type == ARP => reply_to_arp(packet, mac, ip.octets())?,
            IpAddr::V6(ip) if header.ether_type == ethernet::IPV6 => reply_to_solicitation(packet, mac, ip)?,
            _ => return None,
        };
        self.learn(requester, header.source);
        let mut reply = ReplyFrame::new();
        let header = ethernet::Header { destination: header.source, source: mac, ..header };
        reply.try_extend_from_slice(&header.emit()).ok()?;
        reply.try_extend_from_slice(&body).ok()?;
        Some(reply)
    }
}

/// The packet of a reply, and the address of the requesting host.
type Reply = (ArrayVec<u8, { ipv6::Header::LEN + ADVERTISEMENT_BYTES }>, IpAddr);

fn reply_to_arp(packet: &[u8], mac: Mac, ip: [u8; 4]) -> Option<Reply> {
    let (request, rest) = packet.split_first_chunk::<8>()?;
    let (sender, rest) = rest.split_first_chunk::<10>()?;
    let target = rest.get(6..10)?;
    if *request != ARP_REQUEST || target != ip {
        return None;
    }
    let mut reply = ArrayVec::new();
    reply.extend(ARP_REQUEST);
    reply[7] = 2;
    reply.extend(mac.into_iter().chain(ip).chain(*sender));
    let [_, _, _, _, _, _, requester @ ..] = *sender;
    Some((reply, requester.into()))
}

fn reply_to_solicitation(packet: &[u8], mac: Mac, ip: Ipv6Addr) -> Option<Reply> {
    let (header, body) = ipv6::Header::parse(packet).ok()?;
    let target = body.get(8..SOLICITATION_BYTES)?;
    // Not routed, and not duplicate address detection.
    let from_link = header.hop_limit == 255 && header.source != [0; 16];
    if header.next_header != ICMP6 || body[..2] != [SOLICITATION, 0] || target != ip.octets() || !from_link {
        return None;
    }
    if checksum(header.source, header.destination, body) != 0 {
        return None;
    }
    let mut reply = [0; ADVERTISEMENT_BYTES];
    reply[0] = ADVERTISEMENT;
    reply[4] = 0x60; // flags: solicited, override
    reply[8..24].copy_from_slice(target);
    reply[24..26].copy_from_slice(&[2, 1]); // the target's Ethernet address, in one unit of eight bytes
    reply[26..].copy_from_slice(&mac);
    let sum = checksum(ip.octets(), header.source, &reply);
    reply[2..4].copy_from_slice(&sum.to_be_bytes());
    let out = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: ADVERTISEMENT_BYTES as u16,
        next_header: ICMP6,
        hop_limit: 255,
        source: ip.octets(),
        destination: header.source,
    };
    let mut packet = ArrayVec::new();
    packet.extend(out.emit());
    packet.extend(reply);
    Some((packet, header.source.into()))
}

/// Computes the Internet checksum of an ICMPv6 message with its pseudo-header (RFC 4443, 2.3): 0 if the message
/// contains the correct checksum.
fn checksum(from: [u8; 16], to: [u8; 16], message: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let parts = [from.as_slice(), &to, message].into_iter().flat_map(|part| part.chunks(2));
    let mut sum = parts.map(word).sum::<u32>() + message.len() as u32 + u32::from(ICMP6);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = [2, 0, 0, 0, 0, 1];
    const REQUESTER: Mac = [2, 0, 0, 0, 0, 2];

    fn arp_request() -> Vec<u8> {
        let mut frame = [BROADCAST, REQUESTER].concat();
        frame.extend([8, 6]);
        frame.extend(ARP_REQUEST);
        frame.extend(REQUESTER);
        frame.extend([10, 0, 0, 2]);
        frame.extend([0; 6]);
        frame.extend([10, 0, 0, 1]);
        frame
    }

    /// A solicitation as sent by Linux: fd00::2 requests fd00::1.
    fn solicitation() -> Vec<u8> {
        let (from, to): (Ipv6Addr, Ipv6Addr) = ("fd00::2".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap());
        let mut body = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        body.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        body.extend([1, 1]);
        body.extend(REQUESTER);
        let sum = checksum(from.octets(), to.octets(), &body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![0x33, 0x33, 0xFF, 0, 0, 1];
        frame.extend(REQUESTER);
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 32, ICMP6, 255]);
        frame.extend(from.octets());
        frame.extend(to.octets());
        frame.extend(body);
        frame
    }

    #[test]
    fn arp_requests_for_our_address_are_answered_and_learned() {
        let mut hosts = HostCache::new(None);
        let requester = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(hosts.find(requester), BROADCAST);
        assert!(hosts.reply(&arp_request(), OURS, [10, 0, 0, 9].into()).is_none());
        assert!(hosts.reply(&arp_request(), OURS, "fd00::1".parse().unwrap()).is_none());
        let reply = hosts.reply(&arp_request(), OURS, [10, 0, 0, 1].into()).unwrap();
        assert_eq!(reply[..14], [&REQUESTER[..], &OURS, &[8, 6]].concat());
        assert_eq!(reply[14..22], [0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(reply[22..], [&OURS[..], &[10, 0, 0, 1], &REQUESTER, &[10, 0, 0, 2]].concat());
        assert_eq!(hosts.find(requester), REQUESTER);
        hosts.learn(requester, OURS);
        assert_eq!(hosts.find(requester), REQUESTER, "what is known stays");
    }

    #[test]
    fn solicitations_are_answered_with_a_valid_checksum() {
        let mut hosts = HostCache::new(None);
        let reply = hosts.reply(&solicitation(), OURS, "fd00::1".parse().unwrap()).unwrap();
        let (header, body) = ipv6::Header::parse(&reply[14..]).unwrap();
        assert_eq!((header.next_header, header.hop_limit), (ICMP6, 255));
        assert_eq!(checksum(header.source, header.destination, body), 0);
        assert_eq!((body[0], &body[26..]), (ADVERTISEMENT, &OURS[..]));
        assert_eq!(hosts.find("fd00::2".parse().unwrap()), REQUESTER);
        let mut damaged = solicitation();
        damaged[80] ^= 1;
        assert!(hosts.reply(&damaged, OURS, "fd00::1".parse().unwrap()).is_none());
    }

    #[test]
    fn truncated_requests_get_no_reply_and_fixed_address_is_used() {
        let mut hosts = HostCache::new(Some([4; 6]));
        for frame in [arp_request(), solicitation()] {
            for len in 0..frame.len() - 1 {
                for ip in [IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap()] {
                    let reply = hosts.reply(&frame[..len], OURS, ip);
                    assert!(reply.is_none(), "{len} bytes");
                }
            }
        }
        assert_eq!(hosts.find([1, 2, 3, 4].into()), [4; 6]);
    }
}
