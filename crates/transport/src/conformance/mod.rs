//! What every implementation of [`PacketIo`] does, whether it steers over a wire, a queue or another implementation:
//! named checks, and the report of which passed.
//!
//! A [`Fixture`] opens a sender and a receiver that reach each other; [`run`] lets every check of [`all`] act on them, in
//! order, and opens them anew after one that failed. A check says what it [`Needs`]; where that is missing, it is not run
//! and the report says why. [`delegation`] is the check for implementations that wrap another one.

mod check;
pub mod delegation;
mod landing;
mod seals;
mod stage;
mod tables;

pub use check::{Check, Needs};
pub use stage::{Collector, Ends, Got, HEADER, Memory, PLACES, Q_KEY, QUEUE_PAIR, Stage, header, receive};

use crate::{Capabilities, PacketIo};
use shotline_conformance::{Failure, Outcome, Report};

/// Every check, in the order in which they run.
pub fn all<T: PacketIo, R: PacketIo>() -> Vec<Check<T, R>> {
    [landing::checks(), tables::checks(), seals::checks()].into_iter().flatten().collect()
}

/// Opens a sender and a receiver, and takes them back.
pub struct Fixture<O, C> {
    /// What the report calls it.
    pub name: String,
    /// Whether packets end in an ICRC.
    pub sealed: bool,
    /// What the receiver must say that it can do: a check that needs more is not run.
    pub capabilities: Capabilities,
    /// Opens both ends: the receiver with room for [`PLACES`] receives and the memory's scratch, the sender reaching it.
    pub open: O,
    /// Takes them back after the last check: for what only the fixture can tell, such as their counters.
    pub close: C,
}

/// Lets every check act on the ends that the fixture opens. They are opened once, and again after a check that failed.
pub fn run<T, R, O, C>(fixture: Fixture<O, C>, memory: &Memory) -> Report
where
    T: PacketIo,
    R: PacketIo,
    O: FnMut(&Memory) -> Result<Ends<T, R>, Failure>,
    C: FnOnce(Ends<T, R>) -> Result<(), Failure>,
{
    let Fixture { name, sealed, capabilities, mut open, close } = fixture;
    let mut outcomes = Vec::new();
    let mut ends: Option<Ends<T, R>> = None;
    for check in all::<T, R>() {
        let opened = ends.take().map_or_else(|| open(memory), Ok);
        let outcome = match opened {
            Err(why) => Outcome::Failed(format!("cannot open both ends: {why}")),
            Ok(Ends { tx, rx, to }) => {
                let mut stage = Stage { memory, sealed, capabilities, to, tx, rx };
                stage.withdraw_all();
                let outcome = match check.needs.iter().find_map(|needs| needs.lacking(&stage)) {
                    Some(why) => Outcome::cannot(why),
                    None => Outcome::of((check.run)(&mut stage)),
                };
                if !matches!(outcome, Outcome::Failed(_)) {
                    ends = Some(Ends { tx: stage.tx, rx: stage.rx, to });
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
    use crate::{Done, IoError, Steer};

    /// Believes every ICRC, as a backend that does not check would.
    struct Credulous(InprocIo);

    struct Believing<'a, S> {
        steer: &'a mut S,
    }

    impl<S: Steer> Steer for Believing<'_, S> {
        crate::delegate_steer!(steer; except landed);

        fn landed(&mut self, batch: &[Done<'_>]) {
            let believed: Vec<_> = batch.iter().map(|done| Done { icrc: Icrc::Good, fault: None, ..*done }).collect();
            self.steer.landed(&believed);
        }
    }

    impl PacketIo for Credulous {
        delegate_packet_io!(0; except poll);

        fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
            self.0.poll(&mut Believing { steer }, max)
        }
    }

    #[test]
    fn a_receiver_that_checks_no_icrc_fails_these_checks_alone() {
        let memory = Memory::new();
        let open = |memory: &Memory| Ok(Ends::in_process(memory, true, Credulous));
        let capabilities = Capabilities { steers: true, credits: true };
        let fixture = Fixture { name: "credulous".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
        let report = run(fixture, &memory);
        let failed: Vec<_> = report.failed().map(|(check, _)| check).collect();
        assert_eq!(failed, ["short packets", "wrong ICRCs"], "{}", report.failures());
        assert!(report.failures().contains("credulous: wrong ICRCs: "), "{}", report.failures());
    }

    #[test]
    fn a_receiver_that_says_something_else_of_itself_than_its_fixture_fails_that_check_alone() {
        let memory = Memory::new();
        for capabilities in
            [Capabilities { steers: false, credits: true }, Capabilities { steers: true, credits: false }]
        {
            let open = |memory: &Memory| Ok(Ends::in_process(memory, true, |io| io));
            let fixture = Fixture { name: "boastful".into(), sealed: true, capabilities, open, close: |_| Ok(()) };
            let report = run(fixture, &memory);
            let failed: Vec<_> = report.failed().map(|(check, _)| check).collect();
            assert_eq!(failed, ["capabilities"], "{}", report.failures());
        }
    }
}
