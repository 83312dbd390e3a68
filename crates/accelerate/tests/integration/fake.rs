//! A node that fails at an exact moment, in a thread. Until then it computes as any other.

use shotline_accelerate::command::Outcome;
use shotline_accelerate::control::CONTROL_REGION;
use shotline_accelerate::{Accelerator, CommandQueue, Node};
use shotline_memory::{Access, Region};
use shotline_verbs::api::{Completion, CompletionKind, Data, Operation, RecvWr, Remote, SendWr, Status};
use shotline_verbs::cm::message::{Accept, Cause, Name, Offer, Refusal, Regions, RoleAssignment, Statistics, Welcome};
use shotline_verbs::cm::{
    Client, ConnectedQp, Control, ControlAddress, ControlLimits, Endpoint, Export, Exports, Host, SessionId, Token,
};
use shotline_verbs::soft::{SoftEndpoint, UdpOptions};
use shotline_verbs::spacefibre::LinksStatus;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What a node does at a command, instead of completing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It ends before it has executed the command.
    Ends,
    /// It does nothing any more, and keeps its sockets.
    Hangs,
    /// It completes the command, and ends when it has returned some bytes of the result.
    EndsInRead,
    /// It completes the command, and hangs when it has returned some bytes of the result.
    HangsInRead,
    /// It reports this outcome.
    Reports(Outcome),
    /// Its memory returns zeros after the command.
    Forgets,
}

/// A node in a thread, which ends when this value is dropped.
pub struct Fake {
    address: SocketAddr,
    token: Token,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a node. Its fault comes at the command that has this many before it.
    pub fn start(memory: usize, fault: Option<(u64, Fault)>) -> Self {
        let provider = SoftEndpoint::udp(LOCAL, UdpOptions::default()).unwrap();
        let memory = Region::heap(memory).unwrap();
        let accelerator = Accelerator::new("hbm", Arc::clone(&memory), 1, None).unwrap();
        let mut exports = Exports::new(provider);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        for (name, region) in [("hbm", &memory), (CONTROL_REGION, accelerator.control())] {
            let (bytes, region) = (region.len() as u64, Arc::clone(region));
            exports.export(Export { name: Name::try_from(name.to_owned()).unwrap(), region, bytes, rights }).unwrap();
        }
        let token = Token::random().unwrap();
        let control = Control::listen(&ControlAddress::Tcp(LOCAL), token, ControlLimits::default()).unwrap();
        let (address, ended) = (control.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let (fault, is_over) = (fault.unwrap_or((u64::MAX, Fault::Ends)), Arc::clone(&ended));
        let target = Target { exports, accelerator, memory, queue: None, taken: 0, completed: 0, fault };
        let thread = Some(std::thread::spawn(move || target.serve(control, &is_over)));
        Self { address, token, ended, thread }
    }

    /// Connects to the node.
    pub fn connect(&self) -> Node<impl Endpoint + use<>> {
        let provider = SoftEndpoint::udp(LOCAL, UdpOptions::default()).unwrap();
        let to = ControlAddress::Tcp(self.address);
        let client = Client::connect(&to, Some(provider.address().ip()), self.token).unwrap();
        Node::connect(provider, client).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Target<P> {
    exports: Exports<P>,
    accelerator: Arc<Accelerator>,
    memory: Arc<Region>,
    queue: Option<(ConnectedQp, CommandQueue)>,
    /// Commands taken and completed.
    taken: u64,
    completed: u64,
    fault: (u64, Fault),
}

/// The node serves no more.
struct Over;

impl<P: Endpoint> Target<P> {
    fn serve(mut self, mut control: Control, ended: &AtomicBool) {
        while !ended.load(Relaxed) {
            control.progress(&mut self).unwrap();
            let busy = self.exports.provider_mut().progress().unwrap();
            if self.advance().is_err() {
                let has_sockets = matches!(self.fault.1, Fault::Hangs | Fault::HangsInRead);
                while has_sockets && !ended.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return;
            }
            if !busy {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Takes commands and completes them.
    fn advance(&mut self) -> Result<(), Over> {
        let (at, fault) = self.fault;
        let Some((ConnectedQp { qp, cq, .. }, mut queue)) = self.queue.take() else { return Ok(()) };
        let provider = self.exports.provider_mut();
        let mut done = [Completion::default(); 32];
        let count = provider.poll_cq(cq, &mut done).unwrap();
        for completion in done[..count].iter().filter(|completion| completion.status == Status::Success) {
            if completion.kind != CompletionKind::RecvWriteImm {
                continue;
            }
            provider.post_recv(qp, &[RecvWr { id: completion.id, elements: &[] }]).unwrap();
            if self.taken == at && matches!(fault, Fault::Ends | Fault::Hangs) {
                return Err(Over);
            }
            self.taken += 1;
            queue.ring(completion.imm.unwrap());
        }
        while let Some((to, mut completion)) = queue.next_completion() {
            let is_now = self.completed == at;
            self.completed += 1;
            match fault {
                Fault::Reports(outcome) if is_now => completion.outcome = outcome,
                Fault::Forgets if is_now => self.memory.zero(0, self.memory.len()),
                _ => {}
            }
            let provider = self.exports.provider_mut();
            let operation = Operation::WriteImm(Remote { address: to.address, rkey: to.rkey }, completion.slot);
            provider.post_send(qp, &[SendWr::new(0, operation, Data::Inline(&completion.emit()))]).unwrap();
            if is_now && matches!(fault, Fault::EndsInRead | Fault::HangsInRead) {
                self.return_a_part();
                return Err(Over);
            }
        }
        let connected = self.exports.initiators().find_map(|(session, _)| self.exports.connected(session, qp.0));
        self.queue = connected.map(|connected| (connected, queue));
        Ok(())
    }

    /// Serves READs until the first is in progress. One call does not send all of a tile.
    fn return_a_part(&mut self) {
        let reads = |exports: &Exports<P>| exports.total_usage().unwrap()[0].reads;
        let before = reads(&self.exports);
        while reads(&self.exports) == before {
            self.exports.provider_mut().progress().unwrap();
        }
    }
}

impl<P: Endpoint> Host for Target<P> {
    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        let accept = self.exports.connect(session, peer, offer)?;
        let connected = self.exports.connected(session, accept.qp.get()).unwrap();
        for id in 0..offer.receives.count.into() {
            self.exports.provider_mut().post_recv(connected.qp, &[RecvWr { id, elements: &[] }]).unwrap();
        }
        Ok(accept)
    }
    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal> {
        let qp = assignment.qp.get();
        let queue = self.accelerator.open_queue(session, qp);
        let queue = queue.map_err(|refused| Refusal::new(Cause::Limit, refused.to_string()))?;
        self.queue = Some((self.exports.connected(session, qp).unwrap(), queue));
        Ok(())
    }
    fn session_ended(&mut self, session: SessionId) {
        self.queue = None;
        self.exports.session_ended(session);
    }
    fn welcome(&mut self) -> Welcome {
        Welcome { supports_roles: true, ..self.exports.welcome() }
    }
    fn regions(&mut self) -> Regions {
        self.exports.regions()
    }
    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal> {
        self.exports.link(session, socket)
    }
    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.exports.disconnect(session, qp)
    }
    fn statistics(&mut self, session: SessionId) -> Statistics {
        self.exports.statistics(session)
    }
    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        self.exports.links(first)
    }
}
