//! Host memory of a simulation: sparse, and filled with a pattern that shows which bytes were written.

use std::collections::HashMap;

/// Value of bytes that were not written.
pub(crate) const GUARD: u8 = 0xA5;
/// Writes to addresses with this bit are refused by the bus. They are stored, so that they can be compared.
pub(crate) const REFUSED: u64 = 1 << 62;

const PAGE: usize = 4096;

/// Memory of all addresses.
#[derive(Debug, Default)]
pub struct Memory {
    pages: HashMap<u64, Box<[u8; PAGE]>>,
}

impl Memory {
    /// Reads bytes.
    pub fn read(&self, address: u64, bytes: &mut [u8]) {
        for_pages(address, bytes.len(), |page, at, range| match self.pages.get(&page) {
            Some(page) => bytes[range.clone()].copy_from_slice(&page[at..at + range.len()]),
            None => bytes[range].fill(GUARD),
        });
    }

    /// Writes bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for_pages(address, bytes.len(), |page, at, range| {
            let page = self.pages.entry(page).or_insert_with(|| Box::new([GUARD; PAGE]));
            page[at..at + range.len()].copy_from_slice(&bytes[range]);
        });
    }

    /// Marks bytes as not written.
    pub(crate) fn clear(&mut self, address: u64, length: usize) {
        for_pages(address, length, |page, at, range| {
            if let Some(page) = self.pages.get_mut(&page) {
                page[at..at + range.len()].fill(GUARD);
            }
        });
    }

    /// Returns 8 bytes, little-endian.
    pub fn read_u64(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Calls `visit` with each page, the first offset in it, and the corresponding range of the bytes.
fn for_pages(address: u64, length: usize, mut visit: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let next = address + done as u64;
        let at = (next % PAGE as u64) as usize;
        let now = (PAGE - at).min(length - done);
        visit(next / PAGE as u64, at, done..done + now);
        done += now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_pages_read_back_between_guards() {
        let mut memory = Memory::default();
        let bytes = (0..9000_u32).map(|n| n as u8).collect::<Vec<_>>();
        memory.write(4090, &bytes);
        let mut read = vec![0; 9002];
        memory.read(4089, &mut read);
        assert_eq!((read[0], &read[1..9001], read[9001]), (GUARD, &bytes[..], GUARD));
        memory.clear(4090, 9000);
        memory.read(4089, &mut read);
        assert!(read.iter().all(|&byte| byte == GUARD));
    }
}
