//! Tests of a complete digitizer, from its samples to the received packets.

use super::source::Source;
use super::*;
use shotline_memory::{Region, Regions, Sge};
use shotline_testing::{WAIT_TIMEOUT, wait_until};
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{DeviceCounters, IoError, PacketIo, TxPacket};
use shotline_wire::block::{self, Description};
use shotline_wire::framing::digitizer::{HEADER_LEN, Header};
use shotline_wire::framing::{self, Framing, Position};
use shotline_wire::record::{self, Record};
use shotline_wire::{crc, shot::Geometry};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

/// A backend that passes frames to a channel. It fills the headroom with `0xEE`.
struct Wire {
    regions: Regions,
    headroom: usize,
    /// Frames accepted per call.
    capacity: Arc<AtomicUsize>,
    /// Frames accepted without a link.
    unsent: u64,
    out: mpsc::Sender<Vec<u8>>,
}

/// Capacity value that stands for a missing link: all frames are accepted and discarded.
const NO_LINK: usize = usize::MAX;

impl PacketIo for Wire {
    crate::fake::receives_nothing!();
    fn device_counters(&self) -> DeviceCounters {
        DeviceCounters { unsent: self.unsent, ..DeviceCounters::default() }
    }
    fn send(&mut self, _: SocketAddr, _: &[TxPacket<'_>]) -> Result<usize, IoError> {
        Err(IoError::Disconnected)
    }
}

impl PrebuiltIo for Wire {
    fn headroom(&self) -> usize {
        self.headroom
    }
    fn prebuild(&mut self, _: SocketAddr, frame: Sge) -> Result<(), IoError> {
        self.regions.get(frame.region).write(frame.offset as usize, &vec![0xEE; self.headroom]);
        Ok(())
    }
    fn frame_memory(&mut self, _: usize) -> Result<Option<Arc<Region>>, IoError> {
        Ok(None)
    }
    fn in_flight(&mut self) -> usize {
        0
    }
    fn send_prebuilt(&mut self, _: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        let capacity = self.capacity.load(Relaxed);
        if capacity == NO_LINK {
            self.unsent += u64::from(frames.count);
            return Ok(frames.count as usize);
        }
        let accepted = (frames.count as usize).min(capacity);
        for index in 0..accepted as u32 {
            let at = frames.frame(index);
            let mut bytes = vec![0; at.len as usize];
            self.regions.get(at.region).read(at.offset as usize, &mut bytes);
            assert!(bytes[..self.headroom].iter().all(|byte| *byte == 0xEE));
            self.out.send(bytes.split_off(self.headroom)).map_err(|_| IoError::Disconnected)?;
        }
        Ok(accepted)
    }
}

/// A receiver that places payloads by the framing alone.
struct Receiver {
    geometry: Geometry,
    open: BTreeMap<u64, (Vec<u8>, u32)>,
    complete: Vec<CompleteBlock>,
}

struct CompleteBlock {
    number: u64,
    header: Header,
    samples: Vec<u8>,
    description: Description,
    record: Record,
}

impl Receiver {
    fn new(config: &Config) -> Self {
        Self { geometry: config.check().unwrap(), open: BTreeMap::new(), complete: Vec::new() }
    }

    fn packet(&mut self, packet: &[u8]) {
        let g = &self.geometry;
        let (header, payload) = Header::parse(packet).unwrap();
        let destination = framing::Digitizer.place(&packet[..HEADER_LEN], payload.len() as u32, g).unwrap();
        let Position::Shot { number, offset, .. } = destination.position else { panic!("{destination:?}") };
        let (bytes, packets) = self.open.entry(number).or_insert_with(|| (vec![0; g.shot_bytes() as usize], 0));
        bytes[offset as usize..][..payload.len()].copy_from_slice(payload);
        *packets += 1;
        if *packets < g.packets() {
            return;
        }
        let (mut bytes, _) = self.open.remove(&number).unwrap();
        assert!(record::is_whole(crc::register(u32::MAX, &bytes)), "the record's CRC of block {number}");
        let trailer = bytes.split_off(g.trailer_offset() as usize);
        let description = Description::parse(trailer.first_chunk::<{ block::LEN }>().unwrap()).unwrap();
        let record = Record::parse(trailer.last_chunk().unwrap()).unwrap();
        assert!(record.describes(g) && (record.shot, record.tai_ns) == (number, header.tai_ns));
        self.complete.push(CompleteBlock { number, header, samples: bytes, description, record });
    }
}

/// Returns the sample bytes of each distinct block.
fn truth(config: &Config) -> Vec<Vec<u8>> {
    let mut source = Source::open(config).unwrap();
    let one = |_| {
        let mut samples = vec![[0; 2]; (config.block_bytes / SAMPLE_BYTES) as usize];
        source.fill(&mut samples);
        samples.iter().flatten().flat_map(|value| value.to_le_bytes()).collect()
    };
    (0..config.distinct).map(one).collect()
}

pub(super) fn config() -> Config {
    Config {
        block_bytes: 65_536,
        payload: 8192,
        distinct: 3,
        points: 1024,
        block_start: BlockStart::Max,
        blocks: Some(7),
        ..Config::new(([127, 0, 0, 1], 9).into())
    }
}

fn digitizer(
    config: &Config,
    headroom: usize,
    capacity: &Arc<AtomicUsize>,
) -> (Digitizer<Wire>, mpsc::Receiver<Vec<u8>>) {
    let (out, packets) = mpsc::channel();
    let memory = Memory::prepare(config, |_| {}).unwrap();
    let open = |_, regions: &Regions| {
        Ok(Wire { regions: regions.clone(), headroom, capacity: Arc::clone(capacity), unsent: 0, out })
    };
    (Digitizer::new(config.clone(), memory, open).unwrap(), packets)
}

#[test]
fn every_byte_arrives_with_any_frames_and_stage_order() {
    let variants = [(8192, 65_536), (960, 65_536), (64_960, 65_536), (8191, 64), (128, 8192), (4032, 20_032)];
    for (payload, block_bytes) in variants {
        for (headroom, sequential, capacity) in [(0, false, 64), (42, true, 5), (62, false, 1000)] {
            let config = Config { payload, block_bytes, sequential, first_block: 2, stream: 9, ..config() };
            let (digitizer, packets) = digitizer(&config, headroom, &Arc::new(AtomicUsize::new(capacity)));
            let start = Start { steady_ns: 0, tai_ns: 1_000_000, locked: true };
            let stats = digitizer.run(start, &AtomicBool::new(false)).unwrap();
            let mut receiver = Receiver::new(&config);
            packets.try_iter().for_each(|packet| receiver.packet(&packet));
            let found: Vec<_> = receiver.complete.iter().map(|block| block.number).collect();
            assert_eq!(found, (2..9).collect::<Vec<_>>());
            let truth = truth(&config);
            for CompleteBlock { number, header, samples, description, record } in &receiver.complete {
                assert!(samples == &truth[(number % 3) as usize], "{payload} {block_bytes} {headroom}: block {number}");
                assert_eq!((header.stream, record.stream, header.centre_hz), (9, 9, 1e9));
                let since = (number - 2) as f64 * config.block_ns();
                assert_eq!(header.tai_ns, 1_000_000 + since.round() as u64);
                assert_eq!(description.peaks.is_empty(), block_bytes < 4096);
            }
            assert_eq!((stats.board.blocks_produced, stats.board.overruns, stats.blocks_sent), (7, 0, 7));
            assert_eq!(stats.packets_sent, 7 * u64::from(receiver.geometry.packets()));
            assert!(stats.stages.iter().all(|stage| stage.bytes == 7 * u64::from(block_bytes)));
        }
    }
}

#[test]
fn over_udp_every_byte_arrives() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let socket = UdpSocket::bind(listen).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        // All of it fits any receive buffer.
        let config = Config {
            to: socket.local_addr().unwrap(),
            block_start: BlockStart::Trigger(50.0),
            blocks: Some(4),
            block_bytes: 16_384,
            payload: 4096,
            ..config()
        };
        let memory = Memory::prepare(&config, |_| {}).unwrap();
        let digitizer = Digitizer::new(config.clone(), memory, udp).unwrap();
        let mut receiver = Receiver::new(&config);
        std::thread::scope(|scope| {
            scope.spawn(|| digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap());
            let mut packet = [0; 65_536];
            while receiver.complete.len() < 4 {
                let len = socket.recv(&mut packet).unwrap();
                receiver.packet(&packet[..len]);
            }
        });
        let truth = truth(&config);
        assert!(receiver.complete.iter().all(|block| block.samples == truth[(block.number % 3) as usize]));
        assert!(receiver.complete.iter().all(|block| block.header.triggered && block.record.triggered));
    }
}

fn udp(to: SocketAddr, regions: &Regions) -> Result<UdpIo, IoError> {
    let config = UdpConfig {
        bind: SocketAddr::new(to.ip(), 0),
        sealed: false,
        capacity: 0,
        scratch: Sge::EMPTY,
        receive_buffer: 1 << 16,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    UdpIo::open(&config, regions)
}

#[test]
fn an_absent_receiver_does_not_stop_the_device() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let closed_port = UdpSocket::bind(listen).unwrap().local_addr().unwrap();
        let config = Config { to: closed_port, ..config() };
        let memory = Memory::prepare(&config, |_| {}).unwrap();
        let digitizer = Digitizer::new(config, memory, udp).unwrap();
        let stats = digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap();
        assert_eq!((stats.blocks_sent, stats.board.overruns), (7, 0));
    }
}

#[test]
fn blocks_lost_to_a_full_path_are_counted_and_skipped() {
    // One block per millisecond.
    let config = Config {
        block_start: BlockStart::Continuous,
        sample_rate_hz: 1e6,
        block_bytes: 4000 / 64 * 64,
        payload: 960,
        ring: 2,
        blocks: None,
        link_bits_per_s: Some(1e9),
        ..config()
    };
    let capacity = Arc::new(AtomicUsize::new(64));
    let (digitizer, packets) = digitizer(&config, 42, &capacity);
    let (live, stop) = (digitizer.shared_counters(), AtomicBool::new(false));
    let mut receiver = Receiver::new(&config);
    let stats = std::thread::scope(|scope| {
        let running = scope.spawn(|| digitizer.run(Start::now(), &stop).unwrap());
        let next = |receiver: &mut Receiver| receiver.packet(&packets.recv_timeout(WAIT_TIMEOUT).unwrap());
        while receiver.complete.len() < 3 {
            next(&mut receiver);
        }
        capacity.store(0, Relaxed);
        wait_until("five blocks are lost", || live.counters().board.overruns >= 5);
        capacity.store(64, Relaxed);
        while receiver.complete.iter().all(|block| block.description.overrun < 5) {
            next(&mut receiver);
        }
        stop.store(true, Relaxed);
        running.join().unwrap()
    });
    packets.try_iter().for_each(|packet| receiver.packet(&packet));
    let mut before = (0, 0);
    for CompleteBlock { number, description, .. } in &receiver.complete {
        // The skipped numbers are exactly the lost blocks.
        assert_eq!(number - before.0, description.overrun - before.1, "block {number}");
        before = (number + 1, description.overrun);
    }
    assert!(before.1 >= 5);
    assert_eq!(stats.blocks_sent, receiver.complete.len() as u64);
    let left = stats.board.blocks_produced - stats.blocks_sent - stats.board.overruns;
    assert!(left <= 2 + frames::BUFFERS as u64 + 1, "at most the ring and the buffers are left on board: {left}");
}

#[test]
fn a_full_path_does_not_prevent_stopping() {
    for sequential in [false, true] {
        let config = Config { sequential, blocks: None, ..config() };
        let (digitizer, packets) = digitizer(&config, 42, &Arc::new(AtomicUsize::new(0)));
        let (live, stop) = (digitizer.shared_counters(), AtomicBool::new(false));
        let stats = std::thread::scope(|scope| {
            let running = scope.spawn(|| digitizer.run(Start::now(), &stop).unwrap());
            wait_until("the path is full", || live.counters().tx_full > 0);
            stop.store(true, Relaxed);
            running.join().unwrap()
        });
        assert_eq!((stats.blocks_sent, stats.packets_sent, packets.try_iter().count()), (0, 0, 0));
        assert!(stats.blocks_abandoned > 0);
    }
}

#[test]
fn stopping_completes_the_block_in_progress() {
    for sequential in [false, true] {
        // A block takes 10 ms on the link, and many are queued.
        let config = Config { sequential, blocks: None, ring: 32, link_bits_per_s: Some(5e7), ..config() };
        let (digitizer, packets) = digitizer(&config, 0, &Arc::new(AtomicUsize::new(64)));
        let (live, stop) = (digitizer.shared_counters(), AtomicBool::new(false));
        let (before, stats) = std::thread::scope(|scope| {
            let running = scope.spawn(|| digitizer.run(Start::now(), &stop).unwrap());
            wait_until("two blocks are sent", || live.counters().blocks_sent >= 2);
            stop.store(true, Relaxed);
            (live.counters().blocks_sent, running.join().unwrap())
        });
        let mut receiver = Receiver::new(&config);
        packets.try_iter().for_each(|packet| receiver.packet(&packet));
        assert_eq!((stats.blocks_abandoned, receiver.open.len()), (0, 0), "no block is cut short");
        assert_eq!(stats.blocks_sent, receiver.complete.len() as u64);
        assert!(stats.blocks_sent <= before + 2, "{before} before, {} in the end", stats.blocks_sent);
    }
}

#[test]
fn a_slow_link_does_not_prevent_stopping() {
    for sequential in [false, true] {
        // A block takes a minute.
        let config = Config { sequential, blocks: None, link_bits_per_s: Some(1e4), ..config() };
        let (digitizer, packets) = digitizer(&config, 0, &Arc::new(AtomicUsize::new(64)));
        let (live, stop) = (digitizer.shared_counters(), AtomicBool::new(false));
        let stats = std::thread::scope(|scope| {
            let running = scope.spawn(|| digitizer.run(Start::now(), &stop).unwrap());
            wait_until("a block is in progress", || live.counters().packets_sent > 0);
            stop.store(true, Relaxed);
            running.join().unwrap()
        });
        assert_eq!((stats.blocks_sent, stats.blocks_abandoned), (0, 1));
        assert_eq!(stats.packets_sent, packets.try_iter().count() as u64);
    }
}

#[test]
fn packets_without_a_link_are_not_counted_as_sent() {
    let no_link = Arc::new(AtomicUsize::new(NO_LINK));
    let (digitizer, packets) = digitizer(&config(), 42, &no_link);
    let stats = digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap();
    assert_eq!((stats.blocks_sent, stats.blocks_abandoned), (0, 7));
    assert_eq!((stats.packets_sent, stats.packets_discarded, packets.try_iter().count()), (0, 7 * 9, 0));
}

#[test]
fn a_broken_path_ends_the_device_with_its_error() {
    for sequential in [false, true] {
        let config = Config { sequential, blocks: None, ..config() };
        let (digitizer, packets) = digitizer(&config, 0, &Arc::new(AtomicUsize::new(64)));
        drop(packets);
        let stop = AtomicBool::new(false);
        assert!(matches!(digitizer.run(Start::now(), &stop), Err(IoError::Disconnected)));
        assert!(stop.load(Relaxed), "a failure stops the other devices");
    }
}

#[test]
fn isolated_stages_send_correct_blocks_or_none() {
    let config = Config { stages: Stages::NoDma, ..config() };
    let (digitizer, packets) = digitizer(&config, 42, &Arc::new(AtomicUsize::new(64)));
    let stats = digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap();
    let mut receiver = Receiver::new(&config);
    packets.try_iter().for_each(|packet| receiver.packet(&packet));
    assert_eq!(receiver.complete.len(), 7);
    let truth = truth(&config);
    assert!(receiver.complete.iter().all(|block| truth[..2].contains(&block.samples)));
    assert!(stats.dma_entries > 0);
    let config = Config { stages: Stages::NoSend, ..config };
    let (digitizer, packets) = self::digitizer(&config, 42, &Arc::new(AtomicUsize::new(64)));
    let stats = digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap();
    assert_eq!((packets.try_iter().count(), stats.packets_sent, stats.stages[1].blocks), (0, 0, 7));
}

#[test]
fn vita_49_packets_carry_samples_times_and_context() {
    use shotline_wire::vita49::{Context, Data, Fraction, Kind, Prologue, Seconds};
    for (headroom, payload, block_bytes) in [(0, 1400, 65_536), (42, 8192, 65_536), (62, 8192, 4096)] {
        let config = Config {
            framing: config::Framing::Vita49,
            payload,
            block_bytes,
            stream: 7,
            sample_rate_hz: 1e6,
            ..config()
        };
        let (digitizer, packets) = digitizer(&config, headroom, &Arc::new(AtomicUsize::new(5)));
        let start = Start { steady_ns: 0, tai_ns: 1_000_000_000_000_000_000, locked: true };
        digitizer.run(start, &AtomicBool::new(false)).unwrap();
        let (truth, mut blocks, mut count) = (truth(&config), Vec::<Vec<u8>>::new(), 0);
        for packet in packets.try_iter() {
            let (prologue, _) = Prologue::parse(&packet).unwrap();
            let (Some(Seconds::Gps(seconds)), Some(Fraction::Picoseconds(ps))) =
                (prologue.time.seconds, prologue.time.fraction)
            else {
                panic!("{prologue:?}")
            };
            let tai_ns = (u64::from(seconds) + 315_964_819) * 1_000_000_000 + ps / 1000 - start.tai_ns;
            if prologue.kind == Kind::Context {
                let (_, context) = Context::parse(&packet).unwrap();
                assert_eq!(context.rf_reference.unwrap().hz(), 1e9);
                assert_eq!(tai_ns, blocks.len() as u64 * u64::from(block_bytes / 4) * 1000);
                assert_eq!(usize::from(prologue.count), blocks.len());
                blocks.push(Vec::new());
                continue;
            }
            let data = Data::parse(&packet).unwrap();
            assert_eq!((prologue.stream, prologue.count), (Some(7), count));
            count = (count + 1) % 16;
            let before: usize = blocks.iter().map(Vec::len).sum();
            assert_eq!(tai_ns, before as u64 / 4 * 1000);
            blocks.last_mut().unwrap().extend(data.payload.chunks(2).flat_map(|pair| [pair[1], pair[0]]));
        }
        assert_eq!(blocks.len(), 7);
        assert!(blocks.iter().zip(truth.iter().cycle()).all(|(found, expected)| found == expected));
    }
}

#[test]
fn an_image_is_an_hdf5_file_of_the_sent_bytes() {
    let dir = tempfile::tempdir().unwrap();
    // Full packets; a last packet with samples and trailer; a block in a single packet.
    for (index, (payload, block_bytes, headroom)) in
        [(8192, 65_536, 0), (4096, 20_032, 42), (8192, 1024, 62)].into_iter().enumerate()
    {
        let path = dir.path().join(format!("{index}.h5"));
        let config = Config { payload, block_bytes, image: Some(path.clone()), stream: 5, ..config() };
        let (digitizer, packets) = digitizer(&config, headroom, &Arc::new(AtomicUsize::new(64)));
        digitizer.run(Start::now(), &AtomicBool::new(false)).unwrap();
        let mut receiver = Receiver::new(&config);
        packets.try_iter().for_each(|packet| receiver.packet(&packet));
        // Seven blocks use two buffers: the last block is in the first buffer, the one before in the second.
        let file = hdf5::File::open(&path).unwrap();
        let iq = file.dataset("iq").unwrap();
        let samples = (block_bytes / 4) as usize;
        assert_eq!(iq.shape(), [2, samples, 2]);
        let found: Vec<u8> = iq.read_raw::<i16>().unwrap().iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(receiver.complete.len(), 7);
        for (buffer, block) in receiver.complete.iter().rev().take(2).enumerate() {
            assert!(found[buffer * block_bytes as usize..][..block_bytes as usize] == block.samples, "{payload}");
        }
        #[derive(hdf5::H5Type, Clone, Copy)]
        #[repr(C)]
        struct Row {
            stream: u32,
            block: u64,
            tai_ns: u64,
            centre_hz: f64,
        }
        let rows = file.dataset("header").unwrap().read_raw::<Row>().unwrap();
        for (row, block) in rows.iter().zip(receiver.complete.iter().rev()) {
            assert_eq!((row.stream, row.block, row.tai_ns), (5, block.number, block.header.tai_ns));
            assert_eq!(row.centre_hz, 1e9);
        }
        #[derive(hdf5::H5Type, Clone, Copy)]
        #[repr(C)]
        struct Described {
            snr_db: f32,
            peak0_hz: f64,
        }
        let described = file.dataset("description").unwrap().read_raw::<Described>().unwrap();
        for (row, block) in described.iter().zip(receiver.complete.iter().rev()) {
            let peak = block.description.peaks.first().map_or(0.0, |peak| peak.frequency_hz);
            assert_eq!((row.snr_db.to_bits(), row.peak0_hz), (block.description.snr_db.to_bits(), peak));
        }
    }
}
