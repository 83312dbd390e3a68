//! Whether anybody else has a file open.

use std::fs::File;
use std::os::fd::AsRawFd;

/// `F_SETSIG` of fcntl(2), the same on every architecture; the bindings lack it.
const F_SETSIG: libc::c_int = 10;

/// Whether this descriptor is the only one of its file, in any process, and nothing but it is mapped: the kernel grants a
/// write lease only then. A lock could not tell: readers need not take one, and a mapping keeps none. False where the
/// file system grants no leases.
pub fn is_alone(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // Whoever opens the file between these calls waits for the last one, and the kernel tells us by a signal: SIGIO, which
    // would end the program, unless another one is chosen.
    // SAFETY: these calls take numbers only and touch no memory of ours; the descriptor is open.
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
    fn a_file_is_alone_until_somebody_opens_or_maps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, [1; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(is_alone(&file) && is_alone(&file.try_clone().unwrap()));
        let reader = File::open(&path).unwrap();
        assert!(!is_alone(&file), "a reader without any lock");
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let mapping = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &reader, 0).unwrap()
        };
        drop(reader);
        assert!(!is_alone(&file), "a mapping whose descriptor is closed");
        // SAFETY: the mapping is ours, and nobody has an address in it.
        unsafe { rustix::mm::munmap(mapping, 4096).unwrap() };
        // A child process that another test has just started may hold the descriptor until it runs its own program.
        shotline_testing::wait_until("nobody has it any more", || is_alone(&file));
    }
}
