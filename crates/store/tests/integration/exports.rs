//! Every export format passes the conformance suite.

use crate::common::{Drive, Recording, run, shot};
use shotline_conformance::{Failure, Outcome};
use shotline_memory::Buffer;
use shotline_store::export::Format;
use shotline_store::export::conformance::{self, Counts, Fixture};
use shotline_store::info::RunInfo;
use shotline_store::shot::{Loss, RunCounters, StreamRunCounters};
use shotline_testing::skip;
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SHOTS: u64 = 24;
/// Number of a shot that is in no row.
const SKIPPED: u64 = 5;
/// Number of a shot in a row, as lost.
const LOST: u64 = 14;
/// Numbers of shots without their second packet.
const PARTIAL: [u64; 2] = [7, 19];

/// Recordings of two links for a format, in a file or on a raw device, and the folders handed out.
struct Recordings {
    folder: TempDir,
    folders: RefCell<Vec<TempDir>>,
    drives: RefCell<Vec<Drive>>,
}

impl Recordings {
    fn new(format: Format) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Self { folder, folders: RefCell::default(), drives: RefCell::default() };
        File::create(made.folder.path().join("drive")).unwrap().set_len(64 << 20).unwrap();
        record(&made.path(format, "full"), 0..SHOTS);
        record(&made.path(format, "empty"), 0..0);
        made
    }

    fn path(&self, format: Format, name: &str) -> PathBuf {
        let folder = self.folder.path();
        match format {
            Format::Hdf5 => PathBuf::from(format!("block:{}/{name}", folder.join("drive").display())),
            Format::Uff | Format::Zea | Format::DigitalRf | Format::SigMf | Format::Zarr | Format::Pcapng => {
                folder.join(format!("{name}.h5"))
            }
        }
    }
}

impl Fixture for Recordings {
    fn recording(&self, format: Format) -> Result<PathBuf, Failure> {
        Ok(self.path(format, "full"))
    }
    fn counts(&self) -> Counts {
        Counts { complete: SHOTS - 4, partial: PARTIAL.len() as u64, lost: 2 }
    }
    fn empty(&self, format: Format) -> Result<PathBuf, Failure> {
        Ok(self.path(format, "empty"))
    }
    fn folder(&self) -> Result<PathBuf, Failure> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().to_owned();
        self.folders.borrow_mut().push(folder);
        Ok(path)
    }
    fn full(&self) -> Result<PathBuf, String> {
        let drive = Drive::new(1)?;
        drive.fill();
        let path = drive.path().to_owned();
        self.drives.borrow_mut().push(drive);
        Ok(path)
    }
}

/// Records contiguous shots: 300 samples at 300 MHz, one every microsecond.
fn record(path: &Path, numbers: std::ops::Range<u64>) {
    let g = Geometry::new(16, 300, 16, Packing::Int16Le, 300_000_000).unwrap();
    let mut info = run(&[g, g]);
    info.framing = "ud".into();
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::of(folder, path.to_owned(), info.clone(), |config| config.rows = SHOTS);
    let stream = |link: u32| info.links[link as usize].stream;
    let partial = |number| move |link, buffer: Buffer| Some(shot(buffer, stream(link), number, g, |p| p != 1));
    for number in numbers.clone() {
        if [SKIPPED, LOST].contains(&number) {
            let loss = |stream| Loss { stream, cause: DropCause::NoBuffer, first: number, count: 1 };
            info.links.iter().for_each(|link| recording.recorder.loss(loss(link.stream)));
        }
        match number {
            SKIPPED => {}
            LOST => recording.event(number, |_, _| None),
            _ if PARTIAL.contains(&number) => recording.event(number, partial(number)),
            _ => recording.whole(number),
        }
    }
    recording.finish(&counters(&info, numbers.end));
}

fn counters(info: &RunInfo, shots: u64) -> RunCounters {
    let stream = |stream| {
        let mut counters = StreamRunCounters { stream, ..StreamRunCounters::default() };
        if shots > 0 {
            counters.shots_seen = shots;
            counters.shots_complete = shots - 4;
            counters.shots_partial = 2;
            counters.shot_drops.add(DropCause::NoBuffer, 2);
        }
        counters
    };
    RunCounters { streams: info.links.iter().map(|link| stream(link.stream)).collect() }
}

/// Runs every check on a format.
fn passes(format: Format) {
    let report = conformance::run(&Recordings::new(format), format, "");
    report.expect_conformance();
    for (check, outcome) in report.outcomes {
        if let (true, Outcome::NotRun(why)) = (check.contains("full drive"), outcome) {
            skip!("{why}");
        }
    }
}

macro_rules! conform {
    ($($test:ident: $format:ident,)+) => {
        $(#[test]
        fn $test() {
            passes(Format::$format);
        })+

        /// A format without a line here does not compile.
        const _: fn(Format) = |format| match format {
            $(Format::$format => {})+
        };
    };
}

conform! {
    uff_conforms: Uff,
    zea_conforms: Zea,
    digital_rf_conforms: DigitalRf,
    sigmf_conforms: SigMf,
    zarr_conforms: Zarr,
    pcapng_conforms: Pcapng,
    hdf5_conforms: Hdf5,
}
