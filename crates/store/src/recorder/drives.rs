//! Selection of the drive that writes shots: mapped memory, NVMe commands, or io_uring.

use crate::StoreError;
use crate::layout::{self, Opened};
use crate::medium::Medium;
use crate::sys::drive::Drive;
use crate::sys::mapped::Mapped;
use crate::sys::ring::{FileTarget, Ring};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shotline_memory::Regions;
use std::fs::File;
use std::path::Path;

/// Maps a fully allocated file on tmpfs: the kernel's write path would be slower than a copy.
pub(super) fn mapped(opened: &Opened, allocated: bool, regions: &Regions) -> Option<Mapped> {
    let Medium::File(file) = &opened.file else { return None };
    (layout::is_in_memory(file) && allocated).then(|| Mapped::new(file, opened.layout.end, regions).ok())?
}

/// Sets up an io_uring for a file or device.
pub(super) fn drive(
    opened: &Opened,
    direct: bool,
    depth: u32,
    regions: &Regions,
    warnings: &mut Vec<String>,
) -> Result<Box<dyn Drive>, StoreError> {
    let path = &opened.path;
    let (drive, register_error): (Box<dyn Drive>, _) = match &opened.file {
        Medium::Extent(extent) => extent.drive(depth, regions).map_err(|source| StoreError::Ring { source })?,
        Medium::File(file) => {
            let file = same_file(file, path, direct, warnings)?;
            let (ring, register_error) =
                Ring::new(depth, regions, (&file, FileTarget), 0).map_err(|source| StoreError::Ring { source })?;
            (Box::new(ring), register_error)
        }
    };
    if let Some(error) = register_error {
        let bytes: usize = regions.iter().map(|(_, region)| region.len()).sum();
        warnings.push(format!(
            "cannot register {bytes} bytes of shot buffers with io_uring ({error}): every write pins its pages again; raise the locked-memory limit (ulimit -l) above that, or use a smaller pool"
        ));
    }
    Ok(drive)
}

/// Opens a file again, with direct I/O where available.
fn same_file(file: &File, path: &Path, direct: bool, warnings: &mut Vec<String>) -> Result<File, StoreError> {
    // Opened by descriptor, because the name may belong to another file by now.
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let open = |flags| rustix::fs::open(&same, OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty());
    let file = match if direct { open(OFlags::DIRECT) } else { open(OFlags::empty()) } {
        Err(Errno::INVAL) => {
            warnings.push(format!(
                "the file system of {} has no direct I/O: writing through the page cache, at a fraction of the speed",
                path.display()
            ));
            open(OFlags::empty())
        }
        other => other,
    }
    .map_err(StoreError::io("open", path))?;
    Ok(file.into())
}
