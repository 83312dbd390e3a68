//! Measures how fast a recorder compresses shots from memory. `bench/compress.py` compares it with h5py and hdf5plugin.
//!
//! ```text
//! cargo run --release --example compress_throughput -- SAMPLES FILE CHANNELS COUNT PACKING CODEC LEVEL THREADS SHOTS
//! ```
//!
//! `SAMPLES` is a file of consecutive shots of `COUNT` samples per channel, as 16-bit little-endian integers (packings
//! 0 and 1) or bytes (2). They are recorded repeatedly, `SHOTS` in total. A shot is offered only when the compression
//! queue has space, so that none is stored uncompressed because compression could not keep up. Prints one JSON object.

use shotline_compute::pack12;
use shotline_memory::{Buffer, Pool, Registrar};
use shotline_store::codec::{self, Codec};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
use shotline_store::{Recorder, RecorderConfig};
use shotline_wire::shot::{DropCounters, Geometry, Packing, Presence, Trailer};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WAIT: Option<Duration> = Some(Duration::from_millis(10));
/// Maximum size of the shot buffers, in bytes.
const POOL_BYTES: u32 = 512 << 20;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, channels, count, packing, codec, level, threads, shots] = arguments.as_slice() else {
        return Err("expected SAMPLES FILE CHANNELS COUNT PACKING CODEC LEVEL THREADS SHOTS".into());
    };
    let packing = Packing::from_u8(packing.parse()?).ok_or("expected packing 0, 1 or 2")?;
    let bits = packing.bits_per_sample() as u8;
    // Without an end-of-shot record, because chunks written by h5py have none.
    let geometry = Geometry::new(channels.parse()?, count.parse()?, bits, packing, 0)?;
    let geometry = geometry.sent_as(Trailer::None, geometry.packetization())?;
    let codec = match (codec.parse::<Codec>()?, level.parse()?) {
        (Codec::Zstd(_), level) => Codec::Zstd(level),
        (codec, _) => codec,
    };
    let (threads, rows) = (threads.parse()?, shots.parse()?);

    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, POOL_BYTES / geometry.slot_bytes(), geometry.slot_bytes())?;
    let buffers = load(&std::fs::read(input)?, &geometry, || pool.take())?;
    let run =
        RunInfo { codec: Some(codec), ..RunInfo::new(vec![LinkInfo { name: "bench".into(), stream: 0, geometry }]) };
    let config = RecorderConfig { overwrite: true, compress_threads: Some(threads), ..RecorderConfig::new(rows) };
    let started = Instant::now();
    let mut recorder = Recorder::create(Path::new(output), &config, &run, &registrar.finish())?;
    let create_s = started.elapsed().as_secs_f64();

    let started = Instant::now();
    for number in 0..rows {
        while recorder.pending() >= codec::max_held_buffers(threads).max(1) {
            recorder.poll(WAIT)?;
        }
        let buffer = buffers[number as usize % buffers.len()].clone();
        let mut event =
            Event { number, shots: [Some(Shot { meta: meta(number, &geometry), buffer })].into_iter().collect() };
        while let Err(back) = recorder.offer(event) {
            event = back;
            recorder.poll(WAIT)?;
        }
    }
    while recorder.pending() > 0 {
        recorder.poll(WAIT)?;
    }
    let report = recorder.finish(&RunCounters::default())?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "seconds": seconds,
            "laid_out_s": create_s,
            "file_bytes": report.file_bytes,
            "chunks": report.chunks,
            "warnings": report.warnings,
        })
    );
    Ok(())
}

/// Loads the shots of a file into buffers, packed as on the wire.
fn load(bytes: &[u8], geometry: &Geometry, take: impl Fn() -> Option<Buffer>) -> Outcome<Vec<Buffer>> {
    let samples = usize::from(geometry.channels()) * geometry.samples() as usize;
    let shot_bytes = if geometry.packing() == Packing::Uint8 { samples } else { 2 * samples };
    let mut slot = vec![0; geometry.slot_bytes() as usize];
    let mut buffers = Vec::new();
    for shot in bytes.chunks_exact(shot_bytes) {
        let to = &mut slot[..geometry.sample_bytes() as usize];
        if geometry.packing() == Packing::Packed12 {
            let shot: Vec<i16> = shot.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair)).collect();
            pack12::pack(&shot, to);
        } else {
            to.copy_from_slice(shot);
        }
        let Some(buffer) = take() else { break };
        buffer.write(0, &slot);
        buffers.push(buffer);
    }
    if buffers.is_empty() { Err("the file has not one whole shot".into()) } else { Ok(buffers) }
}

fn meta(number: u64, geometry: &Geometry) -> ShotMeta {
    let mut presence = Presence::empty(geometry.packets());
    (0..geometry.packets()).for_each(|index| assert!(presence.insert(index)));
    ShotMeta {
        stream: 0,
        number,
        stamp_tai_ns: 0,
        arrived_tai_ns: 0,
        completed_tai_ns: 0,
        flags: 0,
        record_good: true,
        valid_bytes: geometry.sample_bytes(),
        presence: std::sync::Arc::new(presence),
        drops: DropCounters::default(),
    }
}
