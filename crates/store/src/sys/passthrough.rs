//! NVMe commands as what a [`Ring`](super::ring::Ring) writes by, past file system and block layer
//! (`IORING_OP_URING_CMD`). Each shot is as many commands as the drive's largest transfer makes of it.
//!
//! Completions are not polled for (IOPOLL), although the driver can (nvme.poll_queues): Linux 6.1 never ends a polled ring
//! whose program was killed with commands under way, and keeps the device's lock with it; and it polls for no flush.

use super::nvme::{Command, Namespace, WRITE, status};
use super::ring::{End, FILE, Request, Target};
use io_uring::cqueue::Entry32;
use io_uring::opcode;
use io_uring::squeue::Entry128;
use rustix::io::Errno;

/// `NVME_URING_CMD_IO` of linux/nvme_ioctl.h.
const URING_IO: u32 = 0xC048_4E80;

/// See the module.
#[derive(Debug)]
pub struct Commands {
    namespace: u32,
    /// The power of two that a block is.
    shift: u32,
    most: u32,
    volatile: bool,
}

impl Commands {
    /// Of at most `most` bytes, a power of two. A sync flushes a drive that has a volatile cache.
    pub fn new(namespace: &Namespace, most: u32, volatile: bool) -> Self {
        let (namespace, shift) = namespace.shape();
        Self { namespace, shift, most, volatile }
    }
}

fn entry(command: &Command, buffer: Option<u16>) -> Entry128 {
    let mut bytes = [0; 80];
    bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
    opcode::UringCmd80::new(FILE, URING_IO).cmd(bytes).buf_index(buffer).build()
}

impl Target for Commands {
    type Entry = Entry128;
    type Completion = Entry32;
    const TRIES: u8 = 5;
    const REQUESTS: u32 = 4;

    /// A registered buffer is one command's at most, because kernels before 6.13 count the pages of the whole buffer
    /// against the drive's segments.
    fn most(&self) -> u32 {
        self.most
    }
    fn write(&self, request: &Request) -> Entry128 {
        let mut command = Command::transfer(WRITE, self.namespace, (request.at, request.len), self.shift);
        command.address = request.address as u64;
        entry(&command, request.buffer)
    }
    fn sync(&self) -> Option<Entry128> {
        self.volatile.then(|| entry(&Command::flush(self.namespace), None))
    }
    fn ended(&self, result: i32, len: u32) -> End {
        match status(result) {
            Ok(()) => End::Written(len),
            Err(errno @ (Errno::IO | Errno::AGAIN | Errno::INTR | Errno::BUSY)) => End::Passing(errno),
            Err(errno) => End::Failed(errno),
        }
    }
}
