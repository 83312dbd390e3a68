//! Hosts on the link: their Ethernet addresses as far as they are known, and answers to those who ask for ours.
//!
//! DPDK takes an interface away from the kernel, and with it whoever answers ARP (RFC 826) and neighbour solicitations
//! (RFC 4861, 7.2). Without an answer nobody who does not know our Ethernet address can send to us.

use crate::frame::Mac;
use arrayvec::ArrayVec;
use shotline_wire::{ethernet, ipv6};
use std::net::{IpAddr, Ipv6Addr};

/// Hosts remembered.
const MOST: usize = 64;
const BROADCAST: Mac = [0xFF; 6];
const ARP: u16 = 0x0806;
/// Hardware Ethernet, protocol IPv4, their lengths, and a question.
const ARP_QUESTION: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ICMP6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Bytes of a solicitation without options, and of an answer with one.
const SOLICITATION_BYTES: usize = 24;
const ANSWER_BYTES: usize = 32;

/// An answer's frame.
pub type Answer = ArrayVec<u8, { ethernet::Header::MAX_LEN + ipv6::Header::LEN + ANSWER_BYTES }>;

/// What is known of the hosts on one link.
pub struct Hosts {
    /// Of every host, if it was given.
    given: Option<Mac>,
    known: ArrayVec<(IpAddr, Mac), MOST>,
    newest: usize,
    oldest: usize,
}

impl Hosts {
    /// Nobody yet, or this one for every address.
    pub fn new(given: Option<Mac>) -> Self {
        Self { given, known: ArrayVec::new(), newest: 0, oldest: 0 }
    }

    /// A host has shown its address. What is known of it stays.
    pub fn seen(&mut self, ip: IpAddr, mac: Mac) {
        if self.given.is_some() || self.known.get(self.newest).is_some_and(|(known, _)| *known == ip) {
            return;
        }
        if let Some(index) = self.known.iter().position(|(known, _)| *known == ip) {
            self.newest = index;
        } else if self.known.is_full() {
            self.oldest = (self.oldest + 1) % MOST;
            self.newest = self.oldest;
            self.known[self.newest] = (ip, mac);
        } else {
            self.newest = self.known.len();
            self.known.push((ip, mac));
        }
    }

    /// The address of a host; everybody's if nobody knows it.
    pub fn find(&self, ip: IpAddr) -> Mac {
        let newest = self.known.get(self.newest).filter(|(known, _)| *known == ip);
        let known = || newest.or_else(|| self.known.iter().find(|(known, _)| *known == ip));
        self.given.or_else(|| known().map(|(_, mac)| *mac)).unwrap_or(BROADCAST)
    }

    /// The answer to a frame that asks who has our address.
    pub fn answer(&mut self, frame: &[u8], mac: Mac, ip: IpAddr) -> Option<Answer> {
        let (header, packet) = ethernet::Header::parse(frame).ok()?;
        let (body, asking) = match ip {
            IpAddr::V4(ip) if header.ether_type == ARP => arp(packet, mac, ip.octets())?,
            IpAddr::V6(ip) if header.ether_type == ethernet::IPV6 => solicited(packet, mac, ip)?,
            _ => return None,
        };
        self.seen(asking, header.source);
        let mut answer = Answer::new();
        let header = ethernet::Header { destination: header.source, source: mac, ..header };
        answer.try_extend_from_slice(&header.emit()).ok()?;
        answer.try_extend_from_slice(&body).ok()?;
        Some(answer)
    }
}

/// An answer's packet, and who asked.
type Asked = (ArrayVec<u8, { ipv6::Header::LEN + ANSWER_BYTES }>, IpAddr);

fn arp(packet: &[u8], mac: Mac, ip: [u8; 4]) -> Option<Asked> {
    let (question, rest) = packet.split_first_chunk::<8>()?;
    let (sender, rest) = rest.split_first_chunk::<10>()?;
    let target = rest.get(6..10)?;
    if *question != ARP_QUESTION || target != ip {
        return None;
    }
    let mut answer = ArrayVec::new();
    answer.extend(ARP_QUESTION);
    answer[7] = 2;
    answer.extend(mac.into_iter().chain(ip).chain(*sender));
    let [_, _, _, _, _, _, asking @ ..] = *sender;
    Some((answer, asking.into()))
}

fn solicited(packet: &[u8], mac: Mac, ip: Ipv6Addr) -> Option<Asked> {
    let (header, body) = ipv6::Header::parse(packet).ok()?;
    let target = body.get(8..SOLICITATION_BYTES)?;
    let from_link = header.hop_limit == 255 && header.source != [0; 16]; // not through a router, and not looking for twins
    if header.next_header != ICMP6 || body[..2] != [SOLICITATION, 0] || target != ip.octets() || !from_link {
        return None;
    }
    if checksum(header.source, header.destination, body) != 0 {
        return None;
    }
    let mut answer = [0; ANSWER_BYTES];
    answer[0] = ADVERTISEMENT;
    answer[4] = 0x60; // solicited, and to replace what was known
    answer[8..24].copy_from_slice(target);
    answer[24..26].copy_from_slice(&[2, 1]); // the target's Ethernet address, in one unit of eight bytes
    answer[26..].copy_from_slice(&mac);
    let sum = checksum(ip.octets(), header.source, &answer);
    answer[2..4].copy_from_slice(&sum.to_be_bytes());
    let out = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: ANSWER_BYTES as u16,
        next_header: ICMP6,
        hop_limit: 255,
        source: ip.octets(),
        destination: header.source,
    };
    let mut packet = ArrayVec::new();
    packet.extend(out.emit());
    packet.extend(answer);
    Some((packet, header.source.into()))
}

/// The Internet checksum of an ICMPv6 message with its pseudo-header (RFC 4443, 2.3): 0 of one that is right.
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
    const ASKING: Mac = [2, 0, 0, 0, 0, 2];

    fn arp_question() -> Vec<u8> {
        let mut frame = [BROADCAST, ASKING].concat();
        frame.extend([8, 6]);
        frame.extend(ARP_QUESTION);
        frame.extend(ASKING);
        frame.extend([10, 0, 0, 2]);
        frame.extend([0; 6]);
        frame.extend([10, 0, 0, 1]);
        frame
    }

    /// As Linux sent it: fd00::2 asks for fd00::1.
    fn solicitation() -> Vec<u8> {
        let (from, to): (Ipv6Addr, Ipv6Addr) = ("fd00::2".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap());
        let mut body = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        body.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        body.extend([1, 1]);
        body.extend(ASKING);
        let sum = checksum(from.octets(), to.octets(), &body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![0x33, 0x33, 0xFF, 0, 0, 1];
        frame.extend(ASKING);
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 32, ICMP6, 255]);
        frame.extend(from.octets());
        frame.extend(to.octets());
        frame.extend(body);
        frame
    }

    #[test]
    fn who_asks_for_our_address_is_told_and_known_and_nobody_else() {
        let mut hosts = Hosts::new(None);
        let asking = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(hosts.find(asking), BROADCAST);
        assert!(hosts.answer(&arp_question(), OURS, [10, 0, 0, 9].into()).is_none());
        assert!(hosts.answer(&arp_question(), OURS, "fd00::1".parse().unwrap()).is_none());
        let answer = hosts.answer(&arp_question(), OURS, [10, 0, 0, 1].into()).unwrap();
        assert_eq!(answer[..14], [&ASKING[..], &OURS, &[8, 6]].concat());
        assert_eq!(answer[14..22], [0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(answer[22..], [&OURS[..], &[10, 0, 0, 1], &ASKING, &[10, 0, 0, 2]].concat());
        assert_eq!(hosts.find(asking), ASKING);
        hosts.seen(asking, OURS);
        assert_eq!(hosts.find(asking), ASKING, "what is known stays");
    }

    #[test]
    fn a_neighbour_solicitation_is_answered_with_a_right_checksum() {
        let mut hosts = Hosts::new(None);
        let answer = hosts.answer(&solicitation(), OURS, "fd00::1".parse().unwrap()).unwrap();
        let (header, body) = ipv6::Header::parse(&answer[14..]).unwrap();
        assert_eq!((header.next_header, header.hop_limit), (ICMP6, 255));
        assert_eq!(checksum(header.source, header.destination, body), 0);
        assert_eq!((body[0], &body[26..]), (ADVERTISEMENT, &OURS[..]));
        assert_eq!(hosts.find("fd00::2".parse().unwrap()), ASKING);
        let mut damaged = solicitation();
        damaged[80] ^= 1;
        assert!(hosts.answer(&damaged, OURS, "fd00::1".parse().unwrap()).is_none());
    }

    #[test]
    fn questions_cut_short_are_no_panic_and_a_given_address_holds_for_all() {
        let mut hosts = Hosts::new(Some([4; 6]));
        for frame in [arp_question(), solicitation()] {
            for len in 0..frame.len() - 1 {
                for ip in [IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap()] {
                    let answer = hosts.answer(&frame[..len], OURS, ip);
                    assert!(answer.is_none(), "{len} bytes");
                }
            }
        }
        assert_eq!(hosts.find([1, 2, 3, 4].into()), [4; 6]);
    }
}
