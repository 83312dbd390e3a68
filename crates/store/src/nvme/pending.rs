//! Creation of a recording on a device: its extent and its directory entry.

use super::device::{Access, Device, EXTENT_ALIGN};
use super::directory::{Directory, Entry, Lookup, check_name};
use super::extent::Extent;
use super::signature;
use super::target::Target;
use crate::{StoreError, lock};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// What a new run may replace on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplacePolicy<'a> {
    /// Replace a run of the same name.
    pub overwrite: bool,
    /// With `overwrite`: remove it at once, so that the new run reuses its blocks.
    pub recycle: bool,
    /// Replace foreign data on the device with this serial number.
    pub serial: Option<&'a str>,
}

/// Space that a run needs on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceRequest {
    /// Rows of shots.
    pub rows: u64,
    /// Bytes before the data, which libhdf5 reads.
    pub head: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

/// A run that is being allocated. It is entered in the directory by [`PendingRun::end`]; if dropped before, the device
/// is unchanged.
#[derive(Debug)]
pub(crate) struct PendingRun {
    target: Target,
    device: Arc<Device>,
    directory: Directory,
    name: String,
    /// Foreign data on the device is erased once the space for the run is found.
    discard_foreign: bool,
    entry: Option<Entry>,
}

impl PendingRun {
    /// Opens the device and checks that the run may be written.
    pub(crate) fn begin(target: Target, policy: ReplacePolicy<'_>) -> Result<Self, StoreError> {
        let mut discard_foreign = false;
        let (device, found) = claim(&target, policy.overwrite, policy.serial)?;
        let mut directory = match found {
            DeviceContents::Ours(directory) => directory,
            DeviceContents::Free => Directory::new(&device),
            DeviceContents::Discard => {
                discard_foreign = true;
                Directory::new(&device)
            }
        };
        let name = target.run.clone().unwrap_or_else(|| directory.next_name());
        if policy.overwrite && policy.recycle && directory.runs.iter().any(|run| run.name == name) {
            directory.runs.retain(|run| run.name != name);
            directory.write(&device)?;
        }
        Ok(Self { target, device: Arc::new(device), directory, name, discard_foreign, entry: None })
    }

    /// Returns the final path.
    pub(crate) fn path(&self) -> PathBuf {
        self.target.path_of(&self.name)
    }

    /// Allocates an extent.
    pub(crate) fn allocate(&mut self, run_id: &str, request: SpaceRequest) -> Result<Extent, StoreError> {
        let needed = (request.bytes + EXTENT_ALIGN).next_multiple_of(EXTENT_ALIGN);
        let at = self.directory.find_free(&self.device, needed).ok_or_else(|| StoreError::DeviceFull {
            path: self.target.given.clone(),
            rows: request.rows,
            needed,
            free: self.directory.largest_gap(&self.device),
        })?;
        if self.discard_foreign {
            wipe(&self.device).map_err(StoreError::io("clear", &self.device.path))?;
        }
        let entry = Entry { name: self.name.clone(), run_id: run_id.to_owned(), at, bytes: needed, head: request.head };
        let extent = Extent::of(Arc::clone(&self.device), &entry);
        self.entry = Some(entry);
        Ok(extent)
    }

    /// Makes the run durable, then enters it in the directory, which replaces one of the same name atomically.
    pub(crate) fn end(mut self) -> Result<(), StoreError> {
        self.device.flush().map_err(StoreError::io("flush", &self.device.path))?;
        self.directory.runs.retain(|run| run.name != self.name);
        self.directory.runs.extend(self.entry.take());
        self.directory.write(&self.device)?;
        lock::share(self.device.handle(), &self.target.given)
    }
}

/// Opens a device for a recording with an exclusive lock. It must hold recordings or nothing, unless `overwrite` and
/// the drive's serial number are given.
pub(super) fn claim(
    target: &Target,
    overwrite: bool,
    serial: Option<&str>,
) -> Result<(Device, DeviceContents), StoreError> {
    let device = Device::open(target, Access::Write)?;
    lock::claim(device.handle(), &target.given)?;
    let own = device.identity.serial.as_str();
    if let Some(typed) = serial.filter(|typed| *typed != own) {
        let (path, found) = (target.given.clone(), own.to_owned());
        return Err(StoreError::Serial { path, typed: typed.to_owned(), found });
    }
    let foreign = match Directory::find(&device)? {
        Lookup::Ours(directory) => {
            let exists = |name: &str| directory.runs.iter().any(|run| run.name == name);
            if let Some(name) = &target.run {
                check_name(target, name)?;
                if exists(name) && !overwrite {
                    return Err(StoreError::Exists { path: target.path() });
                }
            }
            return Ok((device, DeviceContents::Ours(directory)));
        }
        Lookup::Other(found) => Some(found),
        Lookup::Nothing => signature::find(&device).map_err(StoreError::io("read", &device.path))?,
    };
    if let Some(name) = &target.run {
        check_name(target, name)?;
    }
    match foreign {
        None => Ok((device, DeviceContents::Free)),
        Some(_) if overwrite && serial.is_some() => Ok((device, DeviceContents::Discard)),
        Some(found) => {
            let serial = own.to_owned();
            Err(StoreError::ForeignData { path: target.given.clone(), found, serial })
        }
    }
}

/// Contents of a device that may be written.
#[derive(Debug)]
pub(super) enum DeviceContents {
    /// Recordings.
    Ours(Directory),
    /// Nothing.
    Free,
    /// Foreign data that the user discards.
    Discard,
}

/// Erases foreign signatures at the start and end of a device.
fn wipe(device: &Device) -> Result<(), Errno> {
    let zeros = vec![0; EXTENT_ALIGN as usize];
    device.write(device.identity.bytes - EXTENT_ALIGN, &zeros)?;
    device.write(0, &zeros)?;
    device.flush()
}
