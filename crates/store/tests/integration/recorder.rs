//! Recorder output, read by libhdf5, h5py, and both verifiers.

use crate::common::{
    self, PERIOD, Recording, blocks, description, needs_python, python, python_verdict, run, shot, small,
};
use serde_json::json;
use shotline_compute::prbs::Prbs;
use shotline_store::codec::Codec;
use shotline_store::info::RunInfo;
use shotline_store::recover::recover;
use shotline_store::rows::State;
use shotline_store::shot::{Loss, RunCounters, StreamRunCounters};
use shotline_store::{StoreError, VerifyOptions, inspect, read, set, verify};
use shotline_testing::{or_skip, wait_until_asleep};
use shotline_wire::shot::{DropCause, Geometry, Packing};
use std::time::Duration;

fn expected(stream: u32, number: u64, g: Geometry) -> Vec<i16> {
    let mut samples = vec![0; usize::from(g.channels()) * g.samples() as usize];
    Prbs::new(stream, number % PERIOD, g.channels(), g.bits()).fill(&mut samples);
    samples
}

/// Records two links, reads the samples through libhdf5's n-bit filter, and runs both verifiers.
fn records_and_reads_back(packing: Packing) {
    let g = small(packing);
    let mut recording = Recording::new(run(&[g, g]), |config| config.rows = 40);
    (100..140).for_each(|number| recording.whole(number));
    let (path, report) = recording.finish(&RunCounters::default());
    assert_eq!((report.rows, report.complete, report.lost, report.sink_error), (40, 80, 0, 0), "{report:?}");

    let file = hdf5::File::open(&*path).unwrap();
    for (link, stream) in [(0, 7), (1, 8)] {
        let rf = file.dataset(&format!("link{link}/rf")).unwrap();
        assert_eq!(rf.shape(), [40, 300, 16]);
        let all = rf.read_raw::<i16>().unwrap();
        for (row, samples) in all.chunks(300 * 16).enumerate() {
            assert!(samples == expected(stream, 100 + row as u64, g), "row {row} of link {link}");
        }
    }
    let joined = file.dataset("rf").unwrap();
    assert_eq!(joined.shape(), [40, 300, 32]);
    let both = joined.read_slice_1d::<i16, _>((3, 5, ..)).unwrap().to_vec();
    assert_eq!(both[..16], expected(7, 103, g)[5 * 16..6 * 16]);
    assert_eq!(both[16..], expected(8, 103, g)[5 * 16..6 * 16]);
    drop(file);

    let verdict = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.pattern && verdict.finished, "{verdict:#?}");
    assert_eq!(verdict.links[1].records, 40);
    python_verdict(&path, true);
}

#[test]
fn all_readers_read_packed_samples() {
    or_skip!(needs_python());
    records_and_reads_back(Packing::Packed12);
}

#[test]
fn all_readers_read_16_bit_samples() {
    or_skip!(needs_python());
    records_and_reads_back(Packing::Int16Le);
}

#[test]
fn only_links_of_equal_geometry_are_joined() {
    or_skip!(needs_python());
    let (a, b) = (small(Packing::Packed12), Geometry::new(3, 1000, 14, Packing::Int16Le, 0).unwrap());
    let mut recording = Recording::new(run(&[a, b]), |config| config.rows = 9);
    (0..9).for_each(|number| recording.whole(number));
    let (path, _) = recording.finish(&RunCounters::default());
    let file = hdf5::File::open(&*path).unwrap();
    assert!(file.dataset("rf").is_err());
    assert_eq!(
        file.dataset("link1/rf").unwrap().read_slice_1d::<i16, _>((8, .., 2)).unwrap()[999],
        expected(8, 8, b)[2999]
    );
    drop(file);
    python_verdict(&path, true);

    let mut recording = Recording::new(run(&[b]), |config| config.rows = 2);
    (0..2).for_each(|number| recording.whole(number));
    let (path, _) = recording.finish(&RunCounters::default());
    let file = hdf5::File::open(&*path).unwrap();
    assert_eq!(file.dataset("rf").unwrap().shape(), file.dataset("link0/rf").unwrap().shape());
    drop(file);
    python_verdict(&path, true);
}

#[test]
fn an_early_end_frees_space_and_leaves_no_phantom_rows() {
    or_skip!(needs_python());
    let g = small(Packing::Packed12);
    // A leaf of the index has 256 chunks; a row is two.
    for (rows, recorded) in [(140, 3), (140, 0), (140, 139), (140, 140), (3000, 150)] {
        let mut recording = Recording::new(run(&[g, g]), |config| config.rows = rows);
        (0..recorded).for_each(|number| recording.whole(number));
        let laid_out = recording.path.metadata().unwrap().len();
        let (path, report) = recording.finish(&RunCounters::default());
        let len = path.metadata().unwrap().len();
        assert_eq!((report.rows, report.file_bytes), (recorded, len));
        assert!(recorded == rows || len < laid_out, "{len} bytes of {laid_out}");
        let needed = recorded * 2 * u64::from(g.slot_bytes());
        assert!(len < needed + needed / 8 + 600_000, "{len} bytes for {needed} of slots");
        let summary = inspect(&path).unwrap();
        assert_eq!((summary.rows, summary.allocated_rows, summary.finished), (recorded, recorded, true));
        let file = hdf5::File::open(&*path).unwrap();
        assert_eq!(
            file.dataset("rf").unwrap().num_chunks(),
            Some(2 * recorded as usize),
            "no chunk after the last row"
        );
        drop(file);
        assert!(verify(&path, &VerifyOptions::default()).unwrap().verified);
        python_verdict(&path, true);
    }
}

#[test]
fn readers_opened_before_the_end_continue_after_it() {
    let g = small(Packing::Packed12);
    for codec in [None, Some(Codec::Lz4)] {
        for durable in [false, true] {
            let run = RunInfo { codec, ..run(&[g, g]) };
            let mut recording = Recording::new(run, |config| (config.rows, config.durable) = (2000, durable));
            (0..10).for_each(|number| recording.whole(number));
            while recording.recorder.visible() < 10 {
                recording.recorder.poll(Some(Duration::from_millis(5))).unwrap();
            }
            let mut reader = read::Recording::open(&recording.path).unwrap();
            let mut slots = vec![reader.slot_reader().read(3, 1).unwrap().to_vec()];
            assert!(reader.final_counters().unwrap().is_none() && reader.rows() == 10);
            // Finishing truncates the space allocated for more rows.
            let (_path, _) = recording.finish(&RunCounters::default());
            assert!(reader.final_counters().unwrap().is_some());
            assert_eq!(reader.row(9, 1).unwrap().number, 9);
            slots.push(reader.slot_reader().read(3, 1).unwrap().to_vec());
            assert!(slots[0] == slots[1] && reader.losses().unwrap().is_empty());
            assert_eq!((reader.refresh().unwrap(), reader.allocated_rows()), (10, 10));
            reader.check_index().unwrap();
        }
    }
}

/// Checks the table of block descriptions of both links with h5py.
const CHECK_BLOCKS: &str = "
import h5py
def check(file, link, stream):
    group = file[f'link{link}']
    blocks, shots = group['blocks'], group['shots']
    assert len(blocks) == len(shots) == len(group['rf']) == args[1], (len(blocks), len(shots))
    assert list(group['rf'].attrs['components']) == ['I', 'Q']
    for row, (block, shot) in enumerate(zip(blocks, shots)):
        if row == 3:
            assert shot['state'] == 1 and block['peaks_found'] == 0 and block['snr_db'] == 0, block
            continue
        assert block['centre_hz'] == 1.3e9 and block['clock_offset_ns'] == -stream, block
        assert block['snr_db'] == 60 + shot['number'] and block['fft_points'] == 4096, block
        peaks = block['peaks'][:block['peaks_found']]
        assert [peak['frequency_hz'] for peak in peaks] == [1e6, -2e6] and peaks[1]['power_dbfs'] == -3, peaks
with h5py.File(args[0]) as file:
    for link, stream in enumerate((7, 8)):
        check(file, link, stream)
";

#[test]
fn block_descriptions_are_a_table_over_the_stored_bytes() {
    or_skip!(needs_python());
    let g = blocks();
    let mut recording = Recording::new(run(&[g, g]), |config| config.rows = 40);
    // The last packet contains the description, so it is missing from shot 3.
    recording.whole(0);
    recording.whole(1);
    recording.whole(2);
    recording.event(3, |link, buffer| Some(shot(buffer, 7 + link, 3, g, |packet| packet + 1 < g.packets())));
    (4..20).for_each(|number| recording.whole(number));
    recording.settle();
    assert_eq!(description(7, 1).peaks.len(), 2);
    let check = |path: &std::path::Path| python(CHECK_BLOCKS, json!([path, 20]));
    check(&recording.path);
    // The run ends early: the table moves with the tail.
    let (path, report) = recording.finish(&RunCounters::default());
    assert_eq!((report.rows, report.complete, report.partial), (20, 38, 2), "{report:?}");
    check(&path);
    let verdict = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && verdict.finished, "{verdict:#?}");
    python_verdict(&path, true);
    // Recovery has nothing to do and leaves the table unchanged.
    let recovered = recover(&path, false, &|_, _| {}).unwrap();
    assert_eq!(recovered.rows, 20);
    check(&path);
}

#[test]
fn live_runs_can_be_read_but_not_written() {
    or_skip!(needs_python());
    let g = small(Packing::Packed12);
    let mut recording = Recording::new(run(&[g, g]), |config| {
        config.rows = 100;
        config.commit_every = Duration::ZERO;
    });
    assert_eq!(hdf5::File::open(&recording.path).unwrap().dataset("link1/rf").unwrap().shape(), [0, 300, 16]);
    for number in 0..30 {
        recording.whole(number);
        recording.settle();
        let file = hdf5::File::open(&recording.path).unwrap();
        for name in ["rf", "link0/rf", "link1/rf", "link0/shots", "link1/shots"] {
            assert_eq!(file.dataset(name).unwrap().shape()[0], number as usize + 1, "{name}");
        }
        let rf = file.dataset("link1/rf").unwrap();
        assert_eq!(
            rf.read_slice_1d::<i16, _>((number as usize, 299, ..)).unwrap().to_vec(),
            expected(8, number, g)[299 * 16..]
        );
    }
    let verdict = verify(&recording.path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified && !verdict.finished, "{verdict:#?}");
    python_verdict(&recording.path, true);
    assert!(hdf5::File::open_rw(&recording.path).is_err(), "a second writer is locked out");
    assert!(matches!(recover(&recording.path, true, &|_, _| ()), Err(StoreError::InUse { .. })));
    recording.finish(&RunCounters::default());
}

#[test]
fn missing_data_reads_as_zeros_and_counters_are_stored() {
    or_skip!(needs_python());
    let g = small(Packing::Packed12);
    let mut recording = Recording::new(run(&[g, g]), |config| config.rows = 50);
    recording.whole(10);
    recording.event(11, |link, buffer| (link == 0).then(|| shot(buffer, 7, 11, g, |_| true)));
    recording.event(12, |link, buffer| Some(shot(buffer, 7 + link, 12, g, |packet| packet != 0)));
    recording.event(13, |link, buffer| Some(shot(buffer, 7 + link, 13, g, |packet| packet != g.packets() - 1)));
    for (first, count) in [(14, 1), (15, 2), (17, 1)] {
        for stream in [7, 8] {
            recording.recorder.loss(Loss { stream, cause: DropCause::SinkBusy, first, count });
        }
    }
    recording.recorder.loss(Loss { stream: 8, cause: DropCause::NoBuffer, first: 11, count: 1 });
    let mut counters = RunCounters::default();
    for stream in [7, 8] {
        let mut stream_counters = StreamRunCounters {
            stream,
            shots_seen: 8,
            shots_partial: 2,
            packets_in: 9,
            packets_placed: 9,
            ..Default::default()
        };
        stream_counters.shots_complete = if stream == 7 { 2 } else { 1 };
        stream_counters.packet_drops.add(DropCause::WireGap, 2);
        stream_counters.shot_drops.add(DropCause::SinkBusy, 4);
        stream_counters.shot_drops.add(DropCause::NoBuffer, u64::from(stream == 8));
        stream_counters.more.push(("icrc_solved".into(), 5));
        counters.streams.push(stream_counters);
    }
    let (path, report) = recording.finish(&counters);
    assert_eq!((report.complete, report.partial, report.lost), (3, 4, 1));
    assert_eq!(report.losses, [("no_buffer".to_owned(), 1), ("sink_busy".to_owned(), 8)]);

    let file = hdf5::File::open(&*path).unwrap();
    let absent = file.dataset("link1/rf").unwrap().read_slice_1d::<i16, _>((1, 0, ..)).unwrap();
    assert!(absent.iter().all(|sample| *sample == 0));
    drop(file);
    let summary = inspect(&path).unwrap();
    assert_eq!(summary.links[1].lost, 1);
    assert_eq!(summary.links[0].drops["wire_gap"], 2);
    assert_eq!(summary.losses.len(), 1 + 2, "consecutive losses of a stream are one entry: {:?}", summary.losses);
    assert_eq!(summary.counters[&8]["icrc_solved"], 5);
    assert_eq!((summary.first, summary.last, summary.totals["rows_lost"]), (Some(10), Some(13), 1));
    assert!(serde_json::to_string(&summary).unwrap().contains("\"packing\":\"packed12_msb_first\""));
    let verdict = verify(&path, &VerifyOptions::default()).unwrap();
    assert!(verdict.verified, "{verdict:#?}");
    python_verdict(&path, true);
}

#[test]
fn both_verifiers_find_damage() {
    or_skip!(needs_python());
    use std::os::unix::fs::FileExt;
    let g = small(Packing::Packed12);
    let damaged = tempfile::tempdir().unwrap();
    let good = |name: &str| {
        let mut recording = Recording::new(run(&[g, g]), |config| config.rows = 4);
        (0..3).for_each(|number| recording.whole(number));
        recording.event(3, |link, buffer| Some(shot(buffer, 7 + link, 3, g, |packet| packet != 1)));
        let (path, _) = recording.finish(&RunCounters::default());
        let new = damaged.path().join(name);
        std::fs::copy(&*path, &new).unwrap();
        let layout = shotline_store::layout::open(&new).unwrap().1.layout.clone();
        (new, layout)
    };
    let damage = |name: &str, at: &dyn Fn(&shotline_store::layout::Layout) -> u64, byte: u8| {
        let (path, layout) = good(name);
        std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&[byte], at(&layout)).unwrap();
        let verdict = verify(&path, &VerifyOptions::default()).unwrap();
        assert!(!verdict.verified && verdict.mismatches > 0, "{name}");
        python_verdict(&path, false);
        verdict.first_mismatches
    };
    let sample = damage("sample", &|l| l.slot(1, 1) + 77, 0xA5);
    assert!(sample[0].contains("CRC"), "{sample:?}");
    assert!(sample[1].contains("packet 0 does not match pattern 1"), "{sample:?}");
    let stale = damage("stale", &|l| l.slot(3, 0) + 4096 + 9, 1);
    assert!(stale[0].contains("CRC-32") && stale[1].contains("packet 1 is missing"), "{stale:?}");
    damage("after the shot", &|l| l.slot(0, 0) + u64::from(g.shot_bytes()), 1);
    damage("number", &|l| l.shots[0].row_offset(2), 99);
    damage("state", &|l| l.shots[0].row_offset(2) + 28, State::Partial as u8);
    damage("totals", &|l| l.counters.row_offset(1), 99);
}

#[test]
fn obstacles_are_reported_before_the_run() {
    let g = small(Packing::Packed12);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.h5");
    let (_, regions) = common::pool(2, g.slot_bytes());
    let mut config = shotline_store::RecorderConfig::new(10);
    let create =
        |path: &std::path::Path, config: &_| shotline_store::Recorder::create(path, config, &run(&[g]), &regions);
    let first = create(&path, &config).unwrap();
    assert!(matches!(create(&path, &config), Err(StoreError::Exists { .. })));
    config.overwrite = true;
    drop(first);
    drop(create(&path, &config).unwrap());
    let error = create(&directory.path().join("no/such/a.h5"), &config).unwrap_err();
    assert!(matches!(error, StoreError::Create { .. }), "{error}");
    config.rows = 1 << 40;
    let error = create(&directory.path().join("b.h5"), &config).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace { needed, .. } if needed > 8192 << 40), "{error}");
    assert!(error.to_string().contains("--shots"));
    config.rows = u64::MAX;
    let error = create(&directory.path().join("b.h5"), &config).unwrap_err();
    assert!(matches!(error, StoreError::Run(_)), "{error}");
    assert!(!directory.path().join("b.h5").exists(), "no file is left");
}

#[test]
fn wakers_end_a_wait() {
    let g = small(Packing::Packed12);
    let mut recording = Recording::new(run(&[g]), |config| config.rows = 1);
    // Longer than the timeout of the test runner.
    let long = Some(Duration::from_secs(3600));
    let (waker, sleeper) = (recording.recorder.waker(), rustix::thread::gettid().as_raw_nonzero().get());
    let thread = std::thread::spawn(move || {
        wait_until_asleep(sleeper);
        waker.wake();
    });
    recording.recorder.poll(long).unwrap();
    thread.join().unwrap();
    // A wake-up before the wait counts.
    recording.recorder.waker().wake();
    recording.recorder.poll(long).unwrap();
}

#[test]
fn durable_and_buffered_runs_are_valid() {
    let g = small(Packing::Int16Le);
    for (durable, direct) in [(true, true), (false, false), (true, false)] {
        let mut recording = Recording::new(run(&[g, g]), |config| {
            config.rows = 60;
            config.durable = durable;
            config.direct = direct;
            config.commit_every = Duration::from_millis(1);
        });
        (0..50).for_each(|number| recording.whole(number));
        recording.settle();
        let (path, report) = recording.finish(&RunCounters::default());
        assert_eq!(report.rows, 50);
        assert!(verify(&path, &VerifyOptions::default()).unwrap().verified);
    }
}

#[test]
fn files_other_than_hdf5_are_reported_with_first_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    for (bytes, words) in [(&b"not one"[..], "begins with 6e 6f 74 20 6f 6e 65"), (b"", "an empty one")] {
        std::fs::write(&path, bytes).unwrap();
        let refused =
            [verify(&path, &VerifyOptions::default()).err(), set::recover(&path, &[], true, &|_, _| ()).err()];
        for error in refused.map(|error| error.unwrap().to_string()) {
            assert!(error.contains("expected an HDF5 file") && error.contains(words), "{error}");
        }
    }
}
