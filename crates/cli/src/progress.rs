//! Progress bar for long operations, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error, which is removed when this value is dropped. It is hidden if standard error is not
/// a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar that counts `unit`, with an unknown total.
    pub fn new(unit: &str) -> Self {
        let bar = ProgressBar::new(0);
        let template = format!("  {{wide_bar}} {{pos}} of {{len}} {unit}, {{eta}} left");
        // Only a malformed template is refused; the default bar is used then.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Sets the progress to `done` of `all`.
    pub fn update(&self, done: u64, all: u64) {
        if self.0.length() != Some(all) {
            self.0.set_length(all);
        }
        self.0.set_position(done);
    }

    /// Removes the bar while something else is printed on standard error.
    pub fn hidden_while(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
