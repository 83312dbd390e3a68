//! A check, and its requirements on a provider.

use super::harness::{End, Harness};
use crate::api::{Capabilities, QpType};
use shotline_conformance::Failure;

/// Requirement of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No requirement.
    Nothing,
    /// This queue pair type.
    Kind(QpType),
    /// Atomic operations over reliable connections.
    Atomics,
    /// Registration of a part of a region.
    PartialRegistration,
    /// Remote write access without remote read access.
    SeparateRights,
    /// Keys that are refused as soon as they are deregistered.
    Revocation,
    /// Notices of one-sided operations at the target.
    Notices,
    /// Memory windows.
    Windows,
    /// Registrations that a peer may invalidate.
    Invalidation,
    /// Queue pairs that survive invalid requests of the peer.
    Lenience,
    /// Queue pair numbers that cannot be guessed.
    RandomNumbers,
    /// Completions that report the solicited-event bit.
    Solicitation,
    /// A third endpoint.
    ThirdEndpoint,
    /// A third endpoint with a different IP address.
    ThirdAddress,
}

impl Needs {
    /// Returns the reason if a provider does not meet the requirement; `None` if it does.
    pub(super) fn lacking(self, capabilities: &Capabilities, ends: &[End]) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Kind(QpType::Rc) => (!capabilities.rc).then_some("no RC"),
            Self::Kind(QpType::Uc) => (!capabilities.uc).then_some("no UC"),
            Self::Kind(QpType::Ud) => (!capabilities.ud).then_some("no UD"),
            Self::Atomics => (!(capabilities.rc && capabilities.atomics)).then_some("no atomic operations"),
            Self::PartialRegistration => (!capabilities.partial_registration).then_some("whole regions only"),
            Self::SeparateRights => (!capabilities.separate_rights).then_some("write access includes read access"),
            Self::Revocation => (!capabilities.revokes).then_some("mappings cannot be revoked"),
            Self::Notices => capabilities.target_cpu_is_idle.then_some("the target's CPU is not involved"),
            Self::Windows => (!capabilities.windows).then_some("no windows"),
            Self::Invalidation => (!capabilities.invalidates).then_some("only windows can be invalidated"),
            Self::Lenience => (!capabilities.lenient).then_some("always strict"),
            Self::RandomNumbers => (!capabilities.random_numbers).then_some("the device chooses the numbers"),
            Self::Solicitation => (!capabilities.reports_solicited).then_some("the device does not report it"),
            Self::ThirdEndpoint => (ends.len() < 3).then_some("two endpoints only"),
            Self::ThirdAddress => {
                let has_own_address =
                    |end: &End| ends.iter().filter(|other| other.address.ip() == end.address.ip()).count() == 1;
                (!ends.get(2).is_some_and(has_own_address)).then_some("no third address")
            }
        }
    }
}

/// A check of the conformance suite.
#[derive(Clone, Copy)]
pub struct Check {
    /// Name: a sentence that states the required behaviour.
    pub name: &'static str,
    /// Requirements on the provider.
    pub needs: &'static [Needs],
    /// Runs the check.
    pub run: fn(&mut Harness<'_>) -> Result<(), Failure>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}
