//! Tests of shared-memory paths between two processes.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use shotline_random::SplitMix64;
use shotline_testing::{Process, example};
use shotline_transport::IoError;
use shotline_transport::carrier::{Carrier, MAX_DATAGRAM, shm::ShmCarrier, wait};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a peer process with these arguments.
fn with_peer(arguments: &[&str]) -> (ShmCarrier, Process) {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut command = example("carrier_peer");
    let peer = Process::start(command.args(arguments).stdin(Stdio::from(far)).stdout(Stdio::piped()));
    (ShmCarrier::over(near).unwrap(), peer)
}

fn signal(peer: &Process, signal: Signal) {
    kill_process(Pid::from_child(peer), signal).unwrap();
}

/// Waits until the peer has gone. Returns the numbers of the datagrams that arrived before.
fn numbers(carrier: &mut ShmCarrier) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match carrier.receive() {
            Ok(Some(bytes)) => {
                let number = bytes.first_chunk().copied().unwrap();
                assert_eq!(*bytes, number.repeat(125));
                numbers.push(u64::from_le_bytes(number));
            }
            Ok(None) => wait(carrier, TIMEOUT).unwrap(),
            Err(IoError::Disconnected) => return numbers,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn random_datagrams_return_from_another_process() {
    const DATAGRAMS: u64 = 20_000;
    let (mut carrier, mut peer) = with_peer(&["echo"]);
    let contents = |number| {
        let mut random = SplitMix64::new(number);
        let most = if random.below(20) == 0 { MAX_DATAGRAM as u64 } else { 3000 };
        let mut bytes = vec![0; random.between(1, most) as usize];
        random.fill_bytes(&mut bytes);
        bytes
    };
    let (mut sent, mut received) = (0, 0);
    while received < DATAGRAMS {
        let before = (sent, received);
        // The number in flight varies: both ends sleep often, and paths are full at times.
        while sent < DATAGRAMS && sent - received < 1 + received % 3000 && carrier.remaining() > 0 {
            carrier.append(&contents(sent));
            carrier.finish().unwrap();
            sent += 1;
        }
        carrier.flush().unwrap();
        while let Some(bytes) = carrier.receive().unwrap() {
            assert!(*bytes == contents(received)[..], "datagram {received}");
            received += 1;
        }
        if (sent, received) == before {
            wait(&mut carrier, TIMEOUT).unwrap();
        }
    }
    drop(carrier);
    assert!(peer.wait().unwrap().success(), "the peer ends when this end has gone");
}

#[test]
fn datagrams_of_a_killed_process_arrive_before_its_end() {
    let (mut carrier, mut peer) = with_peer(&["send", "1000"]);
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "sent\n");
    peer.kill();
    assert_eq!(numbers(&mut carrier), (0..1000).collect::<Vec<_>>());
    assert!(matches!(carrier.receive(), Err(IoError::Disconnected)));
}

#[test]
fn process_killed_while_it_sends_leaves_whole_datagrams() {
    for pause in [0, 100, 300, 1000, 3000] {
        let (mut carrier, peer) = with_peer(&["send", "1000000000"]);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(pause));
            peer.kill();
        });
        let numbers = numbers(&mut carrier);
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
        killer.join().unwrap();
    }
}

#[test]
fn stopped_process_fills_the_path_and_blocks_nothing() {
    let (mut carrier, peer) = with_peer(&["echo"]);
    signal(&peer, Signal::STOP);
    let mut sent = 0_u64;
    while carrier.remaining() > 0 {
        carrier.append(&sent.to_le_bytes().repeat(125));
        carrier.finish().unwrap();
        sent += 1;
    }
    carrier.flush().unwrap();
    for _ in 0..3000 {
        assert_eq!(carrier.remaining(), 0);
        assert!(carrier.receive().unwrap().is_none());
    }
    wait(&mut carrier, Duration::from_millis(10)).unwrap();
    signal(&peer, Signal::CONT);
    let mut received = 0;
    while received < sent {
        match carrier.receive().unwrap() {
            Some(bytes) => {
                assert_eq!(*bytes, received.to_le_bytes().repeat(125));
                received += 1;
            }
            None => wait(&mut carrier, TIMEOUT).unwrap(),
        }
    }
    assert!(carrier.remaining() > 0);
}

#[test]
fn killed_process_ends_a_full_path() {
    let (mut carrier, peer) = with_peer(&["send", "0"]);
    let mut sleeps = 0;
    while carrier.remaining() > 0 {
        carrier.append(&[1; 60_000]);
        carrier.finish().unwrap();
    }
    carrier.flush().unwrap();
    signal(&peer, Signal::KILL);
    while !matches!(carrier.receive(), Err(IoError::Disconnected)) {
        wait(&mut carrier, TIMEOUT).unwrap();
        sleeps += 1;
    }
    assert!(sleeps < 100, "{sleeps} sleeps");
    assert_eq!(carrier.remaining(), 0);
    carrier.flush().unwrap();
}
