//! The shared-memory provider between two processes.

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{
    Completion, Cq, Data, Element, Modify, Mtu, Operation, Provider, Qp, QpConfig, QpState, QpType, ReadyToReceive,
    ReadyToSend, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::shm::{ShmEndpoint, ShmListener};
use shotline_wire::aeth::RnrTimer;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATH: &str = "SHOTLINE_TEST_SHM_TARGET";
/// How long what must come is waited for; nothing is measured.
const PATIENCE: Duration = Duration::from_secs(20);

struct Side {
    shm: ShmEndpoint,
    cq: Cq,
    qp: Qp,
    region: Arc<Region>,
    mr: Mr,
}

fn side(mut shm: ShmEndpoint) -> Side {
    let pd = shm.alloc_pd().unwrap();
    let cq = shm.create_cq(64).unwrap();
    let qp = shm.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
    let region = Region::memfd("test", 1 << 20).unwrap();
    let mr = shm.reg_mr(pd, &region, 0, 1 << 20, Access::ALL, Addressing::ZeroBased).unwrap();
    shm.publish("memory", &mr).unwrap();
    Side { shm, cq, qp, region, mr }
}

impl Side {
    fn connect(&mut self, peer: u32) -> u32 {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse().unwrap(), peer)),
            mtu: Mtu::B4096,
            psn: 3,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let send = ReadyToSend { psn: 3, timeout: PATIENCE, retries: 7, rnr_retries: 7, max_rd_atomic: 1 };
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        for change in [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)] {
            self.shm.modify_qp(self.qp, change).unwrap();
        }
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(memory) = self.shm.peer_region("memory") {
                return memory.rkey;
            }
            assert!(Instant::now() < end, "the peer tells of no memory");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    fn operate(&mut self, operation: Operation, address: u64, len: u32) -> Completion {
        let element = [Element { address, len, lkey: self.mr.lkey }];
        self.shm.post_send(self.qp, &[SendWr::new(1, operation, Data::Elements(&element))]).unwrap();
        self.shm.arm_cq(self.cq, false).unwrap();
        let (mut out, end) = ([Completion::default()], Instant::now() + PATIENCE);
        while self.shm.poll_cq(self.cq, &mut out).unwrap() == 0 {
            assert!(Instant::now() < end, "{operation:?} does not complete");
            self.shm.wait(Duration::from_millis(10)).unwrap();
        }
        out[0]
    }
}

/// The target: a test in another process, which does something only when it is made one.
#[test]
fn target_in_another_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut side = side(ShmEndpoint::connect(path).unwrap());
    eprintln!("number {}", side.qp.0);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    side.connect(line.trim().parse().unwrap());
    side.region.write(100, b"from the target");
    eprintln!("ready");
    line.clear();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let mut bytes = [0; 4];
    side.region.read(500, &mut bytes);
    let sum = side.region.fetch_add(1000, 0);
    eprintln!("found {} {sum}", u32::from_le_bytes(bytes));
    std::thread::sleep(PATIENCE);
}

struct Target {
    process: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStderr>,
}

impl Target {
    /// The rest of the next line that begins so.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the target ended");
            if let Some(rest) = line.trim().strip_prefix(begin) {
                return rest.trim().to_owned();
            }
        }
    }
    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("shotline-shm-{name}-{}", std::process::id()))
}

fn with_target(path: &Path) -> (Side, Target, u32) {
    let listener = ShmListener::bind(path).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "target_in_another_process", "--nocapture"])
        .env(PATH, path)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stderr.take().unwrap()));
    let mut target = Target { process, input, output };
    let mut side = side(listener.accept().unwrap());
    let peer = target.line("number").parse().unwrap();
    writeln!(target.input, "{}", side.qp.0).unwrap();
    let rkey = side.connect(peer);
    target.line("ready");
    (side, target, rkey)
}

#[test]
fn a_stopped_process_is_written_and_read() {
    let (mut side, mut target, rkey) = with_target(&path("stopped"));
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
fn the_death_of_a_process_is_noticed_and_ends_what_waits_for_it() {
    let (mut side, target, _) = with_target(&path("death"));
    let element = [Element { address: 0, len: 8, lkey: side.mr.lkey }];
    let wr = SendWr::new(7, Operation::Send, Data::Elements(&element));
    side.shm.post_send(side.qp, &[wr]).unwrap();
    drop(target);
    let (mut out, end) = ([Completion::default()], Instant::now() + PATIENCE);
    while side.shm.poll_cq(side.cq, &mut out).unwrap() == 0 {
        assert!(Instant::now() < end, "it is not noticed");
        side.shm.wait(Duration::from_millis(10)).unwrap();
    }
    assert_eq!((out[0].id, out[0].status), (7, Status::Flushed));
    assert_eq!((side.shm.qp_state(side.qp).unwrap(), side.shm.is_linked()), (QpState::Error, false));
}

#[test]
fn a_socket_s_path_is_for_this_user_only_and_gone_with_its_listener() {
    use std::os::unix::fs::PermissionsExt;
    let path = path("mode");
    let listener = ShmListener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(ShmListener::bind(&path), Err(VerbsError::Io(_))));
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn who_does_not_speak_as_an_endpoint_is_refused() {
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    rustix::net::send(&theirs, b"GET / HTTP/1.1", rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(ShmEndpoint::over(ours), Err(VerbsError::Invalid(_))));
    let (ours, theirs) = ShmEndpoint::sockets().unwrap();
    drop(theirs);
    assert!(ShmEndpoint::over(ours).is_err());
}
