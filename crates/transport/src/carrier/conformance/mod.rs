//! Conformance suite for implementations of [`Carrier`]: named checks, and a report of which passed.
//!
//! A [`Fixture`] opens both ends of a path; [`run`] opens a new one for every check of [`all`].

mod check;
mod datagrams;
mod limits;
mod sleeping;
mod stage;

pub use check::Check;

use super::Carrier;
use shotline_conformance::{Failure, Outcome, Report};

/// Opens paths for the checks.
pub struct Fixture<O> {
    /// Name in the report.
    pub name: String,
    /// `true` if no datagram is ever lost: a full path stops the sender, and a peer that has gone is reported.
    pub lossless: bool,
    /// Opens both ends of a path, which holds at least 64 datagrams of 2 KiB in each direction.
    pub open: O,
}

/// Returns every check, in the order in which they run.
pub fn all<C: Carrier + Send>() -> Vec<Check<C>> {
    [datagrams::checks(), sleeping::checks(), limits::checks()].into_iter().flatten().collect()
}

/// Runs every check, each on a path of its own.
pub fn run<C: Carrier + Send>(mut fixture: Fixture<impl FnMut() -> Result<(C, C), Failure>>) -> Report {
    let mut outcome = |check: &Check<C>| match (fixture.open)() {
        Err(why) => Outcome::Failed(format!("cannot open both ends: {why}")),
        Ok(_) if check.needs_lossless && !fixture.lossless => Outcome::not_run("may lose datagrams"),
        Ok((near, far)) => Outcome::of((check.run)(near, far)),
    };
    let outcomes = all().iter().map(|check| (check.name, outcome(check))).collect();
    Report { member: fixture.name, outcomes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoError;
    use crate::carrier::faulty::{Faults, Faulty};
    use crate::carrier::inproc::{self, InprocCarrier};
    use std::os::fd::BorrowedFd;

    /// Returns the reason for which a wrapped carrier fails a check.
    fn failure<C: Carrier + Send>(name: &str, wrap: impl Fn(InprocCarrier) -> C) -> Failure {
        let (near, far) = inproc::pair(64).unwrap();
        let check = all::<C>().into_iter().find(|check| check.name == name).unwrap();
        (check.run)(wrap(near), wrap(far)).expect_err(name)
    }

    #[test]
    fn repeated_and_swapped_datagrams_fail() {
        for faults in [Faults { repeat: 0.01, ..Faults::default() }, Faults { swap: 0.01, ..Faults::default() }] {
            let why = failure("order", |inner| Faulty::new(inner, faults));
            assert!(why.contains("of datagram ") || why.contains("differs at byte 0"), "{why}");
            let why = failure("full path", |inner| Faulty::new(inner, faults));
            assert!(why.contains("differs at byte 0") || why.contains("remaining bytes"), "{why}");
        }
    }

    #[test]
    fn inverted_bits_fail() {
        let faults = Faults { bit_error_rate: 1e-7, ..Faults::default() };
        let why = failure("lengths", |inner| Faulty::new(inner, faults));
        assert!(why.contains("differs at byte"), "{why}");
    }

    /// Never sleeps.
    struct Sleepless(InprocCarrier);

    impl Carrier for Sleepless {
        fn max_datagram(&self) -> usize {
            self.0.max_datagram()
        }
        fn remaining(&mut self) -> usize {
            self.0.remaining()
        }
        fn append(&mut self, bytes: &[u8]) {
            self.0.append(bytes);
        }
        fn finish(&mut self) -> Result<(), IoError> {
            self.0.finish()
        }
        fn flush(&mut self) -> Result<(), IoError> {
            self.0.flush()
        }
        fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
            self.0.receive()
        }
        fn prepare_sleep(&mut self) -> bool {
            false
        }
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.fd()
        }
    }

    #[test]
    fn carrier_that_never_sleeps_fails() {
        assert!(failure("timeout", Sleepless).contains("waits of"));
        assert!(failure("descriptor", Sleepless).contains("must not sleep"));
    }
}
