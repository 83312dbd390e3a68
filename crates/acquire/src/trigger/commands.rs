//! Trigger commands to the probe, and their acknowledgements.

use super::error::TriggerError;
use super::settings::Wait;
use super::timestamps::{Clock, MAX_SLEEP, PollTime};
use shotline_wire::setup::{Acknowledgement, Trigger, Verdict};
use std::io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Maximum wait for an acknowledgement, or for a shot after its sampling.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);

/// Socket for trigger commands.
pub(super) struct Commands {
    socket: UdpSocket,
    probe: SocketAddr,
    clock: Clock,
    /// Last command.
    last: Trigger,
}

impl Commands {
    /// Opens a socket for commands with the fields of `template`.
    pub(super) fn open(probe: SocketAddr, wait: Wait, clock: Clock, template: Trigger) -> Result<Self, TriggerError> {
        let any: IpAddr = if probe.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let open = || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(probe)?;
            match wait {
                Wait::Poll => socket.set_nonblocking(true)?,
                Wait::Sleep => socket.set_read_timeout(Some(MAX_SLEEP))?,
            }
            Ok(socket)
        };
        let socket = open().map_err(|source| TriggerError::Command { probe, source })?;
        Ok(Self { socket, probe, clock, last: Trigger { acknowledge: true, ..template } })
    }

    /// Returns the next trigger, which requests an acknowledgement. Its number is new, so that no late reply matches
    /// it.
    pub(super) fn next(&mut self) -> Trigger {
        self.last.sequence = self.last.sequence.wrapping_add(1);
        self.last
    }

    pub(super) fn send(&self, trigger: &Trigger) -> Result<(), TriggerError> {
        match self.socket.send(&trigger.emit()) {
            // An earlier datagram was rejected by the peer's host. That loss was detected by its own timeout.
            Err(error) if matches!(error.kind(), ConnectionRefused | WouldBlock) => Ok(()),
            sent => sent.map(|_| ()).map_err(|source| TriggerError::Command { probe: self.probe, source }),
        }
    }

    /// Waits for the probe's acknowledgement of this trigger and returns its verdict; none if it does not arrive within
    /// [`TIMEOUT`].
    pub(super) fn wait_for_verdict(&self, trigger: &Trigger) -> Result<Option<Verdict>, TriggerError> {
        let mut datagram = [0; Trigger::LEN + 1];
        let mut poll_time = PollTime::new(self.clock);
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(len) => match Acknowledgement::parse(&datagram[..len]) {
                    Ok(reply) if reply.trigger == *trigger => return Ok(Some(reply.verdict)),
                    _ => {} // of an earlier trigger
                },
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | ConnectionRefused | Interrupted) => {}
                Err(source) => return Err(TriggerError::Command { probe: self.probe, source }),
            }
            if poll_time.ns() > TIMEOUT.as_nanos() as u64 {
                return Ok(None);
            }
        }
    }
}
