//! When packets landed.

use shotline_transport::{Done, IoError, PacketIo, Steer, delegate_packet_io, delegate_steer};
use std::time::{Duration, Instant};

/// Longest sleep in one go: how soon a time-out is seen, and the most that one look at the clock adds to a wait.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// Nanoseconds of a steady clock.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The part of the time in which somebody listened: a pause of this program is no silence of the probe.
pub(super) struct Listened {
    clock: Clock,
    looked_ns: u64,
    ns: u64,
}

impl Listened {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, looked_ns: clock.ns(), ns: 0 }
    }

    /// Nanoseconds since the beginning. Between two looks no more passes than one sleep takes.
    pub(super) fn ns(&mut self) -> u64 {
        let now_ns = self.clock.ns();
        self.ns += (now_ns - self.looked_ns).min(LONGEST_SLEEP.as_nanos() as u64);
        self.looked_ns = now_ns;
        self.ns
    }
}

/// A transport that notes when packets have landed: one look at the clock for each batch.
pub(super) struct Noting<P> {
    io: P,
    clock: Clock,
    /// The first since this was last cleared.
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
}

impl<P> Noting<P> {
    pub(super) fn new(io: P, clock: Clock) -> Self {
        Self { io, clock, first_ns: None, last_ns: 0 }
    }
}

impl<P: PacketIo> PacketIo for Noting<P> {
    delegate_packet_io!(io; except poll);

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let Self { io, clock, first_ns, last_ns } = self;
        io.poll(&mut NotingSteer { steer, clock: *clock, first_ns, last_ns }, max)
    }
}

struct NotingSteer<'a, S> {
    steer: &'a mut S,
    clock: Clock,
    first_ns: &'a mut Option<u64>,
    last_ns: &'a mut u64,
}

impl<S: Steer> Steer for NotingSteer<'_, S> {
    delegate_steer!(steer; except landed);

    fn landed(&mut self, batch: &[Done<'_>]) {
        if batch.iter().any(|done| done.fault.is_none()) {
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
    use shotline_transport::conformance::{self, Ends, Fixture, Memory};

    fn noting<P>(io: P) -> Noting<P> {
        Noting::new(io, Clock(Instant::now()))
    }

    #[test]
    fn noting_passes_on_what_it_does_not_change() {
        let wrapper = Wrapper { name: "Noting", changes: &["poll"], steer: Some(("NotingSteer", &["landed"])) };
        delegation::check(&wrapper, noting).unwrap();
        // Packets that landed are handed on as well.
        delegation::check(&Wrapper { changes: &[], steer: Some(("NotingSteer", &[])), ..wrapper }, noting).unwrap();
    }

    #[test]
    fn noting_conforms_as_the_transport_below_it() {
        let memory = Memory::new();
        let open = |memory: &Memory| Ok(Ends::in_process(memory, true, noting));
        let close = |ends: Ends<_, Noting<_>>| ends.rx.first_ns.map(drop).ok_or_else(|| "nothing was noted".to_owned());
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "noting".into(), sealed: true, capabilities, open, close };
        let report = conformance::run(fixture, &memory);
        report.expect_conformance();
    }
}
