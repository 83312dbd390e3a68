//! A check, and what it needs of a provider.

use super::stage::{End, Stage};
use crate::api::{Capabilities, QpType};
use shotline_conformance::Failure;

/// What a check needs of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing special.
    Nothing,
    /// This kind of queue pair.
    Kind(QpType),
    /// Atomic operations over reliable connections.
    Atomics,
    /// Registered memory that is part of a region.
    PartialRegistration,
    /// Memory that a peer may write and not read.
    SeparateRights,
    /// Keys that are refused at once when they were given up.
    Revocation,
    /// A target that learns of one-sided operations.
    Notices,
    /// Memory windows.
    Windows,
    /// Registrations that a peer may end.
    Invalidation,
    /// Queue pairs that survive what arrives wrong.
    Lenience,
    /// Queue pair numbers that cannot be guessed.
    RandomNumbers,
    /// Completions that say whether they were solicited.
    Solicitation,
    /// A third endpoint.
    Third,
    /// A third endpoint with an IP address of its own.
    Stranger,
}

impl Needs {
    /// What of it a provider lacks.
    pub(super) fn lacking(self, can: &Capabilities, ends: &[End]) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Kind(QpType::Rc) => (!can.rc).then_some("no RC"),
            Self::Kind(QpType::Uc) => (!can.uc).then_some("no UC"),
            Self::Kind(QpType::Ud) => (!can.ud).then_some("no UD"),
            Self::Atomics => (!(can.rc && can.atomics)).then_some("no atomic operations"),
            Self::PartialRegistration => (!can.partial_registration).then_some("whole regions only"),
            Self::SeparateRights => (!can.separate_rights).then_some("who may change may read and write"),
            Self::Revocation => (!can.revokes).then_some("peers keep what they mapped"),
            Self::Notices => can.target_sleeps.then_some("the target sleeps"),
            Self::Windows => (!can.windows).then_some("no windows"),
            Self::Invalidation => (!can.invalidates).then_some("windows only"),
            Self::Lenience => (!can.lenient).then_some("always strict"),
            Self::RandomNumbers => (!can.random_numbers).then_some("the device numbers them"),
            Self::Solicitation => (!can.tells_solicited).then_some("the device does not say"),
            Self::Third => (ends.len() < 3).then_some("two ends only"),
            Self::Stranger => {
                let strange =
                    |end: &End| ends.iter().filter(|other| other.address.ip() == end.address.ip()).count() == 1;
                (!ends.get(2).is_some_and(strange)).then_some("no third address")
            }
        }
    }
}

/// One thing that a provider must do.
#[derive(Clone, Copy)]
pub struct Check {
    /// A sentence that says what.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Needs],
    /// Does it.
    pub run: fn(&mut Stage<'_>) -> Result<(), Failure>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}
