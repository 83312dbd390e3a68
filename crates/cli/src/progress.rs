//! A bar for work that takes its time, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, which is gone when it is dropped. It shows nothing where no terminal watches.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar that counts `unit`, before anything is known.
    pub fn new(unit: &str) -> Self {
        let bar = ProgressBar::new(0);
        let template = format!("  {{wide_bar}} {{pos}} of {{len}} {unit}, {{eta}} left");
        // Only a template with a mistake in it is refused; the plain bar would do then.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// So much is done, of so much.
    pub fn tell(&self, done: u64, all: u64) {
        if self.0.length() != Some(all) {
            self.0.set_length(all);
        }
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
