//! Recognises folders that contain only an export of this crate, and so may be replaced.

use super::{digital_rf, zarr};
use crate::confined_path::Folder;
use crate::sys::hdf5::open_same;
use crate::zarr::MAX_NODE_BYTES;
use crate::zarr::objects::Objects;
use rustix::fs::OFlags;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the first entry in a folder that no export has written, or `None` if the folder contains only an export.
pub(super) fn find_foreign(folder: &Path) -> io::Result<Option<PathBuf>> {
    let root = Folder::open(folder)?;
    let node = folder.join("zarr.json");
    let is_zarr = node.symlink_metadata().is_ok();
    if is_zarr {
        // The file is untrusted, so its size is limited.
        let objects = Objects::open(folder).and_then(|objects| objects.get("zarr.json", MAX_NODE_BYTES));
        if !objects.is_ok_and(|node| node.is_some_and(|node| zarr::is_own(&node))) {
            return Ok(Some(node));
        }
    }
    let patterns = if is_zarr { zarr::path_patterns() } else { digital_rf::path_patterns() };
    let is_own = |name: &str, is_folder: bool| match is_folder {
        true => patterns.iter().any(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))),
        false => patterns.iter().any(|known| known == name),
    };
    // A channel's properties file identifies its origin, so it must be present.
    let marked = |channel: &Path| {
        let file = root.file(&channel.join(digital_rf::PROPERTIES), OFlags::RDONLY).ok()?;
        open_same(&file).and_then(|file| file.attr(digital_rf::MARK)).ok()
    };
    let mut next: Vec<PathBuf> = entries(folder, Path::new(""))?;
    while let Some(path) = next.pop() {
        let metadata = folder.join(&path).symlink_metadata()?;
        if !is_own(&pattern_of(&path), metadata.is_dir()) || !(metadata.is_dir() || metadata.is_file()) {
            return Ok(Some(folder.join(path)));
        }
        if metadata.is_dir() {
            if !is_zarr && path.components().count() == 1 && marked(&path).is_none() {
                let channel = folder.join(path);
                let properties = channel.join(digital_rf::PROPERTIES);
                return Ok(Some(if properties.symlink_metadata().is_ok() { properties } else { channel }));
            }
            next.extend(entries(folder, &path)?);
        }
    }
    Ok(None)
}

/// Returns the entries of `folder/below`, relative to `folder`, in descending order.
fn entries(folder: &Path, below: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = fs::read_dir(folder.join(below))?.map(|entry| Ok(below.join(entry?.file_name())));
    let mut listed = listed.collect::<io::Result<Vec<_>>>()?;
    listed.sort_unstable_by(|a, b| b.cmp(a));
    Ok(listed)
}

/// Returns a path with each number replaced by `#`.
fn pattern_of(path: &Path) -> String {
    let mut out = String::new();
    for letter in path.to_string_lossy().chars() {
        match letter {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            // A literal `#` must not match a number.
            '#' => out.push('?'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_in_names_may_vary() {
        let of = |path: &str| pattern_of(Path::new(path));
        assert_eq!(of("link12/rf/c/0/10/200"), "link#/rf/c/#/#/#");
        assert_eq!(of("link0/2026-11-21T04-00-00/rf@1763697600.000.h5"), "link#/#-#-#T#-#-#/rf@#.#.h#");
        assert_ne!(of("link#/rf"), of("link0/rf"));
    }

    #[test]
    fn arrays_of_another_program_are_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("zarr.json");
        fs::write(&root, r#"{"zarr_format": 3}"#).unwrap();
        assert_eq!(find_foreign(folder.path()).unwrap(), Some(root.clone()));
        fs::write(&root, r#"{"attributes": {"format": "shotline zarr"}}"#).unwrap();
        assert_eq!(find_foreign(folder.path()).unwrap(), None);
    }

    #[test]
    fn empty_folders_are_own_and_pipes_do_not_block() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_foreign(folder.path()).unwrap(), None);
        let channel = folder.path().join("link0");
        fs::create_dir(&channel).unwrap();
        let properties = channel.join("drf_properties.h5");
        rustix::fs::mknodat(rustix::fs::CWD, &properties, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        assert_eq!(find_foreign(folder.path()).unwrap(), Some(properties));
    }
}
