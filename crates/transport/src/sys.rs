//! System calls used by several backends.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::io;
use std::mem::size_of;
use std::time::Duration;

/// A piece of memory for the kernel to read or write.
pub type IoVec = libc::iovec;

/// Blocks until the descriptor is readable, or for `timeout`.
pub fn wait(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(timeout.subsec_nanos()) };
    match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Requests a receive or send buffer and returns the granted size, in the kernel's accounting (which includes packet
/// overhead). The forced variant needs CAP_NET_ADMIN and is tried first.
pub fn set_buffer(fd: &OwnedFd, receive: bool, bytes: usize) -> io::Result<usize> {
    let (forced, plain) =
        if receive { (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF) } else { (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF) };
    // The kernel doubles what is set, in a signed 32-bit number.
    let value = (bytes / 2).min(i32::MAX as usize / 2) as libc::c_int;
    if set_option(fd, libc::SOL_SOCKET, forced, value).is_err() {
        set_option(fd, libc::SOL_SOCKET, plain, value)?;
    }
    get_option(fd, libc::SOL_SOCKET, plain).map(|granted| granted as usize)
}

/// Sets an integer option of a socket.
pub fn set_option(fd: &OwnedFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and length describe a live integer; the kernel only reads it.
    let rc = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<libc::c_int>() as u32)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get_option(fd: &OwnedFd, level: i32, name: i32) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as u32;
    // SAFETY: the pointers describe a live integer and its length.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Builds an instruction of a socket filter (classic BPF).
pub fn filter_instruction(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k }
}

/// Attaches a socket filter: the kernel drops the packets that the program rejects.
pub fn attach_filter(fd: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the pointer and the length describe the live program, which the kernel copies.
    let rc = unsafe {
        let (at, len) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as u32);
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, len)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
