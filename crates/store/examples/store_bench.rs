//! Shotline's part of `make bench-store`: recording of shots from memory, and verification.
//!
//! ```text
//! store_bench write FILE GIB SAMPLES LINKS DEPTH [recycle]    record, and print time and processor time
//! store_bench layout FILE ROWS                                time to create a recording
//! store_bench verify FILE GIB                                 record test patterns and verify them
//! store_bench ring FILE GIB PARTS LAPS                        record LAPS times the bound of a bounded run
//! ```
//!
//! A shot has 96 channels of 12 bits; its bytes are random, in a pool of 256 MiB that is filled before the measurement.
//! Prints one JSON object, or one for each lap.

use rustix::time::{ClockId, clock_gettime};
use shotline_compute::prbs;
use shotline_memory::{Pool, Registrar};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::layout::{CreateOptions, create};
use shotline_store::set::Roll;
use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
use shotline_store::{Recorder, RecorderConfig, RunRecorder, RunRecorderConfig, VerifyOptions, verify};
use shotline_wire::crc;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCounters, Geometry, Packing, Presence};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const POOL_BYTES: u32 = 256 << 20;
const WAIT: Option<Duration> = Some(Duration::from_millis(10));

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str).ok_or("see the head of this file");
    let path = Path::new(argument(1)?);
    match argument(0)? {
        "write" => {
            let geometry = Geometry::new(96, argument(3)?.parse()?, 12, Packing::Packed12, 40_000_000)?;
            let recycle = arguments.get(6).is_some_and(|word| word == "recycle");
            write(path, argument(2)?.parse()?, geometry, argument(4)?.parse()?, argument(5)?.parse()?, recycle)
        }
        "layout" => layout(path, argument(2)?.parse()?),
        "verify" => verify_patterns(path, argument(2)?.parse()?),
        "ring" => ring(path, argument(2)?.parse()?, argument(3)?.parse()?, argument(4)?.parse()?),
        other => Err(format!("no mode {other}").into()),
    }
}

fn run(geometry: Geometry, links: u32) -> RunInfo {
    RunInfo::new((0..links).map(|stream| LinkInfo { name: "bench".into(), stream, geometry }).collect())
}

fn rows(gib: f64, geometry: Geometry, links: u32) -> u64 {
    (gib * (1_u64 << 30) as f64 / (f64::from(geometry.slot_bytes()) * f64::from(links))) as u64
}

/// Returns a presence map with all packets present.
fn whole(geometry: Geometry) -> Presence {
    let mut presence = Presence::empty(geometry.packets());
    (0..geometry.packets()).for_each(|index| assert!(presence.insert(index)));
    presence
}

/// Offers one event, waiting for buffers and for space in the queue.
fn offer(
    recorder: &mut Recorder,
    pool: &Arc<Pool>,
    (number, links): (u64, u32),
    (geometry, presence): (Geometry, &Presence),
    fill: impl Fn(&shotline_memory::Buffer),
) -> Outcome<()> {
    let mut event = Event { number, shots: Default::default() };
    for stream in 0..links {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(WAIT)?),
            }
        };
        fill(&buffer);
        let meta = ShotMeta {
            stream,
            number,
            stamp_tai_ns: number,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: geometry.sample_bytes(),
            presence: Arc::new(presence.clone()),
            drops: DropCounters::default(),
        };
        event.shots.push(Some(Shot { meta, buffer }));
    }
    while let Err(back) = recorder.offer(event) {
        event = back;
        recorder.poll(WAIT)?;
    }
    Ok(())
}

fn write(path: &Path, gib: f64, geometry: Geometry, links: u32, depth: u32, recycle: bool) -> Outcome<()> {
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, POOL_BYTES / geometry.slot_bytes(), geometry.slot_bytes())?;
    let region = pool.region();
    let mut word = 1_u64;
    for at in (0..region.len()).step_by(8) {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        region.write(at, &word.to_le_bytes());
    }
    let rows = rows(gib, geometry, links);
    let config = RecorderConfig { in_flight: depth, overwrite: recycle, recycle, ..RecorderConfig::new(rows) };
    let mut recorder = Recorder::create(path, &config, &run(geometry, links), &registrar.finish())?;
    for warning in recorder.warnings() {
        eprintln!("{warning}");
    }
    let presence = whole(geometry);
    let (cpu, started) = (processor_seconds(), Instant::now());
    for number in 0..rows {
        offer(&mut recorder, &pool, (number, links), (geometry, &presence), |_| ())?;
    }
    let report = recorder.finish(&RunCounters::default())?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), processor_seconds() - cpu);
    println!(
        "{}",
        serde_json::json!({ "bytes": report.bytes, "seconds": seconds, "cpu_s": cpu, "rows": report.rows, "lost": report.lost })
    );
    Ok(())
}

fn layout(path: &Path, rows: u64) -> Outcome<()> {
    let geometry = Geometry::new(8, 100, 12, Packing::Packed12, 0)?;
    let started = Instant::now();
    let opened = create(path, &run(geometry, 2), CreateOptions { rows, ..CreateOptions::default() })?;
    let seconds = started.elapsed().as_secs_f64();
    let tail = opened.layout.end - opened.layout.data_end(rows);
    println!("{}", serde_json::json!({ "rows": rows, "seconds": seconds, "tail_bytes": tail }));
    Ok(())
}

/// Records test patterns and verifies them, from the disk and then from the page cache.
fn verify_patterns(path: &Path, gib: f64) -> Outcome<()> {
    const PERIOD: u64 = 16;
    let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000)?;
    let mut run = run(geometry, 1);
    run.pattern_period = Some(PERIOD);
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, 32, geometry.slot_bytes())?;
    let rows = rows(gib, geometry, 1);
    let mut recorder = Recorder::create(path, &RecorderConfig::new(rows), &run, &registrar.finish())?;
    let presence = whole(geometry);
    let end = geometry.trailer_offset() as usize;
    let pattern = |pattern: u64| {
        let mut bytes = vec![0; geometry.slot_bytes() as usize];
        prbs::write_shot(0, pattern, &geometry, &mut bytes[..geometry.sample_bytes() as usize]);
        bytes
    };
    let patterns: Vec<Vec<u8>> = (0..PERIOD).map(pattern).collect();
    for number in 0..rows {
        offer(&mut recorder, &pool, (number, 1), (geometry, &presence), |buffer| {
            let bytes = &patterns[(number % PERIOD) as usize];
            let record = Record { shot: number, tai_ns: number, ..Record::of(&geometry) };
            buffer.write(0, bytes);
            buffer.write(end as u32, &record.finish(crc::register(u32::MAX, &bytes[..end])));
        })?;
    }
    recorder.finish(&RunCounters::default())?;
    let verified = || -> Outcome<f64> {
        let verdict = verify(path, &VerifyOptions::default())?;
        assert!(verdict.verified, "{verdict:?}");
        Ok(verdict.bytes as f64 / verdict.seconds / 1e9)
    };
    let disk = verified()?;
    std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
    println!("{}", serde_json::json!({ "disk_gbs": disk, "cached_gbs": verified()? }));
    Ok(())
}

/// Records into a bounded run of `parts` parts. The parts of the first lap are new files; later laps reuse them.
fn ring(path: &Path, gib: f64, parts: u64, laps: u32) -> Outcome<()> {
    let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000)?;
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, POOL_BYTES / geometry.slot_bytes(), geometry.slot_bytes())?;
    let lap = rows(gib, geometry, 1);
    let config = RunRecorderConfig {
        outs: vec![path.to_owned()],
        recorder: RecorderConfig { overwrite: true, ..RecorderConfig::new(lap) },
        roll: Roll { rows: Some(lap / parts), ..Roll::default() },
        // Also space for ending the parts.
        keep: Some(((gib + 0.1) * (1_u64 << 30) as f64) as u64),
        rows: None,
    };
    let mut set = RunRecorder::create(&config, &run(geometry, 1), &registrar.finish())?;
    let presence = whole(geometry);
    let meta = |number| ShotMeta {
        stream: 0,
        number,
        stamp_tai_ns: number,
        arrived_tai_ns: 0,
        completed_tai_ns: 0,
        flags: 0,
        record_good: true,
        valid_bytes: geometry.sample_bytes(),
        presence: Arc::new(presence.clone()),
        drops: DropCounters::default(),
    };
    for index in 0..u64::from(laps) {
        let (cpu, started) = (processor_seconds(), Instant::now());
        for number in index * lap..(index + 1) * lap {
            let buffer = loop {
                match pool.take() {
                    Some(buffer) => break buffer,
                    None => set.poll(WAIT)?,
                }
            };
            let mut event = Event { number, shots: Default::default() };
            event.shots.push(Some(Shot { meta: meta(number), buffer }));
            while let Err(back) = set.offer(event) {
                event = back;
                set.poll(WAIT)?;
            }
        }
        let (seconds, cpu) = (started.elapsed().as_secs_f64(), processor_seconds() - cpu);
        let bytes = lap * u64::from(geometry.slot_bytes());
        println!("{}", serde_json::json!({ "lap": index, "bytes": bytes, "seconds": seconds, "cpu_s": cpu }));
    }
    set.abandon();
    Ok(())
}

/// Returns the processor time of all threads of this process, in seconds.
fn processor_seconds() -> f64 {
    let clock = clock_gettime(ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}
