//! Shotline's part of `make bench-passthrough`: records `WRITES` shots of 128 KiB from memory to a raw device.
//!
//! ```text
//! raw_writes nvme:/dev/ng0n1 WRITES DEPTH
//! ```
//!
//! Rows are committed every 512 shots, about as often as the default interval of 20 ms does at 3 GB/s, so that the
//! number of commits does not depend on the speed of the device.

use shotline_memory::{Pool, Registrar};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
use shotline_store::{Recorder, RecorderConfig};
use shotline_wire::shot::{DropCounters, Geometry, Packing, Presence};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SHOT: u32 = 128 << 10;
const WAIT: Option<Duration> = Some(Duration::from_secs(1));

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, writes, depth] = &arguments[..] else { return Err("see the head of this file".into()) };
    let (writes, depth) = (writes.parse()?, depth.parse()?);
    let geometry = Geometry::new(64, 1023, 16, Packing::Int16Le, 40_000_000)?;
    assert_eq!(geometry.slot_bytes(), SHOT, "a shot is one write");
    let mut registrar = Registrar::new();
    let pool = Pool::new(&mut registrar, 2 * depth, SHOT)?;
    let config = RecorderConfig {
        in_flight: depth,
        overwrite: true,
        recycle: true,
        commit_every: Duration::from_secs(3600),
        commit_rows: 512,
        ..RecorderConfig::new(writes)
    };
    let run = RunInfo::new(vec![LinkInfo { name: "bench".into(), stream: 0, geometry }]);
    let mut recorder = Recorder::create(Path::new(target), &config, &run, &registrar.finish())?;
    let mut presence = Presence::empty(geometry.packets());
    (0..geometry.packets()).for_each(|index| assert!(presence.insert(index)));
    let presence = Arc::new(presence);
    for number in 0..writes {
        let buffer = loop {
            match pool.take() {
                Some(buffer) => break buffer,
                None => drop(recorder.poll(WAIT)?),
            }
        };
        let shot = Some(Shot {
            meta: ShotMeta {
                stream: 0,
                number,
                stamp_tai_ns: number,
                arrived_tai_ns: 0,
                completed_tai_ns: 0,
                flags: 0,
                record_good: true,
                valid_bytes: geometry.sample_bytes(),
                presence: Arc::clone(&presence),
                drops: DropCounters::default(),
            },
            buffer,
        });
        let mut event = Event { number, shots: vec![shot] };
        while let Err(back) = recorder.offer(event) {
            event = back;
            recorder.poll(WAIT)?;
        }
    }
    let report = recorder.finish(&RunCounters::default())?;
    assert_eq!((report.complete, report.sink_error), (writes, 0), "{report:?}");
    Ok(())
}
