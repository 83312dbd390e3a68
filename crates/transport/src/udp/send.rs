//! Sending GSO batches: headers and ICRCs are built here, payloads are gathered in place.

use super::config::UdpConfig;
use super::sys::{self, Address, IoVec, MAX_BYTES, Message, push_headers};
use crate::prebuilt::FrameRun;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{IoError, MAX_BATCH, MAX_HEADER, Seal, TxPacket, payload};
use rustix::fd::OwnedFd;
use shotline_memory::{Regions, Sge};
use std::net::SocketAddr;

/// Bytes for the headers and trailers of a batch, contiguous in stream order.
const HEADER_SCRATCH_BYTES: usize = MAX_BATCH * (MAX_HEADER + ICRC_BYTES);

pub(super) struct Sender {
    sealed: bool,
    /// The socket may be connected: it receives nothing, and it has no IPv4 identifications.
    may_connect: bool,
    pub(super) regions: Regions,
    header_scratch: Box<[u8; HEADER_SCRATCH_BYTES]>,
    pieces: Vec<IoVec>,
    destination: Option<(SocketAddr, Address)>,
}

// SAFETY: the raw addresses in `pieces` are created and used within one call of `batch`, from regions that `regions`
// keeps alive.
unsafe impl std::marker::Send for Sender {}

impl Sender {
    pub(super) fn new(config: &UdpConfig, regions: &Regions) -> Self {
        Self {
            sealed: config.sealed,
            // The kernel numbers the packets of a connected IPv4 socket; those of an unconnected one are all 0 (see
            // `seal`).
            may_connect: config.scratch.len == 0 && config.bind.is_ipv6(),
            regions: regions.clone(),
            header_scratch: Box::new([0; HEADER_SCRATCH_BYTES]),
            pieces: Vec::with_capacity(4 * MAX_BATCH),
            destination: None,
        }
    }

    /// Sends the longest prefix of `packets` that fits in one batch: equal lengths, except that the last may be
    /// shorter. Returns how many were sent.
    pub(super) fn batch(
        &mut self,
        fd: &OwnedFd,
        local: SocketAddr,
        sealer: &mut Sealer,
        to: SocketAddr,
        packets: &[TxPacket<'_>],
    ) -> Result<usize, IoError> {
        let Some(first) = packets.first() else { return Ok(0) };
        let segment = self.bytes(first);
        let mut total = 0;
        let mut taken = 0;
        for packet in packets {
            let bytes = self.bytes(packet);
            if bytes > segment || total + bytes > MAX_BYTES && taken > 0 {
                break;
            }
            total += bytes;
            taken += 1;
            if bytes < segment {
                break;
            }
        }
        self.gather(local, sealer, to, &packets[..taken])?;
        self.transmit(fd, to, segment, taken)
    }

    /// Checks that prebuilt packets of `len` bytes can be sent.
    pub(super) fn accepts_prebuilt(&self, len: u32) -> Result<(), IoError> {
        if self.sealed {
            return Err(IoError::Config("a prebuilt packet cannot be sealed: its payload is not read".into()));
        }
        if len == 0 || len as usize > MAX_BYTES {
            return Err(IoError::Config(format!("expected a prebuilt packet of 1 to {MAX_BYTES} bytes, found {len}")));
        }
        Ok(())
    }

    /// Sends as many packets of a run as fit in one batch, as one piece of memory if there are no gaps. Returns how
    /// many were sent.
    pub(super) fn run(&mut self, fd: &OwnedFd, to: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        let count = (MAX_BYTES / frames.len as usize).min(MAX_BATCH).min(frames.count as usize);
        self.pieces.clear();
        if frames.stride == frames.len {
            let all = Sge { len: frames.len * count as u32, ..frames.frame(0) };
            self.pieces.push(IoVec { iov_base: self.regions.address(all).cast(), iov_len: all.len as usize });
        } else {
            let frames = (0..count as u32).map(|index| frames.frame(index));
            let piece = |at: Sge| IoVec { iov_base: self.regions.address(at).cast(), iov_len: at.len as usize };
            self.pieces.extend(frames.map(piece));
        }
        self.transmit(fd, to, frames.len as usize, count)
    }

    /// Sends the pieces as `count` packets, segmented every `segment` bytes.
    fn transmit(&mut self, fd: &OwnedFd, to: SocketAddr, segment: usize, count: usize) -> Result<usize, IoError> {
        if self.destination.as_ref().is_none_or(|(known, _)| *known != to) {
            if self.may_connect {
                sys::connect(fd, to).map_err(|source| failed(source, format!("finding the route to {to}")))?;
            }
            self.destination = Some((to, Address::new(to)));
        }
        let address = self.destination.as_ref().map(|(_, address)| address).filter(|_| !self.may_connect);
        let message = Message { pieces: &mut self.pieces, segment: segment as u16, segmented: count > 1 };
        // SAFETY: the pieces are `self.header_scratch` and elements of registered regions, which stay readable.
        match unsafe { sys::send(fd, address, message) } {
            Ok(_) => Ok(count),
            Err(source) => Err(failed(source, format!("sending {count} packets to {to}"))),
        }
    }

    fn bytes(&self, packet: &TxPacket<'_>) -> usize {
        let trailer = if self.sealed { ICRC_BYTES } else { 0 };
        packet.header.len() + payload::len(packet.gather) + trailer
    }

    /// Writes headers and ICRCs into `self.header_scratch`, then lists the pieces in stream order.
    fn gather(
        &mut self,
        local: SocketAddr,
        sealer: &mut Sealer,
        to: SocketAddr,
        packets: &[TxPacket<'_>],
    ) -> Result<(), IoError> {
        let mut end = 0;
        for (index, packet) in packets.iter().enumerate() {
            if packet.header.len() > MAX_HEADER {
                return Err(IoError::Config(format!(
                    "a header of {} bytes is longer than {MAX_HEADER}",
                    packet.header.len()
                )));
            }
            self.header_scratch[end..end + packet.header.len()].copy_from_slice(packet.header);
            end += packet.header.len();
            if self.sealed {
                let icrc = match packet.seal {
                    Seal::Forced(value) => value,
                    Seal::Remainder(remainder) => {
                        sealer.seal(local, to, index, packet.header, payload::len(packet.gather), remainder)
                    }
                    Seal::Compute | Seal::None => {
                        let remainder = payload::remainder(&self.regions, packet.gather);
                        sealer.seal(local, to, index, packet.header, payload::len(packet.gather), remainder)
                    }
                };
                self.header_scratch[end..end + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
                end += ICRC_BYTES;
            }
        }
        let trailer = if self.sealed { ICRC_BYTES } else { 0 };
        let header_scratch = self.header_scratch.as_mut_ptr();
        let mut pending = 0..0; // header bytes not yet listed: a trailer and the next header form one piece
        self.pieces.clear();
        for packet in packets {
            pending.end += packet.header.len();
            if payload::len(packet.gather) > 0 {
                push_headers(&mut self.pieces, header_scratch, pending.clone());
                pending.start = pending.end;
                for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
                    self.pieces.push(IoVec { iov_base: self.regions.address(*sge).cast(), iov_len: sge.len as usize });
                }
            }
            pending.end += trailer;
        }
        push_headers(&mut self.pieces, header_scratch, pending);
        Ok(())
    }
}

fn failed(source: std::io::Error, what: String) -> IoError {
    let hint = match source.raw_os_error() {
        Some(libc::EMSGSIZE) => "; the path's MTU is too small for these packets: ip link set dev ... mtu 4200 or more",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "; there is no route to it (ip route get)",
        _ => "",
    };
    IoError::System { what, source, hint }
}
