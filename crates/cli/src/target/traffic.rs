//! A target's role: in a measurement, receiving messages, echoing them, or writing and reading the initiator's memory; or
//! taking the commands of an accelerator.

use shotline_accelerate::{Accelerator, CommandQueue};
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{
    Completion, CompletionKind, Cq, Data, Element, Operation, Qp, RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::cm::message::{Cause, MAX_RECEIVES, Receives, Refusal, RegisteredMemory, TargetRole};
use shotline_verbs::cm::{ConnectedQp, Endpoint, Export, Reservation, SessionId};
use std::sync::Arc;

/// Page sizes of registered memory: huge pages are used from the second size on.
const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Maximum memory for the messages of one queue pair, in bytes.
const MAX_MEMORY_BYTES: u64 = 64 << 20;
/// Maximum number of completions polled at once.
const BATCH: usize = 32;
/// Maximum length of an inline operation, in bytes.
const MAX_INLINE_BYTES: u32 = 64;

/// Number of bytes that all queue pairs together may still post in a round. Over shared memory an operation is copied
/// when it is posted, and control connections wait meanwhile.
pub struct Budget(u64);

impl Budget {
    const BYTES: u64 = 4 << 20;
    /// Minimum cost of an operation, in bytes.
    const MIN_COST_BYTES: u64 = 256;

    /// Returns the budget of one round.
    pub fn of_a_round() -> Self {
        Self(Self::BYTES)
    }

    /// Returns `true` if an operation may be posted. The last one may exceed the remaining bytes.
    fn allows(&mut self, bytes: u64) -> bool {
        let allows = self.0 > 0;
        self.0 = self.0.saturating_sub(bytes.max(Self::MIN_COST_BYTES));
        allows
    }
}

/// A queue pair with a role in a measurement.
pub struct TrafficPeer {
    connected: ConnectedQp,
    memory: Mr,
    region: Arc<Region>,
    _reservation: Reservation,
    receives: Receives,
    /// Operations that it may have in flight, and completions of commands that it has.
    sends: u32,
    in_flight: u32,
    role: Role,
    failed: bool,
    /// Number of completed operations, or of messages received.
    pub operations: u64,
    /// Bytes of these operations or messages.
    pub bytes: u64,
}

enum Role {
    /// Receives messages and discards them.
    Sink,
    Echo,
    Commands(CommandQueue),
    Ping {
        bytes: u32,
        to: RegisteredMemory,
        watched: Arc<Region>,
        seen: u64,
    },
    Stream {
        read: bool,
        bytes: u32,
        group: u16,
        to: RegisteredMemory,
        /// Number of operations of the current group that are posted.
        posted: u16,
    },
}

/// Rounds a number of bytes up to whole pages.
fn page_rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes < HUGE_PAGE { PAGE } else { HUGE_PAGE })
}

impl TrafficPeer {
    /// Posts the receives of a queue pair, and allocates their memory.
    pub fn new<P: Endpoint>(
        provider: &mut P,
        connected: ConnectedQp,
        (receives, sends): (Receives, u16),
        reservation: Reservation,
    ) -> Result<Self, Refusal> {
        let bytes = Self::receive_bytes(receives);
        if bytes > MAX_MEMORY_BYTES {
            let words = format!("expected at most {MAX_MEMORY_BYTES} bytes of receives, found {bytes}");
            return Err(Refusal::new(Cause::Limit, words));
        }
        let failed = |error: VerbsError| Refusal::new(Cause::Failed, error.to_string());
        let region = Region::heap(bytes.max(1) as usize).map_err(|error| failed(error.into()))?;
        let len = region.len() as u64;
        let memory = provider.reg_mr(connected.pd, &region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased);
        let memory = memory.map_err(failed)?;
        let (role, failed) = (Role::Sink, false);
        let mut traffic_peer = Self {
            connected,
            memory,
            region,
            _reservation: reservation,
            receives,
            sends: u32::from(sends).max(1),
            in_flight: 0,
            role,
            failed,
            operations: 0,
            bytes: 0,
        };
        for slot in 0..receives.count {
            if let Err(refusal) = traffic_peer.post_receive(provider, slot.into()) {
                traffic_peer.deregister(provider);
                return Err(refusal);
            }
        }
        Ok(traffic_peer)
    }

    /// Returns the number of bytes of a queue pair's receives.
    fn receive_bytes(receives: Receives) -> u64 {
        u64::from(receives.count) * u64::from(receives.bytes)
    }

    /// Returns the number of bytes of memory that the receives take.
    pub fn memory_bytes(receives: Receives) -> u64 {
        Self::receive_bytes(receives).max(1).next_multiple_of(PAGE)
    }

    /// Returns the number of the target's queue pair.
    pub fn qp(&self) -> u32 {
        self.connected.qp.0
    }

    /// Returns its completion queue.
    pub fn cq(&self) -> Cq {
        self.connected.cq
    }

    /// Returns `true` if it must poll memory.
    pub fn must_poll(&self) -> bool {
        matches!(self.role, Role::Ping { .. }) && !self.failed
    }

    /// Begins a role. `exports` are the target's own regions, and `charge` charges memory to the initiator.
    pub fn set_role<P: Endpoint>(
        &mut self,
        provider: &mut P,
        role: TargetRole,
        exports: &[Export],
        (session, accelerator): (SessionId, Option<&Arc<Accelerator>>),
        charge: impl FnOnce(u64) -> Result<Reservation, Refusal>,
    ) -> Result<(), Refusal> {
        self.role = match role {
            TargetRole::Echo => Role::Echo,
            TargetRole::Commands => Role::Commands(open_queue(accelerator, session, self.connected.qp)?),
            TargetRole::Ping { region, bytes, memory } => {
                // The initiator must be allowed to read what is sent back.
                let open = Access::REMOTE_READ | Access::REMOTE_WRITE;
                let fits = |export: &&Export| export.rights.allows(open) && (8..=export.bytes).contains(&bytes.into());
                let export = exports.get(usize::from(region)).filter(fits);
                let region = export.map(|export| Arc::clone(&export.region)).ok_or_else(|| {
                    Refusal::new(
                        Cause::Unsupported,
                        "a ping needs 8 bytes, and a region that holds them and can be read and written",
                    )
                })?;
                if bytes > memory.bytes.min(u64::from(MAX_INLINE_BYTES)) as u32 {
                    return Err(Refusal::new(Cause::Limit, format!("a ping has at most {MAX_INLINE_BYTES} bytes")));
                }
                let seen = last_word(&region, bytes);
                Role::Ping { bytes, to: memory, watched: region, seen }
            }
            TargetRole::Stream { read, bytes, group, memory } => {
                let max_bytes = memory.bytes.min(MAX_MEMORY_BYTES);
                if u64::from(bytes) * u64::from(group) > max_bytes || group == 0 || group > MAX_RECEIVES {
                    let words =
                        format!("a group of {group} operations of {bytes} bytes does not fit {max_bytes} bytes");
                    return Err(Refusal::new(Cause::Limit, words));
                }
                self.grow(provider, u64::from(bytes) * u64::from(group), charge)?;
                Role::Stream { read, bytes, group, to: memory, posted: 0 }
            }
        };
        Ok(())
    }

    /// Allocates memory for the operations of a stream.
    fn grow<P: Endpoint>(
        &mut self,
        provider: &mut P,
        bytes: u64,
        charge: impl FnOnce(u64) -> Result<Reservation, Refusal>,
    ) -> Result<(), Refusal> {
        if self.region.len() as u64 >= bytes {
            return Ok(());
        }
        if self.receives.count > 0 {
            return Err(Refusal::new(Cause::Unsupported, "a queue pair either receives messages or streams"));
        }
        let reservation = charge(page_rounded(bytes))?;
        let failed = |error: VerbsError| Refusal::new(Cause::Failed, error.to_string());
        let make = if bytes < HUGE_PAGE { Region::heap } else { Region::host };
        let region = make(bytes as usize).map_err(|error| failed(error.into()))?;
        let len = region.len() as u64;
        let memory = provider
            .reg_mr(self.connected.pd, &region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased)
            .map_err(failed)?;
        let _ = provider.dereg_mr(&self.memory);
        (self.memory, self.region, self._reservation) = (memory, region, reservation);
        Ok(())
    }

    /// Deregisters its memory. The queue pair is destroyed by its owner.
    pub fn deregister<P: Endpoint>(&self, provider: &mut P) {
        let _ = provider.dereg_mr(&self.memory);
    }

    /// Polls completions and handles them. Returns `true` if there was anything to do.
    pub fn progress<P: Endpoint>(&mut self, provider: &mut P, budget: &mut Budget) -> bool {
        if self.failed {
            return false;
        }
        let mut done = [Completion::default(); BATCH];
        let count = provider.poll_cq(self.connected.cq, &mut done).unwrap_or(0);
        let mut busy = count > 0;
        for completion in &done[..count] {
            if completion.status != Status::Success {
                // The initiator sees the error on its own side; this side stops until it disconnects.
                self.failed = true;
                return true;
            }
            self.complete(provider, completion);
        }
        busy |= match &mut self.role {
            Role::Ping { bytes, to, watched, seen } => {
                let word = last_word(watched, *bytes);
                if word == *seen {
                    return busy;
                }
                *seen = word;
                let mut message = [0; MAX_INLINE_BYTES as usize];
                let message = &mut message[..*bytes as usize];
                watched.read(0, message);
                let remote = Remote { address: to.address, rkey: to.rkey };
                let (operations, payload) = (&mut self.operations, u64::from(*bytes));
                let request = SendWr::new(0, Operation::Write(remote), Data::Inline(message));
                self.failed = provider.post_send(self.connected.qp, &[request]).is_err();
                *operations += 1;
                self.bytes += payload;
                true
            }
            Role::Commands(queue) => {
                let mut any = false;
                // The others wait until the first ones are acknowledged.
                while self.in_flight < self.sends
                    && let Some((to, completion)) = queue.next_completion()
                {
                    any = true;
                    self.operations += 1;
                    self.in_flight += 1;
                    let remote = Remote { address: to.address, rkey: to.rkey };
                    let slot = completion.slot;
                    let operation =
                        if to.notify { Operation::WriteImm(remote, slot) } else { Operation::Write(remote) };
                    let bytes = completion.emit();
                    let request = SendWr::new(slot.into(), operation, Data::Inline(&bytes));
                    self.failed |= provider.post_send(self.connected.qp, &[request]).is_err();
                }
                any
            }
            Role::Stream { group, posted, .. } if *posted < *group => {
                self.post_group(provider, budget);
                true
            }
            _ => false,
        };
        busy
    }

    fn complete<P: Endpoint>(&mut self, provider: &mut P, completion: &Completion) {
        match (&mut self.role, completion.kind) {
            (Role::Echo, CompletionKind::Recv) => {
                self.operations += 1;
                self.bytes += u64::from(completion.bytes);
                let elements = [self.element(completion.id, completion.bytes)];
                let request = SendWr::new(completion.id, Operation::Send, Data::Elements(&elements));
                if provider.post_send(self.connected.qp, &[request]).is_err() {
                    self.failed = true;
                }
            }
            (Role::Echo, CompletionKind::Send) => self.failed |= self.post_receive(provider, completion.id).is_err(),
            (Role::Commands(queue), CompletionKind::RecvWriteImm) => {
                queue.ring(completion.imm.unwrap_or(u32::MAX));
                self.failed |= self.post_receive(provider, completion.id).is_err();
            }
            (Role::Commands(_), CompletionKind::Write) => self.in_flight = self.in_flight.saturating_sub(1),
            (_, CompletionKind::Recv | CompletionKind::RecvWriteImm) => {
                self.operations += 1;
                self.bytes += u64::from(completion.bytes);
                self.failed |= self.post_receive(provider, completion.id).is_err();
            }
            (Role::Stream { bytes, group, posted, .. }, CompletionKind::Write | CompletionKind::Read) => {
                self.operations += u64::from(*group);
                self.bytes += u64::from(*group) * u64::from(*bytes);
                *posted = 0;
            }
            _ => {}
        }
    }

    fn element(&self, slot: u64, len: u32) -> Element {
        Element { address: self.memory.address + slot * u64::from(self.receives.bytes), len, lkey: self.memory.lkey }
    }

    fn post_receive<P: Endpoint>(&mut self, provider: &mut P, slot: u64) -> Result<(), Refusal> {
        let elements = [self.element(slot, self.receives.bytes)];
        let posted = provider.post_recv(self.connected.qp, &[RecvWr { id: slot, elements: &elements }]);
        posted.map_err(|(_, error)| Refusal::new(Cause::Failed, error.to_string()))
    }

    /// Posts a group, or as much of it as the budget allows.
    fn post_group<P: Endpoint>(&mut self, provider: &mut P, budget: &mut Budget) {
        let Role::Stream { read, bytes, group, to, posted } = &mut self.role else { return };
        while *posted < *group && budget.allows(u64::from(*bytes)) {
            // The address is supplied by the initiator. Its endpoint refuses one outside its memory.
            let slot = u64::from(*posted);
            let offset = slot * u64::from(*bytes);
            let elements = [Element { address: self.memory.address + offset, len: *bytes, lkey: self.memory.lkey }];
            let remote = Remote { address: to.address.wrapping_add(offset), rkey: to.rkey };
            let operation = if *read { Operation::Read(remote) } else { Operation::Write(remote) };
            *posted += 1;
            let request =
                SendWr { signalled: posted == group, ..SendWr::new(slot, operation, Data::Elements(&elements)) };
            if provider.post_send(self.connected.qp, &[request]).is_err() {
                self.failed = true;
                return;
            }
        }
    }
}

/// Returns a command queue of the accelerator for a queue pair.
fn open_queue(accelerator: Option<&Arc<Accelerator>>, session: SessionId, qp: Qp) -> Result<CommandQueue, Refusal> {
    let words = "this target has no accelerator: start it with --accelerate";
    let accelerator = accelerator.ok_or_else(|| Refusal::new(Cause::Unsupported, words))?;
    accelerator.open_queue(session, qp.0).map_err(|refused| Refusal::new(Cause::Limit, refused.to_string()))
}

fn last_word(region: &Region, bytes: u32) -> u64 {
    let mut word = [0; 8];
    region.read(bytes as usize - 8, &mut word);
    u64::from_ne_bytes(word)
}
