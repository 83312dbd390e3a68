//! A check of the suite and its requirements.

use super::stage::Stage;
use crate::PacketIo;
use shotline_conformance::Failure;

/// A requirement of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A receiver that calls the steer before the copy.
    Steering,
    /// Packets that end in an ICRC.
    Seal,
    /// A receiver with a descriptor to wait on.
    Descriptor,
}

impl Needs {
    /// Returns why these ends do not meet the requirement, or `None` if they do.
    pub(super) fn unmet<T: PacketIo, R: PacketIo>(self, stage: &Stage<'_, T, R>) -> Option<&'static str> {
        match self {
            Self::Steering => (!stage.rx.capabilities().steers).then_some("receives in the order of arrival"),
            Self::Seal => (!stage.sealed).then_some("opened without ICRC"),
            Self::Descriptor => stage.rx.fd().is_none().then_some("has no descriptor"),
        }
    }
}

/// A named check of one property.
pub struct Check<T, R> {
    /// Name, in a few words.
    pub name: &'static str,
    /// The property that it proves, as a sentence.
    pub proves: &'static str,
    /// Requirements; the check is skipped if one is not met.
    pub needs: &'static [Needs],
    /// Runs the check.
    pub run: fn(&mut Stage<'_, T, R>) -> Result<(), Failure>,
}
