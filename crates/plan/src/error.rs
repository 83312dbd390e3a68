//! Errors of reading a plan, with their location in its text.

use std::fmt;

/// Line number, from 1; `None` for values set by flags.
pub type LineNumber = Option<usize>;

/// Location of an error in a plan's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location(LineNumber);

impl From<LineNumber> for Location {
    fn from(line: LineNumber) -> Self {
        Self(line)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}"),
            None => f.write_str("command line"),
        }
    }
}

/// Reason why a plan cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The text is not valid TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// Message of the parser.
        message: String,
    },
    /// A required key is missing.
    #[error("{line}: {} lacks {key}: add {example}", of(table))]
    Missing {
        /// Location of the table.
        line: Location,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// Example value.
        example: String,
    },
    /// An unknown key, most likely misspelt.
    #[error("{line}: {} has no key {key}: expected one of {known}", of(table))]
    Unknown {
        /// Location of the key.
        line: Location,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// Known keys.
        known: String,
    },
    /// An invalid value.
    #[error("{line}: {key}: {problem}")]
    Value {
        /// Location of the value.
        line: Location,
        /// The key, with its table.
        key: String,
        /// Expected and found values.
        problem: String,
    },
    /// A flag for a kind of stage that does not exist.
    #[error(
        "command line: {key} is for a stage of kind {kind}, which the plan does not have: add a [[stage]] of this kind"
    )]
    NoStage {
        /// The kind of stage.
        kind: String,
        /// The key.
        key: String,
    },
}

fn of(table: &str) -> String {
    if table.is_empty() { "the plan".to_owned() } else { format!("[{table}]") }
}
