//! Directory at the start of a device.
//!
//! It is JSON after a header of 32 bytes: magic, version, length, sequence number, CRC-32C over everything but itself.
//! There are two copies; a change is written to the older one and flushed, so that a power cut leaves the state before
//! or after it.

use super::device::{Device, EXTENT_ALIGN};
use super::signature;
use super::target::Target;
use crate::StoreError;
use crate::sys::nvme::Identity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Offsets of the two copies, in bytes.
const COPIES: [u64; 2] = [0, 512 << 10];
/// Bytes reserved for a copy.
const COPY_BYTES: u64 = 512 << 10;
/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Magic number of a copy.
pub(super) const MAGIC: &[u8; 8] = b"SHOTLINE";
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER_BYTES: usize = 32;
/// Maximum number of bytes before a run's data, far more than names, types and attributes need.
const MAX_HEAD_BYTES: u64 = 1 << 28;
/// Offset of the CRC in the header.
const CRC_OFFSET: usize = 24;

/// Directory entry of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name on the device.
    pub name: String,
    /// Run id, as in the attributes of the recording.
    pub run_id: String,
    /// Device offset in bytes.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes before the data: names, types and attributes.
    pub head: u64,
}

/// Contents of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Path of the device.
    pub device: PathBuf,
    /// Serial number; the device name if it has none.
    pub serial: String,
    /// Model name.
    pub model: String,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Size of the largest free extent in bytes.
    pub largest_free_bytes: u64,
    /// Maximum size of a command's data in bytes.
    pub command_bytes: u32,
    /// The device has a volatile write cache, so flushes are needed.
    pub volatile_cache: bool,
    /// Runs, in the order in which they were started.
    pub runs: Vec<Entry>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Directory of a device. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Directory {
    uuid: String,
    serial: String,
    block: u32,
    bytes: u64,
    pub runs: Vec<Entry>,
    #[serde(skip)]
    sequence: u64,
    /// The other copy is damaged.
    #[serde(skip)]
    pub single_copy: bool,
}

/// Result of looking for a directory.
pub(super) enum Lookup {
    /// A valid directory of this device.
    Ours(Directory),
    /// Description of a directory that is damaged, of another version, or of another device.
    Other(String),
    /// No directory.
    Nothing,
}

impl Directory {
    /// Creates an empty directory, which is not written yet.
    pub(super) fn new(device: &Device) -> Self {
        let Identity { serial, block, bytes, .. } = device.identity.clone();
        Self {
            uuid: uuid::Uuid::new_v4().to_string(),
            serial,
            block,
            bytes,
            runs: Vec::new(),
            sequence: 0,
            single_copy: false,
        }
    }

    /// Reads the directory of a device.
    pub(super) fn find(device: &Device) -> Result<Lookup, StoreError> {
        let mut damaged = None;
        let (mut newest, mut valid_copies): (Option<Self>, _) = (None, 0);
        let mut edge = vec![0; EXTENT_ALIGN as usize];
        device.read(0, &mut edge).map_err(StoreError::io("read", &device.path))?;
        let mut own_text = Vec::new();
        for at in COPIES {
            let bytes = &edge[at as usize..][..COPY_BYTES as usize];
            let parsed = parse(bytes);
            own_text.push((at as usize, if matches!(parsed, Ok(Some(_))) { text_end(bytes) } else { 0 }));
            valid_copies += usize::from(matches!(parsed, Ok(Some(_))));
            match parsed {
                Ok(Some(copy)) if newest.as_ref().is_none_or(|newest| newest.sequence < copy.sequence) => {
                    newest = Some(copy);
                }
                Ok(_) => {}
                // This version cannot tell which copy of a later version is valid.
                Err(InvalidCopy::Version(found)) => return Ok(Lookup::Other(found)),
                Err(InvalidCopy::Damaged(found)) => damaged = Some(found),
            }
        }
        let Identity { serial, block, bytes, .. } = &device.identity;
        // Formatting the drive for another use may leave a copy intact.
        let torn = damaged.is_some();
        own_text.iter().for_each(|(at, len)| edge[*at..at + len].fill(0));
        let foreign = match &newest {
            Some(_) => signature::find_foreign(device, &edge, torn).map_err(StoreError::io("read", &device.path))?,
            None => None,
        };
        if let Some(foreign) = foreign {
            return Ok(Lookup::Other(format!("{foreign}, written over a Shotline directory")));
        }
        Ok(match (newest, damaged) {
            (Some(directory), _)
                if (&directory.serial, directory.block, directory.bytes) == (serial, *block, *bytes) =>
            {
                match directory.first_invalid() {
                    // Before its first change there is one copy.
                    None => Lookup::Ours(Self {
                        single_copy: valid_copies < COPIES.len() && directory.sequence > 1,
                        ..directory
                    }),
                    Some(wrong) => Lookup::Other(format!("a Shotline directory in which {wrong}")),
                }
            }
            (Some(directory), _) => Lookup::Other(format!(
                "a Shotline directory for the drive {} of {} bytes in blocks of {}",
                directory.serial, directory.bytes, directory.block
            )),
            (None, Some(damaged)) => Lookup::Other(damaged),
            (None, None) => Lookup::Nothing,
        })
    }

    /// Describes the first invalid entry, `None` if all are valid.
    fn first_invalid(&self) -> Option<String> {
        let mut runs: Vec<&Entry> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.at);
        let mut free = EXTENT_ALIGN;
        for run in runs {
            let end = run.at.checked_add(run.bytes).filter(|end| *end <= self.bytes);
            let inside =
                run.at >= free && run.at.is_multiple_of(EXTENT_ALIGN) && run.head <= run.bytes.min(MAX_HEAD_BYTES);
            let Some(end) = end.filter(|_| inside && is_name(&run.name)) else {
                return Some(format!("the run {:?} has {} bytes from {}", run.name, run.bytes, run.at));
            };
            free = end;
        }
        None
    }

    /// Reads the directory of a device. Fails if there is none.
    pub(super) fn of(device: &Device) -> Result<Self, StoreError> {
        let found = match Self::find(device)? {
            Lookup::Ours(directory) => return Ok(directory),
            Lookup::Other(found) => found,
            Lookup::Nothing => "none".into(),
        };
        Err(StoreError::format(&device.path, format!("expected a directory of recordings at its start, found {found}")))
    }

    /// Writes the directory over the older copy.
    pub(super) fn write(&mut self, device: &Device) -> Result<(), StoreError> {
        self.sequence = self.sequence.wrapping_add(1);
        let text = serde_json::to_vec(self).map_err(|error| StoreError::format(&device.path, error.to_string()))?;
        if (HEADER_BYTES + text.len()) as u64 > COPY_BYTES {
            return Err(StoreError::Run(format!("{} has no space for more directory entries", device.path.display())));
        }
        let mut bytes = Vec::with_capacity((HEADER_BYTES + text.len()).next_multiple_of(4096));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(&text);
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        // Zero-padded to the end, so that any other non-zero byte there is foreign data.
        bytes.resize(COPY_BYTES as usize, 0);
        let at = COPIES[(self.sequence % 2) as usize];
        let written = device.flush().and_then(|()| device.write(at, &bytes)).and_then(|()| device.flush());
        written.map_err(StoreError::io("write the directory of", &device.path))
    }

    /// Returns the free extents (offset, length), each aligned to [`EXTENT_ALIGN`].
    fn gaps(&self, device: &Device) -> Vec<(u64, u64)> {
        let mut taken: Vec<(u64, u64)> =
            self.runs.iter().map(|run| (run.at, run.at.saturating_add(run.bytes))).collect();
        taken.push((device.identity.bytes, u64::MAX));
        taken.sort_unstable();
        let (mut gaps, mut free) = (Vec::new(), EXTENT_ALIGN);
        for (at, end) in taken {
            if at > free {
                gaps.push((free, at - free));
            }
            free = free.max(end.checked_next_multiple_of(EXTENT_ALIGN).unwrap_or(u64::MAX));
        }
        gaps
    }
    /// Returns the offset of the first free extent of at least `bytes` bytes.
    pub(super) fn find_free(&self, device: &Device, bytes: u64) -> Option<u64> {
        self.gaps(device).into_iter().find(|(_, len)| *len >= bytes).map(|(at, _)| at)
    }
    pub(super) fn largest_gap(&self, device: &Device) -> u64 {
        self.gaps(device).into_iter().map(|(_, len)| len).max().unwrap_or(0)
    }
    /// Returns a name for an unnamed run: `run-N`, with N above all existing ones.
    pub(super) fn next_name(&self) -> String {
        let numbers = self.runs.iter().filter_map(|run| run.name.strip_prefix("run-")?.parse::<u64>().ok());
        format!("run-{}", numbers.max().unwrap_or(0).saturating_add(1))
    }

    pub(super) fn listing(&self, device: &Device, given: &Path) -> Listing {
        let Identity { serial, model, block, bytes, max_transfer, volatile } = device.identity.clone();
        Listing {
            device: given.to_owned(),
            serial,
            model,
            block_bytes: block,
            bytes,
            largest_free_bytes: self.largest_gap(device),
            command_bytes: max_transfer,
            volatile_cache: volatile,
            runs: self.runs.clone(),
            warnings: self.warning(given).into_iter().collect(),
        }
    }

    /// Returns a warning if a copy is damaged.
    pub(super) fn warning(&self, given: &Path) -> Option<String> {
        self.single_copy.then(|| {
            format!(
                "one of the two copies of {}'s directory is damaged: a power cut while it was written, or a drive that fails; the next recording rewrites it",
                given.display()
            )
        })
    }
}

/// Returns the end of the text of a copy.
fn text_end(bytes: &[u8]) -> usize {
    let len = bytes.get(12..16).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    (HEADER_BYTES + len as usize).min(bytes.len())
}

/// Description of an invalid copy.
enum InvalidCopy {
    Version(String),
    Damaged(String),
}

/// Parses a copy; `None` if there is no magic number.
fn parse(bytes: &[u8]) -> Result<Option<Directory>, InvalidCopy> {
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let sequence = bytes.get(16..24).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (version, len) = (u32_at(8), u32_at(12) as usize);
    if version != VERSION {
        let found = format!("a Shotline directory, version {version}: use the version of Shotline that wrote it");
        return Err(InvalidCopy::Version(found));
    }
    let damaged = || InvalidCopy::Damaged("a Shotline directory that is damaged".into());
    let whole = bytes.get(..HEADER_BYTES.saturating_add(len)).ok_or_else(damaged)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&whole[..CRC_OFFSET]), &[0; 4]);
    if crc32c::crc32c_append(crc, &whole[CRC_OFFSET + 4..]) != u32_at(CRC_OFFSET) {
        return Err(damaged());
    }
    let directory: Directory = serde_json::from_slice(&whole[HEADER_BYTES..]).map_err(|_| damaged())?;
    Ok(Some(Directory { sequence, ..directory }))
}

/// Changes an entry of the directory on a device.
pub(super) fn update(device: &Device, name: &str, at: u64, change: impl FnOnce(&mut Entry)) -> Result<(), Errno> {
    let mut directory = Directory::of(device).map_err(|_| Errno::IO)?;
    let entry = directory.runs.iter_mut().find(|entry| entry.name == name && entry.at == at).ok_or(Errno::NOENT)?;
    change(entry);
    directory.write(device).map_err(|_| Errno::IO)
}

fn is_name(name: &str) -> bool {
    let plain = !name.contains(|c: char| c == '/' || c.is_control()) && name != "." && name != "..";
    plain && (1..=MAX_NAME_BYTES).contains(&name.len())
}

/// Checks that a name can be part of a path and be displayed.
pub(super) fn check_name(target: &Target, name: &str) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::Run(format!(
            "expected the name of a run on {} in at most {} bytes, without control characters, found {name:?}",
            target.given.display(),
            MAX_NAME_BYTES
        )));
    }
    Ok(())
}
