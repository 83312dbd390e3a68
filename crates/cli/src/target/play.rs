//! A target's part in a measurement: messages taken or sent back, memory written or read of its own accord.

use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{
    CompletionKind, Completion, Cq, Data, Element, Operation, RecvWr, Remote, SendWr, Status, VerbsError,
};
use shotline_verbs::cm::message::{Cause, MAX_RECEIVES, Play, Receives, Refusal, RegisteredMemory};
use shotline_verbs::cm::{Connected, Endpoint, Export, Reservation};
use std::sync::Arc;

/// Pages that memory is made of; from the second size on of larger ones.
const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Most memory for the messages of one queue pair.
const MOST_BYTES: u64 = 64 << 20;
/// Completions taken at once.
const BATCH: usize = 32;
/// Longest operation that is posted inline.
const INLINE: u32 = 64;

/// Bytes of operations that all players together may yet post in a round. Over shared memory an operation is copied when
/// it is posted, and control connections wait meanwhile.
pub struct Budget(u64);

impl Budget {
    const BYTES: u64 = 4 << 20;
    /// What an operation costs at least.
    const LEAST: u64 = 256;

    /// For one round.
    pub fn of_a_round() -> Self {
        Self(Self::BYTES)
    }

    /// Whether an operation may be posted. The last one may be larger than what is left.
    fn allows(&mut self, bytes: u64) -> bool {
        let allows = self.0 > 0;
        self.0 = self.0.saturating_sub(bytes.max(Self::LEAST));
        allows
    }
}

/// One queue pair that does more than to serve memory.
pub struct Player {
    with: Connected,
    memory: Mr,
    region: Arc<Region>,
    _loan: Reservation,
    receives: Receives,
    part: Part,
    failed: bool,
    /// Operations of its own, or messages, that are done.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

enum Part {
    /// Takes messages and forgets them.
    Sink,
    Echo,
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
        /// Operations of the group under way that are posted.
        posted: u16,
    },
}

/// Bytes of memory that so many for a stream take: it comes in whole pages.
fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes < HUGE_PAGE { PAGE } else { HUGE_PAGE })
}

impl Player {
    /// Posts the receives of a queue pair, and makes room for what it may play.
    pub fn new<P: Endpoint>(
        provider: &mut P,
        with: Connected,
        receives: Receives,
        loan: Reservation,
    ) -> Result<Self, Refusal> {
        let bytes = Self::bytes_of(receives);
        if bytes > MOST_BYTES {
            let words = format!("expected at most {MOST_BYTES} bytes of receives, found {bytes}");
            return Err(Refusal::new(Cause::Limit, words));
        }
        let failed = |error: VerbsError| Refusal::new(Cause::Failed, error.to_string());
        let region = Region::heap(bytes.max(1) as usize).map_err(|error| failed(error.into()))?;
        let len = region.len() as u64;
        let memory = provider.reg_mr(with.pd, &region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased);
        let memory = memory.map_err(failed)?;
        let (part, failed) = (Part::Sink, false);
        let mut player = Self { with, memory, region, _loan: loan, receives, part, failed, operations: 0, bytes: 0 };
        for place in 0..receives.count {
            if let Err(refusal) = player.post_receive(provider, place.into()) {
                player.end(provider);
                return Err(refusal);
            }
        }
        Ok(player)
    }

    /// Bytes that the receives of a queue pair take.
    fn bytes_of(receives: Receives) -> u64 {
        u64::from(receives.count) * u64::from(receives.bytes)
    }

    /// Bytes of memory that they take.
    pub fn memory_of(receives: Receives) -> u64 {
        Self::bytes_of(receives).max(1).next_multiple_of(PAGE)
    }

    /// The target's queue pair.
    pub fn qp(&self) -> u32 {
        self.with.qp.0
    }

    /// Where it completes.
    pub fn cq(&self) -> Cq {
        self.with.cq
    }

    /// Whether it has to look at memory all the time.
    pub fn polls(&self) -> bool {
        matches!(self.part, Part::Ping { .. }) && !self.failed
    }

    /// Begins to play a part. `exports` are the target's own regions, `lend` enters memory on the initiator's account.
    pub fn begin<P: Endpoint>(
        &mut self,
        provider: &mut P,
        part: Play,
        exports: &[Export],
        lend: impl FnOnce(u64) -> Result<Reservation, Refusal>,
    ) -> Result<(), Refusal> {
        self.part = match part {
            Play::Echo => Part::Echo,
            Play::Ping { region, bytes, memory } => {
                // What it sends back, the initiator could have read.
                let open = Access::REMOTE_READ | Access::REMOTE_WRITE;
                let fits = |export: &&Export| export.rights.allows(open) && (8..=export.bytes).contains(&bytes.into());
                let export = exports.get(usize::from(region)).filter(fits);
                let region = export.map(|export| Arc::clone(&export.region)).ok_or_else(|| {
                    Refusal::new(
                        Cause::Unsupported,
                        "a ping needs 8 bytes, and a region that holds them and can be read and written",
                    )
                })?;
                if bytes > memory.bytes.min(u64::from(INLINE)) as u32 {
                    return Err(Refusal::new(Cause::Limit, format!("a ping has at most {INLINE} bytes")));
                }
                let seen = last_word(&region, bytes);
                Part::Ping { bytes, to: memory, watched: region, seen }
            }
            Play::Stream { read, bytes, group, memory } => {
                let most = memory.bytes.min(MOST_BYTES);
                if u64::from(bytes) * u64::from(group) > most || group == 0 || group > MAX_RECEIVES {
                    let words = format!("a group of {group} operations of {bytes} bytes does not fit {most} bytes");
                    return Err(Refusal::new(Cause::Limit, words));
                }
                self.grow(provider, u64::from(bytes) * u64::from(group), lend)?;
                Part::Stream { read, bytes, group, to: memory, posted: 0 }
            }
        };
        Ok(())
    }

    /// Memory for operations of its own.
    fn grow<P: Endpoint>(
        &mut self,
        provider: &mut P,
        bytes: u64,
        lend: impl FnOnce(u64) -> Result<Reservation, Refusal>,
    ) -> Result<(), Refusal> {
        if self.region.len() as u64 >= bytes {
            return Ok(());
        }
        if self.receives.count > 0 {
            return Err(Refusal::new(Cause::Unsupported, "a queue pair either takes messages or streams"));
        }
        let loan = lend(whole(bytes))?;
        let failed = |error: VerbsError| Refusal::new(Cause::Failed, error.to_string());
        let make = if bytes < HUGE_PAGE { Region::heap } else { Region::host };
        let region = make(bytes as usize).map_err(|error| failed(error.into()))?;
        let len = region.len() as u64;
        let memory = provider
            .reg_mr(self.with.pd, &region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased)
            .map_err(failed)?;
        let _ = provider.dereg_mr(&self.memory);
        (self.memory, self.region, self._loan) = (memory, region, loan);
        Ok(())
    }

    /// Gives its memory back; the queue pair is destroyed by its owner.
    pub fn end<P: Endpoint>(&self, provider: &mut P) {
        let _ = provider.dereg_mr(&self.memory);
    }

    /// Takes completions, and does what follows from them. Returns whether there was anything.
    pub fn progress<P: Endpoint>(&mut self, provider: &mut P, budget: &mut Budget) -> bool {
        if self.failed {
            return false;
        }
        let mut done = [Completion::default(); BATCH];
        let count = provider.poll_cq(self.with.cq, &mut done).unwrap_or(0);
        let mut busy = count > 0;
        for completion in &done[..count] {
            if completion.status != Status::Success {
                // The initiator is told by its own side; this one is quiet until it hangs up.
                self.failed = true;
                return true;
            }
            self.completed(provider, completion);
        }
        busy |= match &mut self.part {
            Part::Ping { bytes, to, watched, seen } => {
                let word = last_word(watched, *bytes);
                if word == *seen {
                    return busy;
                }
                *seen = word;
                let mut message = [0; INLINE as usize];
                let message = &mut message[..*bytes as usize];
                watched.read(0, message);
                let remote = Remote { address: to.address, rkey: to.rkey };
                let (operations, payload) = (&mut self.operations, u64::from(*bytes));
                let request = SendWr::new(0, Operation::Write(remote), Data::Inline(message));
                self.failed = provider.post_send(self.with.qp, &[request]).is_err();
                *operations += 1;
                self.bytes += payload;
                true
            }
            Part::Stream { group, posted, .. } if *posted < *group => {
                self.post_group(provider, budget);
                true
            }
            _ => false,
        };
        busy
    }

    fn completed<P: Endpoint>(&mut self, provider: &mut P, completion: &Completion) {
        match (&mut self.part, completion.kind) {
            (Part::Echo, CompletionKind::Recv) => {
                self.operations += 1;
                self.bytes += u64::from(completion.bytes);
                let elements = [self.element(completion.id, completion.bytes)];
                let request = SendWr::new(completion.id, Operation::Send, Data::Elements(&elements));
                if provider.post_send(self.with.qp, &[request]).is_err() {
                    self.failed = true;
                }
            }
            (Part::Echo, CompletionKind::Send) => self.failed |= self.post_receive(provider, completion.id).is_err(),
            (_, CompletionKind::Recv | CompletionKind::RecvWriteImm) => {
                self.operations += 1;
                self.bytes += u64::from(completion.bytes);
                self.failed |= self.post_receive(provider, completion.id).is_err();
            }
            (Part::Stream { bytes, group, posted, .. }, CompletionKind::Write | CompletionKind::Read) => {
                self.operations += u64::from(*group);
                self.bytes += u64::from(*group) * u64::from(*bytes);
                *posted = 0;
            }
            _ => {}
        }
    }

    fn element(&self, place: u64, len: u32) -> Element {
        Element { address: self.memory.address + place * u64::from(self.receives.bytes), len, lkey: self.memory.lkey }
    }

    fn post_receive<P: Endpoint>(&mut self, provider: &mut P, place: u64) -> Result<(), Refusal> {
        let elements = [self.element(place, self.receives.bytes)];
        let posted = provider.post_recv(self.with.qp, &[RecvWr { id: place, elements: &elements }]);
        posted.map_err(|(_, error)| Refusal::new(Cause::Failed, error.to_string()))
    }

    /// Posts a group, or as much more of it as may be in this round.
    fn post_group<P: Endpoint>(&mut self, provider: &mut P, budget: &mut Budget) {
        let Part::Stream { read, bytes, group, to, posted } = &mut self.part else { return };
        while *posted < *group && budget.allows(u64::from(*bytes)) {
            // The address is what the initiator says of its own memory; it refuses what is none of it.
            let place = u64::from(*posted);
            let offset = place * u64::from(*bytes);
            let elements = [Element { address: self.memory.address + offset, len: *bytes, lkey: self.memory.lkey }];
            let remote = Remote { address: to.address.wrapping_add(offset), rkey: to.rkey };
            let operation = if *read { Operation::Read(remote) } else { Operation::Write(remote) };
            *posted += 1;
            let request =
                SendWr { signalled: posted == group, ..SendWr::new(place, operation, Data::Elements(&elements)) };
            if provider.post_send(self.with.qp, &[request]).is_err() {
                self.failed = true;
                return;
            }
        }
    }
}

fn last_word(region: &Region, bytes: u32) -> u64 {
    let mut word = [0; 8];
    region.read(bytes as usize - 8, &mut word);
    u64::from_ne_bytes(word)
}
