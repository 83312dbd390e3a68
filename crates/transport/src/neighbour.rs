//! Ethernet addresses of the hosts on the link: those given, those seen, and those that the kernel knows.
//!
//! Whoever sends to a host that nobody knows yet loses packets, as on any path, while the kernel asks for it.

use crate::frame::Mac;
use crate::link;
use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Hosts remembered.
const MOST: usize = 64;
/// Time between two looks into the kernel's table.
const PATIENCE: Duration = Duration::from_millis(10);

/// What is known of the hosts on one link.
pub struct Neighbours {
    interface: u32,
    /// Of every host, if it was given.
    given: Option<Mac>,
    known: Vec<(IpAddr, Mac)>,
    newest: usize,
    oldest: usize,
    asked: Option<Instant>,
}

impl Neighbours {
    /// Nobody yet, or this one for every address.
    pub fn new(interface: u32, given: Option<Mac>) -> Self {
        Self { interface, given, known: Vec::new(), newest: 0, oldest: 0, asked: None }
    }

    /// A packet with a good CRC came from there. What is known of a host stays: a CRC has no secret, so whoever writes
    /// another's address into a packet must not have that host's packets sent to himself.
    pub fn seen(&mut self, ip: IpAddr, mac: Mac) {
        if self.given.is_some() || self.known.get(self.newest) == Some(&(ip, mac)) {
            return;
        }
        if let Some(index) = self.known.iter().position(|(known, _)| *known == ip) {
            self.newest = index;
        } else if self.known.len() < MOST {
            self.newest = self.known.len();
            self.known.push((ip, mac));
        } else {
            self.oldest = (self.oldest + 1) % MOST;
            self.newest = self.oldest;
            self.known[self.newest] = (ip, mac);
        }
    }

    /// The address of a host. If nobody knows it, the kernel is asked, and a later call may.
    pub fn find(&mut self, ip: IpAddr) -> Option<Mac> {
        if self.given.is_some() {
            return self.given;
        }
        if let Some((known, mac)) = self.known.get(self.newest)
            && *known == ip
        {
            return Some(*mac);
        }
        if let Some(index) = self.known.iter().position(|(known, _)| *known == ip) {
            self.newest = index;
            return Some(self.known[index].1);
        }
        // A clock on this path only, where the packet is lost anyway.
        if self.asked.is_some_and(|asked| asked.elapsed() < PATIENCE) {
            return None;
        }
        let found = ask_kernel(self.interface, ip).ok().flatten();
        match found {
            Some(mac) => self.seen(ip, mac),
            None => {
                link::ask_for(ip, self.interface);
                self.asked = Some(Instant::now());
            }
        }
        found
    }
}

// rtnetlink(7), linux/netlink.h, linux/neighbour.h.
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NLMSG_DONE: u16 = 3;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// States in which the address is good: permanent, no ARP, probe, delay, stale, reachable.
const VALID: u16 = 0x80 | 0x40 | 0x10 | 0x08 | 0x04 | 0x02;

/// Looks into the kernel's neighbour table.
fn ask_kernel(interface: u32, ip: IpAddr) -> io::Result<Option<Mac>> {
    let fd: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?; // NETLINK_ROUTE
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut request = Vec::with_capacity(28);
    request.extend(28_u32.to_ne_bytes());
    request.extend(RTM_GETNEIGH.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]); // sequence and port numbers: one question, one socket
    request.push(family.as_raw() as u8);
    request.extend([0; 3]);
    request.extend(interface.to_ne_bytes());
    request.extend([0; 4]);
    sendto(&fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut bytes = vec![0; 1 << 15];
    loop {
        let (len, _) = recv(&fd, bytes.as_mut_slice(), RecvFlags::empty())?;
        match search(&bytes[..len], interface, ip) {
            Search::On => {}
            Search::Found(mac) => return Ok(Some(mac)),
            Search::End => return Ok(None),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Search {
    /// Not yet in what was read.
    On,
    Found(Mac),
    /// Not in the table.
    End,
}

/// Searches one datagram of the kernel's answer.
fn search(mut bytes: &[u8], interface: u32, ip: IpAddr) -> Search {
    while let Some((message, kind, rest)) =
        split(bytes, 16, |bytes| Some((u32::from_ne_bytes(*bytes.first_chunk()?) as usize, u16_at(bytes, 4)?)))
    {
        bytes = rest;
        if matches!(kind, NLMSG_DONE | NLMSG_ERROR) {
            return Search::End;
        }
        // Family, padding, interface, state, flags, kind; then attributes.
        let Some((fields, mut attributes)) = message.split_at_checked(12).filter(|_| kind == RTM_NEWNEIGH) else {
            continue;
        };
        let state = u16_at(fields, 8).unwrap_or(0);
        if fields[4..8] != interface.to_ne_bytes() || state & VALID == 0 {
            continue;
        }
        let (mut is_it, mut mac) = (false, None);
        while let Some((value, kind, rest)) =
            split(attributes, 4, |bytes| Some((usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?)))
        {
            attributes = rest;
            match (kind, ip) {
                (NDA_DST, IpAddr::V4(ip)) => is_it = value == ip.octets(),
                (NDA_DST, IpAddr::V6(ip)) => is_it = value == ip.octets(),
                (NDA_LLADDR, _) => mac = value.try_into().ok(),
                _ => {}
            }
        }
        if let (true, Some(mac)) = (is_it, mac) {
            return Search::Found(mac);
        }
    }
    Search::On
}

/// The value, the kind and what follows of a message or attribute whose header has so many bytes and says the length
/// with the header. Each begins at a multiple of four.
fn split(
    bytes: &[u8],
    header: usize,
    len_and_kind: impl Fn(&[u8]) -> Option<(usize, u16)>,
) -> Option<(&[u8], u16, &[u8])> {
    let (len, kind) = len_and_kind(bytes)?;
    let value = bytes.get(header..len)?;
    Some((value, kind, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn entry(interface: u32, state: u16, ip: &[u8], mac: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(interface.to_ne_bytes());
        body.extend(state.to_ne_bytes());
        body.extend([0; 2]);
        for (kind, value) in [(NDA_DST, ip), (NDA_LLADDR, mac)] {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        message(RTM_NEWNEIGH, &body)
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    #[test]
    fn the_valid_entry_of_this_interface_and_host_is_found_and_no_other() {
        let ip = IpAddr::from([10, 0, 0, 7]);
        let wrong = [
            entry(4, 2, &[10, 0, 0, 7], &MAC),
            entry(3, 1, &[10, 0, 0, 7], &MAC),
            entry(3, 2, &[10, 0, 0, 8], &MAC),
            entry(3, 2, &[10, 0, 0, 7], &[]),
        ]
        .concat();
        assert_eq!(search(&wrong, 3, ip), Search::On);
        let right = [wrong.clone(), entry(3, 4, &[10, 0, 0, 7], &MAC)].concat();
        assert_eq!(search(&right, 3, ip), Search::Found(MAC));
        assert_eq!(search(&[wrong, message(NLMSG_DONE, &[0; 4])].concat(), 3, ip), Search::End);
        let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let IpAddr::V6(octets) = v6 else { unreachable!() };
        assert_eq!(search(&entry(3, 2, &octets.octets(), &MAC), 3, v6), Search::Found(MAC));
    }

    #[test]
    fn an_answer_that_breaks_off_or_lies_about_lengths_is_no_panic_and_no_endless_loop() {
        let whole = entry(3, 2, &[10, 0, 0, 7], &MAC);
        for len in 0..whole.len() {
            assert_eq!(search(&whole[..len], 3, [10, 0, 0, 7].into()), Search::On);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 15, 17, 0xFF] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = search(&bytes, 3, [10, 0, 0, 7].into());
            }
        }
    }

    #[test]
    fn a_flood_of_hosts_is_not_remembered_without_end() {
        let mut neighbours = Neighbours::new(1, None);
        for host in 0..10_000_u32 {
            neighbours.seen(IpAddr::from(host.to_be_bytes()), MAC);
        }
        assert_eq!(neighbours.known.len(), MOST);
        assert_eq!(neighbours.find(IpAddr::from(9_999_u32.to_be_bytes())), Some(MAC));
        neighbours.seen(IpAddr::from(9_999_u32.to_be_bytes()), [2; 6]);
        assert_eq!(neighbours.find(IpAddr::from(9_999_u32.to_be_bytes())), Some(MAC), "what is known stays");
    }
}
