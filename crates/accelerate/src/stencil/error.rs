//! Errors of a run, and the loss of a node that others replace.

use crate::command::Outcome;
use crate::error::NodeError;
use shotline_memory::MemoryError;
use shotline_verbs::cm::TokenError;

/// The stencil was not computed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There is not enough memory for the halos.
    #[error(
        "the halos of the tiles: {0}, or use tiles of more rows (--tile-rows, --node-memory) or rounds of fewer steps"
    )]
    Halos(MemoryError),
    /// A node failed.
    #[error("node {index}: {error}")]
    Node {
        /// Number of the node, from 0.
        index: usize,
        /// What failed.
        error: NodeError,
    },
    /// A node refused a command.
    #[error("node {index}, rows {first} to {end}: {outcome}")]
    Refused {
        /// Number of the node, from 0.
        index: usize,
        /// First row of the tile.
        first: u64,
        /// Row after the last one.
        end: u64,
        /// Reason of the node.
        outcome: Outcome,
    },
    /// A node did nothing for too long.
    #[error(
        "node {index}: rows {first} to {end} are not {expected}, and nothing has happened for {seconds} s: the node hangs, or is too slow"
    )]
    Timeout {
        /// Number of the node, from 0.
        index: usize,
        /// First row of the tile.
        first: u64,
        /// Row after the last one.
        end: u64,
        /// What was expected.
        expected: &'static str,
        /// Time since the last progress.
        seconds: u64,
    },
    /// A node cannot exchange halos with another one.
    #[error("node {index} cannot exchange halos with node {neighbour}: {reason}")]
    Neighbour {
        /// Number of the node, from 0.
        index: usize,
        /// Number of the other node.
        neighbour: usize,
        /// What failed.
        reason: String,
    },
    /// There are no random numbers.
    #[error(transparent)]
    Random(TokenError),
    /// The run was interrupted. Some tiles of the matrix have more steps than others.
    #[error("interrupted after {0} complete rounds")]
    Interrupted(u64),
}

impl RunError {
    /// Returns `true` if it is about one node: the others can go on.
    pub(super) fn is_of_node(&self) -> bool {
        match self {
            Self::Node { .. } | Self::Timeout { .. } => true,
            Self::Refused { outcome, .. } => *outcome == Outcome::Failed,
            Self::Memory(_) | Self::Halos(_) | Self::Neighbour { .. } | Self::Random(_) | Self::Interrupted(_) => false,
        }
    }

    /// Returns what happened to the node, without its number, with which the text begins.
    pub(super) fn reason(&self) -> String {
        let text = self.to_string();
        text.split_once(": ").map(|(_, reason)| reason.to_owned()).unwrap_or(text)
    }
}

/// A node that is lost while others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Number of the node, from 0.
    pub index: usize,
    /// What happened.
    pub reason: String,
    /// Tiles that it had, which go to others.
    pub tiles: usize,
    /// Nodes that remain.
    pub remaining: usize,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, reason, tiles, remaining } = self;
        write!(f, "node {index}: {reason}: ")?;
        match tiles {
            0 => f.write_str("it had no tile"),
            1 => f.write_str("its tile goes to the other node"),
            _ => write!(f, "its {tiles} tiles go to the other node"),
        }?;
        f.write_str(if *tiles > 0 && *remaining > 1 { "s" } else { "" })
    }
}
