//! Reads shots. Compressed chunks are unpacked on the way.

use super::file::OneFile;
use super::raw::RawReader;
use super::recording::Recording;
use crate::StoreError;
use crate::codec::Decoder;
use crate::layout::ALIGN;
use std::ops::Deref;
use std::sync::Arc;

/// Files of a run that one thread keeps ready.
const READY: usize = 8;

/// One thread's reader of the slots of a recording, which it borrows or shares.
#[derive(Debug)]
pub struct Slots<R> {
    recording: R,
    /// By their number among the run's; the latest comes last.
    files: Vec<(usize, FileSlots)>,
}

impl Recording {
    /// A reader of slots, for one thread.
    pub fn slots(&self) -> Slots<&Self> {
        Slots::new(self)
    }
}

impl<R: Deref<Target = Recording>> Slots<R> {
    /// A reader that has read nothing yet.
    pub fn new(recording: R) -> Self {
        Self { recording, files: Vec::new() }
    }

    /// One shot as it was on the wire, `slot_bytes` long: samples, padding, what closes it, zeros.
    pub fn read(&mut self, row: u64, link: usize) -> Result<&[u8], StoreError> {
        let (index, file, row) = self.recording.file_of(row)?;
        let at = match self.files.iter().position(|(known, _)| *known == index) {
            Some(at) => at,
            None => {
                if self.files.len() >= READY {
                    self.files.remove(0);
                }
                self.files.push((index, FileSlots::new(file)));
                self.files.len() - 1
            }
        };
        self.files[at].1.read(row, link)
    }
}

/// One thread's reader of one file's slots.
#[derive(Debug)]
struct FileSlots {
    file: Arc<OneFile>,
    raw: RawReader,
    /// One for each link of a compressed run.
    decoders: Vec<Decoder>,
    slot: Vec<u8>,
}

impl FileSlots {
    fn new(file: Arc<OneFile>) -> Self {
        let layout = file.layout();
        let largest = layout.slots.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0) as usize;
        let decoders = Decoder::of_links(layout.codec, file.run.links.iter().map(|link| link.geometry));
        let raw = RawReader::new(&file.file, largest);
        Self { file, raw, decoders, slot: Vec::new() }
    }

    fn read(&mut self, row: u64, link: usize) -> Result<&[u8], StoreError> {
        let (stored, path) = (self.file.stored(row, link)?, &self.file.path);
        // Chunks begin at multiples of what direct reads take, and so have room up to the next.
        let len = (stored.bytes as usize).next_multiple_of(ALIGN as usize);
        let bytes = self.raw.read(&self.file.file, stored.at, len).map_err(StoreError::io("read a shot of", path))?;
        let bytes = &bytes[..stored.bytes as usize];
        if !stored.compressed {
            return Ok(bytes);
        }
        self.slot.resize(self.file.run.links[link].geometry.slot_bytes() as usize, 0);
        let unpacked = self.decoders[link].decode(bytes, &mut self.slot);
        unpacked.map_err(|source| StoreError::Chunk { path: path.clone(), row, link, source })?;
        Ok(&self.slot)
    }
}
