//! Ethernet addresses of the hosts on the link: configured, learned from packets, or from the kernel's neighbour table.
//!
//! Packets to a host with an unknown address are lost while the kernel resolves it.

use crate::frame::Mac;
use crate::interface;
use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Maximum number of cached hosts.
const MAX_HOSTS: usize = 64;
/// Minimum time between two lookups in the kernel's table.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(10);

/// Cache of the Ethernet addresses of the hosts on one link.
pub struct NeighbourCache {
    interface: u32,
    /// The address used for every host, if configured.
    fixed: Option<Mac>,
    entries: Vec<(IpAddr, Mac)>,
    newest: usize,
    oldest: usize,
    last_lookup: Option<Instant>,
}

impl NeighbourCache {
    /// Creates an empty cache, or one that returns `fixed` for every host.
    pub fn new(interface: u32, fixed: Option<Mac>) -> Self {
        Self { interface, fixed, entries: Vec::new(), newest: 0, oldest: 0, last_lookup: None }
    }

    /// Learns the sender's address of a packet with a valid CRC. A known entry is not replaced: a CRC is not
    /// authenticated, so an attacker that spoofs a host's IP address must not be able to redirect that host's packets.
    pub fn learn(&mut self, ip: IpAddr, mac: Mac) {
        if self.fixed.is_some() || self.entries.get(self.newest) == Some(&(ip, mac)) {
            return;
        }
        if let Some(index) = self.entries.iter().position(|(host, _)| *host == ip) {
            self.newest = index;
        } else if self.entries.len() < MAX_HOSTS {
            self.newest = self.entries.len();
            self.entries.push((ip, mac));
        } else {
            self.oldest = (self.oldest + 1) % MAX_HOSTS;
            self.newest = self.oldest;
            self.entries[self.newest] = (ip, mac);
        }
    }

    /// Returns the address of a host. If it is unknown, address resolution is started, and a later call may return it.
    pub fn find(&mut self, ip: IpAddr) -> Option<Mac> {
        if self.fixed.is_some() {
            return self.fixed;
        }
        if let Some((host, mac)) = self.entries.get(self.newest)
            && *host == ip
        {
            return Some(*mac);
        }
        if let Some(index) = self.entries.iter().position(|(host, _)| *host == ip) {
            self.newest = index;
            return Some(self.entries[index].1);
        }
        // The clock is read on this path only, where the packet is lost anyway.
        if self.last_lookup.is_some_and(|last_lookup| last_lookup.elapsed() < LOOKUP_INTERVAL) {
            return None;
        }
        let found = query_kernel(self.interface, ip).ok().flatten();
        match found {
            Some(mac) => self.learn(ip, mac),
            None => {
                interface::resolve(ip, self.interface);
                self.last_lookup = Some(Instant::now());
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
/// States in which the address is valid: permanent, no ARP, probe, delay, stale, reachable.
const VALID_STATES: u16 = 0x80 | 0x40 | 0x10 | 0x08 | 0x04 | 0x02;

/// Looks a host up in the kernel's neighbour table.
fn query_kernel(interface: u32, ip: IpAddr) -> io::Result<Option<Mac>> {
    // No protocol: 0 is NETLINK_ROUTE.
    let fd: OwnedFd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut request = Vec::with_capacity(28);
    request.extend(28_u32.to_ne_bytes());
    request.extend(RTM_GETNEIGH.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]); // sequence and port numbers: one request per socket
    request.push(family.as_raw() as u8);
    request.extend([0; 3]);
    request.extend(interface.to_ne_bytes());
    request.extend([0; 4]);
    sendto(&fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut bytes = vec![0; 1 << 15];
    loop {
        let (len, _) = recv(&fd, bytes.as_mut_slice(), RecvFlags::empty())?;
        match search(&bytes[..len], interface, ip) {
            Search::Continue => {}
            Search::Found(mac) => return Ok(Some(mac)),
            Search::NotFound => return Ok(None),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Search {
    /// Not in this datagram; more may follow.
    Continue,
    Found(Mac),
    /// The dump is complete.
    NotFound,
}

/// Searches one datagram of the kernel's reply.
fn search(mut bytes: &[u8], interface: u32, ip: IpAddr) -> Search {
    while let Some((message, kind, rest)) =
        split(bytes, 16, |bytes| Some((u32::from_ne_bytes(*bytes.first_chunk()?) as usize, u16_at(bytes, 4)?)))
    {
        bytes = rest;
        if matches!(kind, NLMSG_DONE | NLMSG_ERROR) {
            return Search::NotFound;
        }
        // Family, padding, interface, state, flags, kind; then attributes.
        let Some((fields, mut attributes)) = message.split_at_checked(12).filter(|_| kind == RTM_NEWNEIGH) else {
            continue;
        };
        let state = u16_at(fields, 8).unwrap_or(0);
        if fields[4..8] != interface.to_ne_bytes() || state & VALID_STATES == 0 {
            continue;
        }
        let (mut is_host, mut mac) = (false, None);
        while let Some((value, kind, rest)) =
            split(attributes, 4, |bytes| Some((usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?)))
        {
            attributes = rest;
            match (kind, ip) {
                (NDA_DST, IpAddr::V4(ip)) => is_host = value == ip.octets(),
                (NDA_DST, IpAddr::V6(ip)) => is_host = value == ip.octets(),
                (NDA_LLADDR, _) => mac = value.try_into().ok(),
                _ => {}
            }
        }
        if let (true, Some(mac)) = (is_host, mac) {
            return Search::Found(mac);
        }
    }
    Search::Continue
}

/// Splits off a netlink message or attribute and returns its value, its kind and the remaining bytes. `header` is its
/// header's size in bytes; the encoded length includes the header. Each starts at a multiple of four bytes.
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
    fn only_a_valid_entry_of_interface_and_host_is_found() {
        let ip = IpAddr::from([10, 0, 0, 7]);
        let wrong = [
            entry(4, 2, &[10, 0, 0, 7], &MAC),
            entry(3, 1, &[10, 0, 0, 7], &MAC),
            entry(3, 2, &[10, 0, 0, 8], &MAC),
            entry(3, 2, &[10, 0, 0, 7], &[]),
        ]
        .concat();
        assert_eq!(search(&wrong, 3, ip), Search::Continue);
        let right = [wrong.clone(), entry(3, 4, &[10, 0, 0, 7], &MAC)].concat();
        assert_eq!(search(&right, 3, ip), Search::Found(MAC));
        assert_eq!(search(&[wrong, message(NLMSG_DONE, &[0; 4])].concat(), 3, ip), Search::NotFound);
        let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let IpAddr::V6(octets) = v6 else { unreachable!() };
        assert_eq!(search(&entry(3, 2, &octets.octets(), &MAC), 3, v6), Search::Found(MAC));
    }

    #[test]
    fn truncated_or_corrupt_dumps_neither_panic_nor_loop() {
        let whole = entry(3, 2, &[10, 0, 0, 7], &MAC);
        for len in 0..whole.len() {
            assert_eq!(search(&whole[..len], 3, [10, 0, 0, 7].into()), Search::Continue);
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
    fn neighbour_cache_is_bounded() {
        let mut neighbours = NeighbourCache::new(1, None);
        for host in 0..10_000_u32 {
            neighbours.learn(IpAddr::from(host.to_be_bytes()), MAC);
        }
        assert_eq!(neighbours.entries.len(), MAX_HOSTS);
        assert_eq!(neighbours.find(IpAddr::from(9_999_u32.to_be_bytes())), Some(MAC));
        neighbours.learn(IpAddr::from(9_999_u32.to_be_bytes()), [2; 6]);
        assert_eq!(neighbours.find(IpAddr::from(9_999_u32.to_be_bytes())), Some(MAC), "what is known stays");
    }
}
