//! Memory that an endpoint lends to its queue pairs, for padding and inline data.

use crate::api::VerbsError;
use shotline_memory::{Access, Addressing, Pd, Protection, Refused, Region, Sge};
use std::collections::BTreeMap;

/// Bytes of a region, of which many queue pairs have a part.
const CHUNK: u32 = 2 << 20;
/// Parts begin on cache lines of their own.
const LINE: u32 = 64;

/// Registered memory in parts. It grows by regions and gives none back: queue pairs that go leave room for others.
#[derive(Debug)]
pub(super) struct Arena {
    /// A domain of the endpoint's own, whose keys nobody knows.
    pd: Pd,
    /// What is left of the newest region.
    rest: Sge,
    /// Parts that were given back, by length.
    free: BTreeMap<u32, Vec<Sge>>,
}

impl Arena {
    pub(super) fn new(protection: &mut Protection) -> Self {
        Self { pd: protection.allocate(), rest: Sge::EMPTY, free: BTreeMap::new() }
    }

    /// Lends `len` zeroed bytes.
    pub(super) fn lend(&mut self, protection: &mut Protection, len: u32) -> Result<Sge, VerbsError> {
        let room = len.next_multiple_of(LINE);
        let part = match self.free.get_mut(&room).and_then(Vec::pop) {
            Some(part) => part,
            None => {
                if self.rest.len < room {
                    self.rest = self.grow(protection, room.max(CHUNK))?;
                }
                let part = Sge { len: room, ..self.rest };
                self.rest.offset += u64::from(room);
                self.rest.len -= room;
                part
            }
        };
        protection.regions().get(part.region).zero(part.offset as usize, part.len as usize);
        Ok(Sge { len, ..part })
    }

    /// Takes back what was lent.
    pub(super) fn take_back(&mut self, part: Sge) {
        let room = part.len.next_multiple_of(LINE);
        self.free.entry(room).or_default().push(Sge { len: room, ..part });
    }

    fn grow(&self, protection: &mut Protection, len: u32) -> Result<Sge, VerbsError> {
        let region = Region::host(len as usize)?;
        let mr = protection.register(self.pd, &region, 0, u64::from(len), Access::NONE, Addressing::ZeroBased)?;
        let refused = |refused: Refused| VerbsError::Invalid(refused.to_string());
        protection.local(self.pd, mr.lkey, 0, len, Access::NONE).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::Registrar;

    #[test]
    fn parts_never_overlap_and_come_back_zeroed() {
        let mut protection = Protection::new(Registrar::new().finish());
        let mut arena = Arena::new(&mut protection);
        let parts: Vec<Sge> = (0..400).map(|_| arena.lend(&mut protection, 8200).unwrap()).collect();
        let mut spans: Vec<_> = parts.iter().map(|part| (part.region, part.offset)).collect();
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].0 != two[1].0 || two[1].1 - two[0].1 >= 8200));
        let part = parts[7];
        protection.regions().get(part.region).write(part.offset as usize, b"left behind");
        arena.take_back(part);
        assert_eq!(arena.lend(&mut protection, 8200).unwrap(), part);
        let mut bytes = [1; 11];
        protection.regions().get(part.region).read(part.offset as usize, &mut bytes);
        assert_eq!(bytes, [0; 11]);
    }
}
