//! Static description of a region kind.

use super::Pages;

/// Entry of a region kind in the registry ([`RegionKind`](super::RegionKind)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDescription {
    /// Name of the kind.
    pub name: &'static str,
    /// Syntax on a command line.
    pub form: &'static str,
    /// Short description of the backing memory.
    pub backing: &'static str,
    /// Pages that [`check_capacity`](crate::check_capacity) assumes. A region may get other pages
    /// ([`Region::pages`](super::Region::pages)).
    pub pages: Pages,
    /// Privilege needed to create a region of the kind; `None` if any process may.
    pub privilege: Option<&'static str>,
}
