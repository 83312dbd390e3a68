//! Tests against a peer that breaks the format, and of when an end is woken.

use super::end::{RECORD_HEADER, ShmCarrier, record_len};
use super::socket::WakeSocket;
use super::sys::{RING_BYTES, SharedRing};
use super::wake;
use crate::IoError;
use crate::carrier::{Carrier, MAX_DATAGRAM, wait};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shotline_memory::Region;
use shotline_random::SplitMix64;
use shotline_testing::seeds;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// An end, and the parts of a peer that writes what it likes.
struct Attack {
    end: ShmCarrier,
    ring: SharedRing,
    socket: WakeSocket,
}

impl Attack {
    fn new() -> Self {
        let (ours, theirs) = sockets();
        let offer = ShmCarrier::offer(ours).unwrap();
        let (ring, socket) = (SharedRing::new().unwrap(), WakeSocket::new(theirs));
        socket.send_hello(ring.fd()).unwrap();
        Self { end: offer.join().unwrap(), ring, socket }
    }

    fn write(&self, position: u64, len: u64) {
        self.ring.write(position, &len.to_le_bytes());
    }

    /// Asserts that the path has ended, and that nothing blocks.
    fn expect_invalid(&mut self) {
        for _ in 0..3 {
            let found = self.end.receive();
            assert!(matches!(found, Err(IoError::InvalidPeer { .. })), "{found:?}");
            assert_eq!(self.end.remaining(), 0);
            self.end.finish().unwrap();
            self.end.flush().unwrap();
            assert!(!self.end.prepare_sleep());
            wait(&mut self.end, Duration::from_secs(3600)).unwrap();
        }
    }
}

fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn send(carrier: &mut ShmCarrier, bytes: &[u8]) {
    assert!(carrier.remaining() >= bytes.len());
    carrier.append(bytes);
    carrier.finish().unwrap();
    carrier.flush().unwrap();
}

#[test]
fn impossible_write_positions_end_the_path() {
    for tail in [RING_BYTES + 1, u64::MAX, 1 << 63] {
        let mut attack = Attack::new();
        attack.ring.tail().store(tail, Relaxed);
        attack.expect_invalid();
    }
    // Backwards, after a datagram.
    let mut attack = Attack::new();
    attack.write(0, 5);
    attack.ring.tail().store(record_len(5), Relaxed);
    assert_eq!(attack.end.receive().unwrap().map(|bytes| bytes.len()), Some(5));
    attack.ring.tail().store(record_len(5) - 1, Relaxed);
    attack.expect_invalid();
}

#[test]
fn impossible_read_positions_end_the_path() {
    for head in [1, u64::MAX, RING_BYTES] {
        let mut attack = Attack::new();
        attack.ring.head().store(head, Relaxed);
        // It is read when the space that is known is used up.
        while attack.end.remaining() > 0 {
            attack.end.append(&[7; MAX_DATAGRAM]);
            attack.end.finish().unwrap();
        }
        attack.expect_invalid();
    }
}

#[test]
fn impossible_lengths_end_the_path() {
    let cases = [
        (0, 64),
        (0, RING_BYTES),
        (MAX_DATAGRAM as u64 + 1, RING_BYTES),
        (u64::MAX, RING_BYTES),
        (1 << 32, RING_BYTES),
        // Longer than what is there.
        (1, 1),
        (1, RECORD_HEADER),
        (100, record_len(100) - 1),
        (MAX_DATAGRAM as u64, record_len(MAX_DATAGRAM) - 64),
    ];
    for (len, tail) in cases {
        let mut attack = Attack::new();
        attack.write(0, len);
        attack.ring.tail().store(tail, Relaxed);
        attack.expect_invalid();
    }
}

#[test]
fn random_writes_of_a_peer_neither_panic_nor_hang() {
    for seed in seeds(0..300) {
        let (mut attack, mut random) = (Attack::new(), SplitMix64::new(seed));
        let mut tail: u64 = 0;
        for _ in 0..200 {
            let any = random.next_u64() >> random.below(64);
            match random.below(12) {
                0 => attack.ring.tail().store(any, Relaxed),
                1 => attack.ring.head().store(any, Relaxed),
                2 => attack.ring.wake().store(any as u32, Relaxed),
                3 => attack.write(any & !7, random.next_u64() >> random.below(64)),
                4 => attack.socket.wake(),
                5..=8 => {
                    let len = random.between(1, 300);
                    attack.write(tail, len);
                    tail += record_len(len as usize);
                    attack.ring.tail().store(tail, Relaxed);
                }
                9 => _ = attack.end.prepare_sleep(),
                10 if attack.end.remaining() > 0 => send(&mut attack.end, &[1; 9]),
                _ => {
                    let found = attack.end.receive();
                    assert!(matches!(found, Ok(_) | Err(IoError::InvalidPeer { .. })), "{found:?}");
                }
            }
        }
    }
}

#[test]
fn flood_of_messages_does_not_block() {
    let mut attack = Attack::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let socket = &attack.socket;
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                socket.wake();
            }
        });
        for _ in 0..1000 {
            attack.end.prepare_sleep();
            assert!(attack.end.receive().unwrap().is_none());
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn peer_is_woken_once_for_each_request() {
    let mut attack = Attack::new();
    let woken = |attack: &Attack| {
        let mut bytes = [0; 8];
        (0..).take_while(|_| crate::fd_passing::receive(attack.socket.fd(), &mut bytes, |_| false).is_ok()).count()
    };
    assert_eq!(woken(&attack), 1, "the hello");
    for _ in 0..100 {
        send(&mut attack.end, &[1; 100]);
    }
    assert_eq!(woken(&attack), 0);
    for request in 1..4 {
        attack.ring.wake().store((request * wake::STEP) | wake::DATA, Relaxed);
        attack.end.flush().unwrap();
        assert_eq!(woken(&attack), 0, "nothing was written");
        (0..100).for_each(|_| send(&mut attack.end, &[1; 100]));
        assert_eq!(woken(&attack), 1);
    }
    // Space is another reason.
    attack.ring.wake().store((9 * wake::STEP) | wake::SPACE, Relaxed);
    send(&mut attack.end, &[1; 100]);
    assert_eq!(woken(&attack), 0);
    attack.write(0, 5);
    attack.ring.tail().store(record_len(5), Relaxed);
    assert!(attack.end.receive().unwrap().is_some());
    assert!(attack.end.receive().unwrap().is_none());
    assert_eq!(woken(&attack), 1);
}

/// Returns why an end refuses a peer that sends these bytes, and this memory, as its first message.
fn refusal(bytes: &[u8], memory: Option<OwnedFd>) -> IoError {
    let (ours, theirs) = sockets();
    crate::fd_passing::send(&theirs, bytes, memory.as_ref().map(AsFd::as_fd)).unwrap();
    ShmCarrier::over(ours).unwrap_err()
}

#[test]
fn other_first_messages_are_refused() {
    let hello = b"shtlCar1";
    let copy = |region: &Region| Some(rustix::io::dup(region.fd().unwrap()).unwrap());
    let valid = SharedRing::new().unwrap();
    let len = 4096 + RING_BYTES as usize;
    let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, len as u64).unwrap();
    assert!(!rustix::fs::fcntl_get_seals(&unsealed).unwrap().contains(SealFlags::SHRINK));
    let refused = [
        refusal(b"GET / HTTP/1.1", None),
        refusal(hello, None),
        refusal(b"shtlCar0", Some(rustix::io::dup(valid.fd()).unwrap())),
        refusal(hello, Some(std::fs::File::open("/dev/zero").unwrap().into())),
        refusal(hello, Some(unsealed)),
        refusal(hello, copy(&Region::memfd("short", 4096).unwrap())),
        refusal(hello, copy(&Region::memfd("no magic", len).unwrap())),
    ];
    for error in refused {
        assert!(matches!(error, IoError::InvalidPeer { .. }), "{error}");
        assert!(error.to_string().contains("a first message of another kind"), "{error}");
    }
}

#[test]
fn peer_that_goes_during_setup_is_reported() {
    let (ours, theirs) = sockets();
    let offer = ShmCarrier::offer(ours).unwrap();
    drop(theirs);
    assert!(matches!(offer.join(), Err(IoError::Disconnected)));
    let (ours, _theirs) = sockets();
    let error = ShmCarrier::over(ours).unwrap_err().to_string();
    assert!(error.contains("has sent nothing for 5 s"), "{error}");
}

#[test]
fn peer_can_only_read_the_memory_of_an_end() {
    let (_ours, theirs) = sockets();
    let _offer = ShmCarrier::offer(_ours).unwrap();
    let memory = WakeSocket::new(theirs).receive_hello().unwrap().unwrap();
    assert!(Region::from_fd(rustix::io::dup(&memory).unwrap(), true).is_err());
    assert!(rustix::io::write(&memory, b"x").is_err());
    assert!(!Region::from_fd(memory, false).unwrap().is_writable());
}
