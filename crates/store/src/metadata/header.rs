//! Parser of the HDF5 metadata fields that are patched in place.
//!
//! Library bounds 'earliest' give version-0 or -1 superblocks and version-1 object headers. Neither has a checksum, so
//! a field can be changed in place. Every access is bounds-checked: a damaged file gives an error, not a panic.

use crate::positioned::ReadAt;
use std::fmt;

/// Undefined file address.
pub const UNDEFINED: u64 = u64::MAX;
pub(crate) const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
const MESSAGE_DATASPACE: u16 = 0x0001;
const MESSAGE_LAYOUT: u16 = 0x0008;
const MESSAGE_CONTINUATION: u16 = 0x0010;
const FLAG_SHARED: u8 = 0x02;
/// Maximum number of bytes per read.
const MAX_READ_BYTES: usize = 1 << 24;
/// Maximum number of header blocks, far more than libhdf5 writes; ends a cycle of continuations.
const MAX_BLOCKS: usize = 64;

/// Error of parsing metadata: what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderError(String);

impl HeaderError {
    pub(crate) fn at(address: u64, expected: &str, found: &str) -> Self {
        Self(format!("expected {expected} at {address}, found {found}"))
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn error<T>(text: impl Into<String>) -> Result<T, HeaderError> {
    Err(HeaderError(text.into()))
}

/// Reads exactly `len` bytes from `offset`.
pub fn bytes(file: &(impl ReadAt + ?Sized), offset: u64, len: usize) -> Result<Vec<u8>, HeaderError> {
    // The length in a damaged file is untrusted: memory is allocated as the bytes are read.
    let mut out = Vec::new();
    while out.len() < len {
        let (done, block) = (out.len(), (len - out.len()).min(MAX_READ_BYTES));
        out.resize(done + block, 0);
        let count = file.read_at(offset.saturating_add(done as u64), &mut out[done..]);
        if count < block {
            return error(format!("expected {len} bytes of metadata at {offset}, found {}", done + count));
        }
    }
    Ok(out)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Fields of the superblock that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Offset of the end-of-file address.
    pub end_at: u64,
    /// End-of-file address.
    pub end: u64,
    /// Half the fan-out of chunk B-trees: "Indexed Storage Internal Node K".
    pub chunk_k: u16,
}

impl Superblock {
    /// Reads and parses the superblock.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Self, HeaderError> {
        let head = bytes(file, 0, 96)?;
        if &head[..8] != SIGNATURE {
            return error("expected the HDF5 signature, found other bytes");
        }
        let (chunk_k, addresses) = match head[8] {
            0 => (32, 24),
            1 => (u16_at(&head, 24), 28),
            other => return error(format!("expected superblock version 0 or 1, found {other}")),
        };
        if (head[13], head[14]) != (8, 8) {
            return error(format!("expected 8-byte addresses and lengths, found {} and {}", head[13], head[14]));
        }
        let base = u64_at(&head, addresses);
        if base != 0 {
            return error(format!("expected base address 0, found {base}"));
        }
        if chunk_k == 0 {
            return error("expected a chunk B-tree K of 1 or more, found 0");
        }
        Ok(Self { end_at: addresses as u64 + 16, end: u64_at(&head, addresses + 16), chunk_k })
    }
}

/// Fields of a chunked dataset's object header that are patched in place, with their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetHeader {
    /// Offset of the current first dimension: the commit marker.
    pub extent_at: u64,
    /// Current dimensions.
    pub dims: Vec<u64>,
    /// Offset of the address of the chunk index.
    pub tree_at: u64,
    /// Address of the chunk index.
    pub tree: u64,
    /// Dimensions of a chunk; the last is the element size in bytes.
    pub chunk: Vec<u32>,
}

impl DatasetHeader {
    /// Parses the version-1 object header at `address`.
    pub fn read(file: &(impl ReadAt + ?Sized), address: u64) -> Result<Self, HeaderError> {
        let (mut space, mut layout) = (None, None);
        for message in messages(file, address)? {
            match message.kind {
                MESSAGE_DATASPACE => space = Some(dataspace(&message)?),
                MESSAGE_LAYOUT => layout = Some(chunked_layout(&message)?),
                _ => {}
            }
        }
        match (space, layout) {
            (Some((extent_at, dims)), Some((tree_at, tree, chunk))) => {
                if chunk.len() != dims.len() + 1 {
                    return error(format!("expected chunks of rank {}, found {}", dims.len() + 1, chunk.len()));
                }
                Ok(Self { extent_at, dims, tree_at, tree, chunk })
            }
            (None, _) => error(format!("expected a dataspace in the object header at {address}, found none")),
            (_, None) => error(format!("expected a data layout in the object header at {address}, found none")),
        }
    }
}

/// Message of an object header.
pub(super) struct Message {
    pub kind: u16,
    flags: u8,
    /// File offset of the body.
    pub at: u64,
    pub body: Vec<u8>,
}

/// Reads the messages of the object header at `address`.
pub(super) fn messages(file: &(impl ReadAt + ?Sized), address: u64) -> Result<Vec<Message>, HeaderError> {
    let prefix = bytes(file, address, 16)?;
    if prefix[0] != 1 {
        return error(format!("expected an object header of version 1 at {address}, found {}", prefix[0]));
    }
    let expected = usize::from(u16_at(&prefix, 2));
    let mut blocks = vec![(address + 16, u64::from(u32_at(&prefix, 8)))];
    let mut found = Vec::new();
    let mut next = 0;
    while next < blocks.len() && found.len() < expected {
        let (start, len) = blocks[next];
        next += 1;
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= 1 << 24) else {
            return error(format!("expected a header block below 16 MiB at {start}, found {len} bytes"));
        };
        let block = bytes(file, start, len)?;
        let mut at = 0;
        while at + 8 <= block.len() && found.len() < expected {
            let (kind, size, flags) = (u16_at(&block, at), usize::from(u16_at(&block, at + 2)), block[at + 4]);
            let Some(body) = block.get(at + 8..at + 8 + size) else {
                return error(format!(
                    "expected a header message of {size} bytes at {start}+{at}, found the block's end"
                ));
            };
            if kind == MESSAGE_CONTINUATION {
                if size < 16 || blocks.len() == MAX_BLOCKS {
                    return error(format!(
                        "expected continuations of 16 bytes or more, at most {MAX_BLOCKS} header blocks; found {size} \
                         bytes after {} blocks",
                        blocks.len()
                    ));
                }
                blocks.push((u64_at(body, 0), u64_at(body, 8)));
            }
            found.push(Message { kind, flags, at: start + at as u64 + 8, body: body.to_vec() });
            at += 8 + size;
        }
    }
    Ok(found)
}

fn dataspace(message: &Message) -> Result<(u64, Vec<u64>), HeaderError> {
    let body = &message.body;
    let start = match body.first() {
        Some(1) => 8,
        Some(2) => 4,
        other => return error(format!("expected a dataspace of version 1 or 2, found {other:?}")),
    };
    let rank = usize::from(*body.get(1).unwrap_or(&0));
    if message.flags & FLAG_SHARED != 0 || rank == 0 || body.len() < start + 8 * rank {
        return error(format!("expected an unshared dataspace with dimensions, found rank {rank}"));
    }
    let dims = (0..rank).map(|d| u64_at(body, start + 8 * d)).collect();
    Ok((message.at + start as u64, dims))
}

fn chunked_layout(message: &Message) -> Result<(u64, u64, Vec<u32>), HeaderError> {
    let body = &message.body;
    let (Some(&version), Some(&class)) = (body.first(), body.get(1)) else {
        return error("expected a data layout, found an empty message");
    };
    if (version, class) != (3, 2) {
        return error(format!(
            "expected a chunked layout (version 3, class 2), found version {version}, class {class}"
        ));
    }
    let rank = usize::from(*body.get(2).unwrap_or(&0));
    if body.len() < 11 + 4 * rank || rank < 2 {
        return error(format!("expected a chunked layout of rank 2 or more, found rank {rank}"));
    }
    let chunk: Vec<u32> = (0..rank).map(|d| u32_at(body, 11 + 4 * d)).collect();
    if chunk.contains(&0) {
        return error("expected chunks with elements, found an empty chunk");
    }
    Ok((message.at + 3, u64_at(body, 3), chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(kind.to_le_bytes());
        out.extend((body.len() as u16).to_le_bytes());
        out.extend([0; 4]);
        out.extend(body);
        out
    }

    /// A dataspace, a continuation, and a layout in the second block.
    fn header_in_two_blocks() -> Vec<u8> {
        let mut space = vec![1, 2, 1, 0, 0, 0, 0, 0];
        space.extend([7_u64, 40].iter().flat_map(|d| d.to_le_bytes()));
        let mut layout = vec![3, 2, 3];
        layout.extend(0x1234_u64.to_le_bytes());
        layout.extend([1_u32, 40, 2].iter().flat_map(|d| d.to_le_bytes()));
        layout.resize(24, 0);
        let second = message(MESSAGE_LAYOUT, &layout);
        let first_len = 8 + space.len() + 8 + 16;
        let mut continuation = (16 + first_len as u64 + 100).to_le_bytes().to_vec();
        continuation.extend((second.len() as u64).to_le_bytes());
        let mut out = vec![1, 0, 3, 0, 1, 0, 0, 0];
        out.extend((first_len as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend(message(MESSAGE_DATASPACE, &space));
        out.extend(message(MESSAGE_CONTINUATION, &continuation));
        out.extend([0xEE; 100]);
        out.extend(second);
        out
    }

    #[test]
    fn header_continuation_block_is_read() {
        let file = header_in_two_blocks();
        let header = DatasetHeader::read(&file[..], 0).unwrap();
        assert_eq!((header.dims.as_slice(), header.chunk.as_slice()), ([7, 40].as_slice(), [1, 40, 2].as_slice()));
        assert_eq!(header.tree, 0x1234);
        assert_eq!(u64_at(&file, header.extent_at as usize), 7);
        assert_eq!(u64_at(&file, header.tree_at as usize), 0x1234);
    }

    #[test]
    fn cyclic_header_continuation_is_an_error() {
        let mut out = vec![1, 0, 0xFF, 0xFF, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        let mut continuation = 16_u64.to_le_bytes().to_vec();
        continuation.extend(24_u64.to_le_bytes());
        out.extend(message(MESSAGE_CONTINUATION, &continuation));
        assert!(DatasetHeader::read(&out[..], 0).is_err());
    }

    proptest! {
        #[test]
        fn damaged_metadata_never_panics(at in 0..180_usize, bit in 0..8, cut in 0..200_usize) {
            let mut file = header_in_two_blocks();
            let len = file.len();
            file[at % len] ^= 1_u8 << bit;
            let _ = DatasetHeader::read(&file[..], 0);
            let _ = DatasetHeader::read(&file[..cut.min(len)], 0);
            let _ = Superblock::read(&file[..]);
        }
    }
}
