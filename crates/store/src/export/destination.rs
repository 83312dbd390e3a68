//! Where an export is written.

use crate::StoreError;
use crate::draft::{Draft, Replace};
use std::path::Path;

/// Where an export is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination<'a> {
    /// Its name, or that of an object store.
    pub path: &'a Path,
    /// What it may take the place of.
    pub replace: Replace,
}

impl Destination<'_> {
    /// Begins a file or folder of the name.
    pub fn draft(&self) -> Result<Draft, StoreError> {
        Draft::new(self.path, self.replace)
    }
}
