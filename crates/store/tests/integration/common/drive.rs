//! Drives of a few mebibytes, in memory.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use shotline_store::layout;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file system of its own, which goes with this.
pub struct Drive(tempfile::TempDir);

impl Drive {
    /// An error is the right that is missing.
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .map_err(|errno| format!("cannot mount a small tmpfs ({errno}); run as root"))?;
        Ok(Self(directory))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes the space of some rows away from a recording that is laid out, and all that is left.
    pub fn steal(&self, file: &Path, rows: std::ops::Range<u64>) {
        let recording = File::options().read(true).write(true).open(file).unwrap();
        let (_, layout) = layout::locate(file, &recording).unwrap();
        let end = if rows.end < layout.rows { layout.slot(rows.end, 0) } else { layout.data_end(layout.rows) };
        let from = layout.slot(rows.start, 0);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&recording, punch, from, end - from).unwrap();
        self.fill();
    }

    /// Takes all space that is left.
    ///
    /// The next part may be laid out at the same time: what is free is asked for again until nothing is.
    pub fn fill(&self) {
        let thief = File::create(self.thief()).unwrap();
        loop {
            let free = rustix::fs::fstatvfs(&thief).map(|stat| stat.f_bavail * stat.f_frsize).unwrap();
            let taken = rustix::fs::fstat(&thief).unwrap().st_size as u64;
            match fallocate(&thief, FallocateFlags::empty(), taken, free) {
                Ok(()) if free > 0 => (),
                Ok(()) | Err(Errno::INVAL) => return,
                Err(errno) => assert_eq!(errno, Errno::NOSPC),
            }
        }
    }

    /// The file that has the space that was taken.
    pub fn thief(&self) -> PathBuf {
        self.path().join("thief")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
