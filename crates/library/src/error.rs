//! Errors of handles.

use shotline_acquire::config::Key;
use shotline_acquire::control::ControlError;
use shotline_acquire::run::RunError;
use shotline_instrument::probe::ServeError;
use shotline_store::StoreError;
use std::fmt;

/// Class of an error, from which a binding chooses an exception or a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Arguments or settings are wrong, or do not fit together.
    Invalid,
    /// The operating system or a device refused, with its error number where it is known.
    Io(Option<i32>),
    /// The other side refused.
    Refused,
    /// The other side does not answer.
    TimedOut,
    /// The handle is closed.
    Closed,
    /// The handle belongs to the process that has forked this one.
    Forked,
    /// A run was cut off, or its sender or sink failed.
    CutOff,
    /// A defect of this library.
    Defect,
}

/// Error of a call, with what was expected, what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Class of the error.
    pub kind: ErrorKind,
    message: String,
}

impl Error {
    /// Creates an error. Flags of the program in the message become the names of settings.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: with_names_of_settings(message.as_ref()) }
    }

    /// Returns the error of a call on a closed handle.
    pub(crate) fn closed(what: &str) -> Self {
        Self::new(ErrorKind::Closed, format!("this {what} is closed: open another"))
    }

    /// Returns the error of a call in a child process.
    pub(crate) fn forked(what: &str) -> Self {
        let words = format!("this {what} belongs to the parent process: open it after the fork");
        Self::new(ErrorKind::Forked, words)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        let kind = match &error {
            RunError::Invalid(_) | RunError::Settings(_) | RunError::Geometry(_) => ErrorKind::Invalid,
            RunError::Control(error) => kind_of_control(error),
            RunError::Store(error) => kind_of_store(error),
            RunError::Io(_) | RunError::Clock(_) | RunError::Memory(_) | RunError::Learn(_) => ErrorKind::Io(None),
            RunError::Imbalance(_) | RunError::Panicked(_) => ErrorKind::Defect,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        Self::new(kind_of_control(&error), error.to_string())
    }
}

impl From<ServeError> for Error {
    fn from(error: ServeError) -> Self {
        let kind = match &error {
            ServeError::Listen { source, .. } => ErrorKind::Io(source.raw_os_error()),
            ServeError::Probe(_) => ErrorKind::Invalid,
            _ => ErrorKind::Io(None),
        };
        Self::new(kind, error.to_string())
    }
}

fn kind_of_control(error: &ControlError) -> ErrorKind {
    match error {
        ControlError::Socket { source, .. } => ErrorKind::Io(source.raw_os_error()),
        ControlError::Silent { .. } => ErrorKind::TimedOut,
        ControlError::Stopped { .. } => ErrorKind::CutOff,
        ControlError::Framing(_) => ErrorKind::Invalid,
        ControlError::Refused { .. }
        | ControlError::Owned { .. }
        | ControlError::NoSequences { .. }
        | ControlError::NotTriggered(_)
        | ControlError::UnexpectedReply { .. } => ErrorKind::Refused,
    }
}

fn kind_of_store(error: &StoreError) -> ErrorKind {
    use StoreError as E;
    match error {
        E::Io { source, .. } | E::EveryWriteFails { source, .. } => ErrorKind::Io(Some(source.raw_os_error())),
        E::Create { source, .. } | E::Ring { source } | E::Identify { source, .. } | E::Thread { source } => {
            ErrorKind::Io(source.raw_os_error())
        }
        E::NoSpace { .. } | E::KeepNoSpace { .. } | E::DeviceFull { .. } => {
            ErrorKind::Io(Some(rustix::io::Errno::NOSPC.raw_os_error()))
        }
        E::InUse { .. } | E::DeviceBusy { .. } | E::Memory { .. } | E::Staging { .. } => ErrorKind::Io(None),
        _ => ErrorKind::Invalid,
    }
}

/// Replaces flags of `shotline record` by the names of the settings: `--pool-memory` becomes `pool_memory`.
fn with_names_of_settings(message: &str) -> String {
    let mut parts = message.split("--");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_in_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let (flag, rest) = part.split_at(part.find(|c| !is_in_flag(c)).unwrap_or(part.len()));
        let name = flag.replace('-', "_");
        let is_setting = Key::ALL.into_iter().any(|key| key.name() == name);
        words.extend(if is_setting { [name.as_str(), rest] } else { ["--", part] });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_settings_and_not_flags() {
        for (message, words) in [
            ("use a larger --pool", "use a larger pool"),
            ("use --pool 12MiB", "use pool 12MiB"),
            ("use --pool-memory heap, or --transport udp", "use pool_memory heap, or transport udp"),
            ("run shotline doctor --json -- or not", "run shotline doctor --json -- or not"),
            ("--shots", "shots"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(Error::new(ErrorKind::Invalid, message).to_string(), words);
        }
    }
}
