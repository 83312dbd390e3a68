//! Files of a run, as recovery finds them: beneath the master's folder and the folders that the user gives for runs
//! over several drives. Each file is identified by its own attributes.

use super::plan::{canonical, hidden_part_files, part_files};
use crate::StoreError;
use crate::confined_path::Folder;
use crate::info::{PartInfo, RunInfo};
use crate::layout::{self, Opened, folder};
use crate::lock::FileLock;
use crate::master::{FileEntry, Master, resolve};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes at the start of a recording that contain its run id.
const HEAD_BYTES: usize = 128 << 10;

/// Part numbers from the names, with the paths.
type PartPaths = Result<Vec<(u64, PathBuf)>, StoreError>;

/// Folders and names of the files of a run.
#[derive(Debug)]
pub(super) struct Files {
    master: PathBuf,
    run_id: String,
    stripes: u32,
    /// The master's folder comes first.
    folders: Vec<Folder>,
    /// Names from which the names of the parts are derived.
    base_names: BTreeSet<PathBuf>,
}

/// A file of the run, open for writing. Its run id was read from this descriptor.
#[derive(Debug)]
pub(super) struct RunFile {
    pub(super) position: PartInfo,
    pub(super) run: RunInfo,
    pub(super) opened: Opened,
    /// Name to enter in the master.
    pub(super) name: String,
}

/// Directory entry that has the name of a part.
#[derive(Debug)]
pub(super) struct NamedFile {
    folder: usize,
    name: PathBuf,
    pub(super) path: PathBuf,
    /// Part number in the name.
    pub(super) part: u64,
}

impl NamedFile {
    /// Names a file in the master's folder that is not a part.
    pub(super) fn of_master(path: PathBuf) -> Option<Self> {
        let name = PathBuf::from(path.file_name()?);
        Some(Self { folder: 0, name, path, part: 0 })
    }
}

/// A file that was read and found removable. It stays open and locked until it is removed: by then its name may belong
/// to another file, so removal compares the inode.
#[derive(Debug)]
pub(super) struct Removable {
    pub(super) named: NamedFile,
    file: Candidate,
}

#[derive(Debug)]
enum Candidate {
    Part(Box<RunFile>),
    Draft(FileLock),
}

impl Removable {
    /// Marks a file of the run as removable; `named` is the entry by which it was opened.
    pub(super) fn part(named: NamedFile, file: RunFile) -> Self {
        Self { named, file: Candidate::Part(Box::new(file)) }
    }
    fn file(&self) -> &File {
        match &self.file {
            Candidate::Part(part) => part.opened.file.handle(),
            Candidate::Draft(draft) => draft.file(),
        }
    }
}

impl Files {
    /// Opens the folders. Fails if the run has files in other folders.
    pub(super) fn of(path: &Path, master: &Master, drives: &[PathBuf]) -> Result<Self, StoreError> {
        let open = |path: &Path| Folder::open(path).map_err(StoreError::io("open the folder", path));
        let folders = [folder(path)].into_iter().chain(drives.iter().map(PathBuf::as_path)).map(open);
        let files = Self {
            master: path.to_owned(),
            run_id: master.run.run_id.clone(),
            stripes: master.stripes,
            folders: folders.collect::<Result<_, _>>()?,
            base_names: master.files.iter().filter_map(base_name).collect(),
        };
        let mut outside = BTreeSet::new();
        for entry in &master.files {
            let listed = resolve(path, &entry.file);
            let parent = canonical(folder(&listed));
            let known = files.folders.iter().any(|folder| folder.is(&parent));
            if !known && listed.exists() && !files.has(Path::new(&entry.file)) {
                outside.insert(parent);
            }
        }
        if outside.is_empty() {
            return Ok(files);
        }
        Err(StoreError::FilesOutside { path: path.to_owned(), folders: outside.into_iter().collect() })
    }

    fn has(&self, listed: &Path) -> bool {
        let name = Path::new(listed.file_name().unwrap_or_default());
        self.folders.iter().any(|folder| folder.file(name, OFlags::RDONLY).is_ok())
    }

    /// Returns the path of a file according to the master.
    pub(super) fn listed_path(&self, entry: &FileEntry) -> PathBuf {
        resolve(&self.master, &entry.file)
    }

    /// Finds the file of an entry: searches every folder for the last component of its name, first the one in the
    /// master. `None` if no file belongs to this run, part and drive.
    pub(super) fn find(&self, entry: &FileEntry) -> Result<Option<RunFile>, StoreError> {
        let Some(name) = Path::new(&entry.file).file_name().map(PathBuf::from) else { return Ok(None) };
        let listed = self.listed_path(entry);
        let mut folders: Vec<usize> = (0..self.folders.len()).collect();
        folders.sort_by_key(|index| !self.folders[*index].is(folder(&listed)));
        for folder in folders {
            let path = self.folders[folder].path().join(&name);
            let named = NamedFile { folder, name: name.clone(), path, part: entry.part.into() };
            let found = self.open(&named)?;
            let found =
                found.filter(|found| (found.position.part, found.position.stripe) == (entry.part, entry.stripe));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Opens a file; `None` if it is not a part of this run. Fails if another program writes it.
    pub(super) fn open(&self, named: &NamedFile) -> Result<Option<RunFile>, StoreError> {
        let folder = &self.folders[named.folder];
        let Ok(file) = folder.file(&named.name, OFlags::RDWR) else { return Ok(None) };
        let (run, opened) = match layout::open_file(file, &named.path) {
            Ok(found) => found,
            Err(error @ StoreError::InUse { .. }) => return Err(error),
            Err(_) => return Ok(None),
        };
        let position = run.part.filter(|part| run.run_id == self.run_id && part.stripes == self.stripes);
        let name = if named.folder == 0 { named.name.clone() } else { canonical(folder.path()).join(&named.name) };
        let name = name.to_string_lossy().into_owned();
        Ok(position.map(|position| RunFile { position, run, opened, name }))
    }

    /// Lists entries with the name of a part, in all folders.
    pub(super) fn named(&self) -> Result<Vec<NamedFile>, StoreError> {
        self.entries(part_files)
    }

    /// Lists entries with the hidden name of a part.
    pub(super) fn hidden(&self) -> Result<Vec<NamedFile>, StoreError> {
        self.entries(hidden_part_files)
    }

    fn entries(&self, list: fn(&Path) -> PartPaths) -> Result<Vec<NamedFile>, StoreError> {
        let mut all = Vec::new();
        for (folder, base_name) in
            (0..self.folders.len()).flat_map(|folder| self.base_names.iter().map(move |base_name| (folder, base_name)))
        {
            let found = list(&self.folders[folder].path().join(base_name))?.into_iter();
            all.extend(found.filter_map(|(part, path)| {
                Some(NamedFile { folder, name: PathBuf::from(path.file_name()?), path, part })
            }));
        }
        Ok(all)
    }

    /// Returns an unfinished file of this run as removable: one that cannot be read as a recording, and contains the
    /// run id or is blank. Any other file, or one that is locked, is returned as the error.
    pub(super) fn draft(&self, named: NamedFile) -> Result<Removable, NamedFile> {
        match self.open_draft(&named) {
            Some(draft) => Ok(Removable { named, file: Candidate::Draft(draft) }),
            None => Err(named),
        }
    }

    fn open_draft(&self, named: &NamedFile) -> Option<FileLock> {
        // A file with a second hard link is kept: the other name may be that of a part.
        let file = self.folders[named.folder].file(&named.name, OFlags::RDONLY | OFlags::NOFOLLOW).ok()?;
        let has_one_name = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 1);
        // Only a UUID is specific enough to identify the run by a byte search.
        if !has_one_name || uuid::Uuid::try_parse(&self.run_id).is_err() {
            return None;
        }
        let locked = FileLock::exclusive_open(file, &named.path).ok()?;
        let mut head = vec![0; HEAD_BYTES];
        // A file that cannot be read is not known to be blank.
        let len = locked.file().read_at(&mut head, 0).ok()?;
        let names_run = || head[..len].windows(self.run_id.len()).any(|bytes| bytes == self.run_id.as_bytes());
        (names_run() || is_blank(locked.file()).unwrap_or(false)).then_some(locked)
    }

    /// Removes the file, unless its name now belongs to another one.
    pub(super) fn remove(&self, removable: &Removable) -> Result<(), StoreError> {
        let NamedFile { folder, name, path, .. } = &removable.named;
        self.folders[*folder].remove(name, removable.file()).map_err(StoreError::io("remove", path))
    }
}

/// Returns `true` if all bytes of a file are zero. Holes are skipped.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut block = vec![0; HEAD_BYTES];
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(true), // a hole up to the end
            Err(errno) => return Err(errno.into()),
        };
        let len = file.read_at(&mut block, at)?;
        if block[..len].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += len as u64;
    }
}

/// Returns the name from which the name of a part was derived.
fn base_name(entry: &FileEntry) -> Option<PathBuf> {
    let name = Path::new(&entry.file);
    let stem = name.file_stem()?.to_string_lossy().into_owned();
    let (stem, _) = stem.rsplit_once(&format!("-{:05}", entry.part))?;
    let extension = name.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    Some(PathBuf::from(format!("{stem}{extension}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_spares_a_new_file_of_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let run_id = uuid::Uuid::new_v4().to_string();
        let name = PathBuf::from(".run-00003.h5.new");
        let path = folder.path().join(&name);
        let files = Files {
            master: folder.path().join("run.h5"),
            run_id: run_id.clone(),
            stripes: 1,
            folders: vec![Folder::open(folder.path()).unwrap()],
            base_names: BTreeSet::new(),
        };
        let candidate = || {
            std::fs::write(&path, &run_id).unwrap();
            files.draft(NamedFile { folder: 0, name: name.clone(), path: path.clone(), part: 3 }).unwrap()
        };
        let (kept, removable) = (folder.path().join("kept"), candidate());
        std::fs::rename(&path, &kept).unwrap();
        std::fs::write(&path, "of another run").unwrap();
        assert!(files.remove(&removable).is_err());
        assert!(path.exists() && kept.exists());
        std::fs::remove_file(&path).unwrap();
        drop(removable);
        files.remove(&candidate()).unwrap();
        assert!(!path.exists() && kept.exists());
    }
}
