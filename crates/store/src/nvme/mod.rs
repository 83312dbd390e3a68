//! Recordings on raw devices, without a file system.
//!
//! A device has a small directory at its start, followed by extents. Each extent has the contents of the recording's
//! file, byte for byte: layout, commits, recovery and verification work as for files, and an export to HDF5 is a copy.
//!
//! ```text
//! 0 ┌───────────┐ the directory, one copy
//!   ├───────────┤ 512 KiB: the other; they are written in turn
//!   ├───────────┤ 1 MiB: extents, each at a multiple of 1 MiB
//!   │ run-1     │
//!   ├───────────┤
//!   │ run-2     │
//!   └───────────┘
//! ```
//!
//! A target has the form `nvme:DEVICE` or `nvme:DEVICE/NAME`, where `DEVICE` is the character device of a namespace
//! (`/dev/ng0n1`), its block device or a partition (`/dev/nvme0n1p3`); it is accessed by NVMe passthrough commands.
//! `block:DEVICE` uses `O_DIRECT` on any block device. It also accepts a plain file, without `O_DIRECT`, for tests.

mod device;
mod directory;
mod extent;
mod pending;
mod signature;
mod target;

pub(crate) use device::Access;
use device::Device;
pub use directory::{Entry, Listing};
pub use extent::Extent;
pub(crate) use pending::{PendingRun, ReplacePolicy, SpaceRequest};
pub use target::Target;

use crate::{StoreError, lock};
use directory::Directory;
use std::path::Path;
use std::sync::Arc;

/// Opens a run; without a name the one that was started last.
pub(crate) fn open(target: &Target, access: Access) -> Result<Extent, StoreError> {
    let device = Arc::new(Device::open(target, access)?);
    if access == Access::Write {
        // The directory is read under the lock, because the previous holder may have changed it.
        lock::claim(device.handle(), &target.path())?;
    }
    let directory = Directory::of(&device)?;
    let found = match &target.run {
        Some(name) => directory.runs.iter().find(|entry| entry.name == *name),
        None => directory.runs.last(),
    };
    let entry = found.ok_or_else(|| {
        let names: Vec<_> = directory.runs.iter().map(|entry| entry.name.as_str()).collect();
        let found = if names.is_empty() { "none".into() } else { names.join(", ") };
        StoreError::format(
            &target.given,
            format!("expected a run {}, found {found}", target.run.as_deref().unwrap_or("of any name")),
        )
    })?;
    Ok(Extent::of(device, entry))
}

/// Lists the contents of a device.
///
/// # Errors
/// Fails if the device cannot be opened, or with [`StoreError::Format`] if it has no directory of recordings.
pub fn list(target: &Target) -> Result<Listing, StoreError> {
    let device = Device::open(target, Access::Read)?;
    Ok(Directory::of(&device)?.listing(&device, &target.given))
}

/// Returns a warning about the device of a recording, if it has one; `None` for a file.
pub fn warning(path: &Path) -> Option<String> {
    let target = Target::of(path)?;
    let device = Device::open(&target, Access::Read).ok()?;
    Directory::of(&device).ok()?.warning(&target.given)
}

/// Checks that a device can take a recording.
pub(crate) fn check(target: &Target, overwrite: bool, serial: Option<&str>) -> Result<(), StoreError> {
    pending::claim(target, overwrite, serial).map(drop)
}

/// Returns the size of the largest free extent of a device, in bytes; 0 if it cannot be opened.
pub fn free_bytes(target: &Target) -> u64 {
    let Ok(device) = Device::open(target, Access::Read) else { return 0 };
    Directory::of(&device).unwrap_or_else(|_| Directory::new(&device)).largest_gap(&device)
}
