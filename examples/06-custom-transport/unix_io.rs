//! A transport over Unix datagram sockets: one packet is one datagram. Example 07 uses it, too.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use shotline_memory::Regions;
use shotline_transport::copier::{CopierConfig, MAX_PACKET, PacketCopier};
use shotline_transport::{Capabilities, DeviceCounters, IoError, PacketIo, Recv, Steer, TxPacket};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// One end. Its socket is bound if it receives, and connected if it sends.
pub struct UnixIo {
    socket: UnixDatagram,
    peer: SocketAddr,
    copier: PacketCopier,
    bytes: Vec<u8>,
}

impl UnixIo {
    /// Opens an end. These sockets have names of files, but packets have IP addresses, which an ICRC covers: any will do
    /// that both ends know, that of the configuration and `peer`.
    pub fn open(socket: UnixDatagram, config: CopierConfig, peer: SocketAddr, regions: &Regions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        set_socket_send_buffer_size(&socket, 1 << 20)?; // as far as the kernel allows
        Ok(Self { socket, peer, copier: PacketCopier::new(config, regions), bytes: vec![0; MAX_PACKET + 1] })
    }
}

fn system(what: &str, source: io::Error) -> IoError {
    IoError::System { what: what.to_owned(), source, hint: "" }
}

#[rustfmt::skip]
impl PacketIo for UnixIo {
    // 1. What this transport is. Every header is read before its payload is copied, so the steer chooses where it goes;
    // and a full queue makes `send` accept no more: nothing is ever lost.
    fn capabilities(&self) -> Capabilities { Capabilities { steers: true, credits: true } }
    fn device_counters(&self) -> DeviceCounters { DeviceCounters::default() } // no device loses packets
    fn counters(&self) -> Vec<(String, u64)> { Vec::new() }
    fn queue_pair(&self) -> Option<(u32, u32)> { None } // packets for any queue pair

    // 2. Memory: the copier keeps the posted receives.
    fn register(&mut self, regions: &Regions) { self.copier.register(regions); }
    fn post(&mut self, receives: &[Recv]) -> usize { self.copier.post(receives) }
    fn withdraw(&mut self, ids: &[u32]) { self.copier.withdraw(ids); }

    // 3. Receiving: each datagram goes to the copier, which asks the steer. This must not block.
    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        for landed in 0..max {
            match self.socket.recv(&mut self.bytes) {
                Ok(len) => self.copier.land(self.peer, &[&self.bytes[..len]], steer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(landed),
                Err(error) => return Err(system("receive from a Unix socket", error)),
            }
        }
        Ok(max)
    }

    // 4. Waiting: here, or on the descriptor in a loop of the caller.
    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let timeout = Timespec::try_from(timeout).ok(); // one that is too long is none
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for a Unix socket", error.into())),
        }
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> { Some(self.socket.as_fd()) }

    // 5. Sending: as many as the peer's queue takes.
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        for (sent, packet) in packets.iter().enumerate() {
            let mut bytes = Vec::new();
            self.copier.gather(to, 0, packet, &mut bytes);
            match self.socket.send(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotConnected) => {
                    return Err(IoError::Disconnected);
                }
                Err(error) => return Err(system("send to a Unix socket", error)),
            }
        }
        Ok(packets.len())
    }
}
