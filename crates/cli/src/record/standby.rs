//! `shotline record --standby`: runs that the page starts.

use super::args::Args;
use super::once::check;
use crate::Result;
use crate::output::warn;
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_dashboard::Subject as _;
use shotline_dashboard::run::{RunSubject, StartRequest, Starter};
use shotline_store::nvme::Target;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Time between two looks at the flags.
const TICK: Duration = Duration::from_millis(20);

/// Records runs until a signal sets `stop`.
pub(super) fn run(args: &Args, mut settings: Settings, stop: &AtomicBool) -> Result {
    let mut site = args.serve.site(args.log)?.ok_or("--standby needs a page: add --serve ADDRESS:PORT")?;
    let outs = settings.out.clone().unwrap_or_default();
    if let Some(device) = outs.iter().find(|out| Target::of(out).is_some()) {
        return Err(format!("--standby writes a file for each run: give a file instead of {}", device.display()).into());
    }
    let starter = Arc::new(Starter::default());
    let mut request = None;
    while !stop.load(Relaxed) {
        let (live, stop_run) = (Arc::new(Live::default()), Arc::new(AtomicBool::new(false)));
        settings.out = Some(free_names(&outs));
        let subject = args.serve.subject("record", &settings, &live, &stop_run)?.standing_by(Arc::clone(&starter));
        let subject = Arc::new(subject);
        let page = site.open(Arc::clone(&subject) as _)?;
        let Some(StartRequest { samples }) = request.take().or_else(|| wait(&starter, stop)) else { break };
        settings.samples = samples.or(settings.samples);
        if !args.json && !args.quiet {
            let names = settings.out.iter().flatten().map(|out| out.display().to_string());
            errln!("recording to {}", names.collect::<Vec<_>>().join(", "));
        }
        record(args, &settings, &subject, &live, (stop, &stop_run));
        // The page shows the end until the next start.
        request = wait(&starter, stop);
        drop(page);
    }
    Ok(())
}

/// Records a run, which a signal or the page ends. An error ends only the run.
fn record(
    args: &Args,
    settings: &Settings,
    subject: &RunSubject,
    live: &Arc<Live>,
    (stop, stop_run): (&AtomicBool, &AtomicBool),
) {
    let over = AtomicBool::new(false);
    subject.begin();
    let recorded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                if stop.load(Relaxed) {
                    stop_run.store(true, Relaxed);
                }
                std::thread::sleep(TICK);
            }
        });
        let recorded = args.record(settings, stop_run, live).and_then(|outcome| check(settings, &outcome));
        over.store(true, Relaxed);
        recorded
    });
    subject.end();
    if let Err(error) = recorded {
        warn(format_args!("this run has failed: {error}"));
    }
}

/// Waits for a request; none if a signal sets `stop` before.
fn wait(starter: &Starter, stop: &AtomicBool) -> Option<StartRequest> {
    while !stop.load(Relaxed) {
        let request = starter.take(TICK);
        if request.is_some() {
            return request;
        }
    }
    None
}

/// Returns the names of the next run's files: the given ones, or the first number under which there are none.
fn free_names(outs: &[PathBuf]) -> Vec<PathBuf> {
    let named = |number: u64| -> Vec<PathBuf> { outs.iter().map(|out| numbered(out, number)).collect() };
    let is_free = |names: &Vec<PathBuf>| names.iter().all(|name| !name.exists());
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
        assert_eq!(numbered(Path::new("x/run"), 2), Path::new("x/run-2"));
        assert_eq!(numbered(Path::new("run.tar.h5"), 12), Path::new("run.tar-12.h5"));
    }
}
