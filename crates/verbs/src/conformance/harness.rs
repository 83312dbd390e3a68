//! Endpoints for one check, and operations that most checks share.

use crate::api::{
    Capabilities, Completion, Cq, Element, Modify, Mtu, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend,
    RecvWr, Remote, SendWr, Status,
};
use shotline_conformance::{Failure, failed};
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_wire::aeth::RnrTimer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An endpoint under test and its address.
pub struct End {
    /// The endpoint.
    pub provider: Box<dyn Provider>,
    /// Its address.
    pub address: SocketAddr,
}

/// Opens new endpoints of a provider for each check.
pub trait Fixture {
    /// Returns the name of the provider in the table.
    fn name(&self) -> &'static str;
    /// Opens two or preferably three endpoints that can all reach each other.
    ///
    /// # Errors
    /// The reason if one cannot be opened; the check fails with it.
    fn open(&self) -> Result<Vec<End>, Failure>;
    /// Returns the capabilities of the endpoints; for different providers, the common ones.
    fn capabilities(&self, ends: &[End]) -> Capabilities {
        ends[0].provider.capabilities()
    }
    /// Allocates memory that the provider can register.
    ///
    /// # Errors
    /// The reason if there is too little memory.
    fn region(&self, bytes: usize) -> Result<Arc<Region>, Failure> {
        Region::host(bytes).map_err(|error| error.to_string())
    }
    /// Returns the access rights of registrations: all that the memory can have. Without
    /// [`Access::REMOTE_ATOMIC`], the capabilities must have no atomic operations.
    fn access(&self) -> Access {
        Access::ALL
    }
    /// Returns the number of bytes that an unreliable queue pair may have in flight without loss.
    fn unreliable_bytes(&self) -> usize {
        64 << 10
    }
    /// Returns the time without work after which the endpoints count as idle, for providers whose packets are not
    /// handled by [`Provider::progress`].
    fn idle_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Timeout of a wait in a check; long, because it only ends a check that hangs.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of rounds without work after which the endpoints count as idle.
const IDLE_ROUNDS: usize = 200;

/// Initial PSN, near 2^24, so that most checks wrap around.
const FIRST_PSN: u32 = 0x00FF_FFF0;

/// Endpoints for one check, and operations on them. A method that returns a [`Failure`] fails the check with it.
pub struct Harness<'a> {
    /// Fixture that opened them.
    pub fixture: &'a dyn Fixture,
    /// The endpoints.
    pub ends: Vec<End>,
}

/// Objects created at one end for a check: a protection domain, memory, a completion queue.
#[derive(Clone)]
pub struct Side {
    /// Index of the end.
    pub end: usize,
    /// Protection domain.
    pub pd: Pd,
    /// Memory region.
    pub region: Arc<Region>,
    /// Registration of the region.
    pub mr: Mr,
    /// Completion queue.
    pub cq: Cq,
}

impl Side {
    /// Returns an element for bytes of its memory.
    pub fn element(&self, offset: u64, len: u32) -> Element {
        Element { address: self.mr.address + offset, len, lkey: self.mr.lkey }
    }
    /// Returns the remote address of a byte of its memory.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.mr.address + offset, rkey: self.mr.rkey }
    }
    /// Fills bytes with the pattern of `seed`.
    pub fn fill(&self, offset: usize, len: usize, seed: u8) {
        self.region.write(offset, &pattern(len, seed));
    }
    /// Returns a copy of bytes of its memory.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes);
        bytes
    }
}

/// Returns `len` bytes that differ from adjacent ones and from those of another seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ (index >> 16) as u8 ^ seed).collect()
}

/// Options for creating and connecting two queue pairs; checks override individual fields.
#[derive(Clone, Copy, Debug)]
pub struct QpOptions {
    /// Queue pair type.
    pub kind: QpType,
    /// Path MTU.
    pub mtu: Mtu,
    /// Access rights of the peer.
    pub access: Access,
    /// [`QpConfig::strict`].
    pub strict: bool,
    /// Modifies the configuration of the queue pairs.
    pub config: fn(&mut QpConfig),
    /// [`ReadyToSend::timeout`].
    pub timeout: Duration,
    /// [`ReadyToSend::retry_cnt`].
    pub retry_cnt: u8,
    /// [`ReadyToSend::rnr_retry`].
    pub rnr_retry: u8,
}

impl QpOptions {
    /// Returns options with all access rights, the largest MTU, a timeout of 100 ms, and 7 retries.
    pub fn new(kind: QpType) -> Self {
        let (mtu, access, strict, timeout) = (Mtu::B4096, Access::ALL, false, Duration::from_millis(100));
        Self { kind, mtu, access, strict, config: |_| (), timeout, retry_cnt: 7, rnr_retry: 7 }
    }
    /// Returns options for requests that are expected to fail: a timeout of 5 ms, and 2 retries.
    pub fn short_timeouts(kind: QpType) -> Self {
        Self { timeout: Duration::from_millis(5), retry_cnt: 2, rnr_retry: 2, ..Self::new(kind) }
    }
}

/// Q_Key of all datagram queue pairs of the checks.
pub const Q_KEY: u32 = 0x1111_1111;

impl<'a> Harness<'a> {
    pub(super) fn open(fixture: &'a dyn Fixture) -> Result<Self, Failure> {
        Ok(Self { fixture, ends: fixture.open()? })
    }

    /// Returns the endpoint with this index.
    pub fn end(&mut self, end: usize) -> &mut dyn Provider {
        &mut *self.ends[end].provider
    }

    /// Creates a domain, `bytes` of memory with all access rights of the fixture, and a completion queue.
    pub fn side(&mut self, end: usize, bytes: usize) -> Result<Side, Failure> {
        self.side_with(end, bytes, self.fixture.access())
    }

    /// Like [`Self::side`], with these access rights.
    pub fn side_with(&mut self, end: usize, bytes: usize, access: Access) -> Result<Side, Failure> {
        let region = self.fixture.region(bytes.max(1))?;
        let provider = self.end(end);
        let pd = provider.alloc_pd().map_err(failed("allocate a protection domain"))?;
        let len = region.len() as u64;
        let mr =
            provider.reg_mr(pd, &region, 0, len, access, Addressing::ZeroBased).map_err(failed("register memory"))?;
        let cq = provider.create_cq(1024).map_err(failed("create a completion queue"))?;
        Ok(Side { end, pd, region, mr, cq })
    }

    /// Creates a side at each of the first two ends.
    pub fn two_sides(&mut self, bytes: usize) -> Result<[Side; 2], Failure> {
        Ok([self.side(0, bytes)?, self.side(1, bytes)?])
    }

    /// Creates a queue pair at each side and connects them.
    pub fn connect(&mut self, sides: [&Side; 2], options: QpOptions) -> Result<[Qp; 2], Failure> {
        let mut qps = [Qp(0); 2];
        for (qp, side) in qps.iter_mut().zip(sides) {
            *qp = self.create(side, options)?;
        }
        for this in 0..2 {
            let other = 1 - this;
            let peer = (self.ends[sides[other].end].address, qps[other].0);
            self.bring_up(sides[this].end, qps[this], peer, options)?;
        }
        Ok(qps)
    }

    /// Creates a queue pair.
    pub fn create(&mut self, side: &Side, options: QpOptions) -> Result<Qp, Failure> {
        let mut config = QpConfig::new(options.kind, side.pd, side.cq, side.cq);
        config.strict = options.strict;
        (options.config)(&mut config);
        self.end(side.end).create_qp(&config).map_err(failed("create a queue pair"))
    }

    /// Brings a queue pair from `Reset` to `ReadyToSend`.
    pub fn bring_up(&mut self, end: usize, qp: Qp, peer: (SocketAddr, u32), options: QpOptions) -> Result<(), Failure> {
        let QpOptions { kind, mtu, access, timeout, retry_cnt, rnr_retry, .. } = options;
        // If `progress` does not handle packets, a response may take as long as the idle time.
        let timeout = timeout.max(3 * self.fixture.idle_time());
        let min_rnr_timer = RnrTimer::from_code(1).unwrap_or_else(|| unreachable!("codes are 0 to 31"));
        let changes = [
            Modify::Init { access, q_key: Q_KEY },
            Modify::ReadyToReceive(ReadyToReceive {
                peer: (kind != QpType::Ud).then_some(peer),
                mtu,
                psn: FIRST_PSN,
                max_dest_rd_atomic: 4,
                min_rnr_timer,
                ack_every: 0,
            }),
            Modify::ReadyToSend(ReadyToSend { psn: FIRST_PSN, timeout, retry_cnt, rnr_retry, max_rd_atomic: 4 }),
        ];
        changes.into_iter().try_for_each(|change| self.end(end).modify_qp(qp, change)).map_err(failed("connect"))
    }

    /// Posts requests; fails if one is refused.
    pub fn post(&mut self, end: usize, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), Failure> {
        let posted = self.end(end).post_send(qp, requests);
        posted.map_err(|(index, error)| format!("posting request {index} at end {end}: {error}"))
    }

    /// Posts a receive; fails if it is refused.
    pub fn receive(&mut self, end: usize, qp: Qp, id: u64, elements: &[Element]) -> Result<(), Failure> {
        let posted = self.end(end).post_recv(qp, &[RecvWr { id, elements }]);
        posted.map_err(|(_, error)| format!("posting a receive at end {end}: {error}"))
    }

    /// Calls `progress` of every end once. Returns `true` if any had work.
    pub fn progress(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        for end in &mut self.ends {
            any |= end.provider.progress().map_err(failed("make progress"))?;
        }
        Ok(any)
    }

    /// Calls `progress` of every end until none has work.
    pub fn run_until_idle(&mut self) -> Result<(), Failure> {
        let (start, idle_time) = (Instant::now(), self.fixture.idle_time());
        let (mut idle_rounds, mut since) = (0, start);
        while idle_rounds < IDLE_ROUNDS || since.elapsed() < idle_time {
            idle_rounds += 1;
            if self.progress()? {
                (idle_rounds, since) = (0, Instant::now());
            }
            if start.elapsed() > CHECK_TIMEOUT {
                return Err("the endpoints do not become idle".into());
            }
        }
        Ok(())
    }

    /// Waits for `count` completions at a side, with any status.
    pub fn completions(&mut self, side: &Side, count: usize) -> Result<Vec<Completion>, Failure> {
        let mut out = vec![Completion::default(); count];
        let mut found = 0;
        let start = Instant::now();
        while found < count {
            self.progress()?;
            found += self.end(side.end).poll_cq(side.cq, &mut out[found..]).map_err(failed("poll"))?;
            if start.elapsed() > CHECK_TIMEOUT {
                return Err(format!("only {found} of {count} completions at end {}: {:?}", side.end, &out[..found]));
            }
        }
        Ok(out)
    }

    /// Waits for `count` completions at a side; fails if one has an error status.
    pub fn successes(&mut self, side: &Side, count: usize) -> Result<Vec<Completion>, Failure> {
        let all = self.completions(side, count)?;
        match all.iter().find(|completion| completion.status != Status::Success) {
            Some(bad) => Err(format!("at end {}: {bad:?}", side.end)),
            None => Ok(all),
        }
    }

    /// Waits until the endpoints are idle, and fails if there is a completion at this side.
    pub fn expect_no_completions(&mut self, side: &Side) -> Result<(), Failure> {
        self.run_until_idle()?;
        let mut out = [Completion::default()];
        match self.end(side.end).poll_cq(side.cq, &mut out).map_err(failed("poll"))? {
            0 => Ok(()),
            _ => Err(format!("end {} has an unexpected completion: {:?}", side.end, out[0])),
        }
    }
}
