//! An io_uring that writes pool buffers to a [`Target`]: a file, or a drive by NVMe passthrough commands.
//!
//! The kernel reads a buffer between the submission and the completion of its write. The ring therefore owns every
//! buffer until its last completion is reaped, and is not dropped before its last write has completed.

use super::drive::{Completion, Drive, Wake};
use io_uring::cqueue;
use io_uring::squeue::{self, EntryMarker as _};
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, opcode};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use shotline_memory::{Buffer, Regions};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Registered file that is written to.
pub(super) const FILE: Fixed = Fixed(0);
/// User data of the poll of the eventfd that ends a wait.
const USER_WAKE: u64 = u64::MAX;
/// User data of a sync.
const USER_SYNC: u64 = u64::MAX - 1;
/// `POLLIN` of poll(2).
const POLL_IN: u32 = 1;
/// Maximum number of entries of a ring.
const MAX_ENTRIES: u32 = 4096;

/// One request of a write, at most [`Target::max_request_bytes`] long.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Address of the bytes in memory.
    pub address: *const u8,
    /// Length in bytes.
    pub len: u32,
    /// Offset on the target in bytes.
    pub at: u64,
    /// Index of the registered buffer, if memory could be registered.
    pub buffer: Option<u16>,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// This number of bytes was written, from the first one on.
    Written(u32),
    /// Failed with a transient error.
    Transient(Errno),
    /// Failed with a permanent error.
    Failed(Errno),
}

/// Target of a ring.
pub trait Target: std::fmt::Debug + Send {
    /// Entry of the submission queue.
    type SubmissionEntry: squeue::EntryMarker;
    /// Entry of the completion queue.
    type CompletionEntry: cqueue::EntryMarker;
    /// Maximum number of retries of a request.
    const MAX_RETRIES: u8;
    /// Typical number of requests of a write, used to size the queue.
    const TYPICAL_REQUESTS: u32;

    /// Returns the maximum size of a request and of a registered buffer in bytes, a power of two.
    fn max_request_bytes(&self) -> u32;
    /// Builds the entry of a request. It refers to no memory but that at [`Request::address`], which is only read.
    fn write(&self, request: &Request) -> Self::SubmissionEntry;
    /// Builds the entry that makes written data durable; `None` if none is needed.
    fn sync(&self) -> Option<Self::SubmissionEntry>;
    /// Interprets the result of a request of `len` bytes.
    fn on_completion(&self, result: i32, len: u32) -> RequestResult;
}

/// A file as a target.
#[derive(Debug)]
pub struct FileTarget;

impl Target for FileTarget {
    type SubmissionEntry = squeue::Entry;
    type CompletionEntry = cqueue::Entry;
    // Retries are for interrupts and shortage of kernel memory.
    const MAX_RETRIES: u8 = 32;
    const TYPICAL_REQUESTS: u32 = 1;

    fn max_request_bytes(&self) -> u32 {
        1 << 30
    }
    fn write(&self, request: &Request) -> squeue::Entry {
        let Request { address, len, at, buffer } = *request;
        match buffer {
            Some(index) => opcode::WriteFixed::new(FILE, address, len, index).offset(at).build(),
            None => opcode::Write::new(FILE, address, len).offset(at).build(),
        }
    }
    fn sync(&self) -> Option<squeue::Entry> {
        Some(opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build())
    }
    fn on_completion(&self, result: i32, _: u32) -> RequestResult {
        match u32::try_from(result) {
            Ok(0) => RequestResult::Failed(Errno::IO),
            Ok(count) => RequestResult::Written(count),
            Err(_) => match Errno::from_raw_os_error(-result) {
                errno @ (Errno::INTR | Errno::AGAIN) => RequestResult::Transient(errno),
                errno => RequestResult::Failed(errno),
            },
        }
    }
}

/// A write: one request for each registered buffer that its bytes touch.
#[derive(Debug)]
struct Write {
    /// Held until the last request has completed.
    _buffer: Buffer,
    /// Address of the bytes in memory.
    address: *const u8,
    /// Offset of the bytes in their region.
    offset: u64,
    /// Index of the first registered buffer of the region.
    first: Option<u16>,
    /// Offset on the target in bytes.
    at: u64,
    /// Length in bytes.
    len: u32,
    /// Number of outstanding requests.
    in_flight: u32,
    tag: u64,
    failed: Option<Errno>,
}

/// Identity of a request, encoded in its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestId {
    /// Index of the write.
    slot: u16,
    /// Number of retries so far.
    retries: u8,
    /// Offset of the request in the write, in bytes.
    done: u32,
}

impl RequestId {
    fn user(self) -> u64 {
        u64::from(self.done) << 32 | u64::from(self.retries) << 16 | u64::from(self.slot)
    }
    fn of(user: u64) -> Self {
        Self { slot: user as u16, retries: (user >> 16) as u8, done: (user >> 32) as u32 }
    }
}

impl Write {
    /// Returns the request from `done` to the end of its registered buffer.
    fn request(&self, done: u32, max_bytes: u32) -> Request {
        let from = self.offset + u64::from(done);
        let len = (self.len - done).min(max_bytes - (from & u64::from(max_bytes - 1)) as u32);
        let buffer = self.first.map(|first| first + (from >> max_bytes.trailing_zeros()) as u16);
        Request { address: self.address.wrapping_add(done as usize), len, at: self.at + u64::from(done), buffer }
    }
}

/// Writes in flight.
#[derive(Debug)]
struct Writes {
    slots: Vec<Option<Write>>,
    free: Vec<u16>,
    /// Requests to retry, or to continue after a short write.
    retry_queue: Vec<RequestId>,
}

// SAFETY: the addresses are those of memory that the buffers of the writes keep alive; this type does not access it.
unsafe impl Send for Writes {}

impl Writes {
    fn new(depth: u32) -> Self {
        Self {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth as u16).rev().collect(),
            retry_queue: Vec::new(),
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Handles the completion of a request; returns the result of the write after its last request.
    fn on_completion<T: Target>(&mut self, target: &T, id: RequestId, result: i32) -> Option<Completion> {
        let slot = usize::from(id.slot);
        let write = self.slots[slot].as_mut()?;
        let len = write.request(id.done, target.max_request_bytes()).len;
        match target.on_completion(result, len) {
            RequestResult::Written(count) if count < len => {
                self.retry_queue.push(RequestId { done: id.done + count, ..id });
                return None;
            }
            RequestResult::Written(_) => {}
            RequestResult::Transient(_) if id.retries < T::MAX_RETRIES && write.failed.is_none() => {
                self.retry_queue.push(RequestId { retries: id.retries + 1, ..id });
                return None;
            }
            RequestResult::Transient(errno) | RequestResult::Failed(errno) => write.failed = Some(errno),
        }
        write.in_flight -= 1;
        if write.in_flight > 0 {
            return None;
        }
        let (tag, result) = (write.tag, write.failed.map_or(Ok(()), Err));
        self.slots[slot] = None;
        self.free.push(id.slot);
        Some(Completion::Write { tag, result })
    }
}

/// State of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Idle,
    /// In flight, with the number of retries.
    InFlight(u8),
    /// To be retried, with the number of retries.
    Retry(u8),
    /// Completed at once, because the target needs no sync.
    NotNeeded,
}

/// An io_uring for writes. See the module.
pub struct Ring<T: Target> {
    uring: IoUring<T::SubmissionEntry, T::CompletionEntry>,
    target: T,
    regions: Regions,
    /// Offset on the target that corresponds to offset 0.
    base: u64,
    /// Index of the first registered buffer of each region, if they could be registered.
    fixed: Option<Vec<u16>>,
    wake: Arc<Wake>,
    wake_armed: bool,
    sync: Sync,
    writes: Writes,
}

impl<T: Target> Ring<T> {
    /// Creates a ring for at most `depth` writes in flight to `file`, with the entries that `target` builds. Offsets
    /// are relative to `base`. The second value is the error if buffers could not be registered.
    pub fn new(
        depth: u32,
        regions: &Regions,
        (file, target): (&File, T),
        base: u64,
    ) -> io::Result<(Self, Option<io::Error>)> {
        let depth = depth.min(MAX_ENTRIES);
        let entries = depth.saturating_mul(T::TYPICAL_REQUESTS).saturating_add(4).min(MAX_ENTRIES);
        let uring: IoUring<T::SubmissionEntry, T::CompletionEntry> =
            IoUring::builder().dontfork().build(entries.next_power_of_two())?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring does not support a wait with a timeout",
            ));
        }
        // The kernel keeps the file open from here on.
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let (fixed, register_error) = match register(&uring.submitter(), regions, target.max_request_bytes()) {
            Ok(fixed) => (Some(fixed), None),
            Err(error) => (None, Some(error)),
        };
        let ring = Self {
            uring,
            target,
            regions: regions.clone(),
            base,
            fixed,
            wake: Arc::new(Wake::new()?),
            wake_armed: false,
            sync: Sync::Idle,
            writes: Writes::new(depth),
        };
        Ok((ring, register_error))
    }

    /// Returns the number of writes in flight.
    pub fn in_flight(&self) -> usize {
        self.writes.in_flight()
    }

    /// Queues a request again.
    fn resubmit(&mut self, id: RequestId) {
        if let Some(write) = &self.writes.slots[usize::from(id.slot)] {
            let request = write.request(id.done, self.target.max_request_bytes());
            self.push(self.target.write(&request), id.user());
        }
    }

    /// Queues an entry. If the queue is full, it is submitted first.
    fn push(&mut self, mut entry: T::SubmissionEntry, user: u64) {
        entry.set_user_data(user);
        loop {
            // SAFETY: the entry is a poll or a sync, which name no memory, or a write. The memory of a write is that of
            // a `Buffer` that `self.writes` owns until all its requests have completed, or will own (nothing in
            // between unwinds), in a region that `self.regions` keeps mapped; `drop` waits for them. A buffer is not
            // written after it was passed to the recorder. The descriptors live as long as the ring.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: submitting frees its entries.
            if self.uring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn push_sync(&mut self, retries: u8) {
        self.sync = match self.target.sync() {
            Some(entry) => {
                self.push(entry, USER_SYNC);
                Sync::InFlight(retries)
            }
            None => Sync::NotNeeded,
        };
    }

    /// Submits queued entries, with no system call if there are none: completions are visible without one, unless the
    /// completion queue has overflowed.
    fn submit_queued(&mut self) -> io::Result<usize> {
        let queue = self.uring.submission();
        let idle = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        if idle { Ok(0) } else { self.uring.submit() }
    }

    /// Submits queued entries and blocks for at most `wait` for a completion.
    fn wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let waiting = wait.filter(|_| self.uring.completion().is_empty() && self.sync != Sync::NotNeeded);
        ignore_transient(match waiting {
            Some(wait) => {
                let time = Timespec::from(wait);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => self.submit_queued(),
        })
    }

    /// Reports all completions.
    fn reap(&mut self, on_completion: &mut dyn FnMut(Completion)) {
        let Self { uring, target, wake, wake_armed, sync, writes, .. } = self;
        if *sync == Sync::NotNeeded {
            *sync = Sync::Idle;
            on_completion(Completion::Sync(Ok(())));
        }
        for entry in uring.completion() {
            let entry: cqueue::Entry = entry.into();
            let completion = match entry.user_data() {
                USER_WAKE => {
                    *wake_armed = false;
                    wake.clear();
                    Some(Completion::Woken)
                }
                USER_SYNC => {
                    // The result of a sync is 0 or an error, as of a request of 0 bytes.
                    let result = if entry.result() == 0 {
                        RequestResult::Written(0)
                    } else {
                        target.on_completion(entry.result(), 0)
                    };
                    match (result, *sync) {
                        (RequestResult::Transient(_), Sync::InFlight(retries)) if retries < T::MAX_RETRIES => {
                            *sync = Sync::Retry(retries + 1);
                            None
                        }
                        (RequestResult::Transient(errno) | RequestResult::Failed(errno), _) => {
                            *sync = Sync::Idle;
                            Some(Completion::Sync(Err(errno)))
                        }
                        (RequestResult::Written(_), _) => {
                            *sync = Sync::Idle;
                            Some(Completion::Sync(Ok(())))
                        }
                    }
                }
                user => writes.on_completion(target, RequestId::of(user), entry.result()),
            };
            completion.into_iter().for_each(&mut *on_completion);
        }
    }
}

impl<T: Target> Drive for Ring<T> {
    fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }
    fn available(&self) -> usize {
        self.writes.free.len()
    }

    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        let Some(slot) = self.writes.free.pop() else { return Err(buffer) };
        let sge = buffer.sge(0, len);
        let address = self.regions.address(sge).cast_const();
        let first = self.fixed.as_ref().map(|fixed| fixed[usize::from(sge.region.0)]);
        let (offset, at) = (sge.offset, self.base + at);
        let mut write = Write { _buffer: buffer, address, offset, first, at, len, in_flight: 0, tag, failed: None };
        let mut done = 0;
        while done < len {
            let request = write.request(done, self.target.max_request_bytes());
            self.push(self.target.write(&request), RequestId { slot, retries: 0, done }.user());
            write.in_flight += 1;
            done += request.len;
        }
        // Completions are not reaped before this, so they find the write.
        self.writes.slots[usize::from(slot)] = Some(write);
        Ok(())
    }

    fn sync(&mut self) -> bool {
        let idle = self.sync == Sync::Idle;
        if idle {
            self.push_sync(0);
        }
        idle
    }

    fn submit(&mut self) -> io::Result<()> {
        ignore_transient(self.submit_queued())
    }

    fn poll(&mut self, wait: Option<Duration>, on_completion: &mut dyn FnMut(Completion)) -> io::Result<()> {
        if wait.is_some() && !self.wake_armed {
            let armed = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), POLL_IN).build();
            self.push(armed.into(), USER_WAKE);
            self.wake_armed = true;
        }
        self.wait(wait)?;
        self.reap(on_completion);
        while let Some(id) = self.writes.retry_queue.pop() {
            self.resubmit(id);
        }
        if let Sync::Retry(retries) = self.sync {
            self.push_sync(retries);
        }
        self.submit()
    }
}

impl<T: Target> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.poll(Some(Duration::from_secs(1)), &mut |_| ()).is_err() {
                // The kernel may still read these buffers, so they are leaked rather than reused.
                std::mem::forget(std::mem::take(&mut self.writes.slots));
                return;
            }
        }
    }
}

impl<T: Target> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (writing, depth, fixed) = (self.in_flight(), self.writes.slots.len(), self.fixed.is_some());
        write!(f, "Ring({writing} of {depth} writes in flight to {:?}, fixed: {fixed})", self.target)
    }
}

/// Registers every region in pieces of at most `max_bytes` bytes; returns the index of each region's first piece, by the
/// region's number.
fn register(submitter: &Submitter<'_>, regions: &Regions, max_bytes: u32) -> io::Result<Vec<u16>> {
    let (mut pieces, mut first) = (Vec::new(), Vec::new());
    for (id, region) in regions.iter() {
        // Numbers without a region have no piece.
        first.resize(usize::from(id.0), 0);
        first.push(u16::try_from(pieces.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?);
        for offset in (0..region.len()).step_by(max_bytes as usize) {
            let len = (region.len() - offset).min(max_bytes as usize);
            pieces.push(libc::iovec { iov_base: region.address(offset, len).cast(), iov_len: len });
        }
    }
    // SAFETY: every piece is inside a region of the table, of which the ring keeps a clone while it exists.
    unsafe { submitter.register_buffers(&pieces) }?;
    Ok(first)
}

/// Ignores transient errors of a submission: the entries stay queued for the next one.
fn ignore_transient(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error) if !is_transient(&error) => Err(error),
        _ => Ok(()),
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)
    )
}
