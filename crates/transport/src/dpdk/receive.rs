//! Receiving bursts: each frame is validated and its payload copied to the steer's destination.

use super::DpdkIo;
use crate::frame;
use crate::land::Landing;
use crate::{Icrc, Steer};
use shotline_wire::{ParseError, ethernet, udp};
use std::net::SocketAddr;

impl DpdkIo {
    /// Receives a burst from the next non-empty queue. Returns `false` if all are empty.
    pub(super) fn receive_burst(&mut self, max: u16) -> bool {
        if self.split.is_some() {
            return self.receive_split(max);
        }
        for _ in 0..self.config.queues {
            self.burst.queue = (self.burst.queue + 1) % self.config.queues;
            let count = self.port.receive(self.burst.queue, max);
            self.predicted.record(count);
            self.burst.rest = 0..count;
            if count > 0 {
                return true;
            }
        }
        false
    }

    /// Lets the steer choose the destination of a frame's payload and copies it there, if the frame is a datagram for
    /// us. Returns `true` if it was.
    pub(super) fn land<S: Steer>(&mut self, index: usize, steer: &mut S) -> bool {
        if self.split.is_some() {
            return self.land_split(index, steer);
        }
        let (bytes, faults) = self.port.frame(index);
        self.counters.received += 1;
        if faults != 0 {
            self.counters.count_fault(faults);
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
            self.counters.not_ours += 1;
            return false;
        }
        if let (SocketAddr::V6(source), SocketAddr::V6(local)) = (&mut datagram.source, self.config.bind) {
            source.set_scope_id(local.scope_id()); // 0 except for link-local addresses
        }
        let mut landing = Landing {
            posted: &mut self.posted,
            sealer: &mut self.sealer,
            scratch: self.config.scratch,
            sealed: self.config.sealed,
            remainders: self.config.remainders,
        };
        let verdict = landing.land(&datagram, steer);
        self.counters.landed += 1;
        // A CRC is not authenticated, so an attacker that spoofs a host's IP address must not be able to redirect that
        // host's packets: `learn` does not replace a known entry.
        if verdict == Icrc::Good {
            self.hosts.learn(datagram.source.ip(), datagram.mac);
        }
        true
    }

    /// Counts a frame that is not a valid datagram, and replies if it requests our address.
    #[cold]
    pub(super) fn refuse(&mut self, index: usize, error: &ParseError) {
        let (bytes, _) = self.port.frame(index);
        match error {
            ParseError::Checksum { .. } => self.counters.checksum += 1,
            ParseError::Fragment { .. } => self.counters.fragments += 1,
            _ if is_other_protocol(bytes) => {
                self.counters.not_udp += 1;
                if let Some(reply) = self.hosts.reply(bytes, self.mac, self.config.bind.ip()) {
                    // A lost reply is requested again.
                    self.counters.answered += u64::from(self.send_frame(&reply));
                }
            }
            _ => self.counters.malformed += 1,
        }
    }
}

/// Returns `true` if a frame carries another protocol, rather than a malformed datagram.
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
