//! Tests of DPDK's software drivers: shared memory, without privileges and without huge pages.

use crate::af_packet::{Cable, ip};
use crate::suite::{BUFFERS, CREDITS, Collector, HEADER, Memory, STEERS, header, receive};
use shotline_memory::Sge;
use shotline_testing::{WAIT_TIMEOUT, or_skip, skip, wait_until, wait_until_some};
use shotline_transport::conformance::{self, EndpointPair, Fixture};
use shotline_transport::dpdk::{DpdkConfig, DpdkIo, EalConfig, Pages};
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::{Icrc, IoError, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv, Seal, TxPacket};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A folder with a name unique to a test, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shotline-dpdk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn memif(&self, name: &str, role: &str) -> String {
        let socket = self.0.join("m.sock");
        format!("net_memif_{name}_{role},role={role},id=0,socket={},socket-abstract=no", socket.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(device: String, bind: &str, memory: &Memory) -> DpdkConfig {
    let eal = EalConfig { memory_mib: 512, pages: Pages::Normal, arguments: Vec::new() };
    let config = DpdkConfig::new(device, bind.parse().unwrap(), memory.scratch);
    DpdkConfig { eal, capacity: BUFFERS as usize, ..config }
}

fn address(v4: bool, end: usize) -> &'static str {
    [["[fd91:9::1]:4791", "10.91.9.1:4791"], ["[fd91:9::2]:4791", "10.91.9.2:4791"]][end][usize::from(v4)]
}

/// Device arguments without and with zero-copy, in which the peer of a memif client reads the client's memory.
const ZERO_COPY_ARGUMENTS: [&str; 2] = ["zero-copy=no", "zero-copy=yes"];

fn memif_pair(
    folder: &Folder,
    name: &str,
    argument: &str,
    memory: &Memory,
    set: impl Fn(&mut DpdkConfig),
) -> (DpdkIo, DpdkIo) {
    // Within one process the server must be opened first: the driver's state of a socket is global.
    let [mut server, mut client] = [("server", 0), ("client", 1)].map(|(role, end)| {
        let mut config = config(format!("{},{argument}", folder.memif(name, role)), address(true, end), memory);
        set(&mut config);
        DpdkIo::open(config, &memory.regions).unwrap()
    });
    for end in [&mut server, &mut client] {
        end.wait_link(WAIT_TIMEOUT).unwrap();
    }
    (server, client)
}

/// Closes both ends, so that another pair may be opened.
///
/// On an event DPDK's interrupt thread reads from the socket that currently has the event's descriptor number, and
/// blocks for a message. So no event of a closed socket may be pending when its number is reused: the server's has been
/// handled when its link is down.
fn close(server: DpdkIo, client: DpdkIo) {
    drop(client);
    wait_until("the server's link is down", || !server.link_is_up());
}

/// Runs the suite from the second port to the first one, and returns both.
fn conform(memory: &Memory, sealed: bool, name: &str, credits: bool, [rx, tx]: [DpdkIo; 2]) -> [DpdkIo; 2] {
    let (mut ends, mut back) = (Some(EndpointPair { to: rx.local_addr(), tx, rx }), None);
    let open =
        |_: &Memory| ends.take().ok_or_else(|| "an earlier check failed, and ports are not opened twice".to_owned());
    let close = |ends: EndpointPair<DpdkIo, DpdkIo>| {
        back = Some([ends.rx, ends.tx]);
        Ok(())
    };
    let capabilities = if credits { CREDITS } else { STEERS };
    let report = conformance::run(Fixture { name: name.into(), sealed, capabilities, open, close }, memory);
    report.expect_conformance();
    back.unwrap()
}

#[test]
fn memif_conforms_with_and_without_zero_copy() {
    let memory = Memory::new();
    for (number, argument) in ZERO_COPY_ARGUMENTS.into_iter().enumerate() {
        for (v4, sealed) in [(true, true), (false, true), (true, false), (false, false)] {
            let folder = Folder::new(&format!("conforms-{number}-{v4}-{sealed}"));
            let name = format!("conforms_{number}_{v4}_{sealed}");
            let (server, client) = memif_pair(&folder, &name, argument, &memory, |config| {
                let end = usize::from(config.device.contains("client"));
                config.bind = address(v4, end).parse().unwrap();
                config.sealed = sealed;
            });
            let [server, client] = conform(&memory, sealed, "memif, to the server", true, [server, client]);
            let [mut client, server] = conform(&memory, sealed, "memif, to the client", true, [client, server]);
            let counters = server.dpdk_counters();
            assert_eq!(counters.landed, counters.received);
            assert!(counters.causes().iter().all(|(_, count)| *count == 0), "{counters:?}");
            assert_eq!((counters.link_ups, counters.link_downs, counters.no_link), (1, 0, 0));
            wait_until("all that was sent has been read", || client.in_flight() == 0);
            close(server, client);
        }
    }
}

#[test]
fn prebuilt_frames_arrive_unchanged_with_new_payloads() {
    let memory = Memory::new();
    for (number, argument) in ZERO_COPY_ARGUMENTS.into_iter().enumerate() {
        let folder = Folder::new(&format!("prebuilt-{number}"));
        for v4 in [true, false] {
            let (mut rx, mut tx) =
                memif_pair(&folder, &format!("prebuilt_{number}_{v4}"), argument, &memory, |config| {
                    let end = usize::from(config.device.contains("client"));
                    config.bind = address(v4, end).parse().unwrap();
                    config.sealed = false;
                });
            let (head, to) = (tx.headroom(), rx.local_addr());
            assert_eq!(head, if v4 { 42 } else { 62 });
            // Three frames, each in its own slot with unused bytes after it.
            let first = memory.buffer(0, 2000);
            let run = FrameRun { region: first.region, offset: first.offset, stride: 4096, len: 2000, count: 3 };
            let mut runs = vec![(memory.regions.clone(), run)];
            let own = tx.frame_memory(1 << 20).unwrap();
            assert_eq!(own.is_some(), argument == "zero-copy=yes");
            if let Some(own) = own {
                let (regions, region) = memory.regions.with(own).unwrap();
                // The same with zero-copy memory.
                runs.push((regions, FrameRun { region, offset: 22, ..run }));
                assert!(tx.frame_memory(1 << 34).is_err(), "there is not as much");
            }
            for (regions, run) in runs {
                tx.register(&regions);
                for index in 0..3 {
                    tx.prebuild(to, run.frame(index)).unwrap();
                }
                for round in 0..3_u8 {
                    for index in 0..3 {
                        let frame = run.frame(index);
                        let payload = vec![round * 16 + index as u8; 2000 - head];
                        regions.get(frame.region).write(frame.offset as usize + head, &payload);
                    }
                    assert_eq!(tx.send_prebuilt(to, run).unwrap(), 3);
                    assert_eq!(
                        tx.in_flight(),
                        if argument == "zero-copy=yes" { 3 } else { 0 },
                        "nothing was received so far"
                    );
                    for (index, received) in receive(&mut rx, &memory, vec![None; 3], 3).iter().enumerate() {
                        let whole = [received.header.as_slice(), &received.bytes].concat();
                        assert_eq!(whole, vec![round * 16 + index as u8; 2000 - head]);
                        assert_eq!((received.icrc, received.fault), (Icrc::Absent, None));
                    }
                    assert_eq!(tx.in_flight(), 0);
                }
                assert!(
                    tx.prebuild(to, Sge { len: head as u32 - 1, ..run.frame(0) }).is_err(),
                    "too short for the headers"
                );
                assert!(tx.prebuild(to, Sge { len: 9015, ..run.frame(0) }).is_err(), "longer than the MTU");
                assert!(tx.send_prebuilt(to, FrameRun { len: 9015, count: 1, ..run }).is_err());
            }
            close(rx, tx);
        }
    }
}

#[test]
fn direct_receive_restores_the_bytes_around_the_payload() {
    const LEN: u32 = 2000;
    let memory = Memory::new();
    for (number, (argument, v4, sealed)) in [(0, true, true), (1, true, false), (1, false, true)]
        .map(|(argument, v4, sealed)| (ZERO_COPY_ARGUMENTS[argument], v4, sealed))
        .into_iter()
        .enumerate()
    {
        let folder = Folder::new(&format!("direct-{number}"));
        let (mut rx, mut tx) = memif_pair(&folder, &format!("direct_{number}"), argument, &memory, |config| {
            let end = usize::from(config.device.contains("client"));
            config.bind = address(v4, end).parse().unwrap();
            config.sealed = sealed;
        });
        let (to, head) = (rx.local_addr(), header(5));
        let (seal, good) = if sealed { (Seal::Compute, Icrc::Good) } else { (Seal::None, Icrc::Absent) };
        let elsewhere = SocketAddr::new(to.ip(), to.port() + 1);
        let needed = [rx.headroom() as u32 + HEADER as u32, 4];
        let wide = [LEN; 2];
        // Destination, length, seal, and bytes around the buffer that may be written; whether it is received directly,
        // and the verdict.
        let cases = [
            (to, LEN, seal, wide, true, good),
            (to, LEN, seal, needed, true, good),
            (to, LEN, seal, [needed[0] - 1, 4], false, good),
            (to, LEN, seal, [needed[0], 3], !sealed, good),
            (to, LEN, Seal::Forced(7), wide, true, if sealed { Icrc::Bad } else { good }),
            (to, LEN - 1, seal, wide, false, good),
            (to, LEN + 1, seal, wide, false, good),
            (to, 2 * LEN, seal, wide, false, good),
            (to, 5, seal, wide, false, good),
            (to, 0, seal, wide, false, good),
            (elsewhere, LEN, seal, wide, false, good),
        ];
        for (case, (destination, len, seal, margins, is_direct, verdict)) in cases.into_iter().enumerate() {
            let seal = if sealed { seal } else { Seal::None };
            // After a frame that differed from its prediction, the next ones are received in the usual way.
            let (small, _) = memory.payload(0, 60);
            assert_eq!(tx.send(to, &[TxPacket { header: &head, gather: &small, seal: Seal::None }; 40]).unwrap(), 40);
            receive(&mut rx, &memory, vec![None; 40], 40);
            for index in 19..23 {
                memory.fill(memory.buffer(index, 4096), 0xA5);
            }
            let buffer = memory.buffer(20, LEN);
            assert_eq!(rx.post(&[Recv { id: 20, sge: [buffer, Sge::EMPTY] }]), 1);
            let (gather, bytes) = memory.payload(8 * case as u64, len);
            assert_eq!(tx.send(destination, &[TxPacket { header: &head, gather: &gather, seal }]).unwrap(), 1);
            let predictions =
                vec![Pick { destination: PayloadDestination::Posted(20), header_len: Some(HEADER as u16) }];
            let mut steer = Collector { predictions, margins, ..Collector::new(&memory, [].into()) };
            rx.poll(&mut steer, 1).unwrap();
            let what = format!("case {case}, {argument}, v4 {v4}, sealed {sealed}");
            assert_eq!(steer.received.len(), usize::from(destination == to), "{what}");
            for received in &steer.received {
                assert_eq!(received.landed == PayloadLocation::Posted(20), is_direct, "{what}: {:?}", received.landed);
                assert_eq!(
                    (received.bytes == bytes, received.header.as_slice(), received.icrc),
                    (true, head.as_slice(), verdict),
                    "{what}"
                );
            }
            let is_untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xA5);
            for index in [19, 21, 22] {
                assert!(is_untouched(&memory.read(memory.buffer(index, 4096))), "{what}: buffer {index}");
            }
            assert!(is_untouched(&memory.read(memory.buffer(20, 4096))[LEN as usize..]), "{what}: after the payload");
            // A buffer that nothing landed in is still posted, and a used one is not.
            let (gather, bytes) = memory.payload(512, LEN);
            let seal = if sealed { Seal::Compute } else { Seal::None };
            assert_eq!(tx.send(to, &[TxPacket { header: &head, gather: &gather, seal }]).unwrap(), 1);
            let received = receive(&mut rx, &memory, vec![Some(20)], 1);
            assert_eq!(
                (received[0].landed == PayloadLocation::Posted(20), received[0].bytes == bytes),
                (!is_direct, true),
                "{what}"
            );
            rx.withdraw(&[20]);
        }
        let counters = rx.dpdk_counters();
        let refused: u64 = counters.causes().iter().map(|(_, count)| count).sum();
        assert_eq!((counters.landed + refused, refused), (counters.received, 1), "{counters:?}");
        close(rx, tx);
    }
}

/// DPDK's own test program, at the other end of a memif. It is killed when dropped.
struct Testpmd(Child, PathBuf);

impl Testpmd {
    /// Starts it as a memif client. The error reports that it is not installed.
    fn start(folder: &Folder, name: &str, devices: &[String], forward: &[&str]) -> Result<Self, String> {
        Self::start_as("client", folder, name, devices, forward)
    }

    fn start_as(role: &str, folder: &Folder, name: &str, devices: &[String], forward: &[&str]) -> Result<Self, String> {
        // The socket is renamed when the server is ready: the client does not retry an unready server for seconds.
        let (listens, shown) = (folder.0.join("new.sock"), folder.0.join("m.sock"));
        let socket = if role == "server" { &listens } else { &shown };
        let memif = format!("net_memif0,role={role},id=0,socket={},socket-abstract=no,bsize=10240", socket.display());
        let mut command = Command::new("stdbuf"); // unbuffered log, to follow its progress
        command.args(["-oL", "dpdk-testpmd", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "128"]);
        command.arg("--lcores=0@0,1@0");
        command.arg(format!("--file-prefix=shotline-test-{name}")).args(["--vdev", &memif]);
        for device in devices {
            command.args(["--vdev", device]);
        }
        // Ten kilobytes hold any frame of the captures. Without a terminal it runs until it is killed.
        command.args(["--", "--mbuf-size=10368", "--total-num-mbufs=2048", "--no-lsc-interrupt"]).args(forward);
        let log = folder.0.join("testpmd.log");
        let _ = std::fs::remove_file(&log);
        let [out, err] = [(); 2].map(|()| std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap());
        command.args(["--stats-period=60"]).stdin(Stdio::null()).stdout(out).stderr(err);
        let missing = |why: &str| format!("dpdk-testpmd does not start ({why}); it is in Debian's dpdk-dev");
        let child = command.spawn().map_err(|error| missing(&error.to_string()))?;
        let mut testpmd = Self(child, log);
        let started = wait_until_some("dpdk-testpmd's port", || {
            let log = std::fs::read_to_string(&testpmd.1).unwrap_or_default();
            let ended = testpmd.0.try_wait().unwrap().map(|status| status.code() == Some(127));
            ended.map(|absent| !absent).or(log.contains("Checking link statuses").then_some(true))
        });
        if !started {
            return Err(missing("it is not there"));
        }
        if role == "server" {
            std::fs::rename(&listens, &shown).unwrap();
        }
        Ok(testpmd)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("dpdk-testpmd: {}", std::fs::read_to_string(&self.1).unwrap_or_default());
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn reception_resumes_after_the_sender_is_killed_and_restarted() {
    let memory = Memory::new();
    let folder = Folder::new("killed");
    let mut config = config(folder.memif("killed", "server"), "198.18.0.2:4791", &memory);
    config.sealed = false;
    let mut rx = DpdkIo::open(config, &memory.regions).unwrap();
    for round in 1..=2 {
        let forward = ["--forward-mode=txonly", "--txpkts=4096", "--tx-ip=198.18.0.1,198.18.0.2", "--tx-udp=9,4791"];
        let mut sender = or_skip!(Testpmd::start(&folder, "killed", &[], &forward));
        let before = rx.dpdk_counters().landed;
        let poll =
            |rx: &mut DpdkIo| {
                let mut steer = Collector::new(&memory, [].into());
                rx.poll(&mut steer, 64).unwrap();
                assert!(
                    steer.received.iter().all(|received| received.header.len() + received.bytes.len() == 4096 - 42
                        && received.fault.is_none())
                );
            };
        wait_until("its packets", || {
            poll(&mut rx);
            rx.dpdk_counters().landed > before + 500
        });
        // Probably in the middle of a burst: the shared memory is unmapped.
        sender.0.kill().unwrap();
        wait_until("the link is down", || {
            poll(&mut rx);
            !rx.link_is_up()
        });
        let counters = rx.dpdk_counters();
        assert_eq!((counters.link_ups, counters.link_downs), (round, round));
        let refused: u64 = counters.causes().iter().map(|(_, count)| count).sum();
        assert_eq!(counters.landed + refused, counters.received, "{counters:?}");
    }
}

#[test]
fn memif_client_connects_to_a_later_or_restarted_server() {
    let memory = Memory::new();
    for (number, (argument, rounds)) in ZERO_COPY_ARGUMENTS.into_iter().zip([1, 2]).enumerate() {
        let name = format!("later{number}");
        let folder = Folder::new(&name);
        // The server is another process: within one process the driver's state of a socket is global.
        let device = format!("{},{argument}", folder.memif(&name, "client"));
        let mut client = DpdkIo::open(config(device, address(true, 0), &memory), &memory.regions).unwrap();
        let forward = ["--forward-mode=rxonly"];
        for round in 1..=rounds {
            let server = or_skip!(Testpmd::start_as("server", &folder, &name, &[], &forward));
            client.wait_link(WAIT_TIMEOUT).unwrap_or_else(|error| panic!("{argument}, round {round}: {error}"));
            let head = header(1);
            let one = TxPacket { header: &head, gather: &memory.payload(0, 100).0, seal: Seal::Compute };
            assert_eq!(client.send(address(true, 1).parse().unwrap(), &[one; 3]).unwrap(), 3);
            wait_until("the server has read the frames", || client.in_flight() == 0);
            // It stops reading, and is killed while frames are in use.
            // SAFETY: sends a signal to our own child.
            assert_eq!(unsafe { libc::kill(server.0.id() as i32, libc::SIGSTOP) }, 0);
            assert_eq!(client.send(address(true, 1).parse().unwrap(), &[one; 30]).unwrap(), 30);
            assert_eq!(client.in_flight() > 0, argument == "zero-copy=yes");
            drop(server);
            wait_until("the link is down", || !client.link_is_up());
            let counters = client.dpdk_counters();
            assert_eq!((counters.link_ups, counters.link_downs, counters.sent), (round, round, 33 * round));
            // The link is reported down before the buffers are recovered.
            wait_until("unread frames are recovered after the link went down", || client.in_flight() == 0);
        }
    }
}

#[test]
fn packets_sent_without_a_link_are_lost_and_counted() {
    let memory = Memory::new();
    let folder = Folder::new("alone");
    let mut tx =
        DpdkIo::open(config(folder.memif("alone", "client"), address(true, 0), &memory), &memory.regions).unwrap();
    let error = tx.wait_link(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(error.contains("its server must run") && error.contains("m.sock"), "{error}");
    let head = header(1);
    let one = TxPacket { header: &head, gather: &memory.payload(0, 100).0, seal: Seal::Compute };
    assert_eq!(tx.send(address(true, 1).parse().unwrap(), &[one; 3]).unwrap(), 3);
    assert_eq!((tx.dpdk_counters().no_link, tx.dpdk_counters().sent), (3, 0));
}

#[test]
fn open_errors_name_cause_and_remedy() {
    let memory = Memory::new();
    let open = |device: &str| {
        let error = DpdkIo::open(config(device.into(), address(true, 0), &memory), &memory.regions).map(drop);
        error.unwrap_err().to_string()
    };
    let folder = Folder::new("errors");
    let cases = [
        ("net_nothing0", "the name of a driver"),
        ("net_pcap_missing,rx_pcap=/nowhere/at/all.pcap", "must be readable"),
        ("net_af_packet_none,iface=no-such-link", "the interface no-such-link must exist"),
        ("0000:ff:1f.7", "software ports only"),
        ("net_memif_short,bsize=100", "so that a frame of the MTU fits in one buffer"),
    ];
    for (device, part) in cases {
        let error = open(device);
        assert!(error.contains(part), "{device}: {error}");
    }
    // A duplicate name, and a socket in use.
    let server = folder.memif("errors", "server");
    let first = DpdkIo::open(config(server.clone(), address(true, 0), &memory), &memory.regions).unwrap();
    assert!(open(&server).contains("another process listens on"), "{}", open(&server));
    drop(first);
    // Closed, it can be opened again.
    drop(DpdkIo::open(config(server, address(true, 0), &memory), &memory.regions).unwrap());
    // EAL starts once.
    let mut other = config(folder.memif("other", "client"), address(true, 0), &memory);
    other.eal.memory_mib += 1;
    let error = DpdkIo::open(other, &memory.regions).map(drop).unwrap_err();
    assert!(matches!(&error, IoError::Config(why) if why.contains("a process of its own")), "{error}");
}

/// Returns the captures of a traffic generator, if this machine has them.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/net");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "pcap")).collect()
}

/// Concatenates captures of the same link type. Returns the result and its number of frames.
fn joined(files: &[PathBuf], folder: &Folder) -> (PathBuf, u64) {
    const HEADER: usize = 24;
    let (mut all, mut frames) = (Vec::new(), 0);
    for file in files {
        let bytes = std::fs::read(file).unwrap();
        assert_eq!(bytes[..4], [0xD4, 0xC3, 0xB2, 0xA1], "{}: microseconds, little-endian", file.display());
        let mut at = HEADER;
        while at < bytes.len() {
            at += 16 + u32::from_le_bytes(*bytes[at + 8..].first_chunk().unwrap()) as usize;
            frames += 1;
        }
        all.extend(if all.is_empty() { &bytes[..] } else { &bytes[HEADER..] });
    }
    let path = folder.0.join("all.pcap");
    std::fs::write(&path, all).unwrap();
    (path, frames)
}

#[test]
fn foreign_frames_are_counted_by_cause_and_not_delivered() {
    let memory = Memory::new();
    let files = captures();
    if files.is_empty() {
        skip!("no captures in ../shared/data/net next to the repository");
    }
    let folder = Folder::new("replay");
    let (capture, frames) = joined(&files, &folder);
    let mut rx =
        DpdkIo::open(config(folder.memif("replay", "server"), address(true, 0), &memory), &memory.regions).unwrap();
    let replay = format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display());
    let sender = or_skip!(Testpmd::start(&folder, "replay", &[replay], &["--forward-mode=io"]));
    let mut steer = Collector::new(&memory, [].into());
    wait_until("the captures, several times", || {
        rx.poll(&mut steer, 64).unwrap();
        rx.dpdk_counters().received > 5 * frames
    });
    drop(sender);
    while rx.poll(&mut steer, 64).unwrap() > 0 {}
    wait_until("the link is down", || !rx.link_is_up());
    let counters = rx.dpdk_counters();
    let [_, _, _, causes @ ..] = counters.causes();
    let refused: u64 = causes.iter().map(|(_, count)| count).sum();
    assert_eq!((counters.landed, steer.received.len()), (0, 0), "no datagram was for us");
    assert_eq!(refused, counters.received, "{counters:?}");
}

#[test]
fn capture_file_opens_as_a_port() {
    let memory = Memory::new();
    let Some(file) = captures().into_iter().find(|path| path.ends_with("trex_imix.pcap")) else {
        skip!("no captures in ../shared/data/net next to the repository");
    };
    let device = format!("net_pcap_file,rx_pcap={}", file.display());
    let mut rx = DpdkIo::open(config(device, address(true, 0), &memory), &memory.regions).unwrap();
    let mut steer = Collector::new(&memory, [].into());
    wait_until("the file's end", || {
        rx.poll(&mut steer, 64).unwrap();
        rx.dpdk_counters().received >= 100
    });
    assert_eq!(rx.dpdk_counters().landed, 0);
}

/// Returns an address on this cable that the kernel does not have, so that only DPDK answers for it.
fn unused_address(v4: bool, end: usize) -> SocketAddr {
    let text = [["[fd91:8::a]:4791", "10.91.8.10:4791"], ["[fd91:8::b]:4791", "10.91.8.11:4791"]][end][usize::from(v4)];
    text.parse().unwrap()
}

#[test]
fn af_packet_conforms_over_a_cable() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for v4 in [true, false] {
        let [mut tx, mut rx] = [0, 1].map(|end| {
            cable.enter(end);
            let device = format!("net_af_packet_{v4}_{end},iface=cable");
            let mut config = config(device, address(true, 0), &memory);
            config.bind = unused_address(v4, end);
            DpdkIo::open(config, &memory.regions).unwrap()
        });
        for port in [&mut tx, &mut rx] {
            port.wait_link(WAIT_TIMEOUT).unwrap();
        }
        let [rx, _tx] = conform(&memory, true, "af_packet of DPDK", false, [rx, tx]);
        // The kernel sends IPv6 solicitations and reports when a link comes up; nothing else is refused.
        let causes = rx.dpdk_counters().causes();
        assert!(causes.iter().all(|(cause, count)| *count == 0 || *cause == "not_udp"), "{causes:?}");
    }
}

/// Exchanges packets between a kernel socket and a DPDK port, including address resolution. The outer error reports
/// that no cable can be created, the inner one that the port cannot be opened.
fn exchange_with_socket(device: &str, mtu: u16, payload: u32) -> Result<Result<(), IoError>, String> {
    let memory = Memory::new();
    for v4 in [true, false] {
        let cable = Cable::new()?;
        for end in 0..2 {
            cable.enter(end);
            ip(&format!("link set cable mtu {mtu}"));
        }
        let mut socket = cable.open_udp(0, v4, &memory);
        cable.enter(1);
        let mut config = config(format!("{device}_{v4},iface=cable"), address(true, 0), &memory);
        config.bind = unused_address(v4, 1);
        config.mtu = mtu;
        let mut port = match DpdkIo::open(config, &memory.regions) {
            Ok(port) => port,
            Err(error) => return Ok(Err(error)),
        };
        port.wait_link(WAIT_TIMEOUT).unwrap();
        let head = header(3);
        let (gather, bytes) = memory.payload(0, payload);
        let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
        let mut steer = Collector::new(&memory, [].into());
        wait_until("the kernel has resolved the port's address and sent", || {
            socket.send(port.local_addr(), &[one]).unwrap();
            port.wait(Duration::from_millis(20)).unwrap();
            port.poll(&mut steer, 64).unwrap();
            !steer.received.is_empty()
        });
        assert!(steer.received.iter().all(|received| received.icrc == Icrc::Good && received.bytes == bytes));
        assert!(port.dpdk_counters().answered > 0, "{:?}", port.dpdk_counters());
        assert_eq!(port.send(socket.local_addr(), &[one; 5]).unwrap(), 5);
        for received in receive(&mut socket, &memory, vec![None; 5], 5) {
            assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
        }
    }
    Ok(Ok(()))
}

#[test]
fn af_packet_exchanges_packets_with_a_socket() {
    or_skip!(exchange_with_socket("net_af_packet_socket", 9000, 4096)).unwrap();
}

#[test]
fn af_xdp_exchanges_packets_with_a_socket() {
    // An AF_XDP frame must fit in a page together with the driver's headroom.
    if let Err(error) = or_skip!(exchange_with_socket("net_af_xdp_socket", 3000, 2048)) {
        // Many kernels and containers do not support it; the error names the failed step.
        skip!("no AF_XDP here: {error}");
    }
}
