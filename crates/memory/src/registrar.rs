//! The one table of regions that every party registers.

use crate::Region;
use std::sync::Arc;

/// A region's number in the table: the io_uring buffer index, and the index of any other party's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u16);

/// A scatter/gather element: some bytes of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Which region.
    pub region: RegionId,
    /// First byte in it.
    pub offset: u64,
    /// Bytes; 0 makes the element empty.
    pub len: u32,
}

impl Sge {
    /// No bytes.
    pub const EMPTY: Self = Self { region: RegionId(0), offset: 0, len: 0 };
}

/// Collects the regions of a run before its parties start.
#[derive(Debug, Default)]
pub struct Registrar {
    regions: Vec<Option<Arc<Region>>>,
}

impl Registrar {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }
    /// Enters a region and numbers it.
    ///
    /// # Panics
    /// At the 65,536th region.
    pub fn add(&mut self, region: Arc<Region>) -> RegionId {
        let id = u16::try_from(self.regions.len()).expect("fewer than 65,536 regions");
        self.regions.push(Some(region));
        RegionId(id)
    }
    /// Closes the table: from now on every party sees the same one.
    pub fn finish(self) -> Regions {
        Regions(self.regions.into())
    }
}

/// The finished table. Parties hold a clone and so keep the memory alive as long as they may touch it.
///
/// A table never changes: who adds or removes a region makes another one ([`Self::with`], [`Self::without`]) and
/// hands it to every party, and the memory goes when the last of them has let the old table go.
#[derive(Clone, Debug)]
pub struct Regions(Arc<[Option<Arc<Region>>]>);

impl Regions {
    /// The region of a number.
    ///
    /// # Panics
    /// For a number of another table: ids are ours, never a peer's.
    pub fn get(&self, id: RegionId) -> &Arc<Region> {
        self.0[usize::from(id.0)].as_ref().expect("the region is still in the table")
    }
    /// A table with one region more, and its number: the lowest that is free. None if there are 65,536.
    pub fn with(&self, region: Arc<Region>) -> Option<(Self, RegionId)> {
        let mut table = self.0.to_vec();
        let free = table.iter().position(Option::is_none).unwrap_or(table.len());
        let id = RegionId(u16::try_from(free).ok()?);
        if free == table.len() {
            table.push(None);
        }
        table[free] = Some(region);
        Some((Self(table.into()), id))
    }
    /// A table without this region. Its number is free for another.
    pub fn without(&self, id: RegionId) -> Self {
        let mut table = self.0.to_vec();
        if let Some(entry) = table.get_mut(usize::from(id.0)) {
            *entry = None;
        }
        Self(table.into())
    }
    /// All regions, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, &Arc<Region>)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(index, region)| Some((RegionId(index as u16), region.as_ref()?)))
    }
    /// A table that begins with these regions, for a party that brings memory of its own: the numbers of those that
    /// were there stay theirs.
    pub fn extend(&self) -> Registrar {
        Registrar { regions: self.0.to_vec() }
    }
    /// Copies the bytes of one element over another of at least its length.
    ///
    /// # Panics
    /// If the target is shorter or either is outside its region.
    pub fn copy(&self, from: Sge, to: Sge) {
        assert!(from.len <= to.len, "{} bytes do not fit an element of {}", from.len, to.len);
        self.get(to.region).copy_from(
            to.offset as usize,
            self.get(from.region),
            from.offset as usize,
            from.len as usize,
        );
    }
    /// The address of an element, for the party that fills or sends it.
    pub fn address(&self, sge: Sge) -> *mut u8 {
        self.get(sge.region).address(sge.offset as usize, sge.len as usize)
    }
}
