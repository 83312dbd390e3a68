//! Tests of the shared-memory provider between two processes.

use crate::linked::Side;
use shotline_testing::{Process, example};
use shotline_verbs::api::{Data, Element, Operation, Provider, QpState, Remote, SendWr, Status, VerbsError};
use shotline_verbs::shm::{ShmEndpoint, ShmListener};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};

/// Target process (`crates/verbs/examples/shm_target.rs`).
struct Target {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Returns the rest of the next line with this prefix.
    fn line(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the target ended");
            if let Some(rest) = line.trim().strip_prefix(prefix) {
                return rest.trim().to_owned();
            }
        }
    }
    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }
}

fn with_target(path: &Path) -> (Side, Target, u32) {
    let listener = ShmListener::bind(path).unwrap();
    let mut process = Process::start(example("shm_target").arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
    let mut target = Target { process, input, output };
    let mut side = Side::new(listener.accept().unwrap());
    let peer = target.line("number").parse().unwrap();
    writeln!(target.input, "{}", side.qp.0).unwrap();
    let rkey = side.connect(peer);
    target.line("ready");
    (side, target, rkey)
}

#[test]
fn stopped_process_is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let (mut side, mut target, rkey) = with_target(&folder.path().join("socket"));
    target.signal(rustix::process::Signal::STOP);
    let stopped = rustix::process::WaitOptions::UNTRACED;
    rustix::process::waitpid(Some(rustix::process::Pid::from_child(&target.process)), stopped).unwrap();
    side.region.write(0, &0xC0FFEE_u32.to_le_bytes());
    let done = [
        side.operate(Operation::Write(Remote { address: 500, rkey }), 0, 4),
        side.operate(Operation::Read(Remote { address: 100, rkey }), 200, 15),
        side.operate(Operation::FetchAdd { remote: Remote { address: 1000, rkey }, add: 41 }, 64, 8),
        side.operate(Operation::FetchAdd { remote: Remote { address: 1000, rkey }, add: 1 }, 64, 8),
    ];
    assert!(done.iter().all(|done| done.status == Status::Success), "{done:?}");
    let mut bytes = [0; 15];
    side.region.read(200, &mut bytes);
    assert_eq!(&bytes, b"from the target");
    target.signal(rustix::process::Signal::CONT);
    writeln!(target.input).unwrap();
    assert_eq!(target.line("found"), format!("{} 42", 0xC0FFEE));
}

#[test]
fn death_of_the_peer_flushes_pending_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (mut side, target, _) = with_target(&folder.path().join("socket"));
    let element = [Element { address: 0, len: 8, lkey: side.mr.lkey }];
    let wr = SendWr::new(7, Operation::Send, Data::Elements(&element));
    side.shm.post_send(side.qp, &[wr]).unwrap();
    drop(target);
    let done = side.completion();
    assert_eq!((done.id, done.status), (7, Status::Flushed));
    assert_eq!((side.shm.qp_state(side.qp).unwrap(), side.shm.is_linked()), (QpState::Error, false));
}

#[test]
fn socket_file_is_private_and_removed_with_its_listener() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = ShmListener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(ShmListener::bind(&path), Err(VerbsError::Io(_))));
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn peer_with_an_invalid_hello_is_refused() {
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    rustix::net::send(&theirs, b"GET / HTTP/1.1", rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(ShmEndpoint::over(ours), Err(VerbsError::Invalid(_))));
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    drop(theirs);
    assert!(ShmEndpoint::over(ours).is_err());
}

#[test]
fn offered_link_is_established_without_waiting() {
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    let error = ShmEndpoint::from_offered_socket(ours).unwrap_err().to_string();
    assert!(error.contains("has sent no hello"), "{error}");
    drop(theirs);
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    let offer = ShmEndpoint::offer(theirs).unwrap();
    let target = ShmEndpoint::from_offered_socket(ours).unwrap();
    assert!(offer.join().unwrap().is_linked() && target.is_linked());
}
