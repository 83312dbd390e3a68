//! One check, and what it needs.

use super::stage::Stage;
use crate::PacketIo;
use shotline_conformance::Failure;

/// What a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A receiver that asks the steer.
    Steering,
    /// Packets that end in an ICRC.
    Seal,
    /// A receiver with a descriptor to wait on.
    Descriptor,
}

impl Needs {
    /// What of it these ends lack.
    pub(super) fn lacking<T: PacketIo, R: PacketIo>(self, stage: &Stage<'_, T, R>) -> Option<&'static str> {
        match self {
            Self::Steering => (!stage.rx.capabilities().steers).then_some("receives in the order of arrival"),
            Self::Seal => (!stage.sealed).then_some("opened without ICRC"),
            Self::Descriptor => stage.rx.fd().is_none().then_some("has no descriptor"),
        }
    }
}

/// One thing that an implementation does.
pub struct Check<T, R> {
    /// What, in a few words.
    pub name: &'static str,
    /// What that proves, as a sentence.
    pub proves: &'static str,
    /// What it needs.
    pub needs: &'static [Needs],
    /// Does it.
    pub run: fn(&mut Stage<'_, T, R>) -> Result<(), Failure>,
}
