//! Captures of recordings, checked by the capture reader, the framings and the ICRC.

use crate::common::{self, Recording, run, shot, small, stamp};
use proptest::prelude::*;
use shotline_store::pcapng::{
    self, CaptureError, Datagram, Endpoints, Frame, Interface, LinkType, LiveCapture, SkipReason, Statistics, Writer,
    datagram, export, for_each_frame, network, read_frames,
};
use shotline_store::read;
use shotline_store::shot::{Event, RunCounters, StreamRunCounters};
use shotline_wire::framing::{Framing, Kind, Position};
use shotline_wire::icrc;
use shotline_wire::shot::{DropCause, Geometry, Packetization, Packing, Trailer};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;
const SHOTS: std::ops::Range<u64> = 1000..1020;

/// Returns `true` for the packets that are missing from the recording.
fn is_missing(stream: u32, number: u64, packet: u32) -> bool {
    (number, packet) == (1003, 1) || stream == 8 && number == 1007 || (number, packet) == (1019, 0)
}

/// Records shots of two links, some with missing packets.
fn recorded(framing: Kind, geometry: Geometry) -> (common::FinishedRecording, shotline_store::info::RunInfo) {
    let mut run = run(&[geometry, geometry]);
    run.framing = framing.name().into();
    run.clock.tai_minus_utc_s = 37;
    let mut recording = Recording::new(run.clone(), |config| config.rows = 40);
    for number in SHOTS {
        recording.event(number, |link, buffer| {
            let stream = 7 + link;
            (stream != 8 || number != 1007)
                .then(|| shot(buffer, stream, number, geometry, |packet| !is_missing(stream, number, packet)))
        });
    }
    let mut drops = shotline_wire::shot::DropCounters::default();
    drops.add(DropCause::BadIcrc, 5);
    let counters = StreamRunCounters {
        stream: 7,
        packets_in: 48,
        packets_placed: 38,
        packet_drops: drops,
        ..StreamRunCounters::default()
    };
    (recording.finish(&RunCounters { streams: vec![counters] }).0, run)
}

/// Time and payload of a datagram, and whether its ICRC is valid.
type Captured = (u64, Vec<u8>, Option<bool>);

/// Reads all datagrams of a capture, by source port.
fn datagrams(path: &Path) -> BTreeMap<u16, Vec<Captured>> {
    let mut all = BTreeMap::<_, Vec<Captured>>::new();
    let damage = for_each_frame(path, |frame| {
        let Datagram { source, payload, .. } = datagram(&frame).unwrap();
        let (_, packet) = network(&frame).unwrap().unwrap();
        let verdict = icrc::verify_ip_packet(packet).ok();
        all.entry(source.port()).or_default().push((frame.time_ns, payload.to_vec(), verdict));
    });
    assert_eq!(damage.unwrap(), None);
    all
}

#[test]
fn exported_packets_have_the_position_of_their_framing() {
    for kind in Kind::ALL {
        let geometry = match kind {
            Kind::Spead => small(Packing::Int16Le).sent_as(Trailer::None, Packetization::uniform(4096)).unwrap(),
            Kind::Hsb => small(Packing::Int16Le).sent_as(Trailer::HsbMetadata, Packetization::uniform(4096)).unwrap(),
            Kind::Digitizer => small(Packing::Int16Le).sent_as(Trailer::Block, Packetization::uniform(4096)).unwrap(),
            Kind::Vita49 => small(Packing::Int16Be).sent_as(Trailer::Context, Packetization::uniform(4096)).unwrap(),
            Kind::Ud | Kind::Counted | Kind::Udp => small(Packing::Int16Le),
        };
        let path = recorded_as(kind, geometry);
        let recording = read::Recording::open(&path).unwrap();
        let capture = path.with_extension("pcapng");
        let exported = export(&recording, 0..20, &capture, &|done, total| {
            assert!(done <= total && total == 20);
            ControlFlow::Continue(())
        })
        .unwrap();
        let all = datagrams(&capture);
        assert_eq!(all.values().map(Vec::len).sum::<usize>() as u64, exported.packets, "{kind}");
        let framing = pcapng::framing(kind, &geometry, SHOTS.start, (SHOTS.start, stamp(SHOTS.start)));
        let mut slots = recording.slot_reader();
        for (link, packets) in all.values().enumerate() {
            let mut packets = packets.iter();
            for row in 0..recording.rows() {
                let kept = recording.row(row, link).unwrap();
                let bytes = slots.read(row, link).unwrap().to_vec();
                for index in (0..geometry.packets()).filter(|index| kept.contains(*index)) {
                    let (time, payload, verdict) = packets.next().unwrap();
                    check(&*framing, &geometry, (kept.number, index), payload, &bytes);
                    assert_eq!(*verdict == Some(true), framing.has_icrc());
                    // A partial shot without a record has the time of the previous shot.
                    assert!(time.abs_diff(stamp(kept.number) - 37 * SECOND) <= 1000, "{kind}");
                }
            }
            assert!(packets.next().is_none());
        }
    }
}

/// Records shots with any trailer. The contents of trailers other than records are arbitrary here.
fn recorded_as(kind: Kind, geometry: Geometry) -> common::FinishedRecording {
    if geometry.trailer() == Trailer::Record {
        return recorded(kind, geometry).0;
    }
    let mut run = run(&[geometry]);
    run.framing = kind.name().into();
    run.clock.tai_minus_utc_s = 37;
    let mut recording = Recording::new(run, |config| config.rows = 20);
    for number in SHOTS {
        recording.event(number, |_, buffer| {
            let bytes: Vec<u8> = (0..geometry.slot_bytes()).map(|at| (at as u64 * 7 + number) as u8).collect();
            let mut shot = shot(buffer, 7, number, small(Packing::Int16Le), |packet| !is_missing(7, number, packet));
            shot.buffer.write(0, &bytes);
            shot.meta.stamp_tai_ns = stamp(number);
            Some(shot)
        });
    }
    recording.finish(&RunCounters::default()).0
}

/// Asserts that a packet has the position of its shot and index, and the bytes of the shot at that offset.
fn check(framing: &dyn Framing, geometry: &Geometry, (number, index): (u64, u32), datagram: &[u8], shot: &[u8]) {
    let trailer = if framing.has_icrc() { 4 } else { 0 };
    let (header, payload) = datagram[..datagram.len() - trailer].split_at(framing.header_len(datagram));
    let place = framing.place(header, payload.len() as u32, geometry).unwrap();
    let at = geometry.packet_offset(index);
    match place.position {
        Position::Shot { number: wire, bits, offset, .. } => {
            assert_eq!((wire, offset), (number & (u64::MAX >> (64 - bits)), at));
        }
        Position::Sequence { number: psn, .. } => {
            assert_eq!(u64::from(psn), (number - SHOTS.start) * u64::from(geometry.packets()) + u64::from(index));
        }
        Position::Paged { page, pages, first, offset, .. } => {
            assert_eq!((u64::from(page), offset), (number % u64::from(pages), at));
            assert_eq!(u64::from(first), (number - SHOTS.start) * u64::from(geometry.packets()));
        }
    }
    assert_eq!(payload, &shot[at as usize..at as usize + payload.len()]);
}

#[test]
fn live_and_exported_captures_are_equal() {
    let geometry = small(Packing::Packed12);
    let (path, info) = recorded(Kind::Ud, geometry);
    let recording = read::Recording::open(&path).unwrap();
    let [exported, live] = ["exported", "live"].map(|name| path.with_extension(name));
    export(&recording, 0..recording.rows(), &exported, &|_, _| ControlFlow::Continue(())).unwrap();
    let mut capture = LiveCapture::create(&live, false, info, vec![Endpoints::default(); 2]).unwrap();
    let (pool, _) = common::pool(2, geometry.slot_bytes());
    for number in SHOTS {
        let of = |stream: u32| {
            let keep = |packet| !is_missing(stream, number, packet);
            (stream != 8 || number != 1007).then(|| shot(pool.take().unwrap(), stream, number, geometry, keep))
        };
        capture.offer(&Event { number, shots: [of(7), of(8)].into_iter().collect() }).unwrap();
    }
    assert_eq!(capture.rows(), 20);
    let report = capture.finish(&RunCounters::default()).unwrap();
    assert_eq!((report.rows, report.complete, report.partial, report.lost), (20, 35, 4, 1));
    assert_eq!(report.file_bytes, live.metadata().unwrap().len());
    assert_eq!(datagrams(&live), datagrams(&exported));
}

#[test]
fn existing_files_and_unknown_framings_are_refused() {
    let (path, mut info) = recorded(Kind::Ud, small(Packing::Packed12));
    let recording = read::Recording::open(&path).unwrap();
    let words =
        export(&recording, 0..recording.rows(), &path, &|_, _| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(words.contains("exists already"), "{words}");
    assert!(
        LiveCapture::create(&path, false, info.clone(), Vec::new()).unwrap_err().to_string().contains("exists already")
    );
    info.framing = "morse".into();
    let words = LiveCapture::create(&path.with_extension("pcapng"), true, info, Vec::new()).unwrap_err().to_string();
    assert!(words.contains("morse"), "{words}");
}

#[test]
fn timestamps_are_read_to_the_nanosecond() {
    let (seconds, fraction) = (1_700_000_000_u32, 123_456_789_u32);
    let legacy = |magic: u32, fraction: u32| {
        let mut file = Vec::new();
        let words = [magic, 4 << 16 | 2, 0, 0, 65535, 1, seconds, fraction, 4, 4];
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend([1, 2, 3, 4]);
        file
    };
    let times = |file: &[u8]| {
        let mut times = Vec::new();
        assert_eq!(read_frames(file, |frame| times.push((frame.time_ns, frame.data.to_vec()))).unwrap(), None);
        times
    };
    let at = u64::from(seconds) * SECOND;
    assert_eq!(times(&legacy(0xA1B2_C3D4, fraction / 1000)), [(at + 123_456_000, vec![1, 2, 3, 4])]);
    assert_eq!(times(&legacy(0xA1B2_3C4D, fraction)), [(at + 123_456_789, vec![1, 2, 3, 4])]);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "test", "").unwrap();
    writer.interface(&Interface::default()).unwrap();
    writer.packet(0, at + 123_456_789, &[&[1, 2], &[3], &[4]]).unwrap();
    writer.statistics(0, &Statistics::default()).unwrap();
    assert_eq!(writer.bytes() % 4, 0);
    writer.flush().unwrap();
    assert_eq!(times(&file), [(at + 123_456_789, vec![1, 2, 3, 4])]);
}

#[test]
fn fuzz_seeds_and_their_prefixes_cause_no_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/capture");
    for seed in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(seed.unwrap().path()).unwrap();
        let mut frames = 0;
        assert_eq!(read_frames(bytes.as_slice(), |frame| frames += usize::from(datagram(&frame).is_ok())), Ok(None));
        assert!(frames > 0);
        for end in 0..bytes.len() {
            let mut fewer = 0;
            let _ = read_frames(&bytes[..end], |_| fewer += 1);
            assert!(fewer <= frames);
        }
    }
}

#[test]
fn invalid_captures_and_open_errors_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    assert!(matches!(for_each_frame(&path, |_| ()), Err(CaptureError::Open { .. })));
    std::fs::write(&path, [0xD4, 0xC3, 0xB2, 0xA1, 0]).unwrap();
    assert!(matches!(for_each_frame(&path, |_| ()), Err(CaptureError::Header { .. })));
}

#[test]
fn frames_without_a_datagram_give_the_reason() {
    let frame = |data, wire_bytes| Frame { link: LinkType::RawIp, data, wire_bytes, time_ns: 0 };
    assert_eq!(datagram(&frame(&[0x45, 0, 0], 60)), Err(SkipReason::Truncated));
    assert_eq!(datagram(&frame(&[0x45, 0, 0], 3)), Err(SkipReason::Malformed));
    let other = Frame { link: LinkType::Other(7), ..frame(&[1, 2], 2) };
    assert_eq!(datagram(&other), Err(SkipReason::Other));
}

proptest! {
    #[test]
    fn captures_are_read_up_to_the_damage(at in 0_usize..4000, value: u8, cut in 0_usize..4000) {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test", "comment").unwrap();
        writer.interface(&Interface { name: "a".into(), ..Interface::default() }).unwrap();
        (0..40).for_each(|time| writer.packet(0, time, &[&[7; 60]]).unwrap());
        writer.flush().unwrap();
        let (at, cut) = (at % file.len(), cut % file.len());
        file[at] = value;
        for bytes in [file.as_slice(), &file[..cut]] {
            let mut frames = 0;
            let read = read_frames(bytes, |frame| {
                frames += 1;
                let _ = datagram(&frame);
            });
            prop_assert!(frames <= 40 && (read.is_ok() || frames == 0));
        }
    }
}
