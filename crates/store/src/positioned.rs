//! Reads and writes at an offset.

use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Reads at a byte offset.
pub trait ReadAt {
    /// Reads into `buf` from `offset` and returns the number of bytes read, which is less than `buf.len()` at the end
    /// or after an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|start| self.get(start..)).unwrap_or(&[]);
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        count
    }
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            match FileExt::read_at(self, &mut buf[done..], offset + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        done
    }
}

/// Writes all bytes at a byte offset of a file.
pub(crate) fn write_file(file: &File, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                at += count as u64;
                bytes = &bytes[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
