//! The directory at a device's start.
//!
//! It is JSON behind 32 bytes: magic, version, length, sequence number, CRC-32C over all but itself. There are two copies;
//! a change goes to the older one, and is flushed, so that a power cut leaves the state before or after it.

use super::device::{Device, UNIT};
use super::signature;
use super::target::Target;
use crate::StoreError;
use crate::sys::nvme::Identity;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Where the directory's copies are, in bytes.
const COPIES: [u64; 2] = [0, 512 << 10];
/// Bytes that a copy may take.
const COPY_BYTES: u64 = 512 << 10;
/// The most bytes of a name.
const MOST_NAME: usize = 64;
/// What a copy begins with.
pub(super) const MAGIC: &[u8; 8] = b"SHOTLINE";
const VERSION: u32 = 1;
/// Bytes in front of the text.
const HEAD: usize = 32;
/// The most bytes in front of a run's data: far more than names, types and attributes take.
const MOST_HEAD: u64 = 1 << 28;
/// Where the CRC is.
const CRC: usize = 24;

/// One run of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name on the device.
    pub name: String,
    /// The identity that its attributes have too.
    pub run_id: String,
    /// Its first byte.
    pub at: u64,
    /// Bytes that it has.
    pub bytes: u64,
    /// Bytes in front of its data: names, types and attributes.
    pub head: u64,
}

/// What is on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// The device.
    pub device: PathBuf,
    /// Its serial number; of one that has none its name.
    pub serial: String,
    /// Its model.
    pub model: String,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Bytes of all.
    pub bytes: u64,
    /// Bytes of the largest stretch that no run has.
    pub largest_free_bytes: u64,
    /// Bytes of the largest command.
    pub command_bytes: u32,
    /// It has a volatile write cache, so that flushes are needed.
    pub volatile_cache: bool,
    /// The runs, in the order in which they were begun.
    pub runs: Vec<Entry>,
    /// What is not as it should be, in words.
    pub warnings: Vec<String>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Directory {
    uuid: String,
    serial: String,
    block: u32,
    bytes: u64,
    pub runs: Vec<Entry>,
    #[serde(skip)]
    sequence: u64,
    /// The other copy is not whole: this is the only one.
    #[serde(skip)]
    pub alone: bool,
}

/// What was found where a directory may be.
pub(super) enum Found {
    /// A directory of this device.
    Ours(Directory),
    /// One that is damaged, of another version, or of another device; in words.
    Other(String),
    /// None.
    Nothing,
}

impl Directory {
    /// An empty one, which is not on the device yet.
    pub(super) fn new(device: &Device) -> Self {
        let Identity { serial, block, bytes, .. } = device.identity.clone();
        Self {
            uuid: uuid::Uuid::new_v4().to_string(),
            serial,
            block,
            bytes,
            runs: Vec::new(),
            sequence: 0,
            alone: false,
        }
    }

    /// Looks for one.
    pub(super) fn find(device: &Device) -> Result<Found, StoreError> {
        let mut other = None;
        let (mut best, mut whole): (Option<Self>, _) = (None, 0);
        let mut edge = vec![0; UNIT as usize];
        device.read(0, &mut edge).map_err(StoreError::io("read", &device.path))?;
        let mut ours = Vec::new();
        for at in COPIES {
            let bytes = &edge[at as usize..][..COPY_BYTES as usize];
            let parsed = parse(bytes);
            ours.push((at as usize, if matches!(parsed, Ok(Some(_))) { text_end(bytes) } else { 0 }));
            whole += usize::from(matches!(parsed, Ok(Some(_))));
            match parsed {
                Ok(Some(copy)) if best.as_ref().is_none_or(|best| best.sequence < copy.sequence) => best = Some(copy),
                Ok(_) => {}
                // What a later version has written is not for this one to choose from.
                Err(Wrong::Version(found)) => return Ok(Found::Other(found)),
                Err(Wrong::Damaged(found)) => other = Some(found),
            }
        }
        let Identity { serial, block, bytes, .. } = &device.identity;
        // Whoever formats a drive of ours may leave a copy as it is.
        let torn = other.is_some();
        ours.iter().for_each(|(at, len)| edge[*at..at + len].fill(0));
        let later = match &best {
            Some(_) => signature::beside(device, &edge, torn).map_err(StoreError::io("read", &device.path))?,
            None => None,
        };
        if let Some(later) = later {
            return Ok(Found::Other(format!("{later}, written over a directory of Shotline's")));
        }
        Ok(match (best, other) {
            (Some(one), _) if (&one.serial, one.block, one.bytes) == (serial, *block, *bytes) => match one.wrong() {
                // Before its first change there is one copy.
                None => Found::Ours(Self { alone: whole < COPIES.len() && one.sequence > 1, ..one }),
                Some(wrong) => Found::Other(format!("a directory of Shotline's in which {wrong}")),
            },
            (Some(one), _) => Found::Other(format!(
                "a directory of Shotline's for the drive {} of {} bytes in blocks of {}",
                one.serial, one.bytes, one.block
            )),
            (None, Some(other)) => Found::Other(other),
            (None, None) => Found::Nothing,
        })
    }

    /// What cannot be true of a directory, whoever made it; none if it can be.
    fn wrong(&self) -> Option<String> {
        let mut runs: Vec<&Entry> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.at);
        let mut free = UNIT;
        for run in runs {
            let end = run.at.checked_add(run.bytes).filter(|end| *end <= self.bytes);
            let inside = run.at >= free && run.at.is_multiple_of(UNIT) && run.head <= run.bytes.min(MOST_HEAD);
            let Some(end) = end.filter(|_| inside && is_name(&run.name)) else {
                return Some(format!("the run {:?} has {} bytes from {}", run.name, run.bytes, run.at));
            };
            free = end;
        }
        None
    }

    /// The directory that must be there.
    pub(super) fn of(device: &Device) -> Result<Self, StoreError> {
        let found = match Self::find(device)? {
            Found::Ours(directory) => return Ok(directory),
            Found::Other(found) => found,
            Found::Nothing => "none".into(),
        };
        Err(StoreError::format(&device.path, format!("expected a directory of recordings at its start, found {found}")))
    }

    /// Writes it in the place of the older copy.
    pub(super) fn write(&mut self, device: &Device) -> Result<(), StoreError> {
        self.sequence = self.sequence.wrapping_add(1);
        let text = serde_json::to_vec(self).map_err(|error| StoreError::format(&device.path, error.to_string()))?;
        if (HEAD + text.len()) as u64 > COPY_BYTES {
            return Err(StoreError::Run(format!("{} has no room for the names of more runs", device.path.display())));
        }
        let mut bytes = Vec::with_capacity((HEAD + text.len()).next_multiple_of(4096));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.resize(HEAD, 0);
        bytes.extend_from_slice(&text);
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        // To its end, so that whatever is not zero there is others'.
        bytes.resize(COPY_BYTES as usize, 0);
        let at = COPIES[(self.sequence % 2) as usize];
        let written = device.flush().and_then(|()| device.write(at, &bytes)).and_then(|()| device.flush());
        written.map_err(StoreError::io("write the directory of", &device.path))
    }

    /// The stretches that no run has, each from a multiple of [`UNIT`].
    fn gaps(&self, device: &Device) -> Vec<(u64, u64)> {
        let mut taken: Vec<(u64, u64)> =
            self.runs.iter().map(|run| (run.at, run.at.saturating_add(run.bytes))).collect();
        taken.push((device.identity.bytes, u64::MAX));
        taken.sort_unstable();
        let (mut gaps, mut free) = (Vec::new(), UNIT);
        for (at, end) in taken {
            if at > free {
                gaps.push((free, at - free));
            }
            free = free.max(end.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX));
        }
        gaps
    }
    /// Where so many bytes have room: the first place.
    pub(super) fn place(&self, device: &Device, bytes: u64) -> Option<u64> {
        self.gaps(device).into_iter().find(|(_, room)| *room >= bytes).map(|(at, _)| at)
    }
    pub(super) fn largest_gap(&self, device: &Device) -> u64 {
        self.gaps(device).into_iter().map(|(_, room)| room).max().unwrap_or(0)
    }
    /// A name for a run that has none: `run-N`, N above all that there are.
    pub(super) fn next_name(&self) -> String {
        let numbers = self.runs.iter().filter_map(|run| run.name.strip_prefix("run-")?.parse::<u64>().ok());
        format!("run-{}", numbers.max().unwrap_or(0).saturating_add(1))
    }

    pub(super) fn listing(&self, device: &Device, written: &Path) -> Listing {
        let Identity { serial, model, block, bytes, most, volatile } = device.identity.clone();
        Listing {
            device: written.to_owned(),
            serial,
            model,
            block_bytes: block,
            bytes,
            largest_free_bytes: self.largest_gap(device),
            command_bytes: most,
            volatile_cache: volatile,
            runs: self.runs.clone(),
            warnings: self.warning(written).into_iter().collect(),
        }
    }

    /// What is not as it should be, in words.
    pub(super) fn warning(&self, written: &Path) -> Option<String> {
        self.alone.then(|| {
            format!(
                "one of the two copies of {}'s directory is damaged: a power cut while it was written, or a drive that fails; the next recording writes it anew",
                written.display()
            )
        })
    }
}

/// Where the text of a copy ends.
fn text_end(bytes: &[u8]) -> usize {
    let len = bytes.get(12..16).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    (HEAD + len as usize).min(bytes.len())
}

/// What is wrong with a copy, in words.
enum Wrong {
    Version(String),
    Damaged(String),
}

/// A copy; none if nothing of ours is there, and in words what is wrong with one that is not whole.
fn parse(bytes: &[u8]) -> Result<Option<Directory>, Wrong> {
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let sequence = bytes.get(16..24).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (version, len) = (u32_at(8), u32_at(12) as usize);
    if version != VERSION {
        let found = format!("a directory of Shotline's, version {version}: use the version of Shotline that wrote it");
        return Err(Wrong::Version(found));
    }
    let damaged = || Wrong::Damaged("a directory of Shotline's that is damaged".into());
    let whole = bytes.get(..HEAD.saturating_add(len)).ok_or_else(damaged)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&whole[..CRC]), &[0; 4]);
    if crc32c::crc32c_append(crc, &whole[CRC + 4..]) != u32_at(CRC) {
        return Err(damaged());
    }
    let directory: Directory = serde_json::from_slice(&whole[HEAD..]).map_err(|_| damaged())?;
    Ok(Some(Directory { sequence, ..directory }))
}

/// Changes an entry of the directory that is on a device.
pub(super) fn update(device: &Device, name: &str, at: u64, change: impl FnOnce(&mut Entry)) -> Result<(), Errno> {
    let mut directory = Directory::of(device).map_err(|_| Errno::IO)?;
    let entry = directory.runs.iter_mut().find(|entry| entry.name == name && entry.at == at).ok_or(Errno::NOENT)?;
    change(entry);
    directory.write(device).map_err(|_| Errno::IO)
}

fn is_name(name: &str) -> bool {
    let plain = !name.contains(|c: char| c == '/' || c.is_control()) && name != "." && name != "..";
    plain && (1..=MOST_NAME).contains(&name.len())
}

/// Refuses a name that cannot be part of a path, or be shown.
pub(super) fn check_name(target: &Target, name: &str) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::Run(format!(
            "expected the name of a run on {} in at most {} bytes, without control characters, found {name:?}",
            target.written.display(),
            MOST_NAME
        )));
    }
    Ok(())
}
