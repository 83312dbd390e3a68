//! How a recording gets its device, its extent and its name there.

use super::device::{Access, Device, UNIT};
use super::directory::{Directory, Entry, Found, check_name};
use super::extent::Extent;
use super::signature;
use super::target::Target;
use crate::{StoreError, lock};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// What of a device may go for a new run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim<'a> {
    /// A run of the same name.
    pub overwrite: bool,
    /// With `overwrite`: at once, so that the new run is laid out in its blocks.
    pub recycle: bool,
    /// What others have on the device of this serial number.
    pub serial: Option<&'a str>,
}

/// What a run needs of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Rows of shots.
    pub rows: u64,
    /// Bytes in front of the data, which libhdf5 reads.
    pub head: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// A run that is being laid out. The directory does not know it until [`Birth::end`]: if it is dropped before, nothing has
/// happened.
#[derive(Debug)]
pub(crate) struct Birth {
    target: Target,
    device: Arc<Device>,
    directory: Directory,
    name: String,
    /// What others have on the device goes as soon as there is room for the run.
    given_up: bool,
    entry: Option<Entry>,
}

impl Birth {
    /// Refuses a device that is not ours to write.
    pub(crate) fn begin(target: Target, how: Claim<'_>) -> Result<Self, StoreError> {
        let mut given_up = false;
        let (device, found) = claimed(&target, how.overwrite, how.serial)?;
        let mut directory = match found {
            Claimed::Ours(directory) => directory,
            Claimed::Free => Directory::new(&device),
            Claimed::GivenUp => {
                given_up = true;
                Directory::new(&device)
            }
        };
        let name = target.run.clone().unwrap_or_else(|| directory.next_name());
        if how.overwrite && how.recycle && directory.runs.iter().any(|run| run.name == name) {
            directory.runs.retain(|run| run.name != name);
            directory.write(&device)?;
        }
        Ok(Self { target, device: Arc::new(device), directory, name, given_up, entry: None })
    }

    /// The path by which it will be found.
    pub(crate) fn path(&self) -> PathBuf {
        self.target.path_of(&self.name)
    }

    /// Finds room.
    pub(crate) fn allocate(&mut self, run_id: &str, room: Room) -> Result<Extent, StoreError> {
        let needed = (room.bytes + UNIT).next_multiple_of(UNIT);
        let at = self.directory.place(&self.device, needed).ok_or_else(|| StoreError::DeviceFull {
            path: self.target.written.clone(),
            rows: room.rows,
            needed,
            free: self.directory.largest_gap(&self.device),
        })?;
        if self.given_up {
            wipe(&self.device).map_err(StoreError::io("clear", &self.device.path))?;
        }
        let entry = Entry { name: self.name.clone(), run_id: run_id.to_owned(), at, bytes: needed, head: room.head };
        let extent = Extent::of(Arc::clone(&self.device), &entry);
        self.entry = Some(entry);
        Ok(extent)
    }

    /// Makes the run durable, then enters it; one of the same name that it replaces goes at that moment.
    pub(crate) fn end(mut self) -> Result<(), StoreError> {
        self.device.flush().map_err(StoreError::io("flush", &self.device.path))?;
        self.directory.runs.retain(|run| run.name != self.name);
        self.directory.runs.extend(self.entry.take());
        self.directory.write(&self.device)?;
        lock::share(self.device.handle(), &self.target.written)
    }
}

/// Opens a device for a recording, and keeps other writers out. What is there must be ours, or nothing, or be given up by
/// `overwrite` and the drive's serial number.
pub(super) fn claimed(target: &Target, overwrite: bool, serial: Option<&str>) -> Result<(Device, Claimed), StoreError> {
    let device = Device::open(target, Access::Write)?;
    lock::claim(device.handle(), &target.written)?;
    let own = device.identity.serial.as_str();
    if let Some(typed) = serial.filter(|typed| *typed != own) {
        let (path, found) = (target.written.clone(), own.to_owned());
        return Err(StoreError::Serial { path, typed: typed.to_owned(), found });
    }
    let foreign = match Directory::find(&device)? {
        Found::Ours(directory) => {
            let exists = |name: &str| directory.runs.iter().any(|run| run.name == name);
            if let Some(name) = &target.run {
                check_name(target, name)?;
                if exists(name) && !overwrite {
                    return Err(StoreError::Exists { path: target.path() });
                }
            }
            return Ok((device, Claimed::Ours(directory)));
        }
        Found::Other(found) => Some(found),
        Found::Nothing => signature::find(&device).map_err(StoreError::io("read", &device.path))?,
    };
    if let Some(name) = &target.run {
        check_name(target, name)?;
    }
    match foreign {
        None => Ok((device, Claimed::Free)),
        Some(_) if overwrite && serial.is_some() => Ok((device, Claimed::GivenUp)),
        Some(found) => {
            let serial = own.to_owned();
            Err(StoreError::Foreign { path: target.written.clone(), found, serial })
        }
    }
}

/// What a device holds that may be written.
#[derive(Debug)]
pub(super) enum Claimed {
    /// Recordings of ours.
    Ours(Directory),
    /// Nothing.
    Free,
    /// What its owner gives up.
    GivenUp,
}

/// Takes away what others would find: their signatures, and the copies of them at the end.
fn wipe(device: &Device) -> Result<(), Errno> {
    let zeros = vec![0; UNIT as usize];
    device.write(device.identity.bytes - UNIT, &zeros)?;
    device.write(0, &zeros)?;
    device.flush()
}
