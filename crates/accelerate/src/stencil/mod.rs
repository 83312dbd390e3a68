//! A stencil on a matrix that several accelerator nodes compute in tiles.
//!
//! The matrix is in a region of this process. In each round, every tile of its rows is written to a node together with
//! halos, computed for some steps, and read back to its place. Each node has several buffers, so that one tile is written
//! while another one is computed and a third one is read. A tile goes to whichever node has a free buffer.
//!
//! If the nodes have memory for all of the matrix, tiles can be [resident]: then nodes write only their border rows to each
//! other, and this process only gives the commands.

mod plan;
pub mod resident;
mod run;
mod verify;

pub use plan::{Matrix, Plan, PlanError};
pub use run::{NodeReport, Options, Progress, Report, RunError, run};
pub use verify::{Before, Extent, Verification, VerifyError};
