//! Runs of several files, recorded from test patterns and verified by both verifiers.

use super::{pool, python_verdict, run, shot, small};
use shotline_memory::{Pool, Regions};
use shotline_store::info::RunInfo;
use shotline_store::read::Recording;
use shotline_store::set::{Roll, RunResult};
use shotline_store::shot::{Event, Loss, RunCounters, StreamRunCounters};
use shotline_store::{
    RecorderConfig, RunRecorder, RunRecorderConfig, StoreError, Verdict, VerifyOptions, inspect, verify,
};
use shotline_wire::shot::{DropCause, Packing};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const WAIT: Option<Duration> = Some(Duration::from_millis(5));

/// A run that is being recorded.
pub struct TestRun {
    pub recorder: RunRecorder,
    pub run: RunInfo,
    pub pool: Arc<Pool>,
    pub seen: u64,
    pub complete: u64,
}

pub fn config(outs: &[PathBuf], roll_rows: Option<u64>) -> RunRecorderConfig {
    RunRecorderConfig {
        outs: outs.to_vec(),
        recorder: RecorderConfig { in_flight: 4, commit_every: Duration::from_millis(1), ..RecorderConfig::new(1000) },
        roll: Roll { rows: roll_rows, ..Roll::default() },
        keep: None,
        rows: None,
    }
}

pub fn two_links() -> RunInfo {
    let g = small(Packing::Packed12);
    run(&[g, g])
}

impl TestRun {
    pub fn new(config: &RunRecorderConfig) -> Self {
        Self::try_new(config, two_links()).unwrap()
    }

    pub fn try_new(config: &RunRecorderConfig, run: RunInfo) -> Result<Self, StoreError> {
        let (pool, regions): (_, Regions) = pool(24, run.links[0].geometry.slot_bytes());
        Ok(Self { recorder: RunRecorder::create(config, &run, &regions)?, run, pool, seen: 0, complete: 0 })
    }

    pub fn event(&mut self, number: u64) -> Result<(), StoreError> {
        let links = self.run.links.clone();
        let mut shots = Vec::new();
        for link in &links {
            let buffer = loop {
                match self.pool.take() {
                    Some(buffer) => break buffer,
                    None => self.recorder.poll(WAIT)?,
                }
            };
            shots.push(Some(shot(buffer, link.stream, number, link.geometry, |_| true)));
        }
        let mut event = Event { number, shots };
        while let Err(back) = self.recorder.offer(event) {
            assert!(self.recorder.remaining() > 0, "no space for row {number}");
            event = back;
            self.recorder.poll(WAIT)?;
        }
        self.recorder.poll(None)?;
        self.seen += 1;
        self.complete += 1;
        Ok(())
    }

    pub fn lose(&mut self, number: u64) {
        for link in &self.run.links {
            self.recorder.loss(Loss { stream: link.stream, cause: DropCause::NoBuffer, first: number, count: 1 });
        }
        self.seen += 1;
    }

    pub fn counters(&self) -> RunCounters {
        let stream = |stream| {
            let mut counters = StreamRunCounters {
                stream,
                shots_seen: self.seen,
                shots_complete: self.complete,
                ..StreamRunCounters::default()
            };
            counters.shot_drops.add(DropCause::NoBuffer, self.seen - self.complete);
            counters
        };
        RunCounters { streams: self.run.links.iter().map(|link| stream(link.stream)).collect() }
    }

    pub fn finish(self) -> RunResult {
        let counters = self.counters();
        let finished = self.recorder.finish(counters).unwrap();
        assert_eq!(self.pool.available(), 24, "all buffers are returned");
        finished
    }
}

/// Asserts that both verifiers accept the run as a whole and each file alone.
pub fn assert_verified(master: &Path) -> Verdict {
    let verdict = verify(master, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified, "{verdict:#?}");
    python_verdict(master, true);
    for file in files(master) {
        let alone = verify(&file, &VerifyOptions::default()).unwrap();
        assert!(alone.verified, "{alone:#?}");
    }
    verdict
}

pub fn files(master: &Path) -> Vec<PathBuf> {
    let folder = master.parent().unwrap();
    inspect(master).unwrap().parts.iter().map(|entry| folder.join(&entry.file)).collect()
}

pub fn numbers(master: &Path) -> Vec<u64> {
    let recording = Recording::open(master).unwrap();
    recording.rows_of(0).map(|row| row.unwrap().number).collect()
}

/// Copies the files of a run. Repeats until no file was created or renamed during the copy, since the next part is
/// prepared concurrently.
pub fn copied(folder: &Path) -> tempfile::TempDir {
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = names(folder);
        let whole = before.iter().all(|name| std::fs::copy(folder.join(name), copy.path().join(name)).is_ok());
        if whole && names(folder) == before {
            return copy;
        }
    }
}

fn names(folder: &Path) -> std::collections::BTreeSet<std::ffi::OsString> {
    std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect()
}
