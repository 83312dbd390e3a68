//! Selection of shots and links.

use super::error::ExportError;
use crate::read::Recording;
use crate::rows::first_row;
use std::ops::Range;

/// Selection of shots and links; by default all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// First shot number.
    pub from: Option<u64>,
    /// Maximum number of rows.
    pub shots: Option<u64>,
    /// Indexes of links; empty for all.
    pub links: Vec<usize>,
}

impl Selection {
    /// Returns the selected rows, at least one.
    pub(super) fn rows(&self, recording: &Recording) -> Result<Range<u64>, ExportError> {
        let rows = recording.rows();
        let start = match self.from {
            Some(number) => first_row(rows, number, |row| recording.row(row, 0).map(|row| row.number))?,
            None => 0,
        };
        let end = self.shots.map_or(rows, |shots| start.saturating_add(shots).min(rows));
        if start < end {
            return Ok(start..end);
        }
        Err(ExportError::InvalidSelection(match (rows, self.from) {
            (0, _) => format!("{} has no shot yet", recording.path().display()),
            (_, Some(number)) if start == rows => {
                let last = recording.row(rows - 1, 0)?.number;
                format!("expected a shot from number {number} on, the last one is {last}")
            }
            _ => "expected 1 shot or more (--shots), found 0".into(),
        }))
    }

    /// Returns the selected links, at least one.
    pub(super) fn links(&self, recording: &Recording) -> Result<Vec<usize>, ExportError> {
        let count = recording.run().links.len();
        if let Some(link) = self.links.iter().find(|link| **link >= count) {
            return Err(ExportError::InvalidSelection(format!(
                "there is no link {link}: links are 0 to {}",
                count - 1
            )));
        }
        let mut links = self.links.clone();
        links.sort_unstable();
        if let Some(pair) = links.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ExportError::InvalidSelection(format!(
                "link {} is named twice: name it once (--links)",
                pair[0]
            )));
        }
        Ok(if links.is_empty() { (0..count).collect() } else { links })
    }
}
