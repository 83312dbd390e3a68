//! Memory of a driver that the card may access.

use super::sys::{self, PAGE};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use shotline_memory::Region;
use shotline_rtl::card::Dma;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Maximum number of maps, below the kernel's limit of mappings.
const MAX_MAPS: usize = 32_768;

/// A part of a mapping.
#[derive(Clone, Debug)]
struct Map {
    region: Arc<Region>,
    /// Offset in the region.
    offset: u64,
    length: u64,
}

impl Map {
    /// Returns the part of it between two addresses, if it begins at `address`.
    fn part(&self, address: u64, range: Range<u64>) -> Option<(u64, Self)> {
        let (first, last) = (range.start.max(address), range.end.min(address + self.length));
        let length = last.checked_sub(first).filter(|&length| length > 0)?;
        let offset = self.offset + (first - address);
        Some((first, Self { region: Arc::clone(&self.region), offset, length }))
    }
}

/// The maps, by their addresses. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Maps(BTreeMap<u64, Map>);

impl Maps {
    /// Maps a part of a file at an address.
    ///
    /// # Errors
    /// `EXIST` if it overlaps another map, `INVAL` if the addresses are not possible or it is not a part of a file,
    /// `NOMEM` if there are too many maps, and those of `mmap`.
    pub fn map(&mut self, address: u64, length: u64, fd: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
        let end = address.checked_add(length).ok_or(Errno::INVAL)?;
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        if self.0.range(..end).next_back().is_some_and(|(&before, map)| before + map.length > address) {
            return Err(Errno::EXIST);
        }
        if self.0.len() >= MAX_MAPS {
            return Err(Errno::NOMEM);
        }
        self.0.insert(address, Map { region: sys::map(fd, offset, length)?, offset: 0, length });
        Ok(())
    }

    /// Removes what is mapped between two addresses: whole maps, or parts of them.
    ///
    /// # Errors
    /// `INVAL` if not all of it is mapped.
    pub fn unmap(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        let end = address.checked_add(length).filter(|_| length > 0).ok_or(Errno::INVAL)?;
        if !self.all(address, length, |_, _, _| {}) {
            return Err(Errno::INVAL);
        }
        let first = self.0.range(..=address).next_back().map_or(address, |(&first, _)| first);
        let found = self.0.range(first..end).map(|(&first, map)| (first, map.clone())).collect::<Vec<_>>();
        for (first, map) in found {
            self.0.remove(&first);
            self.0.extend(map.part(first, 0..address));
            self.0.extend(map.part(first, end..u64::MAX));
        }
        Ok(())
    }

    /// Calls `visit` with the parts of the maps at an address: region, offset in it, range of the bytes. Returns `false`,
    /// without a call, if not all of it is mapped.
    fn all(&self, address: u64, length: u64, mut visit: impl FnMut(&Region, usize, Range<usize>)) -> bool {
        let piece = |done: u64| {
            let next = address.checked_add(done)?;
            let (&first, map) = self.0.range(..=next).next_back()?;
            let inside = next - first;
            let now = map.length.checked_sub(inside)?.min(length - done);
            (now > 0).then_some((map, (map.offset + inside) as usize, now))
        };
        let mut done = 0;
        while done < length {
            match piece(done) {
                Some((_, _, now)) => done += now,
                None => return false,
            }
        }
        done = 0;
        while let Some((map, offset, now)) = piece(done).filter(|_| done < length) {
            visit(&map.region, offset, done as usize..(done + now) as usize);
            done += now;
        }
        true
    }

    /// Reads bytes. Returns `false` if not all of them are mapped.
    pub fn load(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.all(address, bytes.len() as u64, |region, offset, range| region.read(offset, &mut bytes[range]))
    }
}

impl Dma for Maps {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.load(address, bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.all(address, bytes.len() as u64, |region, offset, range| region.write(offset, &bytes[range]))
    }

    fn write_report(&mut self, address: u64, report: u64) -> bool {
        // A region stores 8 bytes at a multiple of 8 at once, in no order with other stores.
        fence(Ordering::Release);
        self.write(address, &report.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::MemfdFlags;

    const AT: u64 = 0x1234_0000_0000;

    fn memory(bytes: u64) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn accesses_cross_maps_and_end_where_nothing_is_mapped() {
        let fd = memory(4 * PAGE);
        let mut maps = Maps::default();
        // The pages are mapped in another order.
        maps.map(AT, PAGE, fd.as_fd(), 2 * PAGE).unwrap();
        maps.map(AT + PAGE, 2 * PAGE, fd.as_fd(), 0).unwrap();
        let bytes = (0..PAGE + 100).map(|n| n as u8).collect::<Vec<_>>();
        assert!(maps.write(AT + 50, &bytes));
        let mut found = vec![0; bytes.len()];
        assert!(maps.read(AT + 50, &mut found));
        assert_eq!(found, bytes);
        rustix::io::pread(&fd, &mut found[..100], 2 * PAGE + 50).unwrap();
        assert_eq!(found[..100], bytes[..100]);
        assert!(maps.write_report(AT + 3 * PAGE - 8, 7));
        for (address, length) in [(AT - 1, 2), (AT + 3 * PAGE - 4, 8), (AT + 3 * PAGE, 1), (0, 8), (u64::MAX - 3, 8)] {
            assert!(!maps.write(address, &bytes[..length]), "{address:#x}");
            assert!(!maps.read(address, &mut found[..length]), "{address:#x}");
        }
        maps.read(AT + 3 * PAGE - 4, &mut found[..4]);
        assert_eq!(found[..4], [0; 4], "a refused write stores nothing");
    }

    #[test]
    fn only_whole_parts_of_files_are_mapped_once() {
        let fd = memory(4 * PAGE);
        let mut maps = Maps::default();
        maps.map(AT, 2 * PAGE, fd.as_fd(), 0).unwrap();
        let (pipe, _end) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for (address, length, offset, error) in [
            (AT + PAGE, PAGE, 0, Errno::EXIST),
            (AT - PAGE, 4 * PAGE, 0, Errno::EXIST),
            (AT + 2 * PAGE, 5 * PAGE, 0, Errno::INVAL),
            (AT + 2 * PAGE, PAGE, 4 * PAGE, Errno::INVAL),
            (AT + 2 * PAGE, PAGE, 1, Errno::INVAL),
            (AT + 2 * PAGE + 8, PAGE, 0, Errno::INVAL),
            (AT + 2 * PAGE, 0, 0, Errno::INVAL),
            (AT + 2 * PAGE, PAGE, u64::MAX - PAGE + 1, Errno::INVAL),
            (u64::MAX - PAGE + 1, 2 * PAGE, 0, Errno::INVAL),
        ] {
            assert_eq!(
                maps.map(address, length, fd.as_fd(), offset),
                Err(error),
                "{address:#x} {length:#x} {offset:#x}"
            );
        }
        assert_eq!(maps.map(AT + 2 * PAGE, PAGE, pipe.as_fd(), 0), Err(Errno::INVAL));
        maps.map(AT + 2 * PAGE, PAGE, fd.as_fd(), 0).unwrap();
    }

    #[test]
    fn parts_are_unmapped_and_the_rest_stays() {
        let fd = memory(8 * PAGE);
        let mut maps = Maps::default();
        maps.map(AT, 4 * PAGE, fd.as_fd(), 0).unwrap();
        maps.map(AT + 4 * PAGE, 4 * PAGE, fd.as_fd(), 4 * PAGE).unwrap();
        maps.unmap(AT + PAGE, 5 * PAGE).unwrap();
        let mut bytes = [0; 8];
        let mapped = (0..8).map(|page| maps.read(AT + page * PAGE, &mut bytes)).collect::<Vec<_>>();
        assert_eq!(mapped, [true, false, false, false, false, false, true, true]);
        assert_eq!(maps.unmap(AT, 2 * PAGE), Err(Errno::INVAL));
        assert_eq!(maps.unmap(AT, 0), Err(Errno::INVAL));
        assert_eq!(maps.unmap(u64::MAX, 2), Err(Errno::INVAL));
        assert!(maps.write(AT + 7 * PAGE, &[9; 8]));
        rustix::io::pread(&fd, &mut bytes, 7 * PAGE).unwrap();
        assert_eq!(bytes, [9; 8]);
        maps.map(AT + PAGE, 5 * PAGE, fd.as_fd(), 0).unwrap();
    }
}
