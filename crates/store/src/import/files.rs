//! The files of a source: none that lies outside of its folder is read.

use super::error::ImportError;
use crate::beneath::Folder;
use crate::sys::hdf5::open_same;
use hdf5::Dataset;
use hdf5::dataset::Layout;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::Path;

/// Refuses a dataset whose numbers are in other files: its author would choose which files are read.
pub(super) fn expect_own(dataset: &Dataset, file: &hdf5::File, path: &Path) -> Result<(), ImportError> {
    // Names of files do not tell them apart: a link may go by any.
    let numbers = dataset.loc_info().and_then(|there| Ok((there.fileno, file.loc_info()?.fileno)));
    let (there, here) = numbers.map_err(ImportError::hdf5(path))?;
    let own = there == here && dataset.layout() != Layout::Virtual;
    let external = dataset.dcpl().and_then(|plist| plist.get_external()).map_err(ImportError::hdf5(path))?;
    if own && external.is_empty() {
        return Ok(());
    }
    let found = format!("expected the numbers of {} in this file, found them in others", dataset.name());
    Err(ImportError::format(path, format!("{found}: copy them into it (h5repack, or h5py)")))
}

/// Opens a file that lies in or below the folder of the source, for HDF5.
pub(super) fn open_below(folder: &Folder, name: &Path) -> Result<hdf5::File, ImportError> {
    let path = folder.path().join(name);
    let file = folder.file(name, OFlags::RDONLY).map_err(|errno| beneath(&path, errno))?;
    open_same(&file).map_err(ImportError::hdf5(&path))
}

/// Why a file that another one names is not read.
pub(super) fn beneath(path: &Path, errno: Errno) -> ImportError {
    match errno {
        Errno::XDEV => {
            ImportError::format(path, "expected a file in its own folder, found a link to elsewhere: put it there")
        }
        Errno::INVAL => ImportError::format(path, "expected a regular file, found a folder, pipe or device"),
        errno => ImportError::io(path)(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_the_file_that_was_looked_at_whatever_takes_its_name() {
        let outside = tempfile::tempdir().unwrap();
        let (named, moved) = (outside.path().join("named"), outside.path().join("moved"));
        let made = |folder: &Path, number: u32| {
            std::fs::create_dir(folder).unwrap();
            let file = hdf5::File::create(folder.join("a.h5")).unwrap();
            file.new_dataset_builder().with_data(&[number]).create("data").unwrap();
        };
        made(&named, 1);
        let folder = Folder::open(&named).unwrap();
        std::fs::rename(&named, &moved).unwrap();
        made(&named, 2);
        let file = open_below(&folder, Path::new("a.h5")).unwrap();
        let data = file.dataset("data").unwrap();
        assert_eq!(data.read_raw::<u32>().unwrap(), [1]);
    }
}
