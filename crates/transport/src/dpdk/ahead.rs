//! Frames into the places where their payloads belong if they come in order, before anybody has seen them.
//!
//! A memif's driver copies each frame out of the memory that both sides share. Where the steer says what comes next, that
//! copy is the only one: the frame is received so that its payload falls upon its place, and its headers, and what stands
//! behind the payload, upon bytes of the same message that are put back at once. What comes otherwise than forecast is
//! whole all the same, and goes the usual way.

use super::state::Ahead;
use super::{DpdkConfig, DpdkIo, sys};
use crate::frame::{self, Mac};
use crate::prebuilt::PrebuiltIo;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Done, Icrc, Landed, MAX_HEADER, Pick, Steer, To};
use shotline_memory::Sge;
use shotline_wire::shot::DropCause;
use shotline_wire::{crc, icrc};
use std::net::SocketAddr;

/// Shorter payloads are copied twice: looking ahead costs more than that.
const SHORTEST: u32 = 1024;
/// Frames that are looked at first after one that was not as forecast.
const DOUBTS: u32 = 32;

/// Where the next frame is received.
#[derive(Clone, Copy)]
struct Target {
    to: To,
    place: Sge,
    /// Bytes of headers before the payload: those of the frame, and the packet's own.
    headers: [usize; 2],
    trailer: usize,
}

impl Target {
    /// The frame that has its payload in the place.
    fn frame(&self) -> Sge {
        let before = (self.headers[0] + self.headers[1]) as u32;
        let len = before + self.place.len + self.trailer as u32;
        Sge { offset: self.place.offset - u64::from(before), len, ..self.place }
    }

    /// What has landed, but for its header, and the Ethernet address that it came from; none if it is not what was
    /// forecast. Copies the header.
    fn judge(
        &self,
        (bytes, faults): (&[u8], u32),
        config: &DpdkConfig,
        sealer: &mut Sealer,
        first: &mut [u8; MAX_HEADER],
    ) -> Option<(Done<'static>, Mac)> {
        let datagram = frame::parse(bytes).ok().filter(|_| faults == 0)?;
        let [headers, header] = self.headers;
        let begin = datagram.payload.as_ptr() as usize - bytes.as_ptr() as usize;
        let len = header + self.place.len as usize + self.trailer;
        if (begin, datagram.payload.len()) != (headers, len) || !frame::is_same(datagram.destination, config.bind) {
            return None;
        }
        let payload = &datagram.payload[header..][..self.place.len as usize];
        first[..header].copy_from_slice(&datagram.payload[..header]);
        let mut source = datagram.source;
        if let (SocketAddr::V6(source), SocketAddr::V6(local)) = (&mut source, config.bind) {
            source.set_scope_id(local.scope_id());
        }
        let mut done = Done {
            landed: match self.to {
                To::Posted(id) => Landed::Slot(id),
                To::Memory(sges) => Landed::Memory(sges),
                To::Scratch => return None,
            },
            header: &[],
            len: self.place.len,
            source,
            stamp_ns: 0,
            icrc: Icrc::Absent,
            payload_crc: if config.sealed || config.remainders { crc::remainder(payload) } else { 0 },
            congested: datagram.congested,
            fault: None,
        };
        if let Some(received) = datagram.payload.last_chunk().filter(|_| config.sealed) {
            let ports = [source.port(), datagram.destination.port()];
            let seen = Done { header: &first[..header], ..done };
            done.icrc = sealer.check_known(datagram.network, ports, &seen, u32::from_le_bytes(*received));
            // Inputs that no socket of ours sends with, as in `land`.
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
    /// Takes the next frame unseen, if the steer forecasts one. Returns whether a datagram landed; none if there was no
    /// forecast, or no frame.
    pub(super) fn receive_ahead<S: Steer>(&mut self, steer: &mut S) -> Option<bool> {
        if !self.ahead.able || self.ahead.doubts > 0 {
            return None;
        }
        let target = self.target(steer)?;
        let Ahead { before, behind, .. } = &mut self.ahead;
        let before = &mut before[..target.headers.iter().sum()];
        let behind = &mut behind[..target.trailer];
        let region = self.places.regions.get(target.place.region);
        let frame = target.frame();
        let begin = frame.offset as usize;
        let end = (target.place.offset + u64::from(target.place.len)) as usize;
        region.read(begin, before);
        region.read(end, behind);
        // SAFETY: the place is posted, so its poster leaves it alone until it lands; the bytes around it are those of the
        // same message, which nobody reads before all of it is there (`Steer::around`), and they are put back below,
        // before the steer hears of the frame. `address` checks that all of them are the region's.
        let came = unsafe { self.port.receive_at(region.address(begin, frame.len as usize), frame.len) };
        if came == sys::Came::Nothing {
            return None;
        }
        let mut first = [0; MAX_HEADER];
        let mut landed = None;
        if came == sys::Came::There {
            landed = target.judge(self.port.frame(0), &self.config, &mut self.sealer, &mut first);
            if landed.is_none() {
                self.port.put_aside();
            }
        }
        region.write(begin, before);
        region.write(end, behind);
        let Some((done, mac)) = landed else {
            self.ahead.doubts = DOUBTS;
            return (came != sys::Came::Spoilt).then(|| self.land(0, steer));
        };
        self.counted.received += 1;
        self.counted.landed += 1;
        self.places.use_up(target.to);
        if done.icrc == Icrc::Good {
            self.hosts.seen(done.source.ip(), mac);
        }
        steer.landed(&[Done { header: &first[..target.headers[1]], ..done }]);
        Some(true)
    }

    /// The next frame's place, if there is room around it for what comes with the payload.
    fn target<S: Steer>(&self, steer: &mut S) -> Option<Target> {
        let mut picks = [Pick::default()];
        if steer.expect(&mut picks) == 0 {
            return None;
        }
        let [Pick { to, header_len: Some(header) }] = picks else { return None };
        let place = self.places.whole(to).filter(|place| place.len >= SHORTEST)?;
        let headers = [self.headroom(), usize::from(header).min(MAX_HEADER)];
        let trailer = if self.config.sealed { ICRC_BYTES } else { 0 };
        let [before, behind] = steer.around(to);
        let fits = headers[0] + headers[1] <= before as usize && trailer <= behind as usize;
        let regions = &self.places.regions;
        let region = regions.get(place.region);
        let usable = fits && region.is_writable() && region.is_mapped() && !region.is_shared();
        usable.then_some(Target { to, place, headers, trailer })
    }
}
