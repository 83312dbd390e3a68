//! An io_uring that writes pool buffers by NVMe commands, past file system and block layer (`IORING_OP_URING_CMD`).
//!
//! Each shot is as many commands as the drive's largest transfer makes of it. Memory is as with [`Ring`](super::ring::Ring):
//! the ring owns every buffer of a write until its last command has been reaped, and does not go before.
//!
//! Completions are not polled for (IOPOLL), although the driver can (nvme.poll_queues): Linux 6.1 never ends a polled ring
//! whose program was killed with commands under way, and keeps the device's lock with it; and it polls for no flush.

use super::drive::{Done, Drive, Wake};
use super::nvme::{Command, Namespace, WRITE, status};
use super::ring::{is_transient, register};
use io_uring::cqueue::Entry32;
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use shotline_memory::{Buffer, Regions};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// `NVME_URING_CMD_IO` of linux/nvme_ioctl.h.
const URING_IO: u32 = 0xC048_4E80;
/// Times that a command is tried again that the drive has not refused for good.
const TRIES: u8 = 5;
const USER_WAKE: u64 = u64::MAX;
const USER_SYNC: u64 = u64::MAX - 1;
/// `POLLIN` of poll(2).
const POLL_IN: u32 = 1;
/// Entries of a ring, at most.
const MOST_ENTRIES: u32 = 4096;

type Uring = IoUring<Entry128, Entry32>;

#[derive(Debug)]
struct Write {
    buffer: Buffer,
    at: u64,
    len: u32,
    tag: u64,
    /// Commands that have not completed.
    flying: u32,
    failed: Option<Errno>,
}

/// One command of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The write.
    slot: u16,
    /// Times that the command was tried again.
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

/// Whether it may go well the next time.
fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::AGAIN | Errno::INTR | Errno::BUSY)
}

/// How a namespace is written.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Where offset 0 is on it.
    pub base: u64,
    /// The most bytes of a command, a power of two.
    pub most: u32,
    /// It has a volatile cache, which a sync flushes.
    pub volatile: bool,
}

/// See the module.
pub struct Passthrough {
    uring: Uring,
    regions: Regions,
    /// Where offset 0 is on the namespace.
    base: u64,
    namespace: u32,
    shift: u32,
    /// The most bytes of a command; registered buffers have as many.
    most: u32,
    /// The index of each region's first registered buffer, if they could be registered.
    fixed: Option<Vec<u16>>,
    volatile: bool,
    wake: Arc<Wake>,
    wake_armed: bool,
    syncing: bool,
    /// A sync that nothing has to be done for.
    synced: bool,
    writes: Vec<Option<Write>>,
    free: Vec<u16>,
    /// Commands to try again.
    again: Vec<Piece>,
    /// Times that the present sync was tried again.
    sync_tries: u8,
    sync_again: bool,
}

impl Passthrough {
    /// A ring for `depth` writes. The second value says why buffers are not registered, if so.
    pub fn new(
        depth: u32,
        regions: &Regions,
        namespace: &Namespace,
        way: Way,
    ) -> io::Result<(Self, Option<io::Error>)> {
        // A registered buffer is one command's at most, because kernels before 6.13 count the pages of the whole buffer
        // against the drive's segments.
        let most = way.most;
        let depth = depth.min(MOST_ENTRIES);
        let entries = depth.saturating_mul(4) + 4;
        let uring: Uring = IoUring::builder().dontfork().build(entries.min(MOST_ENTRIES).next_power_of_two())?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring cannot wait with a time-out",
            ));
        }
        // The kernel keeps the file open from here on.
        uring.submitter().register_files(&[namespace.file().as_raw_fd()])?;
        let (fixed, refused) = match register(&uring.submitter(), regions, u64::from(most)) {
            Ok(fixed) => (Some(fixed), None),
            Err(error) => (None, Some(error)),
        };
        let (id, shift) = namespace.shape();
        let ring = Self {
            uring,
            regions: regions.clone(),
            base: way.base,
            namespace: id,
            shift,
            most,
            fixed,
            volatile: way.volatile,
            wake: Arc::new(Wake::new()?),
            wake_armed: false,
            syncing: false,
            synced: false,
            writes: (0..depth).map(|_| None).collect(),
            free: (0..depth as u16).rev().collect(),
            again: Vec::new(),
            sync_tries: 0,
            sync_again: false,
        };
        Ok((ring, refused))
    }

    fn writing(&self) -> usize {
        self.writes.len() - self.free.len()
    }

    /// Bytes of the command that begins at `done` of a write: up to where its registered buffer ends.
    fn piece(&self, write: &Write, done: u32) -> u32 {
        let from = write.buffer.sge(done, write.len - done).offset;
        let room = u64::from(self.most) - from % u64::from(self.most);
        (u64::from(write.len - done)).min(room) as u32
    }

    /// Queues one command of a write; returns its bytes.
    fn queue(&mut self, piece: Piece) -> u32 {
        let done = piece.done;
        let Some(write) = &self.writes[usize::from(piece.slot)] else { return 0 };
        let len = self.piece(write, done);
        let sge = write.buffer.sge(done, len);
        let at = self.base + write.at + u64::from(done);
        let mut command = Command::transfer(WRITE, self.namespace, (at, len), self.shift);
        command.address = self.regions.address(sge) as u64;
        let index = (self.fixed.as_ref())
            .map(|fixed| fixed[usize::from(sge.region.0)] + (sge.offset / u64::from(self.most)) as u16);
        self.pass(&command, index, piece.user());
        len
    }

    fn pass(&mut self, command: &Command, index: Option<u16>, user: u64) {
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(Fixed(0), URING_IO).cmd(bytes).buf_index(index).build();
        self.push(entry.user_data(user));
    }

    fn push(&mut self, entry: Entry128) {
        loop {
            // SAFETY: the entry is a poll, or a command: a flush, which names no memory, or a write, whose memory is that
            // of a `Buffer` which `self.writes` owns until all its commands have completed, in a region which
            // `self.regions` keeps mapped; `drop` waits for them. Nobody fills a buffer that the recorder was handed. The
            // descriptors live as long as the ring.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Makes room.
            if self.uring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn complete(&mut self, user: u64, result: i32) -> Option<Done> {
        match user {
            USER_WAKE => {
                self.wake_armed = false;
                self.wake.clear();
                Some(Done::Woken)
            }
            USER_SYNC => {
                let result = status(result);
                if result.is_err_and(is_passing) && self.sync_tries < TRIES {
                    (self.sync_tries, self.sync_again) = (self.sync_tries + 1, true);
                    return None;
                }
                self.syncing = false;
                Some(Done::Sync(result))
            }
            _ => self.complete_write(Piece::of(user), status(result)),
        }
    }

    fn complete_write(&mut self, piece: Piece, result: Result<(), Errno>) -> Option<Done> {
        let slot = usize::from(piece.slot);
        let write = self.writes[slot].as_mut()?;
        match result {
            Err(errno) if is_passing(errno) && piece.tries < TRIES && write.failed.is_none() => {
                self.again.push(Piece { tries: piece.tries + 1, ..piece });
                return None;
            }
            Err(errno) => write.failed = Some(errno),
            Ok(()) => {}
        }
        write.flying -= 1;
        if write.flying > 0 {
            return None;
        }
        let (tag, result) = (write.tag, write.failed.map_or(Ok(()), Err));
        self.writes[slot] = None;
        self.free.push(piece.slot);
        Some(Done::Write { tag, result })
    }

    /// Hands queued commands on, and asks the kernel for nothing else: what has completed is seen without it, unless the
    /// ring was too short for all completions.
    fn hand_on(&mut self) -> io::Result<usize> {
        let queue = self.uring.submission();
        let idle = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        if idle { Ok(0) } else { self.uring.submit() }
    }

    /// Waits for completions, at most so long.
    fn wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let waiting = wait.filter(|_| self.uring.completion().is_empty() && !self.synced);
        let result = match waiting {
            Some(wait) => {
                let time = Timespec::from(wait);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => self.hand_on(),
        };
        match result {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drive for Passthrough {
    fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }
    fn room(&self) -> usize {
        self.free.len()
    }

    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer> {
        let Some(slot) = self.free.pop() else { return Err(buffer) };
        let mut write = Write { buffer, at, len, tag, flying: 0, failed: None };
        let mut done = 0;
        while done < len {
            done += self.piece(&write, done);
            write.flying += 1;
        }
        self.writes[usize::from(slot)] = Some(write);
        let mut done = 0;
        while done < len {
            done += self.queue(Piece { slot, tries: 0, done });
        }
        Ok(())
    }

    fn sync(&mut self) -> bool {
        if self.syncing || self.synced {
            return false;
        }
        if self.volatile {
            self.pass(&Command::flush(self.namespace), None, USER_SYNC);
            (self.syncing, self.sync_tries) = (true, 0);
        } else {
            self.synced = true;
        }
        true
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.hand_on() {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn poll(&mut self, wait: Option<Duration>, tell: &mut dyn FnMut(Done)) -> io::Result<()> {
        if wait.is_some() && !self.wake_armed {
            let armed = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), POLL_IN).build().user_data(USER_WAKE);
            self.push(armed.into());
            self.wake_armed = true;
        }
        self.wait(wait)?;
        if std::mem::take(&mut self.synced) {
            tell(Done::Sync(Ok(())));
        }
        while let Some(entry) = { self.uring.completion().next() } {
            if let Some(done) = self.complete(entry.user_data(), entry.result()) {
                tell(done);
            }
        }
        for piece in std::mem::take(&mut self.again) {
            self.queue(piece);
        }
        if std::mem::take(&mut self.sync_again) {
            self.pass(&Command::flush(self.namespace), None, USER_SYNC);
        }
        self.submit()
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        while self.writing() > 0 {
            if self.poll(Some(Duration::from_secs(1)), &mut |_| ()).is_err() {
                // The drive may still read these buffers: rather lose them than let them be filled anew.
                std::mem::forget(std::mem::take(&mut self.writes));
                return;
            }
        }
    }
}

impl std::fmt::Debug for Passthrough {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passthrough({} writes in flight, fixed: {})", self.writing(), self.fixed.is_some())
    }
}
