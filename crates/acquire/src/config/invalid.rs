//! Errors of settings.

use super::settings::Key;

/// A setting that no run can have, alone or together with another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidSetting {
    /// Setting to change.
    pub key: Key,
    /// What was expected, what was found, and what to do.
    pub message: String,
}

pub(super) fn invalid(key: Key, message: impl Into<String>) -> InvalidSetting {
    InvalidSetting { key, message: message.into() }
}
