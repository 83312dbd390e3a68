//! A region of a target, which is read and written by one-sided operations.

use crate::Result;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_verbs::api::{Completion, Cq, Data, Element, Operation, Qp, QpConfig, QpType, Remote, SendWr, Status};
use shotline_verbs::cm::message::{RegionInfo, RegionKey, Rights};
use shotline_verbs::cm::{Client, Endpoint, QpRequest, TargetFailure};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of operations in flight.
pub const MAX_OPERATIONS: u32 = 32;
/// Maximum time between two looks at the control connection.
pub const LOOK: Duration = Duration::from_millis(100);
/// Completions polled at once.
const BATCH: usize = 8;

/// A region of a target, and the queue pair to it.
pub struct RemoteRegion<P> {
    provider: P,
    client: Client,
    pd: Pd,
    cq: Cq,
    qp: Qp,
    key: RegionKey,
}

impl<P: Endpoint> RemoteRegion<P> {
    /// Connects to the region of this name, which must have these rights, or to the first one that has them.
    pub fn connect(mut provider: P, mut client: Client, region: Option<&str>, rights: Access) -> Result<Self> {
        let pd = provider.alloc_pd()?;
        let cq = provider.create_cq(MAX_OPERATIONS)?;
        let config = QpConfig {
            max_send_wr: MAX_OPERATIONS,
            max_recv_wr: 1,
            max_sge: 1,
            ..QpConfig::new(QpType::Rc, pd, cq, cq)
        };
        let (qp, accept) = client.open(&mut provider, &QpRequest::new(config))?;
        let key = choose(accept.keys, region, rights)?;
        Ok(Self { provider, client, pd, cq, qp, key })
    }

    /// Returns the description of the region.
    pub fn info(&self) -> &RegionInfo {
        &self.key.region
    }

    /// Returns the maximum length of an operation, in bytes.
    pub fn max_operation(&self) -> u64 {
        self.provider.capabilities().max_operation.min(u32::MAX.into())
    }

    /// Registers local memory for operations.
    pub fn register(&mut self, region: &Arc<Region>) -> Result<Mr> {
        let len = region.len() as u64;
        Ok(self.provider.reg_mr(self.pd, region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased)?)
    }

    /// Begins to write local memory to an offset of the region, as one operation. [`Self::poll`] returns the id.
    pub fn write(&mut self, local: (&Mr, u64), to: u64, bytes: u64, id: u64) -> Result {
        self.post(Operation::Write(self.remote(to)), local, bytes, id)
    }

    /// Begins to read from an offset of the region into local memory, as one operation. [`Self::poll`] returns the id.
    pub fn read(&mut self, from: u64, local: (&Mr, u64), bytes: u64, id: u64) -> Result {
        self.post(Operation::Read(self.remote(from)), local, bytes, id)
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.key.address + offset, rkey: self.key.rkey }
    }

    fn post(&mut self, operation: Operation, (mr, offset): (&Mr, u64), bytes: u64, id: u64) -> Result {
        // The caller has compared the length with `max_operation`.
        let elements = [Element { address: mr.address + offset, len: bytes as u32, lkey: mr.lkey }];
        let request = SendWr::new(id, operation, Data::Elements(&elements));
        Ok(self.provider.post_send(self.qp, &[request]).map_err(|(_, error)| error)?)
    }

    /// Makes progress, and appends the ids of complete operations. Returns `true` if anything was done.
    pub fn poll(&mut self, ids: &mut Vec<u64>) -> Result<bool> {
        let mut any = self.provider.progress()?;
        let mut done = [Completion::default(); BATCH];
        loop {
            let count = self.provider.poll_cq(self.cq, &mut done)?;
            any |= count > 0;
            for completion in &done[..count] {
                match completion.status {
                    Status::Success => ids.push(completion.id),
                    status => return Err(failure(&self.provider, &self.client, status)),
                }
            }
            if count < BATCH {
                return Ok(any);
            }
        }
    }

    /// Makes [`Self::fd`] readable at the next completion. Poll once more before sleeping on it.
    pub fn arm(&mut self) -> Result {
        while self.provider.next_event().is_some() {}
        Ok(self.provider.arm_cq(self.cq, false)?)
    }

    /// Sleeps until the next completion, or this time. Arm and poll before.
    pub fn wait(&mut self, timeout: Duration) -> Result {
        self.provider.wait(timeout)?;
        Ok(())
    }

    /// Returns the descriptor to sleep on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.provider.fd()
    }

    /// Returns an error if the target has closed the connection.
    pub fn check(&self) -> Result {
        if self.client.is_connected() { Ok(()) } else { Err(TargetFailure::Closed.into()) }
    }

    /// Returns the processor time of the target in seconds.
    pub fn target_cpu(&mut self) -> Result<f64> {
        Ok(self.client.statistics()?.cpu_s)
    }

    /// Ends the connection cleanly.
    pub fn end(self) -> Result {
        Ok(self.client.goodbye()?)
    }
}

/// Returns the error for an operation of a target that ended with this status: what the target refuses, or why its link
/// is not up.
pub fn failure<P: Endpoint>(provider: &P, client: &Client, status: Status) -> Box<dyn std::error::Error> {
    let links = provider.links(0, usize::MAX).into_iter().flat_map(|status| status.links);
    let mismatch = links.filter_map(|link| link.mismatch()).next();
    match (client.failure(status), mismatch) {
        (TargetFailure::Unresponsive, Some(mismatch)) => mismatch.into(),
        (failure, _) => failure.into(),
    }
}

/// Returns the region of this name, with its index.
pub fn find(keys: Vec<RegionKey>, name: &str) -> Result<(usize, RegionKey)> {
    let names: Vec<_> = keys.iter().map(|key| key.region.name.as_str().to_owned()).collect();
    let found = keys.into_iter().enumerate().find(|(_, key)| key.region.name.as_str() == name);
    let unknown = || format!("the target has no region {name}: choose one of its regions, {}", names.join(", "));
    Ok(found.ok_or_else(unknown)?)
}

/// Chooses the region.
fn choose(keys: Vec<RegionKey>, name: Option<&str>, rights: Access) -> Result<RegionKey> {
    let fits =
        |key: &RegionKey| key.region.rights.0.allows(rights) && key.address.checked_add(key.region.bytes).is_some();
    let needed = String::from(Rights(rights));
    let Some(name) = name else {
        let found = keys.into_iter().find(fits);
        return found.ok_or_else(|| format!("the target has no region with rights '{needed}'").into());
    };
    let (_, key) = find(keys, name)?;
    if fits(&key) {
        Ok(key)
    } else {
        let has: String = Rights(key.region.rights.0).into();
        Err(format!("region {name} has rights '{has}', '{needed}' are needed: start the target with rights=rw").into())
    }
}
