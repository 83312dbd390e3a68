//! Frames of a burst, one after the other, to where a steer wants their payloads.

use super::{DpdkIo, sys};
use crate::frame;
use crate::land::Landing;
use crate::{Icrc, Steer};
use shotline_wire::{ParseError, ethernet, udp};
use std::net::SocketAddr;

impl DpdkIo {
    /// Takes what waits in the next queue that has something. Returns whether one had.
    pub(super) fn receive_burst(&mut self, most: u16) -> bool {
        for _ in 0..self.config.queues {
            self.burst.queue = (self.burst.queue + 1) % self.config.queues;
            let came = self.port.receive(self.burst.queue, most);
            self.ahead.note(came);
            self.burst.rest = 0..came;
            if came > 0 {
                return true;
            }
        }
        false
    }

    /// Has a steer choose the place of a frame's payload and copies it there, if it is a datagram for us. Returns
    /// whether it was.
    pub(super) fn land<S: Steer>(&mut self, index: usize, steer: &mut S) -> bool {
        let (bytes, faults) = self.port.frame(index);
        self.counted.received += 1;
        if faults != 0 {
            let cause =
                if faults & sys::TOO_LONG != 0 { &mut self.counted.malformed } else { &mut self.counted.checksum };
            *cause += 1;
            return false;
        }
        let mut datagram = match frame::parse(bytes) {
            Ok(datagram) => datagram,
            Err(error) => {
                self.refuse(index, &error);
                return false;
            }
        };
        if self.config.capacity == 0 || !frame::is_same(datagram.destination, self.config.bind) {
            self.counted.not_ours += 1;
            return false;
        }
        if let (SocketAddr::V6(source), SocketAddr::V6(local)) = (&mut datagram.source, self.config.bind) {
            source.set_scope_id(local.scope_id()); // 0 but on addresses that hold for one link
        }
        let mut landing = Landing {
            places: &mut self.places,
            sealer: &mut self.sealer,
            scratch: self.config.scratch,
            sealed: self.config.sealed,
            remainders: self.config.remainders,
        };
        let verdict = landing.land(&datagram, steer);
        self.counted.landed += 1;
        // A CRC has no secret, and whoever writes another's address into a packet must not get that host's: what is
        // known of a host stays.
        if verdict == Icrc::Good {
            self.hosts.seen(datagram.source.ip(), datagram.mac);
        }
        true
    }

    /// Counts a frame that is no datagram, and answers it if it asks for our address.
    #[cold]
    fn refuse(&mut self, index: usize, error: &ParseError) {
        let (bytes, _) = self.port.frame(index);
        match error {
            ParseError::Checksum { .. } => self.counted.checksum += 1,
            ParseError::Fragment { .. } => self.counted.fragments += 1,
            _ if is_other_protocol(bytes) => {
                self.counted.not_udp += 1;
                if let Some(answer) = self.hosts.answer(bytes, self.mac, self.config.bind.ip()) {
                    // One that is lost is asked for again.
                    self.counted.answered += u64::from(self.send_whole(&answer));
                }
            }
            _ => self.counted.malformed += 1,
        }
    }
}

/// Whether a frame that is no datagram carries something else, rather than a broken one.
fn is_other_protocol(bytes: &[u8]) -> bool {
    let at = |index: usize| bytes.get(index).copied();
    let word = |index| Some(u16::from_be_bytes([at(index)?, at(index + 1)?]));
    let tagged = word(12) == Some(0x8100);
    let skip = if tagged { 4 } else { 0 };
    match word(12 + skip) {
        Some(ethernet::IPV4) => at(14 + skip + 9).is_some_and(|protocol| protocol != udp::PROTOCOL),
        Some(ethernet::IPV6) => at(14 + skip + 6).is_some_and(|protocol| protocol != udp::PROTOCOL),
        Some(_) => true,
        None => false,
    }
}
