//! An io_uring that writes pool buffers to a file.
//!
//! The kernel reads a buffer from its write's submission to its completion. That is upheld here: the ring
//! owns every buffer of a write until the completion is reaped, and does not go before its last write has.

use super::drive::{Done, Drive, Wake};
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, opcode, squeue};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use shotline_memory::{Buffer, Regions};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of one registered buffer.
const FIXED_BYTES: u64 = 1 << 30;
/// Times that a write is tried again after the kernel was interrupted or short of memory.
const TRIES: u8 = 32;
const USER_WAKE: u64 = u64::MAX;
const USER_SYNC: u64 = u64::MAX - 1;
/// `POLLIN` of poll(2).
const POLL_IN: u32 = 1;

#[derive(Debug)]
struct Write {
    buffer: Buffer,
    at: u64,
    done: u32,
    len: u32,
    tag: u64,
    tries: u8,
}

/// The ring. See the module.
pub struct Ring {
    uring: IoUring,
    regions: Regions,
    /// Where offset 0 is in the file.
    base: u64,
    /// The index of each region's first registered buffer, if they could be registered.
    fixed: Option<Vec<u16>>,
    wake: Arc<Wake>,
    wake_armed: bool,
    syncing: bool,
    writes: Vec<Option<Write>>,
    free: Vec<u32>,
    again: Vec<u32>,
}

impl Ring {
    /// A ring for `depth` writes to `file`, whose offsets count from `base`; the second value says why buffers are not registered, if so.
    pub fn new(depth: u32, regions: &Regions, file: &File, base: u64) -> io::Result<(Self, Option<io::Error>)> {
        let uring = IoUring::builder().dontfork().build((depth + 4).next_power_of_two())?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot wait with a time-out",
            ));
        }
        // The kernel keeps the file open from here on.
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        let (fixed, refused) = match register(&uring.submitter(), regions, FIXED_BYTES) {
            Ok(fixed) => (Some(fixed), None),
            Err(error) => (None, Some(error)),
        };
        let wake = Arc::new(Wake::new()?);
        let ring = Self {
            uring,
            regions: regions.clone(),
            base,
            fixed,
            wake,
            wake_armed: false,
            syncing: false,
            writes: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            again: Vec::new(),
        };
        Ok((ring, refused))
    }

    /// Writes that have not completed.
    pub fn writing(&self) -> usize {
        self.writes.len() - self.free.len()
    }
    fn complete(&mut self, user_data: u64, result: i32) -> Option<Done> {
        match user_data {
            USER_WAKE => {
                self.wake_armed = false;
                self.wake.clear();
                Some(Done::Woken)
            }
            USER_SYNC => {
                self.syncing = false;
                Some(Done::Sync(if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(()) }))
            }
            slot => self.complete_write(slot as u32, result),
        }
    }

    fn complete_write(&mut self, slot: u32, result: i32) -> Option<Done> {
        let write = self.writes[slot as usize].as_mut()?;
        let error = match u32::try_from(result) {
            Ok(0) => Some(Errno::IO),
            Ok(count) => {
                write.done += count;
                None
            }
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN if write.tries < TRIES => {
                    write.tries += 1;
                    None
                }
                errno => Some(errno),
            },
        };
        if error.is_none() && write.done < write.len {
            self.again.push(slot);
            return None;
        }
        let tag = write.tag;
        self.writes[slot as usize] = None;
        self.free.push(slot);
        Some(Done::Write { tag, result: error.map_or(Ok(()), Err) })
    }

    /// Queues what is left of a write.
    fn queue(&mut self, slot: u32) {
        let Some(write) = &self.writes[slot as usize] else { return };
        let sge = write.buffer.sge(write.done, write.len - write.done);
        let (address, at) = (self.regions.address(sge).cast_const(), self.base + write.at + u64::from(write.done));
        let (first, last) = (sge.offset / FIXED_BYTES, (sge.offset + u64::from(sge.len) - 1) / FIXED_BYTES);
        let entry = match &self.fixed {
            Some(fixed) if first == last => {
                let index = fixed[usize::from(sge.region.0)] + first as u16;
                opcode::WriteFixed::new(Fixed(0), address, sge.len, index).offset(at).build()
            }
            _ => opcode::Write::new(Fixed(0), address, sge.len).offset(at).build(),
        };
        self.push(entry.user_data(u64::from(slot)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the entry is a write, a sync or a poll. A write's memory is that of a `Buffer` which
            // `self.writes` owns until the write completes, in a region which `self.regions` keeps mapped;
            // `drop` waits for writes. Nobody fills a buffer that the recorder was handed. The others name
            // no memory, and the descriptors live as long as the ring.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue has room for all writes, a sync and a poll; this makes room if it was not handed on.
            if self.uring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }
}

impl Drive for Ring {
    fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }
    fn room(&self) -> usize {
        self.free.len()
    }

    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        let Some(slot) = self.free.pop() else { return Err(buffer) };
        self.writes[slot as usize] = Some(Write { buffer, at, done: 0, len, tag, tries: 0 });
        self.queue(slot);
        Ok(())
    }

    fn sync(&mut self) -> bool {
        if self.syncing {
            return false;
        }
        let entry = opcode::Fsync::new(Fixed(0)).flags(FsyncFlags::DATASYNC).build().user_data(USER_SYNC);
        self.push(entry);
        self.syncing = true;
        true
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.uring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn poll(&mut self, wait: Option<Duration>, tell: &mut dyn FnMut(Done)) -> io::Result<()> {
        if wait.is_some() && !self.wake_armed {
            self.push(opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), POLL_IN).build().user_data(USER_WAKE));
            self.wake_armed = true;
        }
        let waiting = wait.filter(|_| self.uring.completion().is_empty());
        let result = match waiting {
            Some(wait) => {
                let time = Timespec::from(wait);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => self.uring.submit(),
        };
        match result {
            Err(error) if !is_transient(&error) => return Err(error),
            _ => {}
        }
        while let Some(entry) = { self.uring.completion().next() } {
            if let Some(done) = self.complete(entry.user_data(), entry.result()) {
                tell(done);
            }
        }
        for slot in std::mem::take(&mut self.again) {
            self.queue(slot);
        }
        self.submit()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.writing() > 0 {
            if self.poll(Some(Duration::from_secs(1)), &mut |_| ()).is_err() {
                // The kernel may still read these buffers: rather lose them than let them be filled anew.
                std::mem::forget(std::mem::take(&mut self.writes));
                return;
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} of {} writes in flight, fixed: {})", self.writing(), self.writes.len(), self.fixed.is_some())
    }
}

/// Registers every region in pieces of at most `most` bytes; gives the index of each region's first piece.
pub(super) fn register(submitter: &Submitter<'_>, regions: &Regions, most: u64) -> io::Result<Vec<u16>> {
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

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)
    )
}
