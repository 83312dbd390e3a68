//! How fast the recorder writes, beside fio on the same file system with the same block size, in turn.
//!
//! ```text
//! cargo run --release --example recorder_throughput -- DIRECTORY [GIB] [ROUNDS] [DEPTH,DEPTH,…]
//! cargo run --release --example recorder_throughput -- --layout DIRECTORY ROWS,ROWS,…
//! cargo run --release --example recorder_throughput -- --verify DIRECTORY [GIB]
//! ```
//!
//! Shots are those of one link of 96 channels and 2000 12-bit samples (slots of 290,816 bytes), from a pool
//! of 256 MiB. fio runs with io_uring, registered buffers and files, O_DIRECT, and `fallocate=native`, as the
//! recorder does. Prints medians and the ratio of the two.

use shotline_compute::prbs;
use shotline_memory::{Pool, Registrar};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::layout::{CreateOptions, create};
use shotline_store::shot::{Books, Event, Shot, ShotMeta};
use shotline_store::{Recorder, RecorderConfig, VerifyOptions, verify};
use shotline_wire::crc;
use shotline_wire::record::Record;
use shotline_wire::shot::{Drops, Geometry, Packing, Presence};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const POOL_BYTES: u32 = 256 << 20;
/// What is measured of one run: GB/s, and processor seconds per second of it.
type Measured = (f64, f64);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).map_or(default.to_owned(), Clone::clone);
    if argument(0, "") == "--layout" {
        return layout_times(Path::new(&argument(1, ".")), &argument(2, "10000,100000"));
    }
    if argument(0, "") == "--verify" {
        return verify_speed(Path::new(&argument(1, ".")), argument(2, "2").parse()?);
    }
    let directory = argument(0, ".");
    let (gib, rounds): (f64, usize) = (argument(1, "4").parse()?, argument(2, "3").parse()?);
    let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000)?;
    let rows = (gib * (1_u64 << 30) as f64 / f64::from(geometry.slot_bytes())) as u64;
    println!("{:>5} {:>10} {:>10} {:>6} {:>9} {:>9}", "depth", "rec GB/s", "fio GB/s", "ratio", "rec cpu", "fio cpu");
    for depth in argument(3, "2,4,8,16,32").split(',') {
        let depth: u32 = depth.parse()?;
        let (mut ours, mut fios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(record(Path::new(&directory), geometry, rows, depth)?);
            fios.push(fio(Path::new(&directory), geometry, rows, depth)?);
        }
        let (ours, fios) = (median(ours), median(fios));
        println!(
            "{depth:>5} {:>10.2} {:>10.2} {:>6.2} {:>9.2} {:>9.2}",
            ours.0,
            fios.0,
            ours.0 / fios.0,
            ours.1,
            fios.1
        );
    }
    Ok(())
}

fn run(geometry: Geometry) -> RunInfo {
    RunInfo::new(vec![LinkInfo { name: "bench".into(), stream: 0, geometry }])
}

fn record(directory: &Path, geometry: Geometry, rows: u64, depth: u32) -> Outcome<Measured> {
    let path = directory.join("recorder_throughput.h5");
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, POOL_BYTES / geometry.slot_bytes(), geometry.slot_bytes())?;
    let config = RecorderConfig { in_flight: depth, overwrite: true, ..RecorderConfig::new(rows) };
    let mut recorder = Recorder::create(&path, &config, &run(geometry), &registrar.finish())?;
    for warning in recorder.warnings() {
        eprintln!("{warning}");
    }
    let mut presence = Presence::empty(geometry.packets());
    (0..geometry.packets()).for_each(|index| assert!(presence.insert(index)));
    let (cpu, started) = (processor_seconds(), Instant::now());
    for number in 0..rows {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(Some(Duration::from_millis(10)))?),
            }
        };
        let meta = ShotMeta {
            stream: 0,
            number,
            stamp_tai_ns: number,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: geometry.sample_bytes(),
            presence: presence.clone(),
            drops: Drops::default(),
        };
        let mut event = Event { number, shots: [Some(Shot { meta, buffer })].into_iter().collect() };
        while let Err(back) = recorder.offer(event) {
            event = back;
            recorder.poll(Some(Duration::from_millis(10)))?;
        }
    }
    while recorder.pending() > 0 {
        recorder.poll(Some(Duration::from_millis(10)))?;
    }
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), processor_seconds() - cpu);
    let report = recorder.finish(&Books::default())?;
    std::fs::remove_file(&path)?;
    Ok((report.bytes as f64 / seconds / 1e9, cpu / seconds))
}

fn fio(directory: &Path, geometry: Geometry, rows: u64, depth: u32) -> Outcome<Measured> {
    let path = directory.join("recorder_throughput.fio");
    let block = geometry.slot_bytes();
    let output = Command::new("fio")
        .args(["--name=peer", "--rw=write", "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1"])
        .args(["--fallocate=native", "--output-format=json", "--thread"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={block}"))
        .arg(format!("--size={}", rows * u64::from(block)))
        .arg(format!("--iodepth={depth}"))
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..])?;
    std::fs::remove_file(&path)?;
    let job = &json["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().ok_or("fio printed no such number");
    Ok((number(&job["write"]["bw_bytes"])? / 1e9, (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0))
}

fn layout_times(directory: &Path, rows: &str) -> Outcome<()> {
    let geometry = Geometry::new(8, 100, 12, Packing::Packed12, 0)?;
    let path = directory.join("layout_times.h5");
    for rows in rows.split(',') {
        let rows = rows.parse()?;
        let started = Instant::now();
        let mut run = run(geometry);
        run.links.push(LinkInfo { stream: 1, ..run.links[0].clone() });
        let opened = create(&path, &run, CreateOptions { rows, overwrite: true })?;
        let (seconds, layout) = (started.elapsed().as_secs_f64(), &opened.layout);
        let tail = layout.end - layout.data_end(rows);
        println!("{rows:>9} rows of 2 links: laid out in {seconds:.3} s; {tail} bytes of indexes and tables");
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// Records test patterns and proves them, from the disk and then from the page cache.
fn verify_speed(directory: &Path, gib: f64) -> Outcome<()> {
    const PERIOD: u64 = 16;
    let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000)?;
    let rows = (gib * (1_u64 << 30) as f64 / f64::from(geometry.slot_bytes())) as u64;
    let mut run = run(geometry);
    run.pattern_period = Some(PERIOD);
    let path = directory.join("verify_speed.h5");
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, 32, geometry.slot_bytes())?;
    let config = RecorderConfig { overwrite: true, ..RecorderConfig::new(rows) };
    let mut recorder = Recorder::create(&path, &config, &run, &registrar.finish())?;
    let mut presence = Presence::empty(geometry.packets());
    (0..geometry.packets()).for_each(|index| assert!(presence.insert(index)));
    let end = geometry.trailer_offset() as usize;
    let patterns: Vec<Vec<u8>> = (0..PERIOD)
        .map(|pattern| {
            let mut bytes = vec![0; geometry.slot_bytes() as usize];
            prbs::shot_bytes(0, pattern, &geometry, &mut bytes[..geometry.sample_bytes() as usize]);
            bytes
        })
        .collect();
    for number in 0..rows {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(Some(Duration::from_millis(10)))?),
            }
        };
        let bytes = &patterns[(number % PERIOD) as usize];
        let record = Record { shot: number, tai_ns: number, ..Record::of(&geometry) };
        buffer.write(0, bytes);
        buffer.write(end as u32, &record.finish(crc::register(u32::MAX, &bytes[..end])));
        let meta = ShotMeta {
            stream: 0,
            number,
            stamp_tai_ns: number,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: geometry.sample_bytes(),
            presence: presence.clone(),
            drops: Drops::default(),
        };
        let mut event = Event { number, shots: [Some(Shot { meta, buffer })].into_iter().collect() };
        while let Err(back) = recorder.offer(event) {
            event = back;
            recorder.poll(Some(Duration::from_millis(10)))?;
        }
    }
    let report = recorder.finish(&Books::default())?;
    println!(
        "recorded {:.2} GB/s, every shot made and its CRC taken on the recorder's thread",
        report.bytes as f64 / report.seconds / 1e9
    );
    for cache in ["from the disk", "from the page cache"] {
        if cache.ends_with("cache") {
            std::io::copy(&mut std::fs::File::open(&path)?, &mut std::io::sink())?;
        }
        let verdict = verify(&path, &VerifyOptions::default())?;
        assert!(verdict.verified, "{verdict:?}");
        println!("verified {:.2} GB/s ({cache})", verdict.bytes as f64 / verdict.seconds / 1e9);
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

fn median(mut values: Vec<Measured>) -> Measured {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values[values.len() / 2]
}

/// Of all threads of this process.
fn processor_seconds() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}
