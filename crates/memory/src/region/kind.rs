//! The registry of the kinds of regions that can be asked for by name.
//!
//! A kind has a file beside this one, with its constructor in an `impl Region` and its `DESCRIPTION`. Here it has a variant;
//! every `match` over [`RegionKind`] is exhaustive, so that the compiler names each place that a new kind concerns.

use super::description::RegionDescription;
use super::{MemoryError, Region, file, heap, huge, memfd};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A kind of region, with what a command line says of it.
///
/// [`Pages`](super::Pages) is another thing: what a region got. A `heap` has reserved huge pages where there are enough of
/// them, and transparent ones elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory of this process: [`Region::host`].
    Heap,
    /// Reserved huge pages: [`Region::huge`].
    Huge,
    /// Shared memory of the kernel: [`Region::memfd`].
    Memfd,
    /// A mapped file: [`Region::file`].
    File(PathBuf),
}

impl RegionKind {
    /// Every kind; of files, one without a path.
    pub fn all() -> [Self; 4] {
        [Self::Heap, Self::Huge, Self::Memfd, Self::File(PathBuf::new())]
    }

    /// What is known of it before a region is made.
    pub const fn description(&self) -> &'static RegionDescription {
        match self {
            Self::Heap => &heap::DESCRIPTION,
            Self::Huge => &huge::DESCRIPTION,
            Self::Memfd => &memfd::DESCRIPTION,
            Self::File(_) => &file::DESCRIPTION,
        }
    }

    /// Its name, without a path.
    pub const fn name(&self) -> &'static str {
        self.description().name
    }

    /// The forms of all kinds, for a message: `heap, huge, memfd or file=PATH`.
    pub fn forms() -> String {
        let forms = Self::all().map(|kind| kind.description().form);
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// The kind that takes its place where the memory is handed to another process, which must not be able to change its
    /// length; `None`: no other kind does.
    pub fn handed_over(&self) -> Option<Self> {
        match self {
            Self::Heap | Self::Memfd => Some(Self::Memfd),
            Self::Huge | Self::File(_) => None,
        }
    }

    /// Makes a region of at least `len` bytes. `name` is for those who list the memory of processes; `writable` false
    /// maps what others have written for reading only (a file).
    ///
    /// # Errors
    /// If the machine does not have the memory, or the file cannot be opened, made or extended.
    pub fn make(&self, name: &str, len: usize, writable: bool) -> Result<Arc<Region>, MemoryError> {
        match self {
            Self::Heap => Region::host(len),
            Self::Huge => Region::huge(len),
            Self::Memfd => Region::memfd(name, len),
            Self::File(path) => Region::file(path, len, writable),
        }
    }
}

/// The kinds as a table.
impl RegionKind {
    /// What the cells of a row are.
    pub const HEADER: [&str; 4] = ["region", "what backs it", "other processes can map it", "needs"];

    /// What every kind of region is, a row for each.
    pub fn rows() -> [[String; 4]; 4] {
        Self::all().map(|kind| {
            let RegionDescription { name: _, form, backing, pages: _, privilege } = *kind.description();
            let mapped = match kind.handed_over() {
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

    /// The place of a variant in [`RegionKind::all`]: a new one does not compile without.
    fn place(kind: &RegionKind) -> usize {
        match kind {
            RegionKind::Heap => 0,
            RegionKind::Huge => 1,
            RegionKind::Memfd => 2,
            RegionKind::File(_) => 3,
        }
    }

    #[test]
    fn every_kind_of_region_is_listed_once() {
        assert_eq!(RegionKind::all().each_ref().map(place), [0, 1, 2, 3]);
        for (row, kind) in RegionKind::rows().iter().zip(RegionKind::all()) {
            assert!(row[0].starts_with(kind.name()), "{row:?}");
        }
    }

    #[test]
    fn the_table_says_as_what_a_region_is_handed_over() {
        assert_eq!(RegionKind::rows().map(|[_, _, mapped, _]| mapped), ["as memfd", "no", "yes", "no"]);
    }

    #[test]
    fn a_kind_of_region_is_read_as_it_is_written() {
        for kind in [RegionKind::Heap, RegionKind::Huge, RegionKind::Memfd, RegionKind::File("/tmp/a=b".into())] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["", "Heap", "heap=1", "file", "file=", "memfd=", "gpu"] {
            let error = text.parse::<RegionKind>().unwrap_err();
            assert_eq!(error, format!("expected heap, huge, memfd or file=PATH, found {text}"));
        }
    }
}
