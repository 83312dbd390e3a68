//! System calls for raw frames.

use super::offload::{Offload, RxFrame, VNET_HEADER};
use super::ring::Ring;
use crate::sys::{IoVec, attach_filter, filter_instruction as instruction, set_option};
use arrayvec::ArrayVec;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};

/// Maximum frames per call.
pub const DEPTH: usize = 32;
/// Maximum bytes of a frame, including one that an offload has left unsegmented, with its [`Offload`] header.
const MAX_FRAME_BYTES: usize = (1 << 16) + 128;

/// Opens a socket for the frames of an interface that carry UDP to this address and port, and for fragments of them.
/// Each frame is preceded by an [`Offload`] header. With `ring`, frames are received through a ring of that many bytes.
pub fn open(interface: &str, local: SocketAddr, ring: Option<usize>) -> io::Result<Opened> {
    // SAFETY: the call takes no memory. Protocol 0: nothing is received before the filter is in place.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let index = rustix::net::netdevice::name_to_index(&fd, interface)?;
    attach_filter(&fd, &filter(local))?;
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    let ring = ring.map(|bytes| Ring::new(&fd, bytes)).transpose()?;
    let ether_type = if local.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (ether_type as u16).to_be();
    address.sll_ifindex = index as i32;
    let mut len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the pointer and the length describe the live address, which the kernel only reads.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the pointers describe the live address and its length.
    if unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let ethernet = address.sll_addr.first_chunk::<6>().filter(|_| address.sll_halen == 6);
    let ethernet = ethernet.ok_or_else(|| io::Error::other("the interface is not Ethernet"))?;
    Ok(Opened { fd, index, mac: *ethernet, ring })
}

/// An open socket for frames, with the interface's index and Ethernet address.
pub struct Opened {
    pub fd: OwnedFd,
    pub index: u32,
    pub mac: [u8; 6],
    pub ring: Option<Ring>,
}

/// Returns the number of frames dropped because the socket's buffer was full, since the last call.
pub fn dropped(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all-zero is a valid value of this C struct.
    let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
    let mut len = size_of::<libc::tpacket_stats_v3>() as u32;
    // SAFETY: the pointers describe the live value and its length; a socket without a ring writes less.
    let rc = unsafe {
        let value = (&raw mut stats).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut len)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(stats.tp_drops.into()) }
}

/// Builds the socket filter (classic BPF): offsets are those of an Ethernet frame, jumps count instructions.
fn filter(local: SocketAddr) -> Vec<libc::sock_filter> {
    use libc::{BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_W};
    let load = |size, at| instruction(BPF_LD | size | BPF_ABS, 0, 0, at);
    // The last two instructions accept and reject a frame. A failed test, which `after` instructions follow, jumps to
    // the last.
    let unless = |value, after: u8| instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, after - 1, value);
    let port = u32::from(local.port());
    let mut program = match local.ip() {
        IpAddr::V4(ip) => vec![
            load(BPF_B, 23),
            unless(17, 9),
            load(BPF_W, 30),
            unless(ip.into(), 7),
            load(BPF_H, 20),
            instruction(BPF_JMP | BPF_JSET | BPF_K, 3, 0, 0x1FFF), // a later fragment has no ports
            instruction(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 14),
            instruction(BPF_LD | BPF_H | BPF_IND, 0, 0, 14 + 2),
            unless(port, 2),
        ],
        IpAddr::V6(ip) => {
            let words = ip.octets();
            let (words, _) = words.as_chunks::<4>();
            let mut program = Vec::new();
            for (index, word) in words.iter().enumerate() {
                program.push(load(BPF_W, 38 + 4 * index as u32));
                program.push(unless(u32::from_be_bytes(*word), 13 - 2 * index as u8));
            }
            program.extend([
                load(BPF_B, 20),
                instruction(BPF_JMP | BPF_JEQ | BPF_K, 3, 0, 44), // a fragment
                unless(17, 4),
                load(BPF_H, 14 + 40 + 2),
                unless(port, 2),
            ]);
            program
        }
    };
    program.push(instruction(libc::BPF_RET, 0, 0, u32::MAX));
    program.push(instruction(libc::BPF_RET, 0, 0, 0));
    program
}

/// Frames received by one call.
pub struct RxBatch {
    names: [libc::sockaddr_ll; DEPTH],
    messages: [libc::mmsghdr; DEPTH],
    bytes: Vec<u8>,
}

// SAFETY: the pointers in `messages` are set by every `receive` and not followed outside it.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid value of these C structs.
        unsafe { Self { names: zeroed(), messages: zeroed(), bytes: vec![0; DEPTH * MAX_FRAME_BYTES] } }
    }

    /// Receives up to `max` frames without blocking. Returns how many.
    pub fn receive(&mut self, fd: &OwnedFd, max: usize) -> io::Result<usize> {
        let mut pieces = [IoVec { iov_base: std::ptr::null_mut(), iov_len: MAX_FRAME_BYTES }; DEPTH];
        for (index, slot) in self.bytes.chunks_exact_mut(MAX_FRAME_BYTES).enumerate() {
            pieces[index].iov_base = slot.as_mut_ptr().cast();
            let header = &mut self.messages[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
            header.msg_iov = &raw mut pieces[index];
            header.msg_iovlen = 1;
        }
        let (messages, count) = (self.messages.as_mut_ptr(), max.min(DEPTH) as u32);
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        loop {
            // SAFETY: the messages point at live names and pieces, and these at memory that is exclusively borrowed.
            let n = unsafe { libc::recvmmsg(fd.as_raw_fd(), messages, count, flags, std::ptr::null_mut()) };
            if n >= 0 {
                return Ok(n as usize);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Ok(0),
                _ => return Err(error),
            }
        }
    }

    /// Returns a frame of the last [`Self::receive`].
    pub fn get(&self, index: usize) -> RxFrame<'_> {
        let slot = &self.bytes[index * MAX_FRAME_BYTES..][..MAX_FRAME_BYTES];
        let whole = slot.get(..self.messages[index].msg_len as usize).unwrap_or_default();
        let (offload, bytes) = whole.split_at(whole.len().min(VNET_HEADER));
        let offload = match *offload {
            [_, kind, _, _, low, high, ..] => Offload::new(kind, u16::from_ne_bytes([low, high])),
            _ => Offload::default(),
        };
        RxFrame { bytes, segment: offload.segment(), is_ours: self.names[index].sll_pkttype == libc::PACKET_HOST }
    }
}

/// Frames to send with one call, each a list of pieces.
pub struct TxBatch {
    pieces: Vec<IoVec>,
    /// End of each frame's pieces.
    ends: ArrayVec<usize, DEPTH>,
    messages: [libc::mmsghdr; DEPTH],
    no_offload: Box<Offload>,
}

// SAFETY: the pointers in `messages` and in `pieces` are followed only by `send`, whose caller guarantees that they are
// valid.
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid value of this C struct.
        let messages = unsafe { zeroed() };
        Self { pieces: Vec::new(), ends: ArrayVec::new(), messages, no_offload: Box::default() }
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.ends.clear();
    }

    /// Adds a frame, at most [`DEPTH`].
    pub fn push(&mut self, pieces: impl Iterator<Item = (*mut u8, usize)>) {
        // An all-zero offload header: the frame needs no offload.
        let no_offload = ((&raw mut *self.no_offload).cast(), VNET_HEADER);
        let pieces = std::iter::once(no_offload).chain(pieces.filter(|(_, len)| *len > 0));
        self.pieces.extend(pieces.map(|(at, iov_len)| IoVec { iov_base: at.cast(), iov_len }));
        self.ends.push(self.pieces.len());
    }

    /// Sends the frames. Returns how many were sent: fewer if the interface's queue is full.
    ///
    /// # Safety
    /// Every piece must be readable for its whole length until this returns.
    pub unsafe fn send(&mut self, fd: &OwnedFd) -> io::Result<usize> {
        let mut begin = 0;
        for (message, end) in self.messages.iter_mut().zip(&self.ends) {
            message.msg_hdr.msg_iov = self.pieces[begin..*end].as_mut_ptr();
            message.msg_hdr.msg_iovlen = end - begin;
            begin = *end;
        }
        let (messages, count) = (self.messages.as_mut_ptr(), self.ends.len() as u32);
        loop {
            // SAFETY: the messages point at live pieces, which the caller guarantees to be readable.
            let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages, count, 0) };
            if n >= 0 {
                return Ok(n as usize);
            }
            let error = io::Error::last_os_error();
            match (error.kind(), error.raw_os_error()) {
                (io::ErrorKind::Interrupted, _) => {}
                (io::ErrorKind::WouldBlock, _) | (_, Some(libc::ENOBUFS)) => return Ok(0),
                _ => return Err(error),
            }
        }
    }
}
