//! Destination of an export.

use crate::StoreError;
use crate::draft::{Draft, Replace};
use std::path::Path;

/// Destination of an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination<'a> {
    /// Path, or address of an object store.
    pub path: &'a Path,
    /// What the export may replace.
    pub replace: Replace,
}

impl Destination<'_> {
    /// Creates a draft of the file or folder.
    pub fn draft(&self) -> Result<Draft, StoreError> {
        Draft::new(self.path, self.replace)
    }
}
