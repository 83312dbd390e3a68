//! Sender of a stream, and its silence.

use super::config::StreamConfig;
use std::net::SocketAddr;

/// Silence in nanoseconds after which another sender may take over a stream without a configured sender.
const SENDER_GONE_NS: u64 = 1_000_000_000;

/// The one sender whose packets a stream accepts.
#[derive(Debug)]
pub(super) struct Sender {
    /// Set if the configuration has the sender.
    is_configured: bool,
    address: Option<SocketAddr>,
    /// Time of the last placed packet, by the receiver's monotonic clock; 0 until the first reading of the clock.
    last_placed_ns: u64,
    timeout_ns: u64,
}

impl Sender {
    pub(super) fn new(config: &StreamConfig) -> Self {
        let (address, timeout_ns) = (config.source, config.timeout_ns);
        Self { is_configured: address.is_some(), address, last_placed_ns: 0, timeout_ns }
    }

    /// Returns `true` if the configuration has the sender.
    pub(super) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Returns `true` if a packet from this address is accepted. A stream without a configured sender follows the first
    /// address, and another one only after [`SENDER_GONE_NS`] of silence.
    #[inline]
    pub(super) fn admits(&mut self, source: SocketAddr, now_ns: u64) -> bool {
        let is_gone = now_ns.saturating_sub(self.last_placed_ns) > SENDER_GONE_NS;
        if self.address.is_none() || !self.is_configured && is_gone {
            self.address = Some(source);
        }
        // A device that drops route headers identifies a sender only by the number that stands in for the port.
        self.address
            .is_some_and(|known| known == source || source.ip().is_unspecified() && known.port() == source.port())
    }

    /// Notes that a packet of the sender was placed.
    #[inline]
    pub(super) fn note_placed(&mut self, now_ns: u64) {
        self.last_placed_ns = now_ns;
    }

    /// Starts measuring silence at the first call, if nothing was placed before.
    #[inline]
    pub(super) fn note_time(&mut self, now_ns: u64) {
        if self.last_placed_ns == 0 {
            self.last_placed_ns = now_ns;
        }
    }

    /// Returns `true` if nothing has been placed for the timeout.
    #[inline]
    pub(super) fn is_silent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_placed_ns) > self.timeout_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(source: Option<SocketAddr>) -> Sender {
        Sender::new(&StreamConfig { source, ..StreamConfig::of_three_packets() })
    }

    fn address(host: &str, port: u16) -> SocketAddr {
        SocketAddr::new(host.parse().unwrap(), port)
    }

    #[test]
    fn a_configured_sender_is_never_replaced() {
        let (named, other) = (address("fd00::1", 5), address("fd00::2", 5));
        let mut sender = sender(Some(named));
        assert!(sender.admits(named, 0) && !sender.admits(other, 0) && !sender.admits(other, 10 * SENDER_GONE_NS));
        assert!(sender.admits(address("::", 5), 0), "a device shows the port alone");
        assert!(!sender.admits(address("::", 6), 0));
    }

    #[test]
    fn another_sender_takes_over_only_after_silence() {
        let (first, other) = (address("fd00::1", 5), address("fd00::2", 5));
        let mut sender = sender(None);
        assert!(sender.admits(first, 1));
        sender.note_placed(1);
        assert!(!sender.admits(other, 1 + SENDER_GONE_NS), "silent for exactly the limit");
        assert!(sender.admits(other, 2 + SENDER_GONE_NS) && !sender.admits(first, 2));
    }

    #[test]
    fn silence_is_measured_from_the_first_reading() {
        let mut sender = sender(None);
        sender.note_time(1000);
        assert!(!sender.is_silent(1100) && sender.is_silent(1101));
        sender.note_time(2000);
        assert!(sender.is_silent(2000), "only the first reading counts");
        sender.note_placed(2000);
        assert!(!sender.is_silent(2100));
    }
}
