//! Initiator of a measurement: its memory, its control connection and its queue pairs.

use super::page::PerfPage;
use super::pairs::{ConnectedQp, QpSet};
use super::snapshot::Snapshot;
use crate::interop::Service;
use crate::output::CpuTime;
use crate::{Result, remote};
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_verbs::api::{Completion, Destination, Mtu, QpConfig};
use shotline_verbs::cm::message::{Receives, RegionKey, RegisteredMemory, Rights, TargetRole};
use shotline_verbs::cm::{Client, Endpoint, EndpointCounters, QpRequest, TargetFailure};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connection to a target, shared by all measurements.
pub struct Connection<P> {
    /// The local endpoint.
    pub provider: P,
    /// The control connection.
    client: Client,
    pd: Pd,
    /// Registration of the local memory.
    pub memory: Mr,
    /// The local memory.
    pub region: Arc<Region>,
    region_name: Option<String>,
    /// Service levels that the queue pairs have in turn.
    service_levels: Vec<u8>,
    snapshots: u64,
    /// What the page shows.
    pub page: PerfPage,
}

/// Requirements of a measurement on its queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct QpRequirements {
    /// Transport service.
    pub service: Service,
    /// Number of queue pairs.
    pub pairs: u16,
    /// Send queue capacity of each, in work requests.
    pub sends: u32,
    /// Receive queue capacity of each, in work requests.
    pub receives: u32,
    /// Receives that the target posts for each.
    pub target_receives: Receives,
    /// Send queue capacity of the target's queue pairs, in work requests.
    pub target_sends: u16,
    /// Maximum number of completions at once, over all queue pairs.
    pub completions: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Required access to the target's memory.
    pub rights: Access,
    /// Required length of the target's memory, in bytes.
    pub bytes: u64,
}

impl<P: Endpoint> Connection<P> {
    /// Registers `bytes` of memory for measurements with a target.
    pub fn new(
        mut provider: P,
        client: Client,
        region: Option<&str>,
        service_levels: &[u8],
        bytes: u64,
        page: PerfPage,
    ) -> Result<Self> {
        let pd = provider.alloc_pd()?;
        let bytes = bytes.max(4096) as usize;
        // Over shared memory, the target can access only memory that it can map.
        let shared = provider.address().is_none();
        let memory = if shared { Region::memfd("shotline-perf", bytes)? } else { Region::host(bytes)? };
        fill(&memory);
        let len = memory.len() as u64;
        let mr = provider.reg_mr(pd, &memory, 0, len, Access::ALL, Addressing::ZeroBased)?;
        Ok(Self {
            provider,
            client,
            pd,
            memory: mr,
            region: memory,
            region_name: region.map(str::to_owned),
            service_levels: service_levels.to_vec(),
            snapshots: 0,
            page,
        })
    }

    /// Opens queue pairs.
    pub fn open(&mut self, need: &QpRequirements) -> Result<QpSet> {
        let needs_role = need.target_receives.count > 0 || need.target_sends > 0;
        if needs_role && !self.client.welcome().supports_roles {
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
        let request = QpRequest {
            access,
            receives: need.target_receives,
            sends: need.target_sends,
            mtu: need.mtu,
            ..QpRequest::new(config)
        };
        let (mut all, mut key, mut to) = (Vec::new(), None, None);
        for (_, service_level) in (0..need.pairs).zip(self.service_levels.iter().cycle()) {
            let config = QpConfig { service_level: *service_level, ..request.config };
            let (qp, accept) = self.client.open(&mut self.provider, &QpRequest { config, ..request })?;
            let address = accept.address.map(|address| address.ip());
            all.push(ConnectedQp { qp, peer: accept.qp, service_level: *service_level, address });
            let destination = |address| Destination { address, qp: accept.qp.get(), q_key: accept.q_key };
            to = accept.address.filter(|_| need.service == Service::Ud).map(destination);
            if key.is_none() {
                key = Some(self.choose(accept.keys, need)?);
            }
        }
        let (region_index, key) = key.ok_or("expected at least one queue pair")?;
        Ok(QpSet { cq, all, key, region_index, to })
    }

    /// Chooses the requested region, or the first one that fits.
    fn choose(&self, keys: Vec<RegionKey>, need: &QpRequirements) -> Result<(usize, RegionKey)> {
        let rights = String::from(Rights(need.rights));
        let fits = |key: &RegionKey| key.region.rights.0.allows(need.rights) && key.region.bytes >= need.bytes;
        if let Some(name) = &self.region_name {
            let (region_index, key) = remote::find(keys, name)?;
            let (has, bytes) = (String::from(key.region.rights), key.region.bytes);
            return if fits(&key) {
                Ok((region_index, key))
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
    pub fn close(&mut self, qps: QpSet) -> Result {
        for pair in &qps.all {
            self.client.disconnect(pair.peer)?;
            self.provider.destroy_qp(pair.qp)?;
        }
        Ok(self.provider.destroy_cq(qps.cq)?)
    }

    /// Starts a role of the target on a queue pair.
    pub fn start_role(&mut self, pair: &ConnectedQp, role: TargetRole) -> Result {
        Ok(self.client.start_role(pair.peer, role)?)
    }

    /// Returns the address, length and key of the local memory, for the target.
    pub fn own_key(&self) -> RegisteredMemory {
        RegisteredMemory { address: self.memory.address, bytes: self.memory.len, rkey: self.memory.rkey }
    }

    /// Takes a snapshot of both sides.
    pub fn snapshot(&mut self, qps: &QpSet) -> Result<Snapshot> {
        self.snapshots += 1;
        let target = self.client.statistics()?;
        let mut own = EndpointCounters::default();
        qps.all.iter().for_each(|pair| own.add(&self.provider.counters_of(pair.qp)));
        Ok(Snapshot {
            at: Instant::now(),
            own_cpu: CpuTime::now().total(),
            target_cpu: target.cpu_s,
            retransmitted: own.retransmitted + target.retransmitted,
            timeouts: own.timeouts + target.timeouts,
            role_bytes: target.role_bytes,
            number: self.snapshots,
        })
    }

    /// Returns an error if the target is gone.
    pub fn check(&self) -> Result {
        if self.client.is_connected() { Ok(()) } else { Err(TargetFailure::Closed.into()) }
    }

    /// Returns the error for a failed completion.
    pub fn failed(&self, completion: &Completion) -> Box<dyn std::error::Error> {
        remote::failure(&self.provider, &self.client, completion.status)
    }

    /// Sleeps until a completion may be available, then polls.
    pub fn sleep(&mut self, qps: &QpSet, done: &mut [Completion]) -> Result<usize> {
        self.provider.arm_cq(qps.cq, false)?;
        // A completion that arrived before the queue was armed does not wake the sleep.
        let count = self.provider.poll_cq(qps.cq, done)?;
        if count > 0 {
            return Ok(count);
        }
        self.provider.wait(Duration::from_millis(100))?;
        Ok(self.provider.poll_cq(qps.cq, done)?)
    }

    /// Ends the connection cleanly. Returns what the page shows.
    pub fn end(self) -> Result<PerfPage> {
        self.client.goodbye()?;
        Ok(self.page)
    }
}

/// Fills the memory with the pattern of i modulo 251, so that bytes at a wrong offset are detected.
fn fill(memory: &Region) {
    let pattern: Vec<u8> = (0..251 * 256).map(|i: u32| (i % 251) as u8).collect();
    for at in (0..memory.len()).step_by(pattern.len()) {
        memory.write(at, &pattern[..pattern.len().min(memory.len() - at)]);
    }
}
