//! An io_uring that writes pool buffers to a [`Target`]: a file, or a drive by its own commands.
//!
//! The kernel reads a buffer from its write's submission to its completion. That is upheld here: the ring
//! owns every buffer of a write until the last completion is reaped, and does not go before its last write has.

use super::drive::{Done, Drive, Wake};
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

/// The file that is written to, as the ring knows it.
pub(super) const FILE: Fixed = Fixed(0);
const USER_WAKE: u64 = u64::MAX;
const USER_SYNC: u64 = u64::MAX - 1;
/// `POLLIN` of poll(2).
const POLL_IN: u32 = 1;
/// Entries of a ring, at most.
const MOST_ENTRIES: u32 = 4096;

/// One request of a write.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where the bytes are in memory.
    pub address: *const u8,
    /// How many.
    pub len: u32,
    /// Where they go.
    pub at: u64,
    /// The registered buffer that they are in, if memory could be registered.
    pub buffer: Option<u16>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// So many bytes are written, from the first one on.
    Written(u32),
    /// It may go well the next time.
    Passing(Errno),
    /// It will not.
    Failed(Errno),
}

/// What a ring writes to.
pub trait Target: std::fmt::Debug + Send {
    /// Entries of the submission queue.
    type Entry: squeue::EntryMarker;
    /// Entries of the completion queue.
    type Completion: cqueue::EntryMarker;
    /// Times that a request is tried again.
    const TRIES: u8;
    /// Requests that a write usually is: for so many the queue has room.
    const REQUESTS: u32;

    /// The most bytes of a request, and of a registered buffer; a power of two.
    fn most(&self) -> u32;
    /// A request as an entry. Nothing is in memory but what [`Request::address`] names, which is only read.
    fn write(&self, request: &Request) -> Self::Entry;
    /// What makes everything durable that is written; none if nothing has to be done.
    fn sync(&self) -> Option<Self::Entry>;
    /// How a request of `len` bytes ended.
    fn ended(&self, result: i32, len: u32) -> End;
}

/// A file.
#[derive(Debug)]
pub struct Plain;

impl Target for Plain {
    type Entry = squeue::Entry;
    type Completion = cqueue::Entry;
    // The kernel was interrupted, or short of memory.
    const TRIES: u8 = 32;
    const REQUESTS: u32 = 1;

    fn most(&self) -> u32 {
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
    fn ended(&self, result: i32, _: u32) -> End {
        match u32::try_from(result) {
            Ok(0) => End::Failed(Errno::IO),
            Ok(count) => End::Written(count),
            Err(_) => match Errno::from_raw_os_error(-result) {
                errno @ (Errno::INTR | Errno::AGAIN) => End::Passing(errno),
                errno => End::Failed(errno),
            },
        }
    }
}

/// A write: a request for each stretch of `most` bytes of registered memory that it touches.
#[derive(Debug)]
struct Write {
    /// Held until the last request has ended.
    _buffer: Buffer,
    /// Where its bytes are, in memory and in its region.
    address: *const u8,
    offset: u64,
    /// The registered buffer that its region begins with.
    first: Option<u16>,
    at: u64,
    len: u32,
    /// Requests that have not ended.
    flying: u32,
    tag: u64,
    failed: Option<Errno>,
}

/// A request, as its completion tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The write.
    slot: u16,
    /// Times that it was tried again.
    tries: u8,
    /// The bytes of the write before it.
    done: u32,
}

impl Piece {
    fn user(self) -> u64 {
        u64::from(self.done) << 32 | u64::from(self.tries) << 16 | u64::from(self.slot)
    }
    fn of(user: u64) -> Self {
        Self { slot: user as u16, tries: (user >> 16) as u8, done: (user >> 32) as u32 }
    }
}

impl Write {
    /// The request that begins at `done`: up to where its registered buffer ends.
    fn request(&self, done: u32, most: u32) -> Request {
        let from = self.offset + u64::from(done);
        let len = (self.len - done).min(most - (from & u64::from(most - 1)) as u32);
        let buffer = self.first.map(|first| first + (from >> most.trailing_zeros()) as u16);
        Request { address: self.address.wrapping_add(done as usize), len, at: self.at + u64::from(done), buffer }
    }
}

/// The writes that are under way.
#[derive(Debug)]
struct Writes {
    slots: Vec<Option<Write>>,
    free: Vec<u16>,
    /// Requests to make again, or for the rest of their bytes.
    again: Vec<Piece>,
}

// SAFETY: the addresses in it are of memory that the writes' buffers hold, which any thread may name; nothing here reads
// or writes it.
unsafe impl Send for Writes {}

impl Writes {
    fn new(depth: u32) -> Self {
        Self { slots: (0..depth).map(|_| None).collect(), free: (0..depth as u16).rev().collect(), again: Vec::new() }
    }
    fn flying(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Enters how a request ended.
    fn ended<T: Target>(&mut self, target: &T, piece: Piece, result: i32) -> Option<Done> {
        let slot = usize::from(piece.slot);
        let write = self.slots[slot].as_mut()?;
        let len = write.request(piece.done, target.most()).len;
        match target.ended(result, len) {
            End::Written(count) if count < len => {
                self.again.push(Piece { done: piece.done + count, ..piece });
                return None;
            }
            End::Written(_) => {}
            End::Passing(_) if piece.tries < T::TRIES && write.failed.is_none() => {
                self.again.push(Piece { tries: piece.tries + 1, ..piece });
                return None;
            }
            End::Passing(errno) | End::Failed(errno) => write.failed = Some(errno),
        }
        write.flying -= 1;
        if write.flying > 0 {
            return None;
        }
        let (tag, result) = (write.tag, write.failed.map_or(Ok(()), Err));
        self.slots[slot] = None;
        self.free.push(piece.slot);
        Some(Done::Write { tag, result })
    }
}

/// Where a sync is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Idle,
    /// Under way, tried again so often.
    Flying(u8),
    /// To be tried again, for the so manieth time.
    Again(u8),
    /// There was nothing to do.
    Over,
}

/// See the module.
pub struct Ring<T: Target> {
    uring: IoUring<T::Entry, T::Completion>,
    target: T,
    regions: Regions,
    /// Where offset 0 is on the target.
    base: u64,
    /// The index of each region's first registered buffer, if they could be registered.
    fixed: Option<Vec<u16>>,
    wake: Arc<Wake>,
    wake_armed: bool,
    sync: Sync,
    writes: Writes,
}

impl<T: Target> Ring<T> {
    /// A ring for `depth` writes to a file that is written by way of `target`, whose offsets count from `base`; the second
    /// value says why buffers are not registered, if so.
    pub fn new(
        depth: u32,
        regions: &Regions,
        (file, target): (&File, T),
        base: u64,
    ) -> io::Result<(Self, Option<io::Error>)> {
        let depth = depth.min(MOST_ENTRIES);
        let entries = depth.saturating_mul(T::REQUESTS).saturating_add(4).min(MOST_ENTRIES);
        let uring: IoUring<T::Entry, T::Completion> =
            IoUring::builder().dontfork().build(entries.next_power_of_two())?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot wait with a time-out",
            ));
        }
        // The kernel keeps the file open from here on.
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let (fixed, refused) = match register(&uring.submitter(), regions, target.most()) {
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
        Ok((ring, refused))
    }

    /// Writes that have not completed.
    pub fn writing(&self) -> usize {
        self.writes.flying()
    }

    /// Queues a request anew.
    fn again(&mut self, piece: Piece) {
        if let Some(write) = &self.writes.slots[usize::from(piece.slot)] {
            let request = write.request(piece.done, self.target.most());
            self.push(self.target.write(&request), piece.user());
        }
    }

    fn push(&mut self, mut entry: T::Entry, user: u64) {
        entry.set_user_data(user);
        loop {
            // SAFETY: the entry is a poll or a sync, which name no memory, or a write. A write's memory is that of a
            // `Buffer` which `self.writes` owns until all its requests have ended, or is about to (nothing in between
            // unwinds), in a region which `self.regions` keeps mapped; `drop` waits for them. Nobody fills a buffer that the recorder was handed. The descriptors live as
            // long as the ring.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Makes room.
            if self.uring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn push_sync(&mut self, tries: u8) {
        self.sync = match self.target.sync() {
            Some(entry) => {
                self.push(entry, USER_SYNC);
                Sync::Flying(tries)
            }
            None => Sync::Over,
        };
    }

    /// Hands queued entries on, and asks the kernel for nothing else: what has completed is seen without it, unless the
    /// ring was too short for all completions.
    fn hand_on(&mut self) -> io::Result<usize> {
        let queue = self.uring.submission();
        let idle = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        if idle { Ok(0) } else { self.uring.submit() }
    }

    /// Waits for completions, at most so long, and hands queued entries on.
    fn wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let waiting = wait.filter(|_| self.uring.completion().is_empty() && self.sync != Sync::Over);
        settled(match waiting {
            Some(wait) => {
                let time = Timespec::from(wait);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => self.hand_on(),
        })
    }

    /// Tells all that has ended.
    fn reap(&mut self, tell: &mut dyn FnMut(Done)) {
        let Self { uring, target, wake, wake_armed, sync, writes, .. } = self;
        if *sync == Sync::Over {
            *sync = Sync::Idle;
            tell(Done::Sync(Ok(())));
        }
        for entry in uring.completion() {
            let entry: cqueue::Entry = entry.into();
            let done = match entry.user_data() {
                USER_WAKE => {
                    *wake_armed = false;
                    wake.clear();
                    Some(Done::Woken)
                }
                USER_SYNC => {
                    // A sync's result is 0 or an error: that of a request of no bytes that has written none.
                    let result = if entry.result() == 0 { End::Written(0) } else { target.ended(entry.result(), 0) };
                    match (result, *sync) {
                        (End::Passing(_), Sync::Flying(tries)) if tries < T::TRIES => {
                            *sync = Sync::Again(tries + 1);
                            None
                        }
                        (End::Passing(errno) | End::Failed(errno), _) => {
                            *sync = Sync::Idle;
                            Some(Done::Sync(Err(errno)))
                        }
                        (End::Written(_), _) => {
                            *sync = Sync::Idle;
                            Some(Done::Sync(Ok(())))
                        }
                    }
                }
                user => writes.ended(target, Piece::of(user), entry.result()),
            };
            done.into_iter().for_each(&mut *tell);
        }
    }
}

impl<T: Target> Drive for Ring<T> {
    fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }
    fn room(&self) -> usize {
        self.writes.free.len()
    }

    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        let Some(slot) = self.writes.free.pop() else { return Err(buffer) };
        let sge = buffer.sge(0, len);
        let address = self.regions.address(sge).cast_const();
        let first = self.fixed.as_ref().map(|fixed| fixed[usize::from(sge.region.0)]);
        let (offset, at) = (sge.offset, self.base + at);
        let mut write = Write { _buffer: buffer, address, offset, first, at, len, flying: 0, tag, failed: None };
        let mut done = 0;
        while done < len {
            let request = write.request(done, self.target.most());
            self.push(self.target.write(&request), Piece { slot, tries: 0, done }.user());
            write.flying += 1;
            done += request.len;
        }
        // No completion is looked at before this.
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
        settled(self.hand_on())
    }

    fn poll(&mut self, wait: Option<Duration>, tell: &mut dyn FnMut(Done)) -> io::Result<()> {
        if wait.is_some() && !self.wake_armed {
            let armed = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), POLL_IN).build();
            self.push(armed.into(), USER_WAKE);
            self.wake_armed = true;
        }
        self.wait(wait)?;
        self.reap(tell);
        while let Some(piece) = self.writes.again.pop() {
            self.again(piece);
        }
        if let Sync::Again(tries) = self.sync {
            self.push_sync(tries);
        }
        self.submit()
    }
}

impl<T: Target> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.writing() > 0 {
            if self.poll(Some(Duration::from_secs(1)), &mut |_| ()).is_err() {
                // The kernel may still read these buffers: rather lose them than let them be filled anew.
                std::mem::forget(std::mem::take(&mut self.writes.slots));
                return;
            }
        }
    }
}

impl<T: Target> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (writing, depth, fixed) = (self.writing(), self.writes.slots.len(), self.fixed.is_some());
        write!(f, "Ring({writing} of {depth} writes in flight to {:?}, fixed: {fixed})", self.target)
    }
}

/// Registers every region in pieces of at most `most` bytes; gives the index of each region's first piece.
fn register(submitter: &Submitter<'_>, regions: &Regions, most: u32) -> io::Result<Vec<u16>> {
    let (mut pieces, mut first) = (Vec::new(), Vec::new());
    for (_, region) in regions.iter() {
        first.push(u16::try_from(pieces.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?);
        for offset in (0..region.len()).step_by(most as usize) {
            let len = (region.len() - offset).min(most as usize);
            pieces.push(libc::iovec { iov_base: region.address(offset, len).cast(), iov_len: len });
        }
    }
    // SAFETY: every piece lies inside a region of the table, which the ring keeps a clone of until it goes.
    unsafe { submitter.register_buffers(&pieces) }?;
    Ok(first)
}

/// What the kernel does not take now it takes the next time.
fn settled(result: io::Result<usize>) -> io::Result<()> {
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
