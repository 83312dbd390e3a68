//! Conformance suite for implementations of [`PacketIo`], over a wire, a queue or another implementation: named checks,
//! and a report of which passed.
//!
//! A [`Fixture`] opens a sender and a receiver that reach each other; [`run`] runs every check of [`all`] on them, in
//! order, and reopens them after one that failed. A check lists what it [`Needs`]; if that is missing, it is skipped
//! and the report says why. [`delegation`] checks implementations that wrap another one.

mod check;
pub mod delegation;
mod landing;
mod seals;
mod stage;
mod tables;

pub use check::{Check, Needs};
pub use stage::{
    BUFFERS, Collector, EndpointPair, HEADER, Memory, Q_KEY, QUEUE_PAIR, ReceivedPacket, Stage, header, receive,
};

use crate::{Capabilities, PacketIo};
use shotline_conformance::{Failure, Outcome, Report};

/// Returns every check, in the order in which they run.
pub fn all<T: PacketIo, R: PacketIo>() -> Vec<Check<T, R>> {
    [landing::checks(), tables::checks(), seals::checks()].into_iter().flatten().collect()
}

/// Opens and closes the sender and the receiver of a run.
pub struct Fixture<O, C> {
    /// Name in the report.
    pub name: String,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Capabilities that the receiver must report; a check that needs more is skipped.
    pub capabilities: Capabilities,
    /// Opens both ends: the receiver with a capacity of [`BUFFERS`] receives and the memory's scratch, and the sender
    /// connected to it.
    pub open: O,
    /// Closes them after the last check; verifies what only the fixture can, such as their counters.
    pub close: C,
}

/// Runs every check on the ends that the fixture opens. They are opened once, and again after a check that failed.
pub fn run<T, R, O, C>(fixture: Fixture<O, C>, memory: &Memory) -> Report
where
    T: PacketIo,
    R: PacketIo,
    O: FnMut(&Memory) -> Result<EndpointPair<T, R>, Failure>,
    C: FnOnce(EndpointPair<T, R>) -> Result<(), Failure>,
{
    let Fixture { name, sealed, capabilities, mut open, close } = fixture;
    let mut outcomes = Vec::new();
    let mut ends: Option<EndpointPair<T, R>> = None;
    for check in all::<T, R>() {
        let opened = ends.take().map_or_else(|| open(memory), Ok);
        let outcome = match opened {
            Err(why) => Outcome::Failed(format!("cannot open both ends: {why}")),
            Ok(EndpointPair { tx, rx, to }) => {
                let mut stage = Stage { memory, sealed, capabilities, to, tx, rx };
                stage.withdraw_all();
                let outcome = match check.needs.iter().find_map(|needs| needs.unmet(&stage)) {
                    Some(why) => Outcome::not_run(why),
                    None => Outcome::of((check.run)(&mut stage)),
                };
                if !matches!(outcome, Outcome::Failed(_)) {
                    ends = Some(EndpointPair { tx: stage.tx, rx: stage.rx, to });
                }
                outcome
            }
        };
        outcomes.push((check.name, outcome));
    }
    if let Some(ends) = ends {
        outcomes.push(("closing", Outcome::of(close(ends))));
    }
    Report { member: name, outcomes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Icrc;
    use crate::delegate_packet_io;
    use crate::inproc::InprocIo;
    use crate::{IoError, RxPacket, Steer};

    /// Accepts every ICRC, as a backend that does not verify would.
    struct AcceptAll(InprocIo);

    struct AcceptAllSteer<'a, S> {
        steer: &'a mut S,
    }

    impl<S: Steer> Steer for AcceptAllSteer<'_, S> {
        crate::delegate_steer!(steer; except landed);

        fn landed(&mut self, batch: &[RxPacket<'_>]) {
            let accepted: Vec<_> =
                batch.iter().map(|done| RxPacket { icrc: Icrc::Good, fault: None, ..*done }).collect();
            self.steer.landed(&accepted);
        }
    }

    impl PacketIo for AcceptAll {
        delegate_packet_io!(0; except poll);

        fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
            self.0.poll(&mut AcceptAllSteer { steer }, max)
        }
    }

    #[test]
    fn receiver_without_icrc_check_fails_only_those_checks() {
        let memory = Memory::new();
        let open = |memory: &Memory| Ok(EndpointPair::in_process(memory, true, AcceptAll));
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "accept-all".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
        let report = run(fixture, &memory);
        let failed: Vec<_> = report.failed().map(|(check, _)| check).collect();
        assert_eq!(failed, ["short packets", "wrong ICRCs"], "{}", report.failures());
        assert!(report.failures().contains("accept-all: wrong ICRCs: "), "{}", report.failures());
    }

    #[test]
    fn wrong_capabilities_fail_only_the_capabilities_check() {
        let memory = Memory::new();
        for capabilities in
            [Capabilities { steers: false, credits: true }, Capabilities { steers: true, credits: false }]
        {
            let open = |memory: &Memory| Ok(EndpointPair::in_process(memory, true, |io| io));
            let fixture =
                Fixture { name: "wrong capabilities".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
            let report = run(fixture, &memory);
            let failed: Vec<_> = report.failed().map(|(check, _)| check).collect();
            assert_eq!(failed, ["capabilities"], "{}", report.failures());
        }
    }
}
