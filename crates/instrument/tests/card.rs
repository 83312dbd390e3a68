//! Tests of the simulated card with a minimal driver, which has only the header `dpdk/window.h` in common with it.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shotline_instrument::card::{Incoming, Notice, Server, Settings, Sink, Source, Totals};
use shotline_memory::Region;
use shotline_random::SplitMix64;
use shotline_rtl::card::{KEY, channel_register};
use shotline_rtl::registers::{card, card_channel as register, card_distributor};
use shotline_testing::WAIT_TIMEOUT;
use shotline_transport::fd_passing;
use shotline_wire::crc::crc32;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::Instant;

// The window.
const HEAD: usize = 0x1_0000;
const MAGIC: u32 = u32::from_le_bytes(*b"SHLW");
const COMMANDS_GIVEN: usize = 0x1_0040;
const COMMANDS_DONE: usize = 0x1_0080;
const COMMANDS: usize = 0x1_1000;
const SEND: usize = 0x2_0000;
const READ: u32 = 0;
const WRITE: u32 = 1;
const MAP: u32 = 0;
const UNMAP: u32 = 1;
const EVENTS: u32 = 2;

/// First address of the driver's memory, and its bytes for each channel.
const AT: u64 = 0x5000_0000_0000;
const EACH: u64 = 1 << 18;
/// Offsets in the memory of a channel.
const REPORT: u64 = 1 << 12;
const SENT: u64 = 1 << 13;
const BUFFERS: u64 = 1 << 16;
const BUFFER: u64 = 2048;
const RING_LOG2: u32 = 6;
const RING: u64 = 1 << RING_LOG2;

const SETTINGS: Settings = Settings { gbps: 100.0, start_ns: 0, channels: 2, pause: true, once: false, seed: 1 };

/// Waits until something is true.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

/// A driver with two channels.
struct Driver {
    /// `None` if the driver is in a virtual machine.
    socket: Option<OwnedFd>,
    window: Arc<Region>,
    memory: Arc<Region>,
    /// Address of the memory.
    at: u64,
    commands: u32,
    events: Vec<OwnedFd>,
    /// Descriptors of each channel that were used and given back.
    used: [u64; 2],
}

impl Driver {
    /// Connects to the card and gives it memory. Returns `None` if it closes the connection.
    fn connect(path: &Path) -> Option<Self> {
        let socket = open(path);
        let mut hello = [0; 17];
        let (length, window) = receive(&socket, &mut hello)?;
        assert_eq!((length, &hello[..4]), (16, &b"SHLW"[..]));
        let window = Region::from_fd(window.unwrap(), true).unwrap();
        assert_eq!(window.len(), 0x40_0000);
        let memory = Region::memfd("driver", 2 * EACH as usize).unwrap();
        let events = (0..2).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let driver = Self { socket: Some(socket), window, memory, at: AT, commands: 0, events, used: [0; 2] };
        assert_eq!(driver.map(), 0);
        for (channel, event) in driver.events.iter().enumerate() {
            assert_eq!(driver.request([EVENTS.into(), channel as u64, 0, 0], Some(event.as_fd())), 0);
        }
        Some(driver)
    }

    /// Begins in a virtual machine, once the card is there.
    fn in_guest(window: &Arc<Region>, memory: &Arc<Region>) -> Self {
        let (window, memory) = (Arc::clone(window), Arc::clone(memory));
        let driver = Self { socket: None, window, memory, at: 0, commands: 0, events: Vec::new(), used: [0; 2] };
        until("the card is there", || driver.load(HEAD) == MAGIC);
        Self { commands: driver.load(COMMANDS_GIVEN), ..driver }
    }

    fn map(&self) -> i32 {
        self.request([MAP.into(), AT, 2 * EACH, 0], self.memory.fd())
    }

    fn request(&self, words: [u64; 4], fd: Option<BorrowedFd<'_>>) -> i32 {
        let socket = self.socket.as_ref().unwrap();
        fd_passing::send(socket, words.map(u64::to_le_bytes).as_flattened(), fd).unwrap();
        let mut answer = [0; 5];
        assert_eq!(receive(socket, &mut answer).unwrap().0, 4);
        i32::from_le_bytes(answer[..4].try_into().unwrap())
    }

    fn store(&self, offset: usize, value: u32) {
        fence(Ordering::Release);
        self.window.write(offset, &value.to_le_bytes());
    }

    fn load(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        self.window.read(offset, &mut bytes);
        fence(Ordering::Acquire);
        u32::from_le_bytes(bytes)
    }

    /// Accesses a register. Returns the answer and the status.
    fn access(&mut self, kind: u32, address: u16, value: u32) -> [u32; 2] {
        self.command(kind, address, value);
        self.carry_out();
        let at = Self::command_at(self.commands.wrapping_sub(1));
        [self.load(at + 8), self.load(at + 12)]
    }

    fn command_at(number: u32) -> usize {
        COMMANDS + 16 * (number as usize % 256)
    }

    /// Writes a command without giving it.
    fn command(&mut self, kind: u32, address: u16, value: u32) {
        let command = u64::from(address) | u64::from(kind) << 16 | u64::from(value) << 32;
        self.window.write(Self::command_at(self.commands), &command.to_le_bytes());
        self.commands = self.commands.wrapping_add(1);
    }

    /// Gives the commands, and waits for the answers.
    fn carry_out(&self) {
        self.store(COMMANDS_GIVEN, self.commands);
        until("commands are carried out", || self.load(COMMANDS_DONE) == self.commands);
    }

    /// Writes registers, many at once.
    fn write_all(&mut self, writes: impl IntoIterator<Item = (u16, u32)>) {
        let writes = writes.into_iter().collect::<Vec<_>>();
        for some in writes.chunks(256) {
            some.iter().for_each(|&(address, value)| self.command(WRITE, address, value));
            self.carry_out();
            assert!((0..some.len() as u32).all(|n| self.load(Self::command_at(self.commands - 1 - n) + 12) == 0));
        }
    }

    fn write(&mut self, address: u16, value: u32) {
        assert_eq!(self.access(WRITE, address, value), [0, 0], "{address:#x} {value:#x}");
    }

    fn base(&self, channel: usize) -> u64 {
        self.at + channel as u64 * EACH
    }

    fn offset(channel: usize, within: u64) -> usize {
        (channel as u64 * EACH + within) as usize
    }

    /// Sets up the distributor, starts both channels and gives all descriptors.
    fn start(&mut self, generation: u8) {
        assert_eq!(self.access(READ, card::ID, 0), [card::ID_RESET, 0]);
        let key = card_distributor::KEY.iter().zip(KEY.as_chunks().0);
        self.write_all(key.map(|(&address, word)| (address, u32::from_le_bytes(*word))));
        let entry = |entry: u32| entry | (entry & 1) << card_distributor::TABLE_CHANNEL_LSB;
        self.write_all((0..1024).map(|number| (card_distributor::TABLE, entry(number))));
        for channel in 0..2 {
            let (ring, report) = (self.base(channel), self.base(channel) + REPORT);
            self.window.write(channel_register(register::SOFTWARE_POINTER, channel).into(), &[0; 4]);
            let writes = [
                (register::RING_LOW, ring as u32),
                (register::RING_HIGH, (ring >> 32) as u32),
                (register::RING, RING_LOG2),
                (register::BUFFER, BUFFER as u32),
                (register::REPORT_LOW, report as u32),
                (register::REPORT_HIGH, (report >> 32) as u32),
                (register::REPORT, 8),
                (register::INTERRUPT, register::INTERRUPT_ENABLE),
                (register::CONTROL, register::CONTROL_RUN | u32::from(generation) << register::CONTROL_GENERATION_LSB),
            ];
            self.write_all(writes.map(|(address, value)| (channel_register(address, channel), value)));
            self.used[channel] = 0;
            (0..RING).for_each(|index| self.describe(channel, index, generation));
            self.give(channel);
        }
    }

    fn describe(&self, channel: usize, index: u64, generation: u8) {
        let buffer = self.base(channel) + BUFFERS + BUFFER * (index % RING);
        let word = index & 0xFFFF | (channel as u64) << 16 | u64::from(generation) << 24;
        let at = Self::offset(channel, 16 * (index % RING));
        self.memory.write(at, &buffer.to_le_bytes());
        self.memory.write(at + 8, &word.to_le_bytes());
    }

    fn give(&self, channel: usize) {
        let pointer = (self.used[channel] + RING) as u16;
        self.store(channel_register(register::SOFTWARE_POINTER, channel).into(), pointer.into());
    }

    fn report(&self, channel: usize) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(Self::offset(channel, REPORT), &mut bytes);
        fence(Ordering::Acquire);
        u64::from_le_bytes(bytes)
    }

    /// Takes the frames that a report counts, and gives their descriptors again.
    fn take(&mut self, channel: usize, generation: u8) -> Vec<Vec<u8>> {
        let report = self.report(channel);
        if (report >> 16) as u8 != generation {
            return Vec::new();
        }
        let count = (report as u16).wrapping_sub(self.used[channel] as u16);
        let mut frames = Vec::new();
        for _ in 0..count {
            let at = Self::offset(channel, BUFFERS + BUFFER * (self.used[channel] % RING));
            let mut packet = vec![0; BUFFER as usize];
            self.memory.read(at, &mut packet);
            let length = usize::from(u16::from_le_bytes([packet[0], packet[1]]));
            frames.push(packet[16..length].to_vec());
            self.describe(channel, self.used[channel] + RING, generation);
            self.used[channel] += 1;
        }
        self.give(channel);
        frames
    }

    /// Receives a number of frames.
    fn receive(&mut self, count: usize, generation: u8) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames arrive", || {
            (0..2).for_each(|channel| frames.extend(self.take(channel, generation)));
            frames.len() >= count
        });
        frames
    }

    /// Sends a frame in two pieces.
    fn send(&self, queue: usize, number: u32, frame: &[u8]) {
        let ring = SEND + 0x2000 * queue;
        self.memory.write(Self::offset(0, SENT), frame);
        for (piece, (offset, length, flags)) in
            [(0, 20, 0), (20, frame.len() as u64 - 20, 1_u64)].into_iter().enumerate()
        {
            let at = ring + 128 + 16 * (2 * number as usize + piece);
            self.window.write(at, &(self.at + SENT + offset).to_le_bytes());
            self.window.write(at + 8, &(length | flags << 32).to_le_bytes());
        }
        self.store(ring, 2 * (number + 1));
        until("a frame is sent", || self.load(ring + 64) == 2 * (number + 1));
    }

    fn interrupts(&self, channel: usize) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(&self.events[channel], &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }
}

fn open(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Waits for a message. Returns `None` if the connection has been closed.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Option<(usize, Option<OwnedFd>)> {
    let limit = Timespec { tv_sec: WAIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)), Ok(1), "no message");
    match fd_passing::receive(socket, bytes, fd_passing::is_memory) {
        Ok((0, _)) | Err(Errno::CONNRESET) => None,
        other => Some(other.unwrap()),
    }
}

/// Frames that were made before.
struct Frames(VecDeque<Vec<u8>>);

impl Frames {
    fn new(count: usize) -> Self {
        let mut random = SplitMix64::new(1);
        let frame = |n: usize| {
            let mut frame = vec![0; 60 + n * 29 % 1450];
            random.fill_bytes(&mut frame);
            frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame
        };
        Self((0..count).map(frame).collect())
    }
}

impl Source for Frames {
    fn next(&mut self) -> Result<Option<Incoming>, String> {
        let frame = self.0.pop_front();
        Ok(frame.map(|mut bytes| {
            bytes.extend(crc32(&bytes).to_le_bytes());
            Incoming { bytes, at_ns: 0 }
        }))
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// Frames that were sent, with their queues.
#[derive(Default)]
struct SentFrames(Vec<(usize, Vec<u8>)>);

impl Sink for SentFrames {
    fn sent(&mut self, queue: usize, _: u64, frame: &[u8]) -> Result<(), String> {
        self.0.push((queue, frame.to_vec()));
        Ok(())
    }
}

/// Ends the server, also when the driver of a test panics.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Served {
    totals: Totals,
    sent: Vec<(usize, Vec<u8>)>,
    notices: Vec<Notice>,
}

/// Serves a card while `driver` runs.
fn serve(settings: Settings, frames: Frames, driver: impl FnOnce(&Path)) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("card");
    run(&Server::bind(&path, settings).unwrap(), settings.once, frames, || driver(&path))
}

/// Runs a server while `driver` runs.
fn run(server: &Server, ends_by_itself: bool, mut frames: Frames, driver: impl FnOnce()) -> Served {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let (mut sent, mut notices) = (SentFrames::default(), Vec::new());
            let totals = server.run(&mut frames, &mut sent, &stop, &mut |notice| notices.push(notice)).unwrap();
            Served { totals, sent: sent.0, notices }
        });
        let stopper = Stopper(&stop);
        driver();
        if ends_by_itself {
            until("the server ends by itself", || running.is_finished());
        }
        drop(stopper);
        running.join().unwrap()
    })
}

#[test]
fn frames_arrive_and_those_of_software_leave() {
    let expected = Frames::new(300).0;
    let served = serve(Settings { once: true, ..SETTINGS }, Frames::new(300), |path| {
        let mut driver = Driver::connect(path).unwrap();
        driver.start(7);
        let frames = driver.receive(300, 7);
        assert_eq!(frames.len(), 300);
        assert!(expected.iter().all(|frame| frames.contains(frame)));
        until("interrupts come", || driver.interrupts(0) > 0);
        until("interrupts come", || driver.interrupts(1) > 0);
        driver.send(5, 0, &[1; 100]);
        driver.send(5, 1, &[2; 40]);
        let refused = driver.access(WRITE, channel_register(register::RING, 0), 5);
        assert_eq!(refused[1], 1, "a running channel cannot be set up");
        assert_eq!(driver.access(READ, 2, 0)[1], 1, "registers have 4 bytes");
        assert_eq!(driver.access(2, 0, 0)[1], 1, "there are two kinds of commands");
        driver.write(channel_register(register::CONTROL, 0), 0);
        until("the final report comes", || driver.report(0) >> 24 & 1 == 1);
    });
    let totals = &served.totals;
    let received = totals.channels.iter().map(|counters| counters.received.packets).sum::<u64>();
    assert_eq!((totals.connections, totals.frames, totals.distributed.delivered, received), (1, 300, 300, 300));
    assert_eq!((totals.sent[5].frames, totals.sent[5].bytes, totals.sent[5].refused), (2, 140, 0));
    let with_fcs = |mut frame: Vec<u8>| {
        frame.extend(crc32(&frame).to_le_bytes());
        (5, frame)
    };
    assert_eq!(served.sent, [with_fcs(vec![1; 100]), with_fcs([[2; 40].as_slice(), &[0; 20]].concat())]);
    let [Notice::Connected { pid }, rest @ ..] = &served.notices[..] else { panic!("{:?}", served.notices) };
    assert_eq!(*pid, std::process::id() as i32);
    assert_eq!(rest, [Notice::Decided { frames: 300 }, Notice::Disconnected { broken: None }]);
}

#[test]
fn a_slow_driver_loses_frames_only_without_pause() {
    for pause in [true, false] {
        let served = serve(Settings { pause, ..SETTINGS }, Frames::new(1000), |path| {
            let mut driver = Driver::connect(path).unwrap();
            driver.start(1);
            if pause {
                assert_eq!(driver.receive(1000, 1).len(), 1000);
            } else {
                let count = |driver: &mut Driver| driver.access(READ, card_distributor::DELIVERED, 0)[0];
                until("all frames are delivered", || count(&mut driver) == 1000);
            }
        });
        let totals = served.totals;
        let received = totals.channels.iter().map(|counters| counters.received.packets).sum::<u64>();
        let counted = totals.channels.iter().map(|counters| counters.total().packets).sum::<u64>();
        assert_eq!((totals.frames, counted, received), (1000, 1000, if pause { 1000 } else { 2 * RING }));
    }
}

#[test]
fn the_next_driver_gets_a_card_after_reset() {
    let served = serve(SETTINGS, Frames::new(200), |path| {
        let mut first = Driver::connect(path).unwrap();
        assert!(Driver::connect(path).is_none(), "the card has a driver");
        first.start(3);
        let frames = first.receive(50, 3).len();
        drop(first);
        let mut second = Driver::connect(path).unwrap();
        assert_eq!(second.access(READ, channel_register(register::STATE, 0), 0), [0, 0]);
        assert_eq!(second.access(READ, card_distributor::DELIVERED, 0), [0, 0]);
        second.start(3);
        assert!(!second.receive(1, 3).is_empty() || frames == 200);
    });
    assert_eq!(served.totals.connections, 2);
    assert!(served.notices.contains(&Notice::Refused));
}

#[test]
fn memory_that_is_taken_away_stops_its_channels() {
    serve(SETTINGS, Frames::new(10), |path| {
        let mut driver = Driver::connect(path).unwrap();
        assert_eq!(driver.map(), Errno::EXIST.raw_os_error());
        driver.start(1);
        driver.receive(10, 1);
        assert_eq!(driver.request([UNMAP.into(), AT, 2 * EACH, 0], None), 0);
        assert_eq!(driver.request([UNMAP.into(), AT, 2 * EACH, 0], None), Errno::INVAL.raw_os_error());
        driver.write(channel_register(register::CONTROL, 0), 0);
        let state = |driver: &mut Driver| driver.access(READ, channel_register(register::STATE, 0), 0)[0];
        until("the channel stops", || state(&mut driver) & register::STATE_STATE == 0);
        assert_eq!(state(&mut driver) >> register::STATE_ERROR_LSB, 4);
    });
}

#[test]
fn impossible_counters_end_the_connection() {
    let served = serve(SETTINGS, Frames::new(0), |path| {
        for (offset, value) in [(COMMANDS_GIVEN, 257), (SEND, 257), (COMMANDS_GIVEN, u32::MAX)] {
            let driver = Driver::connect(path).unwrap();
            driver.store(offset, value);
            assert!(receive(driver.socket.as_ref().unwrap(), &mut [0; 4]).is_none());
        }
    });
    let broken = |notice: &&Notice| matches!(notice, Notice::Disconnected { broken: Some(_) });
    assert_eq!(served.notices.iter().filter(broken).count(), 3);
}

#[test]
fn nothing_in_window_or_messages_harms_the_card() {
    serve(SETTINGS, Frames::new(100), |path| {
        let mut random = SplitMix64::new(9);
        for _ in 0..6 {
            let driver = Driver::connect(path).unwrap();
            let mut bytes = vec![0; 0x1_1000];
            random.fill_bytes(&mut bytes);
            // Commands with random contents, a possible number of them; then doorbells and pieces.
            driver.window.write(COMMANDS, &bytes[..0x1000]);
            driver.store(COMMANDS_GIVEN, 256);
            driver.window.write(0, &bytes[..0x1_0000]);
            for queue in 0..4 {
                driver.window.write(SEND + 0x2000 * queue + 128, &bytes[0x1000 * queue..0x1000 * (queue + 1)]);
                driver.store(SEND + 0x2000 * queue, 256);
            }
            for _ in 0..20 {
                let mut message = vec![0; random.below(64) as usize + 1];
                random.fill_bytes(&mut message);
                let fd = (random.below(2) == 0).then_some(driver.events[0].as_fd());
                if fd_passing::send(driver.socket.as_ref().unwrap(), &message, fd).is_err() {
                    break;
                }
            }
        }
        let mut driver = Driver::connect(path).unwrap();
        driver.start(1);
        assert!(!driver.receive(1, 1).is_empty());
    });
}

/// Returns a path by which another part of the process opens shared memory.
fn path_of(memory: &Region) -> PathBuf {
    format!("/proc/self/fd/{}", memory.fd().unwrap().as_raw_fd()).into()
}

#[test]
fn a_driver_in_a_guest_shares_only_memory_with_the_card() {
    let window = Region::memfd("window", 0x40_0000).unwrap();
    let memory = Region::memfd("memory", 2 * EACH as usize).unwrap();
    for count in [100, 50] {
        window.write(COMMANDS_GIVEN, &[1; 4]); // what was there is of no importance
        let server = Server::attach(&path_of(&window), &path_of(&memory), SETTINGS).unwrap();
        let served = run(&server, false, Frames::new(count), || {
            let mut killed = Driver::in_guest(&window, &memory);
            killed.start(5);
            killed.receive(10, 5);
            // The next one stops the channels.
            let mut driver = Driver { used: [0; 2], ..killed };
            for channel in 0..2 {
                driver.write(channel_register(register::CONTROL, channel), 0);
                let state = channel_register(register::STATE, channel);
                until("the channel stops", || driver.access(READ, state, 0)[0] & register::STATE_STATE == 0);
            }
            driver.start(6);
            driver.send(1, 0, &[3; 60]);
            until("all is decided", || driver.access(READ, card_distributor::DELIVERED, 0)[0] == count as u32);
        });
        assert_eq!((served.totals.frames, served.totals.sent[1].frames), (count as u64, 1));
        assert_eq!(served.sent[0].1[..60], [3; 60]);
        assert_eq!(served.notices.last(), Some(&Notice::Decided { frames: count as u64 }));
        let mut magic = [1; 4];
        window.read(HEAD, &mut magic);
        assert_eq!(magic, [0; 4], "the card has left");
    }
}

#[test]
fn only_the_memory_of_a_small_guest_is_at_its_addresses() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let attach = |bytes| {
        file.as_file().set_len(bytes).unwrap();
        Server::attach(Path::new("window"), file.path(), SETTINGS).map(drop)
    };
    for bytes in [0, (2 << 30) + 1] {
        let error = attach(bytes).unwrap_err().to_string();
        assert!(error.contains("at most 2 GiB") && error.contains(&bytes.to_string()), "{error}");
    }
    attach(2 << 30).unwrap();
    assert!(Server::attach(Path::new("window"), Path::new("/nowhere"), SETTINGS).is_err());
}
