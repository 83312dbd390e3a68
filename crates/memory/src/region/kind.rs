//! Registry of the region kinds that can be selected by name.
//!
//! A kind has a module next to this one, with its constructor in an `impl Region` and its `DESCRIPTION`, and a variant
//! here. Every `match` over [`RegionKind`] is exhaustive, so the compiler reports each place that a new kind affects.

use super::description::RegionDescription;
use super::{BarSpec, MemoryError, PathModel, Region, bar, cuda, dmabuf, emulated, file, heap, huge, memfd};
use rustix::fd::RawFd;
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
    /// Memory of an emulated accelerator behind a path: [`Region::emulated`].
    Emulated(PathModel),
    /// Memory of a PCI device behind a BAR: [`Region::bar`].
    Bar(BarSpec),
    /// A dma-buf that this process has inherited: [`Region::dmabuf`].
    Dmabuf(RawFd),
    /// Memory of a CUDA device, by its number: [`Region::cuda`].
    Cuda(u32),
}

impl RegionKind {
    /// Returns all kinds, without parameters: the path of the file kind is empty.
    pub fn all() -> [Self; 8] {
        [
            Self::Heap,
            Self::Huge,
            Self::Memfd,
            Self::File(PathBuf::new()),
            Self::Emulated(PathModel::default()),
            Self::Bar(BarSpec::default()),
            Self::Dmabuf(0),
            Self::Cuda(0),
        ]
    }

    /// Returns the registry entry of the kind.
    pub const fn description(&self) -> &'static RegionDescription {
        match self {
            Self::Heap => &heap::DESCRIPTION,
            Self::Huge => &huge::DESCRIPTION,
            Self::Memfd => &memfd::DESCRIPTION,
            Self::File(_) => &file::DESCRIPTION,
            Self::Emulated(_) => &emulated::DESCRIPTION,
            Self::Bar(_) => &bar::DESCRIPTION,
            Self::Dmabuf(_) => &dmabuf::DESCRIPTION,
            Self::Cuda(_) => &cuda::DESCRIPTION,
        }
    }

    /// Returns the name of the kind, without parameters.
    pub const fn name(&self) -> &'static str {
        self.description().name
    }

    /// Returns the syntax of all kinds, for a message.
    pub fn forms() -> String {
        Self::join_forms(|_| true)
    }

    /// Returns the syntax of the kinds that are mapped into this process: `heap, huge, memfd or file=PATH`.
    pub fn mapped_forms() -> String {
        Self::join_forms(Self::is_mapped)
    }

    fn join_forms(is_listed: impl Fn(&Self) -> bool) -> String {
        let forms: Vec<_> =
            Self::all().iter().filter(|kind| is_listed(kind)).map(|kind| kind.description().form).collect();
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// Returns the kind to use if the memory is passed to another process, which must not be able to change its
    /// length. `None` if there is no such kind.
    pub fn shareable_kind(&self) -> Option<Self> {
        match self {
            Self::Heap | Self::Memfd => Some(Self::Memfd),
            // The other process maps the bytes, and emulates the path itself.
            Self::Emulated(model) => Some(Self::Emulated(*model)),
            Self::Huge | Self::File(_) | Self::Bar(_) | Self::Dmabuf(_) | Self::Cuda(_) => None,
        }
    }

    /// Returns `true` if its regions are mapped into this process ([`Region::is_mapped`]).
    pub const fn is_mapped(&self) -> bool {
        match self {
            Self::Heap | Self::Huge | Self::Memfd | Self::File(_) => true,
            Self::Emulated(_) | Self::Bar(_) | Self::Dmabuf(_) | Self::Cuda(_) => false,
        }
    }

    /// Returns `true` if its regions have atomic operations, as memory that is mapped into this process has.
    pub const fn has_atomics(&self) -> bool {
        self.is_mapped()
    }

    /// Creates a region of at least `len` bytes. `name` is shown in listings of process memory. If `writable` is
    /// `false`, an existing file, BAR or dma-buf is mapped read-only.
    ///
    /// # Errors
    /// If there is not enough memory, the file cannot be opened, created or extended, or the device is missing, does not
    /// answer, or has less memory.
    pub fn make(&self, name: &str, len: usize, writable: bool) -> Result<Arc<Region>, MemoryError> {
        match self {
            Self::Heap => Region::host(len),
            Self::Huge => Region::huge(len),
            Self::Memfd => Region::memfd(name, len),
            Self::File(path) => Region::file(path, len, writable),
            Self::Emulated(model) => Region::emulated(name, len, *model),
            Self::Bar(spec) => Region::bar(spec, len, writable),
            Self::Dmabuf(fd) => Region::dmabuf(*fd, len, writable),
            Self::Cuda(device) => Region::cuda(*device, len),
        }
    }
}

/// Table of the kinds.
impl RegionKind {
    /// Column titles for [`Self::rows`].
    pub const HEADER: [&str; 4] = ["region", "backed by", "other processes can map it", "needs"];

    /// Returns one row for each kind.
    pub fn rows() -> [[String; 4]; 8] {
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
            Self::Emulated(model) if *model != PathModel::default() => write!(f, "emulated:{model}"),
            Self::Heap | Self::Huge | Self::Memfd | Self::Emulated(_) => f.write_str(self.name()),
            Self::File(path) => write!(f, "file={}", path.display()),
            Self::Bar(spec) => write!(f, "bar:{spec}"),
            Self::Dmabuf(fd) => write!(f, "dmabuf:{fd}"),
            Self::Cuda(device) => write!(f, "cuda:{device}"),
        }
    }
}

impl FromStr for RegionKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(['=', ':']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let kind = Self::all().into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| format!("expected {}, found {text}", Self::forms()))?;
        let expected = || format!("expected {}, found {text}", kind.description().form);
        let (path, parameters) = (rest.strip_prefix('='), rest.strip_prefix(':'));
        match (&kind, path, parameters) {
            (Self::File(_), Some(path), _) if !path.is_empty() => Ok(Self::File(path.into())),
            (Self::Heap | Self::Huge | Self::Memfd | Self::Emulated(_), None, None) => Ok(kind),
            (Self::Emulated(_), None, Some(model)) => model.parse().map(Self::Emulated),
            (Self::Bar(_), None, Some(spec)) => spec.parse().map(Self::Bar),
            (Self::Dmabuf(_), None, Some(fd)) => number(fd).map(Self::Dmabuf).ok_or_else(expected),
            (Self::Cuda(_), None, Some(device)) => number(device).map(Self::Cuda).ok_or_else(expected),
            (
                Self::Heap
                | Self::Huge
                | Self::Memfd
                | Self::File(_)
                | Self::Emulated(_)
                | Self::Bar(_)
                | Self::Dmabuf(_)
                | Self::Cuda(_),
                ..,
            ) => Err(expected()),
        }
    }
}

/// Parses a number of decimal digits only.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
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
            RegionKind::Emulated(_) => 4,
            RegionKind::Bar(_) => 5,
            RegionKind::Dmabuf(_) => 6,
            RegionKind::Cuda(_) => 7,
        }
    }

    #[test]
    fn region_kinds_are_listed_once() {
        let indices = RegionKind::all().each_ref().map(index);
        assert!(indices.iter().copied().eq(0..indices.len()), "{indices:?}");
        for (row, kind) in RegionKind::rows().iter().zip(RegionKind::all()) {
            assert!(row[0].starts_with(kind.name()), "{row:?}");
        }
    }

    #[test]
    fn table_has_the_kind_to_pass_to_another_process() {
        let mapped = RegionKind::rows().map(|[_, _, mapped, _]| mapped);
        assert_eq!(mapped[..5], ["as memfd", "no", "yes", "no", "yes"]);
        assert!(mapped[5..].iter().all(|mapped| mapped == "no"));
    }

    #[test]
    fn region_kind_parse_inverts_display() {
        let bar: BarSpec = "0000:03:00.0/4:access=4".parse().unwrap();
        let slow = PathModel { latency_ns: 5_000, ..PathModel::PATH2 };
        let examples = [
            RegionKind::File("/tmp/a=b:c".into()),
            RegionKind::Emulated(PathModel::PATH3_250MHZ),
            RegionKind::Emulated(slow),
            RegionKind::Bar(bar),
        ];
        let all = RegionKind::all().into_iter().filter(|kind| !matches!(kind, RegionKind::File(_)));
        for kind in all.chain(examples) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn mapped_kinds_are_those_whose_regions_have_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let made = [RegionKind::Heap, RegionKind::Memfd, RegionKind::File(folder.path().join("a"))];
        for kind in made.into_iter().chain([RegionKind::Emulated(PathModel::default())]) {
            assert_eq!(kind.make("a", 4096, true).unwrap().is_mapped(), kind.is_mapped(), "{kind}");
        }
        assert_eq!(RegionKind::mapped_forms(), "heap, huge, memfd or file=PATH");
    }

    #[test]
    fn unknown_region_kind_is_refused_with_all_kinds() {
        for text in ["", "Heap", "gpu", "heaps", ":", "=x"] {
            let error = text.parse::<RegionKind>().unwrap_err();
            assert!(error.starts_with("expected heap, huge, memfd, file=PATH, emulated"), "{text}: {error}");
            assert!(error.ends_with(&format!("found {text}")), "{text}: {error}");
        }
    }

    #[test]
    fn wrong_parameters_are_refused_with_the_form_of_the_kind() {
        for (text, form) in [
            ("heap=1", "heap,"),
            ("huge:2", "huge,"),
            ("memfd=", "memfd,"),
            ("file", "file=PATH"),
            ("file=", "file=PATH"),
            ("file:x", "file=PATH"),
            ("emulated=path2", "emulated["),
            ("emulated:path9", "path1, path2"),
            ("bar", "bar:ADDRESS/BAR"),
            ("bar:0", "0000:03:00.0/4"),
            ("dmabuf", "dmabuf:FD"),
            ("dmabuf:-1", "dmabuf:FD"),
            ("dmabuf:", "dmabuf:FD"),
            ("cuda", "cuda:N"),
            ("cuda:x", "cuda:N"),
            ("cuda:5000000000", "cuda:N"),
        ] {
            let error = text.parse::<RegionKind>().unwrap_err();
            assert!(error.contains(form), "{text}: {error}");
        }
    }
}
