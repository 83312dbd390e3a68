//! Endpoints for one check, and what most checks do with them.

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

/// An endpoint, and where others reach it.
pub struct End {
    /// The endpoint.
    pub provider: Box<dyn Provider>,
    /// Its address.
    pub address: SocketAddr,
}

/// Opens endpoints of a provider, each time new ones.
pub trait Fixture {
    /// What the table calls it.
    fn name(&self) -> &'static str;
    /// Opens two endpoints, or better three, which all reach each other.
    fn open(&self) -> Result<Vec<End>, Failure>;
    /// What the endpoints can do; if they are of different providers, what all of them can.
    fn capabilities(&self, ends: &[End]) -> Capabilities {
        ends[0].provider.capabilities()
    }
    /// Memory that the provider takes.
    fn region(&self, bytes: usize) -> Result<Arc<Region>, Failure> {
        Region::host(bytes).map_err(|error| error.to_string())
    }
    /// Bytes that an unreliable queue pair may have under way without losing any.
    fn unreliable_bytes(&self) -> usize {
        64 << 10
    }
    /// How long nothing must happen before nothing more is expected: for those whose packets are handled by somebody
    /// else than [`Provider::progress`].
    fn quiet(&self) -> Duration {
        Duration::ZERO
    }
}

/// How long a check waits for what must come. Nothing is measured: this only ends what hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Rounds without anything to do after which nothing more is expected.
const QUIET: usize = 200;

/// The first sequence numbers are such that a check of some packets passes 2^24.
const FIRST_PSN: u32 = 0x00FF_FFF0;

/// Endpoints for one check.
pub struct Stage<'a> {
    /// What opened them.
    pub fixture: &'a dyn Fixture,
    /// The endpoints.
    pub ends: Vec<End>,
}

/// What one end of a check has: a domain, memory, a completion queue.
#[derive(Clone)]
pub struct Side {
    /// Which end.
    pub end: usize,
    /// Its domain.
    pub pd: Pd,
    /// Its memory.
    pub region: Arc<Region>,
    /// The memory's keys.
    pub mr: Mr,
    /// Its completion queue.
    pub cq: Cq,
}

impl Side {
    /// Bytes of its memory as an element.
    pub fn element(&self, offset: u64, len: u32) -> Element {
        Element { address: self.mr.address + offset, len, lkey: self.mr.lkey }
    }
    /// A place in its memory as peers name it.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.mr.address + offset, rkey: self.mr.rkey }
    }
    /// Fills bytes with a pattern that `seed` chooses.
    pub fn fill(&self, offset: usize, len: usize, seed: u8) {
        self.region.write(offset, &pattern(len, seed));
    }
    /// Copies bytes out.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read(offset, &mut bytes);
        bytes
    }
}

/// Bytes that differ from their neighbours and from those of another seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (at >> 16) as u8 ^ seed).collect()
}

/// How two queue pairs are made and connected; the checks change what they are about.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Their kind.
    pub kind: QpType,
    /// Path MTU.
    pub mtu: Mtu,
    /// What the peer may do.
    pub access: Access,
    /// [`QpConfig::strict`].
    pub strict: bool,
    /// Changes what the queue pairs are made with.
    pub config: fn(&mut QpConfig),
    /// [`ReadyToSend::timeout`].
    pub timeout: Duration,
    /// [`ReadyToSend::retries`].
    pub retries: u8,
    /// [`ReadyToSend::rnr_retries`].
    pub rnr_retries: u8,
}

impl Wishes {
    /// Every right, the largest MTU, an answer within 100 ms, seven tries.
    pub fn of(kind: QpType) -> Self {
        let (mtu, access, strict, timeout) = (Mtu::B4096, Access::ALL, false, Duration::from_millis(100));
        Self { kind, mtu, access, strict, config: |_| (), timeout, retries: 7, rnr_retries: 7 }
    }
    /// For requests that are expected to fail: two tries, 5 ms apart.
    pub fn hasty(kind: QpType) -> Self {
        Self { timeout: Duration::from_millis(5), retries: 2, rnr_retries: 2, ..Self::of(kind) }
    }
}

/// The queue key of every datagram queue pair here.
pub const Q_KEY: u32 = 0x1111_1111;

impl<'a> Stage<'a> {
    pub(super) fn open(fixture: &'a dyn Fixture) -> Result<Self, Failure> {
        Ok(Self { fixture, ends: fixture.open()? })
    }

    /// An endpoint.
    pub fn end(&mut self, end: usize) -> &mut dyn Provider {
        &mut *self.ends[end].provider
    }

    /// A domain, `bytes` of memory with every right, and a completion queue.
    pub fn side(&mut self, end: usize, bytes: usize) -> Result<Side, Failure> {
        self.side_with(end, bytes, Access::ALL)
    }

    /// The same, with other rights.
    pub fn side_with(&mut self, end: usize, bytes: usize, access: Access) -> Result<Side, Failure> {
        let region = self.fixture.region(bytes.max(1))?;
        let provider = self.end(end);
        let pd = provider.alloc_pd().map_err(failed("make a protection domain"))?;
        let len = region.len() as u64;
        let mr =
            provider.reg_mr(pd, &region, 0, len, access, Addressing::ZeroBased).map_err(failed("register memory"))?;
        let cq = provider.create_cq(1024).map_err(failed("make a completion queue"))?;
        Ok(Side { end, pd, region, mr, cq })
    }

    /// Two sides, at the first two ends.
    pub fn two(&mut self, bytes: usize) -> Result<[Side; 2], Failure> {
        Ok([self.side(0, bytes)?, self.side(1, bytes)?])
    }

    /// Makes a queue pair at each side and connects them.
    pub fn connect(&mut self, sides: [&Side; 2], wishes: Wishes) -> Result<[Qp; 2], Failure> {
        let mut qps = [Qp(0); 2];
        for (qp, side) in qps.iter_mut().zip(sides) {
            *qp = self.create(side, wishes)?;
        }
        for this in 0..2 {
            let other = 1 - this;
            let peer = (self.ends[sides[other].end].address, qps[other].0);
            self.bring_up(sides[this].end, qps[this], peer, wishes)?;
        }
        Ok(qps)
    }

    /// Makes a queue pair.
    pub fn create(&mut self, side: &Side, wishes: Wishes) -> Result<Qp, Failure> {
        let mut config = QpConfig::new(wishes.kind, side.pd, side.cq, side.cq);
        config.strict = wishes.strict;
        (wishes.config)(&mut config);
        self.end(side.end).create_qp(&config).map_err(failed("make a queue pair"))
    }

    /// Takes a queue pair from `Reset` to `ReadyToSend`.
    pub fn bring_up(&mut self, end: usize, qp: Qp, peer: (SocketAddr, u32), wishes: Wishes) -> Result<(), Failure> {
        let Wishes { kind, mtu, access, timeout, retries, rnr_retries, .. } = wishes;
        // Where others handle the packets, an answer takes as long as they need.
        let timeout = timeout.max(3 * self.fixture.quiet());
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
            Modify::ReadyToSend(ReadyToSend { psn: FIRST_PSN, timeout, retries, rnr_retries, max_rd_atomic: 4 }),
        ];
        changes.into_iter().try_for_each(|change| self.end(end).modify_qp(qp, change)).map_err(failed("connect"))
    }

    /// Posts requests, which must be taken.
    pub fn post(&mut self, end: usize, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), Failure> {
        let posted = self.end(end).post_send(qp, requests);
        posted.map_err(|(at, error)| format!("posting request {at} at end {end}: {error}"))
    }

    /// Posts a receive, which must be taken.
    pub fn receive(&mut self, end: usize, qp: Qp, id: u64, elements: &[Element]) -> Result<(), Failure> {
        let posted = self.end(end).post_recv(qp, &[RecvWr { id, elements }]);
        posted.map_err(|(_, error)| format!("posting a receive at end {end}: {error}"))
    }

    /// Lets every end work once. Returns whether any had something to do.
    pub fn turn(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        for end in &mut self.ends {
            any |= end.provider.progress().map_err(failed("make progress"))?;
        }
        Ok(any)
    }

    /// Lets every end work until there is nothing to do.
    pub fn settle(&mut self) -> Result<(), Failure> {
        let (start, long) = (Instant::now(), self.fixture.quiet());
        let (mut quiet, mut since) = (0, start);
        while quiet < QUIET || since.elapsed() < long {
            quiet += 1;
            if self.turn()? {
                (quiet, since) = (0, Instant::now());
            }
            if start.elapsed() > PATIENCE {
                return Err("it does not come to rest".into());
            }
        }
        Ok(())
    }

    /// Waits for so many completions at a side, whatever they say.
    pub fn completions(&mut self, side: &Side, count: usize) -> Result<Vec<Completion>, Failure> {
        let mut out = vec![Completion::default(); count];
        let mut found = 0;
        let start = Instant::now();
        while found < count {
            self.turn()?;
            found += self.end(side.end).poll_cq(side.cq, &mut out[found..]).map_err(failed("poll"))?;
            if start.elapsed() > PATIENCE {
                return Err(format!("{found} of {count} completions came at end {}: {:?}", side.end, &out[..found]));
            }
        }
        Ok(out)
    }

    /// Waits for so many completions, which must be good.
    pub fn successes(&mut self, side: &Side, count: usize) -> Result<Vec<Completion>, Failure> {
        let all = self.completions(side, count)?;
        match all.iter().find(|completion| completion.status != Status::Success) {
            Some(bad) => Err(format!("at end {}: {bad:?}", side.end)),
            None => Ok(all),
        }
    }

    /// Sees to it that no completion comes.
    pub fn silence(&mut self, side: &Side) -> Result<(), Failure> {
        self.settle()?;
        let mut out = [Completion::default()];
        match self.end(side.end).poll_cq(side.cq, &mut out).map_err(failed("poll"))? {
            0 => Ok(()),
            _ => Err(format!("end {} heard of what it must not: {:?}", side.end, out[0])),
        }
    }
}
