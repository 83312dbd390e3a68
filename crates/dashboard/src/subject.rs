//! What is shown and controlled.

use crate::pictures::Gallery;
use crate::status::{About, Status};
use serde::Deserialize;
use std::sync::Arc;

/// A long-running command.
pub trait Subject: Send + Sync + 'static {
    /// Returns what does not change.
    fn about(&self) -> About;
    /// Returns the current state. Called some times a second while a page is open, and for each scrape of the metrics.
    fn status(&self) -> Status;
    /// Returns a number that changes when something else is shown, which has its own description and pictures.
    fn generation(&self) -> u64 {
        0
    }
    /// Does what a control requests, without waiting for its end. Returns what was done.
    ///
    /// # Errors
    /// A message for the user if it cannot be done.
    fn control(&self, action: &Action) -> Result<String, String>;
    /// Notes that the command is over: its numbers are final.
    fn end(&self);
    /// Returns its pictures.
    fn gallery(&self) -> Arc<Gallery>;
}

/// What a control requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    // Braces, because serde ignores further fields of variants without them.
    /// End the run cleanly.
    Stop {},
    /// Trigger.
    Trigger {},
    /// Start a run.
    Start {
        /// Number of samples per channel and shot; none: as in the settings.
        samples: Option<u32>,
    },
}
