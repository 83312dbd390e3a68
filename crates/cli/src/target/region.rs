//! Regions of the command line, and their memory.

use crate::Result;
use crate::values::Size;
use shotline_memory::{Access, Pages, RegionKind};
use shotline_verbs::cm::Export;
use shotline_verbs::cm::message::Name;
use std::str::FromStr;

/// A region as specified on the command line: `NAME=SIZE[,memory=KIND][,rights=r|w|rw|atomic]`. The
/// word `memory=` may be omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    name: Name,
    size: Size,
    kind: RegionKind,
    rights: Access,
}

impl FromStr for RegionSpec {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut words = text.split(',');
        let first = words.next().unwrap_or_default();
        let (name, size) = first.split_once('=').ok_or_else(|| format!("expected NAME=SIZE, found {first}"))?;
        let (name, size) = (Name::try_from(name.to_owned())?, size.parse::<Size>()?);
        if size.0 == 0 {
            return Err(format!("region {name} needs at least one byte"));
        }
        let (mut kind, mut rights) = (None, None);
        for word in words {
            let found = match word.split_once('=') {
                Some(("rights", letters)) => rights.replace(named_rights(letters)?).is_some(),
                Some(("memory", word)) => kind.replace(word.parse::<RegionKind>()?).is_some(),
                _ if RegionKind::all().iter().any(|kind| word.starts_with(kind.name())) => {
                    kind.replace(word.parse::<RegionKind>()?).is_some()
                }
                _ => {
                    let forms = RegionKind::forms();
                    return Err(format!("expected memory={forms}, or rights=r|w|rw|atomic, found {word}"));
                }
            };
            if found {
                return Err(format!("region {name}: {word} contradicts an earlier setting"));
            }
        }
        let (kind, rights) = (kind.unwrap_or(RegionKind::Heap), rights.unwrap_or(Access::REMOTE_READ));
        Ok(Self { name, size, kind, rights })
    }
}

fn named_rights(letters: &str) -> std::result::Result<Access, String> {
    match letters {
        "r" => Ok(Access::REMOTE_READ),
        "w" => Ok(Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        "rw" => Ok(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        "atomic" => Ok(Access::ALL),
        _ => Err(format!("expected rights r, w, rw or atomic (rw and atomic operations), found {letters}")),
    }
}

impl RegionSpec {
    /// Returns the kind of pages and the number of bytes that it takes. `shared` is as for [`Self::make`].
    pub fn memory(&self, shared: bool) -> (Pages, u64) {
        let kind = if shared { self.kind.shareable_kind() } else { None };
        (kind.as_ref().unwrap_or(&self.kind).description().pages, self.size.0)
    }

    /// Allocates the memory. With `shared` it is memory that can be passed to another process, regardless of the
    /// requested kind.
    pub fn make(&self, shared: bool) -> Result<Export> {
        let Self { name, size, .. } = self;
        let len =
            usize::try_from(size.0).map_err(|_| format!("region {name}: {size} is more than this machine has"))?;
        let writable = self.rights.allows(Access::LOCAL_WRITE);
        if shared && writable && !self.rights.allows(Access::REMOTE_READ) {
            let words = format!("region {name}: shared memory that is writable is also readable: use rights=rw");
            return Err(words.into());
        }
        let kind = if shared { self.kind.shareable_kind() } else { Some(self.kind.clone()) };
        let kind = kind.ok_or_else(|| {
            let kind = &self.kind;
            format!("region {name}: memory={kind} cannot be shared with another process: use memory=memfd or memory=emulated, or --transport soft")
        })?;
        let region = kind.make(&format!("shotline-{name}"), len, writable);
        let region = region.map_err(|error| format!("region {name}: {error}"))?;
        if self.rights.allows(Access::REMOTE_ATOMIC) && !region.is_mapped() {
            let words = format!("region {name}: memory={kind} has no atomic operations: use rights=rw");
            return Err(words.into());
        }
        // Another process maps whole pages.
        let bytes = if shared { region.len() as u64 } else { size.0 };
        Ok(Export { name: name.clone(), region, bytes, rights: self.rights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_defaults_to_read_only_heap() {
        let spec: RegionSpec = "name=1M".parse().unwrap();
        assert_eq!((spec.kind, spec.rights), (RegionKind::Heap, Access::REMOTE_READ));
        let spec: RegionSpec = "log=8G,file=/tmp/a=b,rights=rw".parse().unwrap();
        assert_eq!(spec.kind, RegionKind::File("/tmp/a=b".into()));
        assert!(spec.rights.allows(Access::REMOTE_WRITE) && !spec.rights.allows(Access::REMOTE_ATOMIC));
    }

    #[test]
    fn memory_setting_names_every_kind() {
        let kind = |text: &str| text.parse::<RegionSpec>().unwrap().kind;
        for example in [
            "heap",
            "huge",
            "memfd",
            "file=/tmp/a=b",
            "emulated",
            "emulated:path2",
            "emulated:write=4.8GB/s:read=1.2GB/s:latency=5us",
            "bar:0000:03:00.0/4:access=4",
            "dmabuf:7",
            "cuda:1",
        ] {
            let expected: RegionKind = example.parse().unwrap();
            assert_eq!(kind(&format!("a=1M,rights=rw,memory={example}")), expected);
            assert_eq!(kind(&format!("a=1M,{example},rights=rw")), expected);
        }
    }

    #[test]
    fn device_memory_has_no_atomic_rights() {
        let make = |text: &str, shared| text.parse::<RegionSpec>().unwrap().make(shared).map(|export| export.bytes);
        assert_eq!(make("a=5000,memory=emulated,rights=rw", false).unwrap(), 5000);
        let error = make("a=5000,memory=emulated,rights=atomic", false).unwrap_err().to_string();
        assert!(error.contains("memory=emulated has no atomic operations: use rights=rw"), "{error}");
    }

    #[test]
    fn memory_of_a_device_is_shared_only_if_emulated() {
        let make = |text: &str| text.parse::<RegionSpec>().unwrap().make(true);
        let Export { region, bytes, .. } = make("a=5000,memory=emulated:path2,rights=rw").unwrap();
        assert_eq!((bytes, region.is_mapped()), (8192, false));
        let model = region.emulated_memory().unwrap().path().model();
        assert_eq!(RegionKind::Emulated(model), "emulated:path2".parse().unwrap());
        let error = make("a=5000,memory=emulated,rights=atomic").unwrap_err().to_string();
        assert!(error.contains("memory=emulated has no atomic operations: use rights=rw"), "{error}");
        for kind in ["bar:0000:03:00.0/4", "dmabuf:7", "cuda:0"] {
            let error = make(&format!("a=5000,memory={kind},rights=rw")).unwrap_err().to_string();
            assert!(error.contains(&format!("memory={kind} cannot be shared")), "{error}");
            assert!(error.contains("memory=emulated, or --transport soft"), "{error}");
        }
    }

    #[test]
    fn malformed_region_is_refused() {
        for (text, words) in [
            ("8G", "NAME=SIZE"),
            ("a b=8G", "letters, digits"),
            ("a=8X", "8X"),
            ("a=0", "at least one byte"),
            ("a=1M,gpu", "heap, huge, memfd"),
            ("a=1M,rights=x", "r, w, rw or atomic"),
            ("a=1M,huge,file=/x", "contradicts"),
            ("a=1M,file=", "file=PATH"),
            ("a=1M,memory=gpu", "heap, huge, memfd"),
            ("a=1M,memory=heap,huge", "contradicts"),
            ("a=1M,memory=emulated:write=fast", "4.8GB/s"),
            ("a=1M,emulated:path9", "path1, path2"),
            ("a=1M,memory", "found memory"),
        ] {
            let error = text.parse::<RegionSpec>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
