//! Shared fixtures: shots, runs of several files, small file systems, and Python.

mod drive;
mod python;
pub mod runs;
mod shots;

pub use drive::Drive;
pub use python::{needs_python, python, python_verdict};
pub use shots::*;
