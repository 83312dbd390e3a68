//! Why a plan cannot be read, and where in its text.

use std::fmt;

/// Where something stands: a line of the text, from 1; none for what a flag said.
pub type Line = Option<usize>;

/// Where in a plan's text something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(Line);

impl From<Line> for Place {
    fn from(line: Line) -> Self {
        Self(line)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}"),
            None => f.write_str("by the flags"),
        }
    }
}

/// A plan that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// A key that must be there is not.
    #[error("{line}: {} lacks {key}: add {example}", of(table))]
    Missing {
        /// Where the table begins.
        line: Place,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// How it is written.
        example: String,
    },
    /// A key that nothing reads: most likely misspelt.
    #[error("{line}: {} has no key {key}: it knows {known}", of(table))]
    Unknown {
        /// Where the key stands.
        line: Place,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// The keys that there are.
        known: String,
    },
    /// A value that cannot be.
    #[error("{line}: {key}: {problem}")]
    Value {
        /// Where it stands.
        line: Place,
        /// The key, with its table.
        key: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// A flag for a stage that the plan does not have and that no default can be made of.
    #[error("the flags set {key} of a stage {kind}, which the plan does not have: add a [[stage]] of this kind")]
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
