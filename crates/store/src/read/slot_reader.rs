//! Reads shots, decompressing compressed chunks.

use super::file::RecordingFile;
use super::raw::RawReader;
use super::recording::Recording;
use crate::StoreError;
use crate::codec::Decoder;
use crate::layout::ALIGN;
use std::ops::Deref;
use std::sync::Arc;

/// Maximum number of files of a run for which a reader keeps state.
const MAX_FILES: usize = 8;

/// Reader of the slots of a borrowed or shared recording, for one thread.
#[derive(Debug)]
pub struct SlotReader<R> {
    recording: R,
    /// Readers by file index, the most recently added last.
    files: Vec<(usize, FileSlots)>,
}

impl Recording {
    /// Returns a reader of slots, for one thread.
    pub fn slot_reader(&self) -> SlotReader<&Self> {
        SlotReader::new(self)
    }
}

impl<R: Deref<Target = Recording>> SlotReader<R> {
    /// Creates a reader.
    pub fn new(recording: R) -> Self {
        Self { recording, files: Vec::new() }
    }

    /// Reads a shot as it was on the wire, `slot_bytes` long: samples, padding, trailer, zeros.
    ///
    /// # Errors
    /// Fails if the row is not visible or cannot be read, and with [`StoreError::Chunk`] if its chunk is damaged.
    pub fn read(&mut self, row: u64, link: usize) -> Result<&[u8], StoreError> {
        let (index, file, row) = self.recording.locate_row(row)?;
        let at = match self.files.iter().position(|(known, _)| *known == index) {
            Some(at) => at,
            None => {
                if self.files.len() >= MAX_FILES {
                    self.files.remove(0);
                }
                self.files.push((index, FileSlots::new(file)));
                self.files.len() - 1
            }
        };
        self.files[at].1.read(row, link)
    }
}

/// Reader of the slots of one file, for one thread.
#[derive(Debug)]
struct FileSlots {
    file: Arc<RecordingFile>,
    raw: RawReader,
    /// One decoder per link of a compressed run.
    decoders: Vec<Decoder>,
    slot: Vec<u8>,
}

impl FileSlots {
    fn new(file: Arc<RecordingFile>) -> Self {
        let layout = file.layout();
        let largest = layout.slots.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0) as usize;
        let decoders = Decoder::for_links(layout.codec, file.run.links.iter().map(|link| link.geometry));
        let raw = RawReader::new(&file.file, largest);
        Self { file, raw, decoders, slot: Vec::new() }
    }

    fn read(&mut self, row: u64, link: usize) -> Result<&[u8], StoreError> {
        let (stored, path) = (self.file.stored(row, link)?, &self.file.path);
        // Chunks are aligned for direct reads, so the file extends to the next alignment boundary.
        let len = (stored.bytes as usize).next_multiple_of(ALIGN as usize);
        let bytes =
            self.raw.read(&self.file.file, stored.offset, len).map_err(StoreError::io("read a shot of", path))?;
        let bytes = &bytes[..stored.bytes as usize];
        if !stored.compressed {
            return Ok(bytes);
        }
        self.slot.resize(self.file.run.links[link].geometry.slot_bytes() as usize, 0);
        let decompressed = self.decoders[link].decode(bytes, &mut self.slot);
        decompressed.map_err(|source| StoreError::Chunk { path: path.clone(), row, link, source })?;
        Ok(&self.slot)
    }
}
