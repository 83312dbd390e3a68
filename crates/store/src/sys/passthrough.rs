//! NVMe passthrough commands as the target of a [`Ring`](super::ring::Ring) (`IORING_OP_URING_CMD`), which bypasses
//! file system and block layer. A shot is split into commands of the drive's maximum transfer size.
//!
//! IOPOLL is not used, although the driver supports it (nvme.poll_queues): Linux 6.1 never tears down a polled ring
//! whose process was killed with commands in flight, and keeps the lock on the device; and it does not poll for
//! flushes.

use super::nvme::{Command, Namespace, WRITE, status};
use super::ring::{FILE, Request, RequestResult, Target};
use io_uring::cqueue::Entry32;
use io_uring::opcode;
use io_uring::squeue::Entry128;
use rustix::io::Errno;

/// `NVME_URING_CMD_IO` of linux/nvme_ioctl.h.
const URING_IO: u32 = 0xC048_4E80;

/// NVMe passthrough as a target. See the module.
#[derive(Debug)]
pub struct Commands {
    namespace: u32,
    /// Base-2 logarithm of the block size.
    shift: u32,
    max_transfer: u32,
    volatile: bool,
}

impl Commands {
    /// Creates a target with commands of at most `max_transfer` bytes, a power of two. A sync flushes a `volatile`
    /// cache.
    pub fn new(namespace: &Namespace, max_transfer: u32, volatile: bool) -> Self {
        let (namespace, shift) = namespace.shape();
        Self { namespace, shift, max_transfer, volatile }
    }
}

fn entry(command: &Command, buffer: Option<u16>) -> Entry128 {
    let mut bytes = [0; 80];
    bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
    opcode::UringCmd80::new(FILE, URING_IO).cmd(bytes).buf_index(buffer).build()
}

impl Target for Commands {
    type SubmissionEntry = Entry128;
    type CompletionEntry = Entry32;
    const MAX_RETRIES: u8 = 5;
    const TYPICAL_REQUESTS: u32 = 4;

    /// A registered buffer is no longer than one command, because kernels before 6.13 count the pages of the whole
    /// buffer against the segment limit of the drive.
    fn max_request_bytes(&self) -> u32 {
        self.max_transfer
    }
    fn write(&self, request: &Request) -> Entry128 {
        let mut command = Command::transfer(WRITE, self.namespace, (request.at, request.len), self.shift);
        command.address = request.address as u64;
        entry(&command, request.buffer)
    }
    fn sync(&self) -> Option<Entry128> {
        self.volatile.then(|| entry(&Command::flush(self.namespace), None))
    }
    fn on_completion(&self, result: i32, len: u32) -> RequestResult {
        match status(result) {
            Ok(()) => RequestResult::Written(len),
            Err(errno @ (Errno::IO | Errno::AGAIN | Errno::INTR | Errno::BUSY)) => RequestResult::Transient(errno),
            Err(errno) => RequestResult::Failed(errno),
        }
    }
}
