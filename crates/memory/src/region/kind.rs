//! Registry of the region kinds that can be selected by name.
//!
//! A kind has a module next to this one, with its constructor in an `impl Region` and its `DESCRIPTION`, and a variant
//! here. Every `match` over [`RegionKind`] is exhaustive, so the compiler reports each place that a new kind affects.

use super::description::RegionDescription;
use super::{MemoryError, Region, file, heap, huge, memfd};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A region kind, with its parameters from the command line.
///
/// [`Pages`](super::Pages) differs from it: it is what a region actually has. A `heap` has reserved huge pages if there
/// are enough, else transparent ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Private memory of this process: [`Region::host`].
    Heap,
    /// Reserved huge pages: [`Region::huge`].
    Huge,
    /// Shared memory behind a file descriptor: [`Region::memfd`].
    Memfd,
    /// A mapped file: [`Region::file`].
    File(PathBuf),
}

impl RegionKind {
    /// Returns all kinds. The path of the file kind is empty.
    pub fn all() -> [Self; 4] {
        [Self::Heap, Self::Huge, Self::Memfd, Self::File(PathBuf::new())]
    }

    /// Returns the registry entry of the kind.
    pub const fn description(&self) -> &'static RegionDescription {
        match self {
            Self::Heap => &heap::DESCRIPTION,
            Self::Huge => &huge::DESCRIPTION,
            Self::Memfd => &memfd::DESCRIPTION,
            Self::File(_) => &file::DESCRIPTION,
        }
    }

    /// Returns the name of the kind, without a path.
    pub const fn name(&self) -> &'static str {
        self.description().name
    }

    /// Returns the syntax of all kinds, for a message: `heap, huge, memfd or file=PATH`.
    pub fn forms() -> String {
        let forms = Self::all().map(|kind| kind.description().form);
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// Returns the kind to use instead if the memory is passed to another process, which must not be able to change its
    /// length. `None` if there is no such kind.
    pub fn shareable_kind(&self) -> Option<Self> {
        match self {
            Self::Heap | Self::Memfd => Some(Self::Memfd),
            Self::Huge | Self::File(_) => None,
        }
    }

    /// Creates a region of at least `len` bytes. `name` is shown in listings of process memory. If `writable` is
    /// `false`, an existing file is mapped read-only.
    ///
    /// # Errors
    /// If there is not enough memory, or the file cannot be opened, created or extended.
    pub fn make(&self, name: &str, len: usize, writable: bool) -> Result<Arc<Region>, MemoryError> {
        match self {
            Self::Heap => Region::host(len),
            Self::Huge => Region::huge(len),
            Self::Memfd => Region::memfd(name, len),
            Self::File(path) => Region::file(path, len, writable),
        }
    }
}

/// Table of the kinds.
impl RegionKind {
    /// Column titles for [`Self::rows`].
    pub const HEADER: [&str; 4] = ["region", "backed by", "other processes can map it", "needs"];

    /// Returns one row for each kind.
    pub fn rows() -> [[String; 4]; 4] {
        Self::all().map(|kind| {
            let RegionDescription { name: _, form, backing, pages: _, privilege } = *kind.description();
            let mapped = match kind.shareable_kind() {
                Some(other) if other == kind => "yes".to_owned(),
                Some(other) => format!("as {}", other.name()),
                None => "no".to_owned(),
            };
            [form.to_owned(), backing.to_owned(), mapped, privilege.unwrap_or("nothing").to_owned()]
        })
    }
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap | Self::Huge | Self::Memfd => f.write_str(self.name()),
            Self::File(path) => write!(f, "file={}", path.display()),
        }
    }
}

impl FromStr for RegionKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected {}, found {text}", Self::forms());
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let kind = Self::all().into_iter().find(|kind| kind.name() == name).ok_or_else(expected)?;
        match (kind, value) {
            (Self::File(_), Some(path)) if !path.is_empty() => Ok(Self::File(path.into())),
            (kind @ (Self::Heap | Self::Huge | Self::Memfd), None) => Ok(kind),
            (Self::File(_), _) | (Self::Heap | Self::Huge | Self::Memfd, Some(_)) => Err(expected()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the index of a variant in [`RegionKind::all`]. A new variant does not compile without an entry here.
    fn index(kind: &RegionKind) -> usize {
        match kind {
            RegionKind::Heap => 0,
            RegionKind::Huge => 1,
            RegionKind::Memfd => 2,
            RegionKind::File(_) => 3,
        }
    }

    #[test]
    fn region_kinds_are_listed_once() {
        assert_eq!(RegionKind::all().each_ref().map(index), [0, 1, 2, 3]);
        for (row, kind) in RegionKind::rows().iter().zip(RegionKind::all()) {
            assert!(row[0].starts_with(kind.name()), "{row:?}");
        }
    }

    #[test]
    fn table_has_the_kind_to_pass_to_another_process() {
        assert_eq!(RegionKind::rows().map(|[_, _, mapped, _]| mapped), ["as memfd", "no", "yes", "no"]);
    }

    #[test]
    fn region_kind_parse_inverts_display() {
        for kind in [RegionKind::Heap, RegionKind::Huge, RegionKind::Memfd, RegionKind::File("/tmp/a=b".into())] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["", "Heap", "heap=1", "file", "file=", "memfd=", "gpu"] {
            let error = text.parse::<RegionKind>().unwrap_err();
            assert_eq!(error, format!("expected heap, huge, memfd or file=PATH, found {text}"));
        }
    }
}
