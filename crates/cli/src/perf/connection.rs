//! An initiator with its memory, its control connection and its queue pairs.

use crate::Result;
use crate::interop::Service;
use crate::output::CpuTime;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_verbs::api::{Completion, Cq, Destination, Mtu, Qp, QpConfig, Status};
use shotline_verbs::cm::message::{Bits24, Play, Receives, RegionKey, RegisteredMemory, Rights};
use shotline_verbs::cm::{Client, Endpoint, QpRequest, EndpointCounters};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything that measurements have in common.
pub struct Connection<P> {
    /// This side.
    pub provider: P,
    /// The control connection.
    client: Client,
    pd: Pd,
    /// This side's memory.
    pub memory: Mr,
    /// The same.
    pub region: Arc<Region>,
    wanted: Option<String>,
    moments: u64,
}

/// A queue pair of this side, connected.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// This side's.
    pub qp: Qp,
    /// The target's.
    pub peer: Bits24,
}

/// The queue pairs of a measurement.
pub struct Lanes {
    /// Where all of them complete.
    pub cq: Cq,
    /// The queue pairs.
    pub all: Vec<Lane>,
    /// The target's memory.
    pub key: RegionKey,
    /// Which of its regions that is.
    pub place: usize,
    /// Where datagrams go.
    pub to: Option<Destination>,
}

/// What a measurement needs of its queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Their kind.
    pub service: Service,
    /// How many.
    pub pairs: u16,
    /// Room for work requests of each.
    pub sends: u32,
    /// Room for receives of each.
    pub receives: u32,
    /// Receives that the target has posted for each.
    pub target_receives: Receives,
    /// Room for the target's own work requests.
    pub target_sends: u16,
    /// Completions that may come at once, over all.
    pub completions: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Rights to the target's memory.
    pub rights: Access,
    /// Bytes of it.
    pub bytes: u64,
}

/// Where both sides are at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// This side's processor time in seconds.
    pub own_cpu: f64,
    /// The target's.
    pub target_cpu: f64,
    /// Packets sent again, by both.
    pub retransmitted: u64,
    /// Times that no answer came in time, on both sides.
    pub timeouts: u64,
    /// Bytes that the target has written or read of its own accord.
    pub played_bytes: u64,
    /// The moments before it, and one.
    number: u64,
}

impl<P: Endpoint> Connection<P> {
    /// With a target, and `bytes` of memory.
    pub fn new(mut provider: P, client: Client, region: Option<&str>, bytes: u64) -> Result<Self> {
        let pd = provider.alloc_pd()?;
        let bytes = bytes.max(4096) as usize;
        // What a provider of shared memory opens to the target must be shared.
        let shared = provider.address().is_none();
        let memory = if shared { Region::memfd("shotline-perf", bytes)? } else { Region::host(bytes)? };
        fill(&memory);
        let len = memory.len() as u64;
        let mr = provider.reg_mr(pd, &memory, 0, len, Access::ALL, Addressing::ZeroBased)?;
        Ok(Self { provider, client, pd, memory: mr, region: memory, wanted: region.map(str::to_owned), moments: 0 })
    }

    /// Opens queue pairs.
    pub fn open(&mut self, need: &Need) -> Result<Lanes> {
        let plays = need.target_receives.count > 0 || need.target_sends > 0;
        if plays && !self.client.welcome().plays {
            return Err("this target serves memory only: start it with --messages for this measurement".into());
        }
        let cq = self.provider.create_cq(need.completions.max(16))?;
        let config = QpConfig {
            max_send_wr: need.sends.max(1),
            max_recv_wr: need.receives.max(1),
            max_sge: 1,
            ..QpConfig::new(need.service.into(), self.pd, cq, cq)
        };
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let wish = QpRequest {
            access,
            receives: need.target_receives,
            sends: need.target_sends,
            mtu: need.mtu,
            ..QpRequest::new(config)
        };
        let (mut all, mut key, mut to) = (Vec::new(), None, None);
        for _ in 0..need.pairs {
            let (qp, accept) = self.client.open(&mut self.provider, &wish)?;
            all.push(Lane { qp, peer: accept.qp });
            let destination = |address| Destination { address, qp: accept.qp.get(), q_key: accept.q_key };
            to = accept.address.filter(|_| need.service == Service::Ud).map(destination);
            if key.is_none() {
                key = Some(self.choose(accept.keys, need)?);
            }
        }
        let (place, key) = key.ok_or("expected at least one queue pair")?;
        Ok(Lanes { cq, all, key, place, to })
    }

    /// The region that was asked for, or the first one that fits.
    fn choose(&self, keys: Vec<RegionKey>, need: &Need) -> Result<(usize, RegionKey)> {
        let rights = String::from(Rights(need.rights));
        let fits = |key: &RegionKey| key.region.rights.0.allows(need.rights) && key.region.bytes >= need.bytes;
        if let Some(name) = &self.wanted {
            let found = keys.into_iter().enumerate().find(|(_, key)| key.region.name.as_str() == name);
            let (place, key) = found.ok_or_else(|| format!("the target has no region {name}"))?;
            let (has, bytes) = (String::from(key.region.rights), key.region.bytes);
            return if fits(&key) {
                Ok((place, key))
            } else {
                let need = need.bytes;
                Err(format!("region {name} has rights '{has}' and {bytes} bytes; '{rights}' and {need} are needed")
                    .into())
            };
        }
        let key = keys.into_iter().enumerate().find(|(_, key)| fits(key));
        key.ok_or_else(|| format!("the target has no region of {} bytes with rights '{rights}'", need.bytes).into())
    }

    /// Destroys queue pairs, on both sides.
    pub fn close(&mut self, lanes: Lanes) -> Result {
        for lane in &lanes.all {
            self.client.disconnect(lane.peer)?;
            self.provider.destroy_qp(lane.qp)?;
        }
        Ok(self.provider.destroy_cq(lanes.cq)?)
    }

    /// Has the target play a part on a queue pair.
    pub fn play(&mut self, lane: &Lane, part: Play) -> Result {
        Ok(self.client.play(lane.peer, part)?)
    }

    /// This side's memory for the target.
    pub fn own_key(&self) -> RegisteredMemory {
        RegisteredMemory { address: self.memory.address, bytes: self.memory.len, rkey: self.memory.rkey }
    }

    /// Where both sides are.
    pub fn moment(&mut self, lanes: &Lanes) -> Result<Moment> {
        self.moments += 1;
        let there = self.client.statistics()?;
        let mut own = EndpointCounters::default();
        lanes.all.iter().for_each(|lane| own.add(&self.provider.qp_counters(lane.qp)));
        Ok(Moment {
            at: Instant::now(),
            own_cpu: CpuTime::now().total(),
            target_cpu: there.cpu_s,
            retransmitted: own.retransmitted + there.retransmitted,
            timeouts: own.timeouts + there.timeouts,
            played_bytes: there.played_bytes,
            number: self.moments,
        })
    }

    /// Whether the target is still there.
    pub fn check(&self) -> Result {
        if self.client.is_connected() { Ok(()) } else { Err("the target has gone away".into()) }
    }

    /// What a completion that is none means.
    pub fn failed(&self, completion: &Completion) -> Box<dyn std::error::Error> {
        if !self.client.is_connected() {
            return "the target has gone away".into();
        }
        match completion.status {
            Status::RetryExceeded => "the target does not answer any more".into(),
            Status::RemoteAccess => "the target refuses the access: key, range or rights".into(),
            status => format!("an operation failed: {status:?}").into(),
        }
    }

    /// Sleeps until a completion may have come.
    pub fn sleep(&mut self, lanes: &Lanes, done: &mut [Completion]) -> Result<usize> {
        self.provider.arm_cq(lanes.cq, false)?;
        // What came before it was armed makes no event.
        let count = self.provider.poll_cq(lanes.cq, done)?;
        if count > 0 {
            return Ok(count);
        }
        self.provider.wait(Duration::from_millis(100))?;
        Ok(self.provider.poll_cq(lanes.cq, done)?)
    }

    /// Ends it in order.
    pub fn end(self) -> Result {
        Ok(self.client.goodbye()?)
    }
}

impl Moment {
    /// A number that no other moment and no other operation gives: of a ping.
    pub fn number(&self, operation: u64) -> u64 {
        self.number << 40 | operation
    }
}

/// What is sent: byte i of the memory is i modulo 251, so that bytes in a wrong place are noticed.
fn fill(memory: &Region) {
    let pattern: Vec<u8> = (0..251 * 256).map(|i: u32| (i % 251) as u8).collect();
    for at in (0..memory.len()).step_by(pattern.len()) {
        memory.write(at, &pattern[..pattern.len().min(memory.len() - at)]);
    }
}

/// The local address of the route to a target.
pub fn route(to: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = || {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(|error: std::io::Error| {
        format!("cannot find the route to {to}: {error}; name the local address with --bind").into()
    })
}
