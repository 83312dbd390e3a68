//! Shots with test patterns and valid records, in pool buffers. Also included by the example `record_until_killed`.

use shotline_compute::prbs;
use shotline_memory::{Buffer, Pool, Regions, Registrar};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
use shotline_store::{Recorder, RecorderConfig, Report};
use shotline_wire::block;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, DropCounters, Geometry, Packetization, Packing, Presence, Trailer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const PERIOD: u64 = 5;

pub fn small(packing: Packing) -> Geometry {
    let bits = packing.bits_per_sample() as u8;
    Geometry::new(16, 300, bits, packing, 40_000_000).unwrap()
}

/// Geometry of digitizer blocks: I and Q in frames of 1536 bytes.
pub fn blocks() -> Geometry {
    let packetization = Packetization::uniform(1536);
    Geometry::with_packetization((2, 2000), (16, Packing::Int16Le), 500_000_000, Trailer::Block, packetization).unwrap()
}

pub fn run(geometries: &[Geometry]) -> RunInfo {
    let links = geometries.iter().zip(7..);
    let links = links.map(|(g, stream)| LinkInfo { name: format!("link of {stream}"), stream, geometry: *g }).collect();
    let mut run = RunInfo::new(links);
    run.instrument = "test pattern".into();
    run.framing = "roce_ud".into();
    run.config = "[record]\nshots = 10\n".into();
    run.pattern_period = Some(PERIOD);
    run
}

pub fn pool(slots: u32, slot_bytes: u32) -> (Arc<Pool>, Regions) {
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, slots, slot_bytes).unwrap();
    (pool, registrar.finish())
}

/// Returns the timestamp of a shot. Shots are 1 microsecond apart.
pub fn stamp(number: u64) -> u64 {
    1_700_000_000_000_000_000 + number * 1000
}

/// Fills a buffer with a shot, without the packets for which `keep` returns `false`.
pub fn shot(buffer: Buffer, stream: u32, number: u64, geometry: Geometry, keep: impl Fn(u32) -> bool) -> Shot {
    let mut bytes = vec![0; geometry.slot_bytes() as usize];
    prbs::write_shot(stream, number % PERIOD, &geometry, &mut bytes[..geometry.sample_bytes() as usize]);
    let record = Record { shot: number, tai_ns: stamp(number), stream, ..Record::of(&geometry) };
    let end = geometry.record_offset().unwrap() as usize;
    if geometry.trailer() == Trailer::Block {
        bytes[end - block::LEN..end].copy_from_slice(&description(stream, number).emit());
    }
    let record = record.finish(shotline_wire::crc::register(u32::MAX, &bytes[..end]));
    bytes[end..end + record.len()].copy_from_slice(&record);
    let mut presence = Presence::empty(geometry.packets());
    let mut drops = DropCounters::default();
    for index in 0..geometry.packets() {
        if keep(index) {
            presence.insert(index);
        } else {
            let at = geometry.packet_offset(index) as usize;
            bytes[at..at + geometry.packet_bytes(index) as usize].fill(0);
            drops.add(DropCause::WireGap, 1);
        }
    }
    buffer.write(0, &bytes);
    let last = presence.contains(geometry.packets() - 1);
    let whole = presence.is_complete();
    let samples_of = |packet| {
        let (at, bytes) = (geometry.packet_offset(packet), geometry.packet_bytes(packet));
        geometry.sample_bytes().saturating_sub(at).min(bytes)
    };
    let missing: u32 = presence.missing().map(samples_of).sum();
    Shot {
        meta: ShotMeta {
            stream,
            number,
            stamp_tai_ns: if last { stamp(number) } else { 0 },
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: whole,
            valid_bytes: geometry.sample_bytes() - missing,
            presence: Arc::new(presence),
            drops,
        },
        buffer,
    }
}

/// Returns the block description sent by the source.
pub fn description(stream: u32, number: u64) -> block::Description {
    block::Description {
        centre_hz: 1.3e9,
        snr_db: 60.0 + number as f32,
        clock_offset_ns: -i64::from(stream),
        points: 4096,
        peaks: [1e6, -2e6].map(|frequency_hz| block::Peak { frequency_hz, power_dbfs: -3.0 }).into_iter().collect(),
        ..block::Description::default()
    }
}

/// Path of a finished recording. The file is removed on drop.
pub struct FinishedRecording {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl std::ops::Deref for FinishedRecording {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.path
    }
}

/// A recording in progress, in its own directory.
pub struct Recording {
    pub directory: tempfile::TempDir,
    pub path: PathBuf,
    pub run: RunInfo,
    pub pool: Arc<Pool>,
    pub recorder: Recorder,
    laid_out: u64,
}

impl Recording {
    pub fn new(run: RunInfo, configure: impl FnOnce(&mut RecorderConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::at(directory, run, configure)
    }

    pub fn at(directory: tempfile::TempDir, run: RunInfo, configure: impl FnOnce(&mut RecorderConfig)) -> Self {
        let path = directory.path().join("a.h5");
        Self::of(directory, path, run, configure)
    }

    /// Records to any path. The directory is removed on drop.
    pub fn of(
        directory: tempfile::TempDir,
        path: PathBuf,
        run: RunInfo,
        configure: impl FnOnce(&mut RecorderConfig),
    ) -> Self {
        let slot = run.links.iter().map(|link| link.geometry.slot_bytes()).max().unwrap();
        let (pool, regions) = pool(12, slot);
        let mut config = RecorderConfig::new(1);
        configure(&mut config);
        let recorder = Recorder::create(&path, &config, &run, &regions).unwrap();
        let laid_out = recorder.remaining();
        Self { directory, path, run, pool, recorder, laid_out }
    }

    /// Records an event. `make` builds the shot of a link in the buffer passed to it.
    pub fn event(&mut self, number: u64, make: impl Fn(u32, Buffer) -> Option<Shot>) {
        let mut shots = Vec::new();
        for link in 0..self.run.links.len() as u32 {
            let buffer = loop {
                match self.pool.take() {
                    Some(buffer) => break buffer,
                    None => drop(self.recorder.poll(WAIT).unwrap()),
                }
            };
            shots.push(make(link, buffer));
        }
        let mut event = Event { number, shots };
        while let Err(back) = self.recorder.offer(event) {
            assert!(self.recorder.remaining() > 0, "more events than rows");
            event = back;
            self.recorder.poll(WAIT).unwrap();
        }
    }

    /// Records an event of complete shots.
    pub fn whole(&mut self, number: u64) {
        let links = self.run.links.clone();
        self.event(number, |link, buffer| {
            let link = &links[link as usize];
            Some(shot(buffer, link.stream, number, link.geometry, |_| true))
        });
    }

    /// Waits until all offered rows are visible.
    pub fn settle(&mut self) {
        let rows = self.laid_out - self.recorder.remaining();
        while self.recorder.visible() < rows {
            self.recorder.poll(WAIT).unwrap();
        }
    }

    /// Ends the run.
    pub fn finish(self, counters: &RunCounters) -> (FinishedRecording, Report) {
        let report = self.recorder.finish(counters).unwrap();
        assert_eq!(self.pool.available(), 12, "all buffers are returned");
        (FinishedRecording { path: self.path, _directory: self.directory }, report)
    }
}

const WAIT: Option<Duration> = Some(Duration::from_millis(50));
