//! Table of regions that all backends and devices register.

use crate::Region;
use std::sync::Arc;

/// Number of a region in the table: the io_uring buffer index, and the index of any other user's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u16);

/// A scatter/gather element: a byte range of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Number of the region.
    pub region: RegionId,
    /// Byte offset in the region.
    pub offset: u64,
    /// Length in bytes; 0 for an empty element.
    pub len: u32,
}

impl Sge {
    /// The empty element.
    pub const EMPTY: Self = Self { region: RegionId(0), offset: 0, len: 0 };
}

/// Collects the regions of a run before their users start.
#[derive(Debug, Default)]
pub struct Registrar {
    regions: Vec<Option<Arc<Region>>>,
}

impl Registrar {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a region and returns its number.
    ///
    /// # Panics
    /// If the table already has 65,536 regions.
    pub fn add(&mut self, region: Arc<Region>) -> RegionId {
        let id = u16::try_from(self.regions.len()).expect("fewer than 65,536 regions");
        self.regions.push(Some(region));
        RegionId(id)
    }
    /// Closes the table, so that all users see the same one.
    pub fn finish(self) -> Regions {
        Regions(self.regions.into())
    }
}

/// Finished table of regions. Every user holds a clone, which keeps the memory alive while the user may access it.
///
/// A table is immutable: adding or removing a region creates a new one ([`Self::with`], [`Self::without`]) that must be
/// passed to every user. The memory is freed when the last clone of the old table is dropped.
#[derive(Clone, Debug)]
pub struct Regions(Arc<[Option<Arc<Region>>]>);

impl Regions {
    /// Returns the region with this number.
    ///
    /// # Panics
    /// If it is not in the table. Ids come from this process, never from a peer.
    pub fn get(&self, id: RegionId) -> &Arc<Region> {
        self.0[usize::from(id.0)].as_ref().expect("the region is still in the table")
    }
    /// Returns a table with one more region, and its number: the lowest free one. `None` if there are 65,536.
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
    /// Returns a table without this region. Its number becomes free.
    pub fn without(&self, id: RegionId) -> Self {
        let mut table = self.0.to_vec();
        if let Some(entry) = table.get_mut(usize::from(id.0)) {
            *entry = None;
        }
        Self(table.into())
    }
    /// Returns all regions, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, &Arc<Region>)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(index, region)| Some((RegionId(index as u16), region.as_ref()?)))
    }
    /// Returns a registrar that begins with these regions and their numbers, for a user that adds its own memory.
    pub fn extend(&self) -> Registrar {
        Registrar { regions: self.0.to_vec() }
    }
    /// Copies the bytes of one element to another of at least its length.
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
    /// Returns the address of an element, for code that fills or sends it.
    ///
    /// # Panics
    /// If the element is outside its region, or the region is not mapped into this process.
    pub fn address(&self, sge: Sge) -> *mut u8 {
        self.get(sge.region).address(sge.offset as usize, sge.len as usize)
    }
}
