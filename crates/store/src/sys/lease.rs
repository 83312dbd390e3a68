//! Check whether a file is open elsewhere.

use std::fs::File;
use std::os::fd::AsRawFd;

/// `F_SETSIG` of fcntl(2), the same on every architecture; the bindings lack it.
const F_SETSIG: libc::c_int = 10;

/// Returns `true` if this descriptor is the only open one of its file in any process, and no mapping exists: the kernel
/// grants a write lease only then. A lock cannot show this: readers need not take one, and a mapping holds none.
/// Returns `false` if the file system does not support leases.
pub fn is_alone(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // A process that opens the file between these calls blocks until the last one, and the kernel signals the holder:
    // with SIGIO, which would terminate the program, unless another signal is chosen. SAFETY: these calls take only
    // numbers and access no memory; the descriptor is open.
    let granted = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0 && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
    };
    // SAFETY: as above.
    granted && unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags};

    #[test]
    fn file_is_alone_until_opened_or_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, [1; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(is_alone(&file) && is_alone(&file.try_clone().unwrap()));
        let reader = File::open(&path).unwrap();
        assert!(!is_alone(&file), "a reader without any lock");
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let mapping = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &reader, 0).unwrap()
        };
        drop(reader);
        assert!(!is_alone(&file), "a mapping whose descriptor is closed");
        // SAFETY: the mapping is owned by the test, and no address in it is used.
        unsafe { rustix::mm::munmap(mapping, 4096).unwrap() };
        // A child process that another test has just forked may hold the descriptor until it execs.
        shotline_testing::wait_until("no other process has it open", || is_alone(&file));
    }
}
