//! Memory of a target that holds the images.

use crate::Result;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_verbs::api::{Completion, Cq, Data, Element, Operation, Qp, QpConfig, QpType, Remote, SendWr, Status};
use shotline_verbs::cm::message::{RegionKey, Rights};
use shotline_verbs::cm::{Client, Endpoint, QpRequest, TargetFailure};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Operations in flight.
const OPERATIONS: u32 = 32;
/// Completions polled at once.
const BATCH: usize = 8;
/// Time between two looks at the control connection.
const LOOK: Duration = Duration::from_millis(100);

/// A region of a target, and the queue pair to it.
pub struct ImageMemory<P> {
    provider: P,
    client: Client,
    pd: Pd,
    cq: Cq,
    qp: Qp,
    key: RegionKey,
}

impl<P: Endpoint> ImageMemory<P> {
    /// Connects to the region of this name, or to the first one that can be read and written.
    pub fn connect(mut provider: P, mut client: Client, region: Option<&str>) -> Result<Self> {
        let pd = provider.alloc_pd()?;
        let cq = provider.create_cq(OPERATIONS)?;
        let config =
            QpConfig { max_send_wr: OPERATIONS, max_recv_wr: 1, max_sge: 1, ..QpConfig::new(QpType::Rc, pd, cq, cq) };
        let (qp, accept) = client.open(&mut provider, &QpRequest::new(config))?;
        let key = choose(accept.keys, region)?;
        Ok(Self { provider, client, pd, cq, qp, key })
    }

    /// Checks that this number of images fits, each of them as one operation.
    pub fn check_room(&self, images: u64, bytes: u64) -> Result {
        let (has, name) = (self.key.region.bytes, &self.key.region.name);
        let largest = self.provider.capabilities().max_operation.min(u32::MAX.into());
        if bytes > largest {
            return Err(format!("expected images of at most {largest} bytes for one operation, found {bytes}").into());
        }
        match has / bytes {
            fits if fits >= images => Ok(()),
            0 => Err(format!(
                "the region {} of the target has {has} bytes: not one image of {bytes} bytes fits",
                name.as_str()
            )
            .into()),
            fits => Err(format!(
                "the region {} of the target has {has} bytes: {fits} images of {bytes} bytes fit, found {images}; \
                 use a larger region, or --count {fits}",
                name.as_str(),
            )
            .into()),
        }
    }

    /// Registers local memory for operations.
    pub fn register(&mut self, region: &Arc<Region>) -> Result<Mr> {
        let len = region.len() as u64;
        Ok(self.provider.reg_mr(self.pd, region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased)?)
    }

    /// Writes local memory to an offset of the region, as one operation, and waits for it.
    pub fn write(&mut self, local: &Mr, to: u64, bytes: u64, stop: &AtomicBool) -> Result {
        self.post(Operation::Write(self.remote(to)), (local, 0), bytes, 0)?;
        let mut done = Vec::new();
        while !stop.load(Relaxed) {
            self.poll(&mut done)?;
            if !done.is_empty() {
                return Ok(());
            }
            self.arm()?;
            self.poll(&mut done)?;
            if done.is_empty() {
                self.provider.wait(LOOK)?;
                self.check()?;
            }
        }
        Ok(())
    }

    /// Begins to read from an offset of the region into local memory, as one operation. [`Self::poll`] returns the id.
    pub fn read(&mut self, from: u64, local: (&Mr, u64), bytes: u64, id: u64) -> Result {
        self.post(Operation::Read(self.remote(from)), local, bytes, id)
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.key.address + offset, rkey: self.key.rkey }
    }

    fn post(&mut self, operation: Operation, (mr, offset): (&Mr, u64), bytes: u64, id: u64) -> Result {
        // `check_room` has compared the length with that of an operation.
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
                    status => return Err(self.client.failure(status).into()),
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

/// Chooses the region.
fn choose(keys: Vec<RegionKey>, name: Option<&str>) -> Result<RegionKey> {
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let fits =
        |key: &RegionKey| key.region.rights.0.allows(rights) && key.address.checked_add(key.region.bytes).is_some();
    let Some(name) = name else {
        let found = keys.into_iter().find(fits);
        return found.ok_or_else(|| "the target has no region with rights 'rw'".into());
    };
    let names: Vec<_> = keys.iter().map(|key| key.region.name.as_str().to_owned()).collect();
    let found = keys.into_iter().find(|key| key.region.name.as_str() == name);
    let key = found
        .ok_or_else(|| format!("the target has no region {name}: choose one of its regions, {}", names.join(", ")))?;
    if fits(&key) {
        Ok(key)
    } else {
        let has: String = Rights(key.region.rights.0).into();
        Err(format!("region {name} has rights '{has}', 'rw' are needed").into())
    }
}
