//! A stencil on a matrix that several accelerator nodes compute in tiles.
//!
//! The matrix is in a region of this process. In each round, every tile of its rows is written to a node together with
//! halos, computed for some steps, and read back to its place. Each node has several buffers, so that one tile is written
//! while another one is computed and a third one is read. A tile goes to whichever node has a free buffer.
//!
//! A tile's rows and its halos are unchanged until it is read back, so that the tiles of a lost node can go to others.
//!
//! If the nodes have memory for all of the matrix, tiles can be [resident]: then nodes write only their border rows to each
//! other, and this process only gives the commands.

mod error;
mod marks;
mod memory;
mod plan;
mod report;
pub mod resident;
mod run;
mod verify;
mod wait;

pub use error::{Lost, RunError};
pub use plan::{Matrix, Plan, PlanError};
pub use report::{NodeReport, Progress, Report, Update};
pub use run::{Options, Remaining, run};
pub use verify::{Before, Extent, Verification, VerifyError};
