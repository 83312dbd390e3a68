//! What the tests share: shots, runs of many files, small drives, and Python.

mod drive;
mod python;
pub mod runs;
mod shots;

pub use drive::Drive;
pub use python::{needs_python, python, python_verdict};
pub use shots::*;
