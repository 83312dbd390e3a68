//! Why settings are refused.

use super::settings::Key;

/// Why no run can have a setting, alone or beside another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// The setting to change.
    pub key: Key,
    /// What was expected, what was found, and what to do.
    pub message: String,
}

pub(super) fn invalid(key: Key, message: impl Into<String>) -> Invalid {
    Invalid { key, message: message.into() }
}
