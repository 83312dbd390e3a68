//! Extent of a device that holds a recording, with the contents of its file.
//!
//! Bytes are read and written at any offset, as in a file. A device transfers whole blocks, so a write reads the
//! partial blocks at both ends first (read-modify-write). NVMe writes a block atomically (AWUPF is at least one block),
//! and an extent starts at a multiple of 1 MiB, so a field of eight bytes within a sector is not torn.
//!
//! A recorder writes the same few blocks repeatedly, those with markers and the ends of tables. They are cached to
//! avoid the reads. An extent that is open for writing has no other writer, and slots are whole blocks.

use super::device::Device;
use super::directory::{self, Directory, Entry};
use crate::sys::drive::DriveSetup;
use rustix::io::Errno;
use shotline_memory::Regions;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of cached blocks, more than a commit writes.
const CACHED_BLOCKS: usize = 64;

/// Maximum size of a write that is copied together with its partial blocks; larger writes are split.
const MAX_COPIED: usize = 16 << 10;

/// An extent of a device. See the module.
#[derive(Clone, Debug)]
pub struct Extent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: Arc<Device>,
    name: String,
    run_id: String,
    /// Device offset in bytes.
    at: u64,
    /// Bytes before the data.
    head: u64,
    /// Length in bytes.
    bytes: AtomicU64,
    /// Blocks that were written in part, by device offset; the latest is last.
    cached: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Extent {
    pub(super) fn of(device: Arc<Device>, entry: &Entry) -> Self {
        let (name, run_id, bytes) = (entry.name.clone(), entry.run_id.clone(), AtomicU64::new(entry.bytes));
        Self(Arc::new(Inner { device, name, run_id, at: entry.at, head: entry.head, bytes, cached: Mutex::default() }))
    }

    pub(crate) fn handle(&self) -> &File {
        self.0.device.handle()
    }
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.0.device.flush()
    }

    /// Creates the drive that writes shots; the second value is the error if their buffers could not be registered.
    pub(crate) fn drive(&self, depth: u32, regions: &Regions) -> io::Result<DriveSetup> {
        self.0.device.drive(self.0.at, depth, regions)
    }

    /// Returns the blocks that hold a range: their device offset, their length in bytes, and the number of bytes before
    /// the range.
    fn blocks(&self, at: u64, len: usize) -> Result<(u64, usize, usize), Errno> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.bytes()).ok_or(Errno::NOSPC)?;
        let block = u64::from(self.0.device.identity.block);
        let first = at - at % block;
        Ok((self.0.at + first, (end.next_multiple_of(block) - first) as usize, (at - first) as usize))
    }

    /// Reads exactly `buf.len()` bytes.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Errno> {
        let (from, len, before) = self.blocks(at, buf.len())?;
        if (len, before) == (buf.len(), 0) {
            return self.0.device.read(from, buf);
        }
        let mut blocks = vec![0; len];
        self.0.device.read(from, &mut blocks)?;
        buf.copy_from_slice(&blocks[before..before + buf.len()]);
        Ok(())
    }

    /// Reads into `buf` up to the end of the extent; returns the number of bytes read.
    pub(crate) fn read_at(&self, at: u64, buf: &mut [u8]) -> usize {
        let len = self.bytes().saturating_sub(at).min(buf.len() as u64) as usize;
        if self.read(at, &mut buf[..len]).is_ok() { len } else { 0 }
    }

    /// Writes all bytes.
    pub(crate) fn write_all(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let (to, len, before) = self.blocks(at, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let block = self.0.device.identity.block as usize;
        if len > MAX_COPIED && len > bytes.len() {
            let (first, rest) = bytes.split_at((block - before) % block);
            let (whole, last) = rest.split_at(rest.len() - rest.len() % block);
            self.write_all(at, first)?;
            self.write_all(at + first.len() as u64, whole)?;
            return self.write_all(at + (first.len() + whole.len()) as u64, last);
        }
        if (len, before) == (bytes.len(), 0) {
            let mut cached = self.0.cached.lock().unwrap_or_else(PoisonError::into_inner);
            cached.retain(|(at, _)| !(to..to + len as u64).contains(at));
            return self.0.device.write(to, bytes);
        }
        let (last, ends_in_block) = (len - block, before + bytes.len() < len);
        let mut blocks = vec![0; len];
        let mut cached = self.0.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if before > 0 {
            self.fill(&cached, to, &mut blocks[..block])?;
        }
        if ends_in_block && (before == 0 || last > 0) {
            self.fill(&cached, to + last as u64, &mut blocks[last..])?;
        }
        blocks[before..before + bytes.len()].copy_from_slice(bytes);
        // After a failed write the contents are undefined, so the blocks leave the cache first.
        cached.retain(|(at, _)| !(to..to + len as u64).contains(at));
        self.0.device.write(to, &blocks)?;
        if before > 0 {
            cached.push((to, blocks[..block].to_vec()));
        }
        if ends_in_block && (before == 0 || last > 0) {
            cached.push((to + last as u64, blocks[last..].to_vec()));
        }
        let excess = cached.len().saturating_sub(CACHED_BLOCKS);
        cached.drain(..excess);
        Ok(())
    }

    /// Reads a block from the cache or the device.
    fn fill(&self, cached: &[(u64, Vec<u8>)], at: u64, block: &mut [u8]) -> Result<(), Errno> {
        if let Some((_, bytes)) = cached.iter().find(|(known, _)| *known == at) {
            block.copy_from_slice(bytes);
            return Ok(());
        }
        self.0.device.read(at, block)
    }

    /// Truncates the extent to `end` bytes, in the directory.
    pub(crate) fn truncate(&self, end: u64) -> Result<(), Errno> {
        let block = u64::from(self.0.device.identity.block);
        let bytes = end.next_multiple_of(block).min(self.bytes());
        directory::update(&self.0.device, &self.0.name, self.0.at, |entry| entry.bytes = bytes)?;
        self.0.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns `true` if the directory still has this run here: another recording may have replaced it.
    pub(crate) fn is_current(&self) -> bool {
        let Inner { device, name, run_id, at, .. } = &*self.0;
        let same = |entry: &Entry| (&entry.name, &entry.run_id, entry.at) == (name, run_id, *at);
        Directory::of(device).is_ok_and(|directory| directory.runs.iter().any(same))
    }

    /// Reads the bytes before the data.
    pub(crate) fn read_head(&self) -> Result<Vec<u8>, Errno> {
        let mut head = vec![0; self.0.head.min(self.bytes()) as usize];
        self.read(0, &mut head)?;
        Ok(head)
    }
}
