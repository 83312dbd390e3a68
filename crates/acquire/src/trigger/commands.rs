//! Commands to the probe, and their answers.

use super::error::TriggerError;
use super::noting::{Clock, LONGEST_SLEEP, Listened};
use super::settings::Wait;
use shotline_wire::setup::{Acknowledgement, Trigger, Verdict};
use std::io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Longest wait for an answer, or for a shot once it has been sampled.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// A socket for commands only.
pub(super) struct Commands {
    socket: UdpSocket,
    probe: SocketAddr,
    clock: Clock,
    /// The last command.
    last: Trigger,
}

impl Commands {
    /// Commands like this one.
    pub(super) fn open(probe: SocketAddr, wait: Wait, clock: Clock, like: Trigger) -> Result<Self, TriggerError> {
        let any: IpAddr = if probe.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let open = || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(probe)?;
            match wait {
                Wait::Poll => socket.set_nonblocking(true)?,
                Wait::Sleep => socket.set_read_timeout(Some(LONGEST_SLEEP))?,
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| TriggerError::Command { probe, source })?;
        Ok(Self { socket, probe, clock, last: Trigger { acknowledge: true, ..like } })
    }

    /// A trigger that asks for an answer, with a number of its own, so that no late answer is taken for its.
    pub(super) fn next(&mut self) -> Trigger {
        self.last.sequence = self.last.sequence.wrapping_add(1);
        self.last
    }

    pub(super) fn send(&self, trigger: &Trigger) -> Result<(), TriggerError> {
        match self.socket.send(&trigger.emit()) {
            // An earlier one found nobody there. That is a loss, which its own wait has seen.
            Err(error) if matches!(error.kind(), ConnectionRefused | WouldBlock) => Ok(()),
            sent => sent.map(|_| ()).map_err(|source| TriggerError::Command { probe: self.probe, source }),
        }
    }

    /// What the probe says of this trigger; none if it says nothing.
    pub(super) fn answer(&self, trigger: &Trigger) -> Result<Option<Verdict>, TriggerError> {
        let mut datagram = [0; Trigger::LEN + 1];
        let mut listened = Listened::new(self.clock);
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(len) => match Acknowledgement::parse(&datagram[..len]) {
                    Ok(answer) if answer.trigger == *trigger => return Ok(Some(answer.verdict)),
                    _ => {} // to an earlier one
                },
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | ConnectionRefused | Interrupted) => {}
                Err(source) => return Err(TriggerError::Command { probe: self.probe, source }),
            }
            if listened.ns() > PATIENCE.as_nanos() as u64 {
                return Ok(None);
            }
        }
    }
}
