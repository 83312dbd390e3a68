//! Receives frames directly into their predicted destinations, before their headers are read.
//!
//! A memif's driver copies each frame out of the shared memory. If the steer predicts the next packet, that copy is the
//! only one: the frame is received so that its payload lands in its destination, and its headers and trailer overwrite
//! bytes of the same message, which are restored at once. A frame that differs from the prediction is still received
//! completely, and is processed as usual.

use super::state::PredictedState;
use super::{DpdkConfig, DpdkIo, sys};
use crate::frame::{self, Mac};
use crate::prebuilt::PrebuiltIo;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Icrc, MAX_HEADER, PayloadDestination, PayloadLocation, Pick, RxPacket, Steer};
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use shotline_wire::{crc, icrc};
use std::net::SocketAddr;

/// Minimum payload bytes: shorter payloads are copied twice, which costs less than this path.
const MIN_PAYLOAD_BYTES: u32 = 1024;
/// Number of frames received in the usual way after one that differed from its prediction.
const BACKOFF_FRAMES: u32 = 32;

/// Where to receive the next frame.
#[derive(Clone, Copy)]
struct Target {
    to: PayloadDestination,
    destination: Sge,
    /// Bytes of headers before the payload: those of the frame, and the packet's.
    headers: [usize; 2],
    trailer: usize,
}

impl Target {
    /// Returns the memory of the frame whose payload is the destination.
    fn frame(&self) -> Sge {
        let before = (self.headers[0] + self.headers[1]) as u32;
        let len = before + self.destination.len + self.trailer as u32;
        Sge { offset: self.destination.offset - u64::from(before), len, ..self.destination }
    }

    /// Validates the received frame and returns the packet without its header, and the sender's Ethernet address;
    /// `None` if it differs from the prediction. Copies the header to `first`.
    fn validate(
        &self,
        (bytes, faults): (&[u8], u32),
        config: &DpdkConfig,
        sealer: &mut Sealer,
        first: &mut [u8; MAX_HEADER],
    ) -> Option<(RxPacket<'static>, Mac)> {
        let datagram = frame::parse(bytes).ok().filter(|_| faults == 0)?;
        let [headers, header] = self.headers;
        let begin = datagram.payload.as_ptr() as usize - bytes.as_ptr() as usize;
        let len = header + self.destination.len as usize + self.trailer;
        if (begin, datagram.payload.len()) != (headers, len) || !frame::is_same(datagram.destination, config.bind) {
            return None;
        }
        let payload = &datagram.payload[header..][..self.destination.len as usize];
        first[..header].copy_from_slice(&datagram.payload[..header]);
        let mut source = datagram.source;
        if let (SocketAddr::V6(source), SocketAddr::V6(local)) = (&mut source, config.bind) {
            source.set_scope_id(local.scope_id());
        }
        let mut done = RxPacket {
            landed: match self.to {
                PayloadDestination::Posted(id) => PayloadLocation::Posted(id),
                PayloadDestination::Memory(sges) => PayloadLocation::Memory(sges),
                PayloadDestination::Scratch => return None,
            },
            header: &[],
            len: self.destination.len,
            source,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc: if config.sealed || config.remainders { crc::remainder(payload) } else { 0 },
            congested: datagram.congested,
            fault: None,
        };
        if let Some(received) = datagram.payload.last_chunk().filter(|_| config.sealed) {
            let ports = [source.port(), datagram.destination.port()];
            let seen = RxPacket { header: &first[..header], ..done };
            done.icrc = sealer.check_known(datagram.network, ports, &seen, u32::from_le_bytes(*received));
            // The sender may use inputs that our sockets do not, as in `land`.
            if done.icrc == Icrc::Bad && icrc::verify_ip_packet(datagram.packet) == Ok(true) {
                done.icrc = Icrc::Good;
            }
            if done.icrc == Icrc::Bad {
                done.fault = Some(DropCause::BadIcrc);
            }
        }
        Some((done, datagram.mac))
    }
}

impl DpdkIo {
    /// Receives the next frame into its destination if the steer predicts it. Returns `true` if a datagram landed;
    /// `None` if there was no prediction or no frame.
    pub(super) fn receive_predicted<S: Steer>(&mut self, steer: &mut S) -> Option<bool> {
        if !self.predicted.enabled || self.predicted.backoff > 0 {
            return None;
        }
        let target = self.target(steer)?;
        let PredictedState { before, after, .. } = &mut self.predicted;
        let before = &mut before[..target.headers.iter().sum()];
        let after = &mut after[..target.trailer];
        let region = self.posted.regions.get(target.destination.region);
        let frame = target.frame();
        let begin = frame.offset as usize;
        let end = (target.destination.offset + u64::from(target.destination.len)) as usize;
        region.read(begin, before);
        region.read(end, after);
        // SAFETY: the destination is posted, so its owner does not access it until it lands; the bytes around it belong
        // to the same message, which is not read before all of it has landed (`Steer::margins`), and they are restored
        // below, before the steer is called. `address` checks that all of them are inside the region.
        let status = unsafe { self.port.receive_at(region.address(begin, frame.len as usize), frame.len) };
        if status == sys::ReceiveStatus::NoFrame {
            return None;
        }
        let mut first = [0; MAX_HEADER];
        let mut landed = None;
        if status == sys::ReceiveStatus::InPlace {
            landed = target.validate(self.port.frame(0), &self.config, &mut self.sealer, &mut first);
            if landed.is_none() {
                self.port.copy_out();
            }
        }
        region.write(begin, before);
        region.write(end, after);
        let Some((done, mac)) = landed else {
            self.predicted.backoff = BACKOFF_FRAMES;
            return (status != sys::ReceiveStatus::Overwritten).then(|| self.land(0, steer));
        };
        self.counters.received += 1;
        self.counters.landed += 1;
        self.posted.consume(target.to);
        if done.icrc == Icrc::Good {
            self.hosts.learn(done.source.ip(), mac);
        }
        steer.landed(&[RxPacket { header: &first[..target.headers[1]], ..done }]);
        Some(true)
    }

    /// Returns the destination of the next frame, if the headers and the trailer also fit around it.
    fn target<S: Steer>(&self, steer: &mut S) -> Option<Target> {
        let mut picks = [Pick::default()];
        if steer.predict(&mut picks) == 0 {
            return None;
        }
        let [Pick { destination: to, header_len: Some(header) }] = picks else { return None };
        let destination = self.posted.contiguous(to).filter(|destination| destination.len >= MIN_PAYLOAD_BYTES)?;
        let headers = [self.headroom(), usize::from(header).min(MAX_HEADER)];
        let trailer = if self.config.sealed { ICRC_BYTES } else { 0 };
        let [before, after] = steer.margins(to);
        let fits = headers[0] + headers[1] <= before as usize && trailer <= after as usize;
        let regions = &self.posted.regions;
        let region = regions.get(destination.region);
        let usable = fits && region.is_writable() && region.is_mapped() && !region.is_shared();
        usable.then_some(Target { to, destination, headers, trailer })
    }
}
