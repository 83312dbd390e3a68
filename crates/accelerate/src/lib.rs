//! Accelerator nodes that are driven by RDMA alone.
//!
//! A node exports its memory and a small [control] region. A peer writes a tile into the memory, and a [command] into a slot
//! of its queue, by a WRITE with immediate data that names the slot: the doorbell. The [`Accelerator`] computes, and the node
//! writes a completion into the peer's memory.

pub mod accelerator;
mod channel;
pub mod command;
pub mod control;
mod error;
mod exchange;
mod executor;
pub mod neighbour;
pub mod node;
pub mod stencil;
mod worker;

pub use accelerator::{Accelerator, AcceleratorError, CommandQueue};
pub use error::NodeError;
pub use neighbour::{Dial, Neighbour, Peer};
pub use node::{Event, Node};
