//! A network interface as the other end of the wire, in real time.

use super::error::CardError;
use super::sys::packet;
use super::wire::{Incoming, Sink, Source};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{DynamicClockId, clock_gettime_dynamic};
use shotline_wire::crc::crc32;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of a frame that the kernel may have merged from several.
const LONGEST: usize = 1 << 17;
/// Shortest frame without FCS.
const SHORTEST: usize = 60;
/// Most frames that are discarded at a time: a fast sender must not keep the card from its work.
const MOST: u64 = 1 << 16;
/// Bytes of the FCS.
const FCS: usize = 4;

/// An interface, for its frames in both directions. Clones are for the same socket.
#[derive(Clone, Debug)]
pub struct Interface {
    name: Rc<str>,
    fd: Rc<OwnedFd>,
    unsent: Rc<Cell<u64>>,
    unwanted: Rc<Cell<u64>>,
    buffer: Vec<u8>,
}

impl Interface {
    /// Opens an interface. All frames that come in through it are received, also those for other hosts.
    ///
    /// # Errors
    /// If there is no such interface, or this process may not open raw sockets.
    pub fn open(name: &str) -> Result<Self, CardError> {
        let fd = packet::open(name).map_err(|source| CardError::System {
            what: format!(
                "cannot open {name}: it needs CAP_NET_RAW, and an interface that is up (ip link set {name} up)"
            ),
            source,
        })?;
        Ok(Self::of(name, fd))
    }

    fn of(name: &str, fd: OwnedFd) -> Self {
        let (unsent, unwanted) = Default::default();
        Self { name: name.into(), fd: Rc::new(fd), unsent, unwanted, buffer: vec![0; LONGEST] }
    }

    /// Returns the TAI time in nanoseconds, as far as this machine knows it.
    pub fn now_ns() -> u64 {
        let now = clock_gettime_dynamic(DynamicClockId::Tai);
        now.map_or(0, |now| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Returns the number of frames for which the kernel had no space, since the last call. If it cannot be read, 0.
    pub fn missed(&self) -> u64 {
        packet::missed(&self.fd).unwrap_or(0)
    }

    /// Returns the number of frames that came before software received.
    pub fn unwanted(&self) -> u64 {
        self.unwanted.get()
    }

    /// Returns the number of frames of software that the interface did not take.
    pub fn unsent(&self) -> u64 {
        self.unsent.get()
    }
}

impl Source for Interface {
    fn next(&mut self) -> Result<Option<Incoming>, String> {
        match recv(&self.fd, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((length, _)) => {
                let mut bytes = self.buffer[..length].to_vec();
                bytes.resize(length.max(SHORTEST), 0);
                bytes.extend(crc32(&bytes).to_le_bytes());
                Ok(Some(Incoming { bytes, at_ns: 0 }))
            }
            // An interface that is down may come up again.
            Err(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => Ok(None),
            Err(error) => Err(format!("cannot receive from {}: {error}", self.name)),
        }
    }

    fn is_over(&self) -> bool {
        false
    }

    fn discard(&mut self) {
        let mut frames = 0;
        while frames < MOST && matches!(self.next(), Ok(Some(_))) {
            frames += 1;
        }
        self.unwanted.set(self.unwanted.get() + frames + self.missed());
    }

    fn now_ns(&self) -> u64 {
        Self::now_ns()
    }
}

impl Sink for Interface {
    /// Sends the frame. Those that are longer than its MTU, or for which its queue has no space, are lost, as on a wire.
    fn sent(&mut self, _: usize, _: u64, frame: &[u8]) -> Result<(), String> {
        match send(&self.fd, &frame[..frame.len().saturating_sub(FCS)], SendFlags::DONTWAIT) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::MSGSIZE | Errno::NETDOWN) => {
                self.unsent.set(self.unsent.get() + 1);
                Ok(())
            }
            Err(error) => Err(format!("cannot send through {}: {error}", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_is_an_error_that_says_what_to_do() {
        let error = Interface::open("no-such-iface").unwrap_err().to_string();
        assert!(error.contains("no-such-iface") && error.contains("CAP_NET_RAW"), "{error}");
    }

    #[test]
    fn frames_go_out_and_come_in_with_padding_and_fcs() {
        let interface = shotline_testing::or_skip!(Interface::open("lo"));
        // An EtherType for experiments, to an address that is not here.
        let mut frame = vec![2; 60];
        frame[12..22].copy_from_slice(b"\x88\xB5shotline");
        frame[40..].fill(0);
        frame.extend(crc32(&frame).to_le_bytes());
        let mut sink = interface.clone();
        sink.sent(0, 0, &[&frame[..40], &[0; FCS]].concat()).unwrap();
        sink.sent(0, 0, &vec![2; 1 << 17]).unwrap();
        assert_eq!(interface.unsent(), 1, "longer than any MTU");
        let mut source = interface;
        let is_ours = |found: Incoming| found.bytes == frame;
        shotline_testing::wait_until("the frame comes", || source.next().unwrap().is_some_and(is_ours));
    }

    #[test]
    fn frames_before_software_receives_are_discarded() {
        let mut interface = shotline_testing::or_skip!(Interface::open("lo"));
        let mut frame = vec![2; 64];
        frame[12..22].copy_from_slice(b"\x88\xB5shotline");
        interface.sent(0, 0, &frame).unwrap();
        // Others use this interface, too.
        shotline_testing::wait_until("the frame was discarded", || {
            interface.discard();
            interface.unwanted() > 0
        });
    }

    #[test]
    fn clones_share_what_was_not_sent() {
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let interface = Interface::of("event", fd);
        interface.clone().unsent.set(3);
        assert_eq!((interface.unsent(), interface.missed()), (3, 0));
        assert!(interface.clone().next().unwrap_err().contains("event"));
        assert!(!interface.is_over() && Interface::now_ns() > 1 << 60);
    }
}
