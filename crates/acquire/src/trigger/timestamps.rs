//! Timestamping of landed packets.

use shotline_transport::{IoError, PacketIo, RxPacket, Steer, delegate_packet_io, delegate_steer};
use std::time::{Duration, Instant};

/// Maximum duration of one sleep: the resolution of timeouts, and the most that one reading of the clock adds to a
/// wait.
pub(super) const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Steady clock in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Time during which the receiver polled: a pause of this program does not count as silence of the probe.
pub(super) struct PollTime {
    clock: Clock,
    last_read_ns: u64,
    ns: u64,
}

impl PollTime {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, last_read_ns: clock.ns(), ns: 0 }
    }

    /// Returns the time spent polling since the start, in ns. A reading adds at most the duration of one sleep.
    pub(super) fn ns(&mut self) -> u64 {
        let now_ns = self.clock.ns();
        self.ns += (now_ns - self.last_read_ns).min(MAX_SLEEP.as_nanos() as u64);
        self.last_read_ns = now_ns;
        self.ns
    }
}

/// Transport that records when packets have landed, with one reading of the clock for each batch.
pub(super) struct TimestampedIo<P> {
    io: P,
    clock: Clock,
    /// Time of the first batch since this was last cleared.
    pub(super) first_ns: Option<u64>,
    /// Time of the newest batch.
    pub(super) last_ns: u64,
}

impl<P> TimestampedIo<P> {
    pub(super) fn new(io: P, clock: Clock) -> Self {
        Self { io, clock, first_ns: None, last_ns: 0 }
    }
}

impl<P: PacketIo> PacketIo for TimestampedIo<P> {
    delegate_packet_io!(io; except poll);

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let Self { io, clock, first_ns, last_ns } = self;
        io.poll(&mut TimestampedSteer { steer, clock: *clock, first_ns, last_ns }, max)
    }
}

struct TimestampedSteer<'a, S> {
    steer: &'a mut S,
    clock: Clock,
    first_ns: &'a mut Option<u64>,
    last_ns: &'a mut u64,
}

impl<S: Steer> Steer for TimestampedSteer<'_, S> {
    delegate_steer!(steer; except landed);

    fn landed(&mut self, batch: &[RxPacket<'_>]) {
        if batch.iter().any(|rx| rx.fault.is_none()) {
            *self.last_ns = self.clock.ns();
            self.first_ns.get_or_insert(*self.last_ns);
        }
        self.steer.landed(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_transport::Capabilities;
    use shotline_transport::conformance::delegation::{self, Wrapper};
    use shotline_transport::conformance::{self, EndpointPair, Fixture, Memory};

    fn timestamped<P>(io: P) -> TimestampedIo<P> {
        TimestampedIo::new(io, Clock(Instant::now()))
    }

    #[test]
    fn timestamped_io_delegates_everything_else() {
        let wrapper =
            Wrapper { name: "TimestampedIo", overrides: &["poll"], steer: Some(("TimestampedSteer", &["landed"])) };
        delegation::check(&wrapper, timestamped).unwrap();
        // Landed packets are passed on, too.
        delegation::check(&Wrapper { overrides: &[], steer: Some(("TimestampedSteer", &[])), ..wrapper }, timestamped)
            .unwrap();
    }

    #[test]
    fn timestamped_io_conforms_like_the_transport_below() {
        let memory = Memory::new();
        let open = |memory: &Memory| Ok(EndpointPair::in_process(memory, true, timestamped));
        let close = |ends: EndpointPair<_, TimestampedIo<_>>| {
            ends.rx.first_ns.map(drop).ok_or_else(|| "nothing was recorded".to_owned())
        };
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "timestamped".into(), sealed: true, capabilities, open, close };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}
