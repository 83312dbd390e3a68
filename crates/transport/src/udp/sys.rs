//! System calls of the UDP backend, over raw addresses of registered memory.
//!
//! Safe socket crates take slices. A slice of memory that the kernel writes while others hold its address is undefined
//! behaviour, so these few calls go through `libc`.

use crate::sys::set_option;
pub use crate::sys::{IoVec, set_buffer};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Metadata of a received datagram or GRO batch.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes of the datagram or GRO batch, even if less was copied.
    pub total: usize,
    /// Bytes of each segment of a GRO batch, or `total` for a single datagram.
    pub segment: usize,
    /// The sender.
    pub source: SocketAddr,
    /// Time at which the kernel received it, in nanoseconds of the realtime clock; 0 if timestamps are off.
    pub stamp_ns: u64,
    /// Marked as having experienced congestion (ECN).
    pub congested: bool,
}

/// Opens a datagram socket bound to `address`, with GRO enabled.
pub fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = open_unbound(address)?;
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

/// Opens a datagram socket of the family of `address`, with GRO enabled.
pub fn open_unbound(address: SocketAddr) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_option(&fd, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    if address.is_ipv4() {
        // DF: the kernel then leaves the identification at 0, which the computed ICRC assumes.
        set_option(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    } else {
        set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        // Soft-RoCE sends IPv6 without a UDP checksum; the ICRC covers the same bytes.
        set_option(&fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
    }
    Ok(fd)
}

/// Connects the socket, so that the kernel looks up the route once instead of for every batch. From then on the socket
/// receives from that peer only.
pub fn connect(fd: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::connect(fd, &to)?)
}

/// Enables receive timestamps: the kernel takes one per batch in its receive path, and returns it with the batch.
pub fn enable_timestamps(fd: &OwnedFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as libc::c_int)
}

/// Sends packets as ECT(0) from now on, and makes the kernel report the ECN mark of received packets.
pub fn enable_ecn(fd: &OwnedFd, v4: bool) -> io::Result<()> {
    use rustix::net::sockopt;
    const ECT_0: u8 = 0b10;
    if v4 {
        sockopt::set_ip_tos(fd, ECT_0)?;
        sockopt::set_ip_recvtos(fd, true)?;
    } else {
        sockopt::set_ipv6_tclass(fd, ECT_0.into())?;
        sockopt::set_ipv6_recvtclass(fd, true)?;
    }
    Ok(())
}

/// Peeks at the datagram or GRO batch at the head of the queue without blocking; `None` if the queue is empty.
///
/// # Safety
/// Every piece must be writable for its whole length and not aliased by any Rust reference until this returns.
pub unsafe fn peek(fd: &OwnedFd, pieces: &mut [IoVec]) -> io::Result<Option<Received>> {
    let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
    let mut control = Control::new();
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message points at live name and control storage, and the caller guarantees the pieces.
    let Some(total) = (unsafe { receive(fd, &mut message, libc::MSG_PEEK) })? else { return Ok(None) };
    // SAFETY: the kernel filled the name; the family determines which of the two layouts it has.
    let source = unsafe { socket_addr(name.as_ptr(), message.msg_namelen) }
        .ok_or_else(|| io::Error::other("the kernel reported a sender address that is neither IPv4 nor IPv6"))?;
    let mut meta = Received { total, segment: total, source, stamp_ns: 0, congested: false };
    // SAFETY: the message still describes the control storage that the kernel filled.
    unsafe { read_control(&message, &mut meta) };
    Ok(Some(meta))
}

/// Dequeues the datagram or GRO batch at the head of the queue without blocking. Returns its bytes; `None` if the queue
/// is empty.
///
/// # Safety
/// As for [`peek`].
pub unsafe fn dequeue(fd: &OwnedFd, pieces: &mut [IoVec]) -> io::Result<Option<usize>> {
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    // SAFETY: there is no name and no control storage, and the caller guarantees the pieces.
    unsafe { receive(fd, &mut message, 0) }
}

/// Copies bytes into pieces, one after the other, as the kernel would.
///
/// # Safety
/// As for [`peek`], and no piece overlaps `bytes`.
pub unsafe fn scatter(mut bytes: &[u8], pieces: &[IoVec]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(piece.iov_len.min(bytes.len()));
        // SAFETY: the caller guarantees the piece, and `now` is no longer than it.
        unsafe { piece.iov_base.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        bytes = later;
    }
}

/// Message headers, source addresses and control messages for receiving up to `N` datagrams with one call.
pub struct RecvBatch<const N: usize> {
    names: [libc::sockaddr_storage; N],
    controls: [Control; N],
    messages: [libc::mmsghdr; N],
}

// SAFETY: the pointers in `messages` are set by every `receive` and not followed outside it.
unsafe impl<const N: usize> Send for RecvBatch<N> {}

impl<const N: usize> RecvBatch<N> {
    /// Creates an empty batch.
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid value of these C structs.
        unsafe { Self { names: zeroed(), controls: std::array::from_fn(|_| Control::new()), messages: zeroed() } }
    }

    /// Receives up to as many datagrams as there are lists of pieces, without blocking. Returns how many.
    ///
    /// # Safety
    /// As for [`peek`].
    pub unsafe fn receive<const P: usize>(&mut self, fd: &OwnedFd, pieces: &mut [[IoVec; P]]) -> io::Result<usize> {
        let count = pieces.len().min(N);
        for (index, pieces) in pieces.iter_mut().take(N).enumerate() {
            let header = &mut self.messages[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_iov = pieces.as_mut_ptr();
            header.msg_iovlen = P;
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>();
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        loop {
            // SAFETY: the first `count` messages point at live names, controls and piece lists, and the caller
            // guarantees the pieces.
            let n = unsafe {
                let messages = self.messages.as_mut_ptr();
                libc::recvmmsg(fd.as_raw_fd(), messages, count as u32, flags, std::ptr::null_mut())
            };
            if n >= 0 {
                return Ok(n as usize);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                // ECONNREFUSED: an ICMP error for a datagram that a connected socket has sent, as in `send`.
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => {}
                io::ErrorKind::WouldBlock => return Ok(0),
                _ => return Err(error),
            }
        }
    }

    /// Returns the metadata of a datagram that the last [`Self::receive`] returned.
    pub fn received(&self, index: usize) -> io::Result<Received> {
        let (message, total) = (&self.messages[index].msg_hdr, self.messages[index].msg_len as usize);
        // SAFETY: the kernel filled the name; the family determines which of the two layouts it has.
        let source = unsafe { socket_addr(&raw const self.names[index], message.msg_namelen) }
            .ok_or_else(|| io::Error::other("the kernel reported a sender address that is neither IPv4 nor IPv6"))?;
        let mut meta = Received { total, segment: total, source, stamp_ns: 0, congested: false };
        // SAFETY: all-zero is a valid msghdr.
        let mut described: libc::msghdr = unsafe { zeroed() };
        // Set again, because this value may have moved since.
        described.msg_control = self.controls[index].0.as_ptr().cast_mut().cast();
        described.msg_controllen = message.msg_controllen;
        // SAFETY: the control storage is owned by this value, and `msg_controllen` is the length that the kernel
        // filled.
        unsafe { read_control(&described, &mut meta) };
        Ok(meta)
    }
}

/// Maximum bytes of a datagram or GRO batch.
const MAX_RECEIVED_BYTES: usize = 1 << 16;

/// Private memory for up to `N` datagrams or GRO batches, which are received whole. Small ones touch few pages of it.
pub struct RecvBuffers<const N: usize> {
    messages: RecvBatch<N>,
    bytes: Vec<u8>,
}

impl<const N: usize> RecvBuffers<N> {
    /// Allocates the memory.
    pub fn new() -> Self {
        Self { messages: RecvBatch::new(), bytes: vec![0; N * MAX_RECEIVED_BYTES] }
    }

    /// Receives up to `max` datagrams or batches without blocking. Returns how many.
    pub fn receive(&mut self, fd: &OwnedFd, max: usize) -> io::Result<usize> {
        let mut pieces = [[IoVec { iov_base: std::ptr::null_mut(), iov_len: MAX_RECEIVED_BYTES }]; N];
        for ([piece], slot) in pieces.iter_mut().zip(self.bytes.chunks_exact_mut(MAX_RECEIVED_BYTES)) {
            piece.iov_base = slot.as_mut_ptr().cast();
        }
        // SAFETY: every piece is in `self.bytes`, which is exclusively borrowed.
        unsafe { self.messages.receive(fd, &mut pieces[..max.min(N)]) }
    }

    /// Returns the metadata of one of those that the last [`Self::receive`] returned.
    pub fn meta(&self, index: usize) -> io::Result<Received> {
        self.messages.received(index)
    }

    /// Returns the bytes of one of those that the last [`Self::receive`] returned.
    pub fn bytes(&mut self, index: usize) -> &mut [u8] {
        let len = self.messages.messages[index].msg_len as usize;
        &mut self.bytes[index * MAX_RECEIVED_BYTES..][..len.min(MAX_RECEIVED_BYTES)]
    }
}

/// Calls `recvmsg` without blocking and returns the datagram's bytes; `None` if the queue is empty.
///
/// # Safety
/// Everything that `message` points at must be live and writable for its stated length.
unsafe fn receive(fd: &OwnedFd, message: &mut libc::msghdr, flags: libc::c_int) -> io::Result<Option<usize>> {
    loop {
        // SAFETY: the caller guarantees the message.
        let n = unsafe { libc::recvmsg(fd.as_raw_fd(), message, flags | libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
        if n >= 0 {
            return Ok(Some(n as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Maximum UDP payload bytes of one batch to send, over both IPv4 and IPv6.
pub const MAX_BYTES: usize = 65_535 - 40 - 8;

/// Arguments of one `sendmsg` of a batch: pieces of equal segments to one destination.
pub struct Message<'a> {
    /// Memory to gather.
    pub pieces: &'a mut [IoVec],
    /// Bytes of every segment except the last; the kernel splits the message there.
    pub segment: u16,
    /// `true` if there is more than one segment.
    pub segmented: bool,
}

/// Sends one batch, blocking while the send buffer is full unless the socket does not block, to an address or, without one, to the connected peer.
/// Returns the bytes accepted.
///
/// # Safety
/// Every piece must be readable for its whole length until this returns.
pub unsafe fn send(fd: &OwnedFd, to: Option<&Address>, message: Message<'_>) -> io::Result<usize> {
    let mut control = Control::new();
    // SAFETY: all-zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    if let Some(to) = to {
        header.msg_name = (&raw const to.storage).cast_mut().cast();
        header.msg_namelen = to.len;
    }
    header.msg_iov = message.pieces.as_mut_ptr();
    header.msg_iovlen = message.pieces.len();
    if message.segmented {
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only computes; the control storage is larger and aligned for a cmsghdr, so
        // CMSG_FIRSTHDR points into it and the header and its two data bytes fit.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
            let cmsg = libc::CMSG_FIRSTHDR(&raw const header);
            (*cmsg).cmsg_level = libc::SOL_UDP;
            (*cmsg).cmsg_type = libc::UDP_SEGMENT;
            (*cmsg).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            libc::CMSG_DATA(cmsg).cast::<u16>().write_unaligned(message.segment);
        }
    }
    loop {
        // SAFETY: the message points at live storage, and the caller guarantees the pieces.
        let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, 0) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let error = io::Error::last_os_error();
        // ECONNREFUSED: an ICMP error for an earlier batch. That batch was lost on the way, which is not an error of
        // this one; reporting the error has cleared it.
        if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused) {
            return Err(error);
        }
    }
}

/// Sends `bytes` to the connected peer, as datagrams of `segment` bytes of which the last may be shorter.
pub fn send_segments(fd: &OwnedFd, bytes: &[u8], segment: u16) -> io::Result<usize> {
    let mut pieces = [IoVec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    let segmented = bytes.len() > usize::from(segment);
    // SAFETY: the piece is `bytes`, which the kernel only reads.
    unsafe { send(fd, None, Message { pieces: &mut pieces, segment, segmented }) }
}

/// Buffer for control messages, with their alignment.
#[repr(align(8))]
struct Control([u8; 128]);

impl Control {
    fn new() -> Self {
        Self([0; 128])
    }
}

/// A destination as a `sockaddr`, converted once.
pub struct Address {
    storage: libc::sockaddr_storage,
    len: u32,
}

impl Address {
    /// Converts a destination.
    pub fn new(address: SocketAddr) -> Self {
        // SAFETY: all-zero is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger than and aligned for every sockaddr.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, len: len as u32 }
    }
}

/// Converts a socket address of the kernel; `None` if it is neither IPv4 nor IPv6.
///
/// # Safety
/// `storage` must hold `len` initialized bytes of a socket address.
unsafe fn socket_addr(storage: *const libc::sockaddr_storage, len: u32) -> Option<SocketAddr> {
    if (len as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: the family is the first field of every sockaddr, and the caller guarantees the bytes.
    match i32::from(unsafe { (*storage.cast::<libc::sockaddr>()).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family is that of a sockaddr_in, and `len` covers it.
            let raw = unsafe { &*storage.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the family is that of a sockaddr_in6, and `len` covers it.
            let raw = unsafe { &*storage.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Reads the segment size, the timestamp and the ECN mark.
///
/// # Safety
/// `message` must describe control storage that the kernel filled.
unsafe fn read_control(message: &libc::msghdr, meta: &mut Received) {
    // SAFETY: the CMSG macros walk the storage that `message` describes, within its length; each kind of message
    // has at least the bytes that are read of it.
    unsafe {
        let mut cmsg = libc::CMSG_FIRSTHDR(message);
        while !cmsg.is_null() {
            let data = libc::CMSG_DATA(cmsg);
            match ((*cmsg).cmsg_level, (*cmsg).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = data.cast::<libc::c_int>().read_unaligned();
                    meta.segment = usize::try_from(segment).ok().filter(|s| *s > 0).unwrap_or(meta.total);
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => {
                    // The first of three timestamps is the software one.
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    meta.stamp_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
                }
                // The first byte is the traffic class, regardless of the width of the control message; its two low bits
                // are ECN.
                (libc::IPPROTO_IP, libc::IP_TOS) => meta.congested = data.read() & 3 == 3,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    meta.congested = data.cast::<libc::c_int>().read_unaligned() & 3 == 3;
                }
                _ => {}
            }
            cmsg = libc::CMSG_NXTHDR(message, cmsg);
        }
    }
}

/// Returns the IP address of a socket address unless it is unspecified.
pub fn specified_ip(address: SocketAddr) -> Option<IpAddr> {
    Some(address.ip()).filter(|ip| !ip.is_unspecified())
}

/// Appends a range of header scratch to the pieces, unless it is empty.
pub fn push_headers(pieces: &mut Vec<IoVec>, header_scratch: *mut u8, range: std::ops::Range<usize>) {
    if !range.is_empty() {
        pieces.push(IoVec { iov_base: header_scratch.wrapping_add(range.start).cast(), iov_len: range.len() });
    }
}
