//! Byte range of a region that a key gives access to.

use super::handles::{AccessError, Pd};
use crate::{Access, RegionId, Sge};

/// Byte range that a key gives access to, with its domain and rights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) pd: Pd,
    pub(super) region: RegionId,
    /// Virtual address of the first byte, as in work requests and RETHs.
    pub(super) address: u64,
    /// Byte offset in the region.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

impl Range {
    /// Checks an access of `len` bytes from a virtual address and returns the bytes in the region.
    #[inline]
    pub(super) fn check(&self, pd: Pd, address: u64, len: u32, needed: Access) -> Result<Sge, AccessError> {
        if self.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if !self.access.allows(needed) {
            return Err(AccessError::Rights);
        }
        // Only differences, so nothing can overflow (Linux rxe_mr.c has the same form).
        let bytes = u64::from(len);
        if address < self.address || bytes > self.len || address - self.address > self.len - bytes {
            return Err(AccessError::Bounds);
        }
        Ok(Sge { region: self.region, offset: self.offset + (address - self.address), len })
    }
}
