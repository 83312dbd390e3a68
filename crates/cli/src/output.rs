//! Output of the commands: one JSON object with units in its keys, or text.

use crate::Result;
use crate::queued_writer::QueuedWriter;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;
use shotline_acquire::run::Outcome;
use shotline_acquire::summary::Summary;
use std::borrow::Cow;
use std::io::{ErrorKind, Stderr, Stdout, Write as _};
use std::sync::LazyLock;

/// Prints a line on standard output ([`to_stdout`]).
macro_rules! outln {
    () => { $crate::output::to_stdout(format_args!("\n")) };
    ($($words:tt)*) => { $crate::output::to_stdout(format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints a line on standard error ([`to_stderr`]).
macro_rules! errln {
    ($($words:tt)*) => { $crate::output::to_stderr(format_args!("{}\n", format_args!($($words)*))) };
}

/// Processor time used by this process.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CpuTime {
    /// Time in user mode, in seconds.
    pub cpu_user_s: f64,
    /// Time in kernel mode, in seconds.
    pub cpu_sys_s: f64,
}

impl CpuTime {
    /// Returns the time in both modes, in seconds.
    pub fn total(self) -> f64 {
        self.cpu_user_s + self.cpu_sys_s
    }
    /// Returns the time used until now.
    pub fn now() -> Self {
        let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
        // Cannot fail for the process itself.
        getrusage(UsageWho::RUSAGE_SELF).map_or(Self { cpu_user_s: 0.0, cpu_sys_s: 0.0 }, |usage| Self {
            cpu_user_s: seconds(usage.user_time()),
            cpu_sys_s: seconds(usage.system_time()),
        })
    }
}

/// Report of a run: its summary, and the processor time of this process.
#[derive(Debug, Serialize)]
pub struct RunReport {
    /// Summary of the run.
    #[serde(flatten)]
    pub summary: Summary,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl RunReport {
    /// Creates the report of a run that has just ended.
    pub fn of(outcome: &Outcome) -> Self {
        Self { summary: Summary::of(outcome), cpu: CpuTime::now() }
    }
}

impl Report for RunReport {
    fn print(&self) -> Result {
        let Self { summary, .. } = self;
        if let Some(learned) = &summary.learned {
            errln!("{learned}");
        }
        print_table(&summary.rows());
        if let Some(hint) = summary.hint() {
            outln!("{hint}");
        }
        summary.warnings.iter().for_each(warn);
        Ok(())
    }
}

/// Warns if a raw device has defects that do not prevent reading its recordings.
pub fn warn_of_device(path: &std::path::Path) {
    shotline_store::nvme::warning(path).into_iter().for_each(warn);
}

/// Prints a warning on standard error.
pub fn warn(text: impl std::fmt::Display) {
    errln!("warning: {}", escape_controls(&text.to_string()));
}

/// Prints on standard output. A closed pipe (`| head`) is ignored, so that the command still runs to its end. Any other
/// error, such as a full disk, ends the process.
pub fn to_stdout(words: std::fmt::Arguments<'_>) {
    match std::io::stdout().write_fmt(words) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            errln!("shotline: cannot print on standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Standard output for reports that may be discarded while the output is stalled. Everything else is printed by
/// [`to_stdout`], which blocks.
pub static STDOUT: LazyLock<QueuedWriter<Stdout>> = LazyLock::new(|| QueuedWriter::new(std::io::stdout));

/// Standard error, which does not block its callers.
pub static STDERR: LazyLock<QueuedWriter<Stderr>> = LazyLock::new(|| QueuedWriter::new(std::io::stderr));

/// Prints on standard error. Errors, such as those of a closed terminal, are ignored. An output that is not read delays
/// the caller once, for a second.
pub fn to_stderr(words: std::fmt::Arguments<'_>) {
    STDERR.write_and_flush(words.to_string());
}

/// Escapes the control characters of untrusted text, so that a terminal does not execute them.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Prints rows in two columns.
pub fn print_table(rows: &[(String, String)]) {
    let rows: Vec<_> = rows.iter().map(|(name, text)| (escape_controls(name), escape_controls(text))).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let value = rows.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
    for (name, text) in &rows {
        outln!("  {name:width$}  {text:>value$}");
    }
}

/// Prints rows in two columns, both aligned to the left.
pub fn print_table_left(rows: &[(String, String)]) {
    let rows: Vec<_> = rows.iter().map(|(name, text)| (escape_controls(name), escape_controls(text))).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, text) in &rows {
        outln!("  {name:width$}  {text}");
    }
}

/// Prints a table with a heading. A column whose name begins with `>`, which is not printed, is aligned to the right.
pub fn columns(names: &[&str], rows: &[impl AsRef<[String]>]) {
    let title = |column: usize| names[column].trim_start_matches('>');
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(title(column).chars().count())
    };
    let widths: Vec<_> = (0..names.len()).map(width).collect();
    let print = |cell: &dyn Fn(usize) -> String| {
        let padded = names.iter().zip(&widths).enumerate().map(|(column, (name, width))| match name.starts_with('>') {
            true => format!("{:>width$}", cell(column)),
            false => format!("{:width$}", cell(column)),
        });
        outln!("  {}", padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    print(&|column| title(column).to_owned());
    for row in rows {
        print(&|column| row.as_ref().get(column).cloned().unwrap_or_default());
    }
}

/// Report of a command: one JSON object, or text.
pub trait Report: Serialize {
    /// Prints the report as text.
    ///
    /// # Errors
    ///
    /// If a part that is shown as JSON cannot be serialized.
    fn print(&self) -> Result;
}

/// A report whose text is a table of names and values.
pub trait Rows: Serialize {
    /// Returns the names and values, in order.
    fn rows(&self) -> Vec<(String, String)>;
}

impl<T: Rows> Report for T {
    fn print(&self) -> Result {
        print_table(&self.rows());
        Ok(())
    }
}

/// Prints a report on standard output, as a line of JSON if `json` is set.
///
/// # Errors
///
/// If it cannot be serialized.
pub fn print_report(json: bool, report: &impl Report) -> Result {
    if json {
        outln!("{}", serde_json::to_string(report)?);
        Ok(())
    } else {
        report.print()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_controls("\x1b]0;owned\x07 a\nb \u{9b}2J"), "\\u{1b}]0;owned\\u{7} a\\nb \\u{9b}2J");
        assert_eq!(escape_controls("42 \u{b5}s, \u{e9}cho"), "42 \u{b5}s, \u{e9}cho");
    }
}
