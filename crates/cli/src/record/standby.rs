//! `shotline record --standby`: runs that the page starts.

use super::args::Args;
use super::once::check;
use crate::output::warn;
use crate::{Result, signals};
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_dashboard::run::{RunSubject, Series, StartRequest};
use shotline_dashboard::status::LogLevel;
use shotline_store::nvme::Target;
use shotline_store::set::has_parts;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Time between two looks at the flags.
const TICK: Duration = Duration::from_millis(20);

/// Records runs until a signal sets `stop`. A signal that sets `trigger` triggers the present one.
pub(super) fn run(args: &Args, settings: &Settings, stop: &AtomicBool, trigger: &Arc<AtomicBool>) -> Result {
    let outs = outs(settings)?;
    let mut site = args.serve.site(args.log)?.ok_or("--standby needs a page: add --serve ADDRESS:PORT")?;
    let first = args.serve.subject("record", settings, &Arc::default(), &Arc::default())?;
    let series = Arc::new(Series::new(first, settings.samples));
    let page = site.open(Arc::clone(&series) as _)?;
    signals::notify_ready();
    let (mut runs, mut failed) = (0_u64, 0_u64);
    while !stop.load(Relaxed) {
        let Some(StartRequest { samples }) = series.take(TICK) else { continue };
        let out = Some(free_names(&outs));
        let settings = Settings { samples: samples.or(settings.samples), out, ..settings.clone() };
        // What came while there was no run is not meant for this one.
        trigger.store(false, Relaxed);
        let live = Arc::new(Live::with_trigger(Arc::clone(trigger)));
        let recorded = record(args, &settings, &series, &live, stop);
        series.finish();
        runs += 1;
        failed += u64::from(recorded.is_err());
        if let Err(error) = recorded {
            warn(format_args!("this run has failed: {error}"));
        }
    }
    drop(page);
    if failed == 0 { Ok(()) } else { Err(format!("{failed} of {runs} runs have failed").into()) }
}

/// Returns the outputs, each of which must be able to get a number.
fn outs(settings: &Settings) -> Result<Vec<PathBuf>> {
    let is_set = |flag: Option<bool>| flag == Some(true);
    let outs = settings.out.clone().unwrap_or_default();
    if let Some(device) = outs.iter().find(|out| Target::of(out).is_some()) {
        return Err(format!("--standby writes a file for each run: give a file instead of {}", device.display()).into());
    }
    match (is_set(settings.force), is_set(settings.discard) || outs.is_empty()) {
        (true, _) => Err("--standby replaces no files: omit --force".into()),
        (_, true) => Err("--standby writes a file for each run: give its name with --out".into()),
        _ => Ok(outs),
    }
}

/// Records a run, which a signal or the page ends, while the page shows it.
fn record(args: &Args, settings: &Settings, series: &Series, live: &Arc<Live>, stop: &AtomicBool) -> Result {
    let stop_run = Arc::new(AtomicBool::new(false));
    let subject = Arc::new(args.serve.subject("record", settings, live, &stop_run)?);
    series.show(Arc::clone(&subject));
    if args.is_for_people() {
        let names = settings.out.iter().flatten().map(|out| out.display().to_string());
        errln!("recording to {}", names.collect::<Vec<_>>().join(", "));
    }
    let recorded = std::thread::scope(|scope| {
        // Its sender is dropped at the end, also by a panic.
        let (_over, is_over) = channel::<()>();
        scope.spawn(|| forward(stop, &stop_run, is_over));
        args.record(settings, &stop_run, live).and_then(|outcome| check(settings, &outcome))
    });
    if let Err(error) = &recorded {
        note(&subject, live, &**error);
    }
    recorded
}

/// Ends a run when a signal sets `stop`, until the run is over.
fn forward(stop: &AtomicBool, stop_run: &AtomicBool, is_over: Receiver<()>) {
    while is_over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if stop.load(Relaxed) {
            stop_run.store(true, Relaxed);
        }
    }
}

/// Shows an error on the page, unless the end of the run is that error.
fn note(subject: &RunSubject, live: &Live, error: &dyn std::error::Error) {
    if !live.end().is_some_and(std::result::Result::is_err) {
        subject.log(LogLevel::Error, format!("The run has failed: {error}."));
    }
}

/// Returns the names of the next run's files: the given ones, or the first number under which there are none.
fn free_names(outs: &[PathBuf]) -> Vec<PathBuf> {
    let named = |number: u64| -> Vec<PathBuf> { outs.iter().map(|out| numbered(out, number)).collect() };
    // A folder that cannot be read is reported by the run.
    let is_free = |names: &Vec<PathBuf>| names.iter().all(|name| !name.exists() && !has_parts(name).unwrap_or(false));
    (1..).map(named).find(is_free).unwrap_or_default()
}

/// Returns `run.h5`, `run-2.h5`, `run-3.h5`.
fn numbered(out: &Path, number: u64) -> PathBuf {
    if number == 1 {
        return out.to_owned();
    }
    let mut name = out.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = out.extension() {
        name.push(".");
        name.push(extension);
    }
    out.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_until_none_exists() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let outs = [at("a.h5"), at("b.h5")];
        assert_eq!(free_names(&outs), outs);
        std::fs::write(at("b.h5"), "").unwrap();
        assert_eq!(free_names(&outs), [at("a-2.h5"), at("b-2.h5")]);
        std::fs::write(at("a-2.h5"), "").unwrap();
        assert_eq!(free_names(&outs), [at("a-3.h5"), at("b-3.h5")]);
        std::fs::write(at("b-3-00000-s1.h5"), "").unwrap();
        assert_eq!(free_names(&outs), [at("a-4.h5"), at("b-4.h5")], "a part is left of a run");
        assert_eq!(numbered(Path::new("x/run"), 2), Path::new("x/run-2"));
        assert_eq!(numbered(Path::new("run.tar.h5"), 12), Path::new("run.tar-12.h5"));
    }
}
