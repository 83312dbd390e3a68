//! Small file systems in memory.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use shotline_store::layout;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A tmpfs that is unmounted on drop.
pub struct Drive(tempfile::TempDir);

impl Drive {
    /// Mounts a tmpfs.
    ///
    /// # Errors
    /// If the process lacks the privilege to mount.
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

    /// Deallocates the space of some rows of a recording, then fills the file system.
    pub fn deallocate(&self, file: &Path, rows: std::ops::Range<u64>) {
        let recording = File::options().read(true).write(true).open(file).unwrap();
        let (_, layout) = layout::locate(file, &recording).unwrap();
        let end = if rows.end < layout.rows { layout.slot(rows.end, 0) } else { layout.data_end(layout.rows) };
        let from = layout.slot(rows.start, 0);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&recording, punch, from, end - from).unwrap();
        self.fill();
    }

    /// Allocates all free space to the filler file.
    ///
    /// Repeats until nothing is free, because the next part may be allocated at the same time.
    pub fn fill(&self) {
        let filler = File::create(self.filler()).unwrap();
        loop {
            let free = rustix::fs::fstatvfs(&filler).map(|stat| stat.f_bavail * stat.f_frsize).unwrap();
            let allocated = rustix::fs::fstat(&filler).unwrap().st_size as u64;
            match fallocate(&filler, FallocateFlags::empty(), allocated, free) {
                Ok(()) if free > 0 => (),
                Ok(()) | Err(Errno::INVAL) => return,
                Err(errno) => assert_eq!(errno, Errno::NOSPC),
            }
        }
    }

    /// Returns the path of the filler file.
    pub fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
