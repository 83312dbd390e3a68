//! What is known of a kind of region before a region of it is made.

use super::Pages;

/// A kind's entry in the registry ([`RegionKind`](super::RegionKind)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDescription {
    /// Its name.
    pub name: &'static str,
    /// How it is written on a command line.
    pub form: &'static str,
    /// What backs it, in some words.
    pub backing: &'static str,
    /// What it counts as in [`check_capacity`](crate::check_capacity). A region may get other pages
    /// ([`Region::pages`](super::Region::pages)).
    pub pages: Pages,
    /// What has to be granted before a region of it can be made; `None`: any process may make one.
    pub privilege: Option<&'static str>,
}
