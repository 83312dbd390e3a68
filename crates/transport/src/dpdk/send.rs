//! Sending: headers and ICRCs are built here, payloads are read in place.

use super::DpdkIo;
use super::sys::{self, BURST, Piece};
use crate::frame::{self, MAX_HEADERS};
use crate::prebuilt::{FrameRun, PrebuiltIo};
use crate::seal::ICRC_BYTES;
use crate::{IoError, MAX_HEADER, TxPacket, payload};
use shotline_memory::{Region, Sge};
use shotline_wire::{ethernet, ipv4, ipv6, udp};
use std::net::SocketAddr;
use std::sync::Arc;

impl DpdkIo {
    /// Sends up to [`BURST`] packets. Returns how many were sent.
    pub(super) fn send_burst(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let trailer = if self.config.sealed { ICRC_BYTES } else { 0 };
        let macs = [self.mac, self.hosts.find(to.ip())];
        let from = self.config.bind;
        self.tx_batch.clear();
        for (packet, head) in packets.iter().zip(self.tx_batch.heads.iter_mut()) {
            let payload_len = payload::len(packet.gather);
            let len = packet.header.len() + payload_len + trailer;
            let headers = frame::headers(macs, from, to, len, self.config.ecn)
                .filter(|headers| {
                    let ip = headers.len() - ethernet::Header::LEN + len;
                    packet.header.len() <= MAX_HEADER && ip <= usize::from(self.config.mtu)
                })
                .ok_or_else(|| length_error(from, to, len, self.config.mtu))?;
            let end = headers.len() + packet.header.len();
            head[..headers.len()].copy_from_slice(&headers);
            head[headers.len()..end].copy_from_slice(packet.header);
            if self.config.sealed {
                let icrc = self.sealer.seal_send(&self.posted.regions, [from, to], packet, payload_len);
                head[end..end + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
            }
            self.tx_batch.pieces.push(Piece::copied(&head[..end]));
            for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
                self.tx_batch.pieces.push(Piece::in_place(self.posted.regions.address(*sge), sge.len));
            }
            if trailer > 0 {
                self.tx_batch.pieces.push(Piece::copied(&head[end..end + trailer]));
            }
            self.tx_batch.ends.push(self.tx_batch.pieces.len() as u32);
        }
        // SAFETY: the pieces are `tx_batch.heads` and elements of registered regions, which stay readable.
        let sent = unsafe { self.port.send(&self.tx_batch.pieces, &self.tx_batch.ends) };
        self.counters.sent += sent as u64;
        Ok(sent)
    }

    /// Sends one complete frame. Returns `true` if it was sent.
    pub(super) fn send_frame(&mut self, frame: &[u8]) -> bool {
        // SAFETY: the piece is the frame, which is borrowed until the call returns.
        unsafe { self.port.send(&[Piece::copied(frame)], &[1]) == 1 }
    }
}

fn length_error(from: SocketAddr, to: SocketAddr, len: usize, mtu: u16) -> IoError {
    IoError::Config(format!("a packet from {from} to {to} cannot carry {len} bytes after UDP at an MTU of {mtu}"))
}

impl PrebuiltIo for DpdkIo {
    fn headroom(&self) -> usize {
        let ip = if self.config.bind.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        ethernet::Header::LEN + ip + udp::Header::LEN
    }

    fn prebuild(&mut self, to: SocketAddr, frame: Sge) -> Result<(), IoError> {
        if self.config.sealed {
            return Err(IoError::Config("a prebuilt packet cannot be sealed: its payload is not read".into()));
        }
        let (from, mtu) = (self.config.bind, self.config.mtu);
        let macs = [self.mac, self.hosts.find(to.ip())];
        let headers = (frame.len as usize)
            .checked_sub(self.headroom())
            .and_then(|len| frame::headers(macs, from, to, len, self.config.ecn))
            .filter(|_| frame.len as usize <= ethernet::Header::LEN + usize::from(mtu))
            .ok_or_else(|| length_error(from, to, (frame.len as usize).saturating_sub(self.headroom()), mtu))?;
        debug_assert!(headers.len() <= MAX_HEADERS);
        self.posted.regions.get(frame.region).write(frame.offset as usize, &headers);
        Ok(())
    }

    fn frame_memory(&mut self, bytes: usize) -> Result<Option<Arc<Region>>, IoError> {
        if !self.device.is_zero_copy() {
            return Ok(None);
        }
        let memory = sys::Memory::allocate(bytes).ok_or_else(|| {
            let (mib, whole) = (bytes >> 20, self.config.eal.memory_mib);
            IoError::Config(format!(
                "DPDK has no {mib} MiB free for frames: use more memory than {whole} MiB, or zero-copy=no"
            ))
        })?;
        Ok(Some(Region::device(Arc::new(memory))))
    }

    fn in_flight(&mut self) -> usize {
        self.port.in_flight()
    }

    /// The destination is in the frames' headers, so `to` is ignored. Frames sent while there is no link are lost, and
    /// counted.
    fn send_prebuilt(&mut self, _to: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        if frames.len as usize > ethernet::Header::LEN + usize::from(self.config.mtu) {
            let what = format!("a frame of {} bytes is too long for an MTU of {}", frames.len, self.config.mtu);
            return Err(IoError::Config(what));
        }
        let count = frames.count as usize;
        if !self.link_is_up() {
            self.counters.no_link += count as u64;
            return Ok(count);
        }
        let mut taken = 0;
        while taken < count {
            let rest = frames.after(taken);
            let batch = rest.count.min(BURST as u32);
            self.tx_batch.clear();
            for index in 0..batch {
                let frame = rest.frame(index);
                self.tx_batch.pieces.push(Piece::in_place(self.posted.regions.address(frame), frame.len));
                self.tx_batch.ends.push(index + 1);
            }
            // SAFETY: the pieces are elements of registered regions, which stay readable; the table of regions is
            // dropped after the port, and closing the port returns all frames in use.
            let sent = unsafe { self.port.send(&self.tx_batch.pieces, &self.tx_batch.ends) };
            self.counters.sent += sent as u64;
            taken += sent;
            if sent < batch as usize {
                break;
            }
        }
        Ok(taken)
    }
}
