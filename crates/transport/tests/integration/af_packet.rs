//! Tests of raw frames over a virtual cable between two network namespaces.

use crate::suite::{BUFFERS, Memory, STEERS, conforms, header, receive};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use shotline_memory::Sge;
use shotline_testing::{or_skip, wait_until};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::conformance::EndpointPair;
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{Icrc, PacketIo, Seal, TxPacket};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

/// Two new network namespaces joined by a veth pair: the machine's own network is not touched.
pub struct Cable([OwnedFd; 2]);

impl Cable {
    /// Creates the namespaces and the cable. The error names the missing privilege or tool.
    pub fn new() -> Result<Self, String> {
        let namespace = || {
            // SAFETY: only this thread's network namespace changes, and it has no sockets yet.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let both = namespace().and_then(|first| Ok([first, namespace()?]));
        let cable = Self(both.map_err(|error| format!("cannot make a network namespace ({error}); run as root"))?);
        Command::new("ip").arg("-V").output().map_err(|error| format!("there is no ip (iproute2) here: {error}"))?;
        // A descriptor of this process, passed to ip as a path.
        let far = format!("/proc/{}/fd/{}", std::process::id(), cable.0[0].as_raw_fd());
        ip(
            "link add cable address 02:00:00:00:00:02 mtu 9000 type veth peer name far address 02:00:00:00:00:01 mtu 9000",
        );
        ip(&format!("link set far netns {far} name cable"));
        for end in 0..2 {
            cable.enter(end);
            ip("link set lo up");
            ip("link set cable up");
            ip(&format!("address add {}/24 dev cable", address(end, true)));
            ip(&format!("address add {}/64 dev cable nodad", address(end, false)));
        }
        for end in 0..2 {
            cable.enter(end);
            // The kernel drops packets until it has detected the carrier.
            wait_until("the cable is in", || ip("-oneline link show dev cable").contains("state UP"));
        }
        Ok(cable)
    }

    /// Moves this thread to the namespace of that end.
    pub fn enter(&self, end: usize) {
        move_into_link_name_space(rustix::fd::AsFd::as_fd(&self.0[end]), Some(LinkNameSpaceType::Network)).unwrap();
    }

    fn open(&self, end: usize, v4: bool, memory: &Memory, sealed: bool, peer: Option<[u8; 6]>) -> FrameIo {
        self.enter(end);
        FrameIo::open(FrameConfig { peer, sealed, ..frames(end, v4, memory) }, &memory.regions).unwrap()
    }

    fn open_ring(&self, end: usize, v4: bool, memory: &Memory, sealed: bool) -> FrameIo {
        self.enter(end);
        let config = FrameConfig { peer: mac(1 - end), sealed, ring: true, ..frames(end, v4, memory) };
        FrameIo::open(config, &memory.regions).unwrap()
    }

    pub fn open_udp(&self, end: usize, v4: bool, memory: &Memory) -> UdpIo {
        self.enter(end);
        let config = UdpConfig {
            bind: SocketAddr::new(address(end, v4), 0),
            sealed: true,
            capacity: BUFFERS as usize,
            scratch: memory.scratch,
            receive_buffer: 4 << 20,
            remainders: true,
            stamps: false,
            ecn: true,
        };
        UdpIo::open(&config, &memory.regions).unwrap()
    }
}

fn frames(end: usize, v4: bool, memory: &Memory) -> FrameConfig {
    FrameConfig {
        interface: "cable".into(),
        bind: SocketAddr::new(address(end, v4), 0),
        peer: None,
        sealed: true,
        remainders: true,
        capacity: BUFFERS as usize,
        scratch: memory.scratch,
        receive_buffer: 8 << 20,
        ring: false,
        ecn: false,
    }
}

pub fn address(end: usize, v4: bool) -> std::net::IpAddr {
    let text = [["fd91:8::1", "10.91.8.1"], ["fd91:8::2", "10.91.8.2"]][end][usize::from(v4)];
    text.parse().unwrap()
}

pub fn mac(end: usize) -> Option<[u8; 6]> {
    Some([2, 0, 0, 0, 0, end as u8 + 1])
}

pub fn ip(words: &str) -> String {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn raw_frames_through_a_ring_conform() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for (v4, sealed) in [(true, true), (false, true), (true, false), (false, false)] {
        let open = || {
            let [tx, rx] = [0, 1].map(|end| cable.open_ring(end, v4, &memory, sealed));
            EndpointPair { to: rx.local_addr(), tx, rx }
        };
        conforms("af_packet, ring", sealed, STEERS, &memory, open, |EndpointPair { rx, .. }| {
            assert_eq!((rx.refused(), rx.device_counters().lost()), Default::default());
            Ok(())
        });
    }
}

#[test]
fn unsegmented_gso_packets_are_delivered_one_by_one() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for (v4, ring) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut socket = cable.open_udp(0, v4, &memory);
        let mut frames = match ring {
            true => cable.open_ring(1, v4, &memory, true),
            false => cable.open(1, v4, &memory, true, mac(0)),
        };
        cable.enter(0);
        let head = header(3);
        let (gather, bytes) = memory.payload(0, 3000);
        let (gather_short, bytes_short) = memory.payload(0, 1000);
        let packet = |gather| TxPacket { header: &head, gather, seal: Seal::Compute };
        // Equal lengths and a shorter last packet: the kernel gets them as one.
        let mut batch = vec![packet(&gather[..]); 10];
        batch.push(packet(&gather_short[..]));
        for _ in 0..5 {
            assert_eq!(socket.send(frames.local_addr(), &batch).unwrap(), 11);
            let received = receive(&mut frames, &memory, vec![None; 11], 11);
            for (index, received) in received.iter().enumerate() {
                let whole = if index == 10 { &bytes_short } else { &bytes };
                assert_eq!(
                    (received.icrc, received.fault, &received.bytes == whole),
                    (Icrc::Good, None, true),
                    "{index}"
                );
            }
        }
        assert_eq!((frames.refused(), frames.device_counters().lost()), Default::default());
    }
}

#[test]
fn frames_dropped_by_the_kernel_are_counted() {
    const SENT: u64 = 2000; // of 3000 bytes each: more than two blocks
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for ring in [false, true] {
        let mut socket = cable.open_udp(0, true, &memory);
        cable.enter(1);
        let config = FrameConfig { receive_buffer: 1 << 20, ring, ..frames(1, true, &memory) };
        let mut frames = FrameIo::open(config, &memory.regions).unwrap();
        let head = header(3);
        let (gather, _) = memory.payload(0, 3000);
        for _ in 0..SENT {
            let one = [TxPacket { header: &head, gather: &gather, seal: Seal::Compute }];
            assert_eq!(socket.send(frames.local_addr(), &one).unwrap(), 1);
        }
        let mut steer = crate::suite::Collector::new(&memory, [].into());
        let mut landed = 0;
        wait_until("each frame has arrived or is counted as missed", || {
            while let some @ 1.. = frames.poll(&mut steer, 64).unwrap() {
                landed += some as u64;
            }
            landed + frames.device_counters().missed >= SENT
        });
        let missed = frames.device_counters().missed;
        assert!(missed > 0 && landed > 0, "{landed} landed, {missed} missed");
        assert_eq!(landed + missed, SENT);
        assert_eq!(frames.device_counters().missed, missed, "and are counted once");
    }
}

#[test]
fn raw_frames_conform() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for (v4, sealed) in [(true, true), (false, true), (true, false), (false, false)] {
        let open = || {
            let [tx, rx] = [0, 1].map(|end| cable.open(end, v4, &memory, sealed, mac(1 - end)));
            EndpointPair { to: rx.local_addr(), tx, rx }
        };
        conforms("af_packet", sealed, STEERS, &memory, open, |EndpointPair { rx, .. }| {
            assert_eq!(rx.refused(), Default::default());
            Ok(())
        });
    }
}

#[test]
fn prebuilt_frames_are_sent_unchanged_after_resolution() {
    let cable = or_skip!(Cable::new());
    for (v4, headroom) in [(true, 42), (false, 62)] {
        let memory = Memory::new();
        let mut tx = cable.open(0, v4, &memory, false, None);
        let mut rx = cable.open(1, v4, &memory, false, None);
        let to = rx.local_addr();
        assert_eq!(tx.headroom(), headroom);
        cable.enter(0); // address resolution is started from this namespace
        // More frames than one call accepts.
        let first = memory.payload(0, 1).0[0];
        let run = FrameRun { region: first.region, offset: 64, stride: 1024, len: 1000, count: 40 };
        for index in 0..run.count {
            tx.prebuild(to, run.frame(index)).unwrap();
        }
        let macs = memory.read(Sge { len: 12, ..run.frame(0) });
        assert_eq!((&macs[..6], &macs[6..]), (&mac(1).unwrap()[..], &mac(0).unwrap()[..]));
        assert_eq!(tx.send_prebuilt(to, run).unwrap(), 40);
        let received = receive(&mut rx, &memory, Vec::new(), 40);
        for (index, received) in received.iter().enumerate() {
            let whole = memory.read(run.frame(index as u32));
            let found = [received.header.as_slice(), &received.bytes].concat();
            assert_eq!((found == whole[headroom..], received.fault), (true, None), "{index}");
        }
        assert!(
            tx.prebuild(to, Sge { len: headroom as u32 - 1, ..run.frame(0) }).is_err(),
            "too short for the headers"
        );
        let mut sealed = cable.open(0, v4, &memory, true, mac(1));
        assert!(sealed.prebuild(to, run.frame(0)).is_err(), "an ICRC needs the payload");
    }
}

#[test]
fn raw_frames_and_sockets_resolve_each_other() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for v4 in [true, false] {
        let mut socket = cable.open_udp(0, v4, &memory);
        let mut frames = cable.open(1, v4, &memory, true, None);
        let head = header(3);
        let (gather, bytes) = memory.payload(0, 3000);
        let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
        // Packets are lost until the kernel has resolved the host.
        let mut steer = crate::suite::Collector::new(&memory, [].into());
        wait_until("a packet comes through", || {
            assert_eq!(frames.send(socket.local_addr(), &[one]).unwrap(), 1);
            socket.wait(Duration::from_millis(50)).unwrap();
            socket.poll(&mut steer, 4).unwrap();
            !steer.received.is_empty()
        });
        assert_eq!((steer.received[0].icrc, steer.received[0].bytes == bytes), (Icrc::Good, true));
        for _ in 0..40 {
            assert_eq!(socket.send(frames.local_addr(), &[one]).unwrap(), 1);
            let received = &receive(&mut frames, &memory, vec![Some(1)], 1)[0];
            assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
            assert_eq!(frames.send(socket.local_addr(), &[one; 3]).unwrap(), 3);
            for received in receive(&mut socket, &memory, vec![None; 3], 3) {
                assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
            }
        }
        // The sender of a received packet is known, regardless of the kernel's table.
        let mut answering = cable.open(1, v4, &memory, true, None);
        ip("link set cable arp off");
        ip("neigh flush dev cable");
        assert_eq!(answering.send(socket.local_addr(), &[one]).unwrap(), 1);
        assert_eq!(answering.unknown_host(), 1, "it is lost, and counted");
        cable.enter(0);
        assert_eq!(socket.send(answering.local_addr(), &[one]).unwrap(), 1);
        receive(&mut answering, &memory, vec![None], 1);
        assert_eq!(answering.send(socket.local_addr(), &[one]).unwrap(), 1);
        receive(&mut socket, &memory, vec![None], 1);
        cable.enter(1);
        ip("link set cable arp on");
    }
}

#[test]
fn invalid_frames_are_counted_by_cause_and_others_ignored() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut rx = cable.open(1, true, &memory, true, mac(0));
    let (to, port) = (rx.local_addr(), rx.local_addr().port());
    cable.enter(0);
    let sender = UdpSocket::bind((address(0, true), 0)).unwrap();
    // A datagram to another port, then one longer than a packet: four fragments.
    sender.send_to(&[1; 100], (to.ip(), port ^ 1)).unwrap();
    sender.send_to(&[2; 30_000], to).unwrap();
    let mut frame: Vec<u8> = [mac(1).unwrap(), mac(0).unwrap()].concat();
    frame.extend([8, 0, 0x45, 0, 0, 20 + 8 + 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 91, 8, 1, 10, 91, 8, 2]);
    frame.extend([0xC0, 0, (port >> 8) as u8, port as u8, 0, 8 + 60, 0, 0]);
    frame.extend([0; 60]);
    send_raw(&frame); // its checksum is 0
    let sum = shotline_wire::ipv4::checksum(&frame[14..34]).to_be_bytes();
    frame[24..26].copy_from_slice(&sum);
    let mut short = frame.clone();
    short[14 + 20 + 4] = 1; // the UDP length exceeds the IP length
    send_raw(&short);
    let mut to_another = frame.clone();
    to_another[5] = 9;
    send_raw(&to_another);
    send_raw(&frame);
    let received = receive(&mut rx, &memory, vec![None], 1);
    assert_eq!((received[0].icrc, received[0].fault.is_some()), (Icrc::Bad, true), "valid, but with a wrong ICRC");
    let refused = rx.refused();
    assert_eq!((refused.checksum, refused.fragments, refused.malformed), (1, 4, 1));
}

/// Sends a raw frame.
fn send_raw(frame: &[u8]) {
    // SAFETY: the calls get live memory of the given lengths.
    let sent = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(c"cable".as_ptr()) as i32;
        let len = size_of::<libc::sockaddr_ll>() as u32;
        let sent = libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), len);
        libc::close(fd);
        sent
    };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}
