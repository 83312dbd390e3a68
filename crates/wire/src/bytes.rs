//! Reading and writing big-endian fields in order, without indices.

use crate::ParseError;
use arrayvec::ArrayVec;

/// Reads fields from the front of received bytes. `what` names the header in errors.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    what: &'static str,
    total: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, total: bytes.len(), rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let Some((field, rest)) = self.rest.split_first_chunk() else {
            let consumed = self.total - self.rest.len();
            return Err(ParseError::Truncated { what: self.what, needed: consumed + N, found: self.total });
        };
        self.rest = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<u32, ParseError> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Writer of a header of `N` bytes, front to back. Bytes that are not written stay zero.
pub(crate) struct Header<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Header<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    /// Appends `field`. Layouts are fixed at compile time, so a field that does not fit is a bug in this crate.
    pub(crate) fn put(mut self, field: &[u8]) -> Self {
        debug_assert!(self.at + field.len() <= N, "fields exceed a header of {N} bytes");
        if let Some(to) = self.bytes.get_mut(self.at..).and_then(|rest| rest.get_mut(..field.len())) {
            to.copy_from_slice(field);
        }
        self.at += field.len();
        self
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends the low 24 bits of `value`.
    pub(crate) fn u24(self, value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        self.put(&[a, b, c])
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends `count` zero bytes.
    pub(crate) fn zeros(mut self, count: usize) -> Self {
        self.at += count;
        debug_assert!(self.at <= N, "fields exceed a header of {N} bytes");
        self
    }

    /// Returns the bytes, with zeros after the last field.
    pub(crate) fn padded(self) -> [u8; N] {
        self.bytes
    }

    /// Returns the bytes. The layout must have filled them.
    pub(crate) fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "a header of {N} bytes was not filled");
        self.bytes
    }
}

/// Appends a header to a buffer that has capacity for it: the layouts are fixed at compile time, so one that does not
/// fit is a bug in the caller. This is a single copy, while `extend` copies byte by byte.
pub(crate) fn append<const N: usize>(out: &mut ArrayVec<u8, N>, header: &[u8]) {
    let result = out.try_extend_from_slice(header);
    debug_assert!(result.is_ok(), "no space for a header of {} bytes", header.len());
}
