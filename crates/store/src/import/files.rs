//! Access to the files of a source, restricted to its folder.

use super::error::ImportError;
use crate::confined_path::Folder;
use crate::sys::hdf5::open_same;
use hdf5::Dataset;
use hdf5::dataset::Layout;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::Path;

/// Refuses a dataset whose data is in other files, with which the author of a source could read arbitrary files.
pub(super) fn expect_local(dataset: &Dataset, file: &hdf5::File, path: &Path) -> Result<(), ImportError> {
    // Files are compared by number, because a link may have any name.
    let numbers = dataset.loc_info().and_then(|data| Ok((data.fileno, file.loc_info()?.fileno)));
    let (data_file, this_file) = numbers.map_err(ImportError::hdf5(path))?;
    let local = data_file == this_file && dataset.layout() != Layout::Virtual;
    let external = dataset.dcpl().and_then(|plist| plist.get_external()).map_err(ImportError::hdf5(path))?;
    if local && external.is_empty() {
        return Ok(());
    }
    let found = format!("expected the numbers of {} in this file, found them in others", dataset.name());
    Err(ImportError::format(path, format!("{found}: copy them into it (h5repack, or h5py)")))
}

/// Opens an HDF5 file in or below the folder of the source.
pub(super) fn open_below(folder: &Folder, name: &Path) -> Result<hdf5::File, ImportError> {
    let path = folder.path().join(name);
    let file = folder.file(name, OFlags::RDONLY).map_err(|errno| open_error(&path, errno))?;
    open_same(&file).map_err(ImportError::hdf5(&path))
}

/// Converts the error of opening a file that a source names.
pub(super) fn open_error(path: &Path, errno: Errno) -> ImportError {
    match errno {
        Errno::XDEV => ImportError::format(
            path,
            "expected a file within the folder of the source, found a link out of it: copy the file there",
        ),
        Errno::INVAL => ImportError::format(path, "expected a regular file, found a folder, pipe or device"),
        errno => ImportError::io(path)(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_from_the_folder_as_opened() {
        let outside = tempfile::tempdir().unwrap();
        let (named, moved) = (outside.path().join("named"), outside.path().join("moved"));
        let create = |folder: &Path, number: u32| {
            std::fs::create_dir(folder).unwrap();
            let file = hdf5::File::create(folder.join("a.h5")).unwrap();
            file.new_dataset_builder().with_data(&[number]).create("data").unwrap();
        };
        create(&named, 1);
        let folder = Folder::open(&named).unwrap();
        std::fs::rename(&named, &moved).unwrap();
        create(&named, 2);
        let file = open_below(&folder, Path::new("a.h5")).unwrap();
        let data = file.dataset("data").unwrap();
        assert_eq!(data.read_raw::<u32>().unwrap(), [1]);
    }
}
