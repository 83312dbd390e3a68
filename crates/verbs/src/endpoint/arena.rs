//! Allocator of the memory that queue pairs use for padding and inline data.

use crate::api::VerbsError;
use shotline_memory::{Access, AccessError, Addressing, Pd, Protection, Region, Sge};
use std::collections::BTreeMap;

/// Minimum size of a region in bytes; many queue pairs share one.
const MIN_REGION_BYTES: u32 = 2 << 20;
/// Alignment of a part: a cache line.
const ALIGN: u32 = 64;

/// Registered memory, allocated in parts. It grows by regions and never shrinks: freed parts are reused.
#[derive(Debug)]
pub(super) struct Arena {
    /// The endpoint's private protection domain, whose keys are never handed out.
    pd: Pd,
    /// Unallocated remainder of the newest region.
    rest: Sge,
    /// Freed parts by length.
    free: BTreeMap<u32, Vec<Sge>>,
}

impl Arena {
    pub(super) fn new(protection: &mut Protection) -> Self {
        Self { pd: protection.allocate(), rest: Sge::EMPTY, free: BTreeMap::new() }
    }

    /// Allocates `len` zeroed bytes.
    pub(super) fn alloc(&mut self, protection: &mut Protection, len: u32) -> Result<Sge, VerbsError> {
        let padded = len.next_multiple_of(ALIGN);
        let part = match self.free.get_mut(&padded).and_then(Vec::pop) {
            Some(part) => part,
            None => {
                if self.rest.len < padded {
                    self.rest = self.grow(protection, padded.max(MIN_REGION_BYTES))?;
                }
                let part = Sge { len: padded, ..self.rest };
                self.rest.offset += u64::from(padded);
                self.rest.len -= padded;
                part
            }
        };
        protection.regions().get(part.region).zero(part.offset as usize, part.len as usize);
        Ok(Sge { len, ..part })
    }

    /// Frees an allocated part.
    pub(super) fn free(&mut self, part: Sge) {
        let padded = part.len.next_multiple_of(ALIGN);
        self.free.entry(padded).or_default().push(Sge { len: padded, ..part });
    }

    fn grow(&self, protection: &mut Protection, len: u32) -> Result<Sge, VerbsError> {
        let region = Region::host(len as usize)?;
        let mr = protection.register(self.pd, &region, 0, u64::from(len), Access::NONE, Addressing::ZeroBased)?;
        let refused = |refused: AccessError| VerbsError::Invalid(refused.to_string());
        protection.local(self.pd, mr.lkey, 0, len, Access::NONE).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::Registrar;

    #[test]
    fn parts_do_not_overlap_and_are_zeroed_on_reuse() {
        let mut protection = Protection::new(Registrar::new().finish());
        let mut arena = Arena::new(&mut protection);
        let parts: Vec<Sge> = (0..400).map(|_| arena.alloc(&mut protection, 8200).unwrap()).collect();
        let mut spans: Vec<_> = parts.iter().map(|part| (part.region, part.offset)).collect();
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].0 != two[1].0 || two[1].1 - two[0].1 >= 8200));
        let part = parts[7];
        protection.regions().get(part.region).write(part.offset as usize, b"left behind");
        arena.free(part);
        assert_eq!(arena.alloc(&mut protection, 8200).unwrap(), part);
        let mut bytes = [1; 11];
        protection.regions().get(part.region).read(part.offset as usize, &mut bytes);
        assert_eq!(bytes, [0; 11]);
    }
}
