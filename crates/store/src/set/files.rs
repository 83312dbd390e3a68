//! The files of a run as recovery finds them: beneath the master's own folder and those that the user names for runs over
//! several drives, and each by what it says of itself.

use super::plan::{canonical, hidden_parts_beside, parts_beside};
use crate::StoreError;
use crate::beneath::Folder;
use crate::info::{PartInfo, RunInfo};
use crate::layout::{self, Opened, folder};
use crate::lock::Held;
use crate::master::{FileEntry, Master, resolve};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes at a file's start in which a recording names its run.
const HEAD: usize = 128 << 10;

/// Parts by their names, and the paths.
type Listed = Result<Vec<(u64, PathBuf)>, StoreError>;

/// Where the files of a run may be.
#[derive(Debug)]
pub(super) struct Files {
    master: PathBuf,
    run_id: String,
    stripes: u32,
    /// The master's own comes first.
    folders: Vec<Folder>,
    /// Names after which those of the parts are made.
    outs: BTreeSet<PathBuf>,
}

/// A file of the run, open for writing. That it is of the run was read from this very descriptor.
#[derive(Debug)]
pub(super) struct OfRun {
    pub(super) place: PartInfo,
    pub(super) run: RunInfo,
    pub(super) opened: Opened,
    /// Its name for the master.
    pub(super) name: String,
}

/// A file that has the name of a part, as the kernel knows it.
#[derive(Debug)]
pub(super) struct Named {
    folder: usize,
    name: PathBuf,
    pub(super) path: PathBuf,
    /// By its name.
    pub(super) part: u64,
}

impl Named {
    /// A file in the master's folder that is no part.
    pub(super) fn of_master(path: PathBuf) -> Option<Self> {
        let name = PathBuf::from(path.file_name()?);
        Some(Self { folder: 0, name, path, part: 0 })
    }
}

/// A file that was read and found removable. It stays open, with the lock on it: its name may be another file's by the
/// time it is removed, its inode cannot.
#[derive(Debug)]
pub(super) struct Removable {
    pub(super) named: Named,
    file: Judged,
}

#[derive(Debug)]
enum Judged {
    Part(Box<OfRun>),
    Draft(Held),
}

impl Removable {
    /// A file of the run; `named` is what it was opened by.
    pub(super) fn part(named: Named, file: OfRun) -> Self {
        Self { named, file: Judged::Part(Box::new(file)) }
    }
    fn file(&self) -> &File {
        match &self.file {
            Judged::Part(part) => part.opened.file.handle(),
            Judged::Draft(draft) => draft.file(),
        }
    }
}

impl Files {
    /// Refuses a run with files that are in none of these folders.
    pub(super) fn of(path: &Path, master: &Master, drives: &[PathBuf]) -> Result<Self, StoreError> {
        let open = |path: &Path| Folder::open(path).map_err(StoreError::io("open the folder", path));
        let folders = [folder(path)].into_iter().chain(drives.iter().map(PathBuf::as_path)).map(open);
        let files = Self {
            master: path.to_owned(),
            run_id: master.run.run_id.clone(),
            stripes: master.stripes,
            folders: folders.collect::<Result<_, _>>()?,
            outs: master.files.iter().filter_map(out).collect(),
        };
        let mut elsewhere = BTreeSet::new();
        for entry in &master.files {
            let said = resolve(path, &entry.file);
            let there = canonical(folder(&said));
            let known = files.folders.iter().any(|folder| folder.is(&there));
            if !known && said.exists() && !files.has(Path::new(&entry.file)) {
                elsewhere.insert(there);
            }
        }
        if elsewhere.is_empty() {
            return Ok(files);
        }
        Err(StoreError::Elsewhere { path: path.to_owned(), folders: elsewhere.into_iter().collect() })
    }

    fn has(&self, said: &Path) -> bool {
        let name = Path::new(said.file_name().unwrap_or_default());
        self.folders.iter().any(|folder| folder.file(name, OFlags::RDONLY).is_ok())
    }

    /// Where the master says that a file is.
    pub(super) fn said(&self, entry: &FileEntry) -> PathBuf {
        resolve(&self.master, &entry.file)
    }

    /// The file of an entry: the last component of its name is looked for in every folder, first in the one that the master
    /// says. None if there is none that is of this run, this part and this drive.
    pub(super) fn find(&self, entry: &FileEntry) -> Result<Option<OfRun>, StoreError> {
        let Some(name) = Path::new(&entry.file).file_name().map(PathBuf::from) else { return Ok(None) };
        let said = self.said(entry);
        let mut folders: Vec<usize> = (0..self.folders.len()).collect();
        folders.sort_by_key(|index| !self.folders[*index].is(folder(&said)));
        for folder in folders {
            let path = self.folders[folder].path().join(&name);
            let named = Named { folder, name: name.clone(), path, part: entry.part.into() };
            let found = self.open(&named)?;
            let found = found.filter(|found| (found.place.part, found.place.stripe) == (entry.part, entry.stripe));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Opens a file; none if it is no part of this run. One that somebody writes to is an error.
    pub(super) fn open(&self, named: &Named) -> Result<Option<OfRun>, StoreError> {
        let folder = &self.folders[named.folder];
        let Ok(file) = folder.file(&named.name, OFlags::RDWR) else { return Ok(None) };
        let (run, opened) = match layout::open_file(file, &named.path) {
            Ok(found) => found,
            Err(error @ StoreError::InUse { .. }) => return Err(error),
            Err(_) => return Ok(None),
        };
        let own = run.part.filter(|place| run.run_id == self.run_id && place.stripes == self.stripes);
        let name = if named.folder == 0 { named.name.clone() } else { canonical(folder.path()).join(&named.name) };
        let name = name.to_string_lossy().into_owned();
        Ok(own.map(|place| OfRun { place, run, opened, name }))
    }

    /// What has the name of a part, in any folder.
    pub(super) fn named(&self) -> Result<Vec<Named>, StoreError> {
        self.listed(parts_beside)
    }

    /// What has the hidden name of a part.
    pub(super) fn hidden(&self) -> Result<Vec<Named>, StoreError> {
        self.listed(hidden_parts_beside)
    }

    fn listed(&self, list: fn(&Path) -> Listed) -> Result<Vec<Named>, StoreError> {
        let mut all = Vec::new();
        for (folder, out) in (0..self.folders.len()).flat_map(|folder| self.outs.iter().map(move |out| (folder, out))) {
            let found = list(&self.folders[folder].path().join(out))?.into_iter();
            all.extend(
                found.filter_map(|(part, path)| {
                    Some(Named { folder, name: PathBuf::from(path.file_name()?), path, part })
                }),
            );
        }
        Ok(all)
    }

    /// A file that was begun for this run and never got so far that it could be read, as removable: it names the run, or
    /// nothing was written to its head. Any other file, also one that a program is at, is given back as it came.
    pub(super) fn draft(&self, named: Named) -> Result<Removable, Named> {
        match self.open_draft(&named) {
            Some(draft) => Ok(Removable { named, file: Judged::Draft(draft) }),
            None => Err(named),
        }
    }

    fn open_draft(&self, named: &Named) -> Option<Held> {
        // Not what has another name, too: that may be the name of a part.
        let file = self.folders[named.folder].file(&named.name, OFlags::RDONLY | OFlags::NOFOLLOW).ok()?;
        let has_one_name = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 1);
        // Any other text may be in any file.
        if !has_one_name || uuid::Uuid::try_parse(&self.run_id).is_err() {
            return None;
        }
        let held = Held::claim_open(file, &named.path).ok()?;
        let mut head = vec![0; HEAD];
        // What cannot be read is not known to be blank.
        let len = held.file().read_at(&mut head, 0).ok()?;
        let names_run = || head[..len].windows(self.run_id.len()).any(|bytes| bytes == self.run_id.as_bytes());
        (names_run() || is_blank(held.file()).unwrap_or(false)).then_some(held)
    }

    /// Removes the file that was found removable, and no other that has come under its name since.
    pub(super) fn remove(&self, removable: &Removable) -> Result<(), StoreError> {
        let Named { folder, name, path, .. } = &removable.named;
        self.folders[*folder].remove(name, removable.file()).map_err(StoreError::io("remove", path))
    }
}

/// Whether a file has no byte that is not zero. What was never written is not read.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut block = vec![0; HEAD];
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

/// The name after which that of a part was made.
fn out(entry: &FileEntry) -> Option<PathBuf> {
    let name = Path::new(&entry.file);
    let stem = name.file_stem()?.to_string_lossy().into_owned();
    let (stem, _) = stem.rsplit_once(&format!("-{:05}", entry.part))?;
    let ending = name.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
    Some(PathBuf::from(format!("{stem}{ending}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_under_a_judged_files_name_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let run_id = uuid::Uuid::new_v4().to_string();
        let name = PathBuf::from(".run-00003.h5.new");
        let path = folder.path().join(&name);
        let files = Files {
            master: folder.path().join("run.h5"),
            run_id: run_id.clone(),
            stripes: 1,
            folders: vec![Folder::open(folder.path()).unwrap()],
            outs: BTreeSet::new(),
        };
        let judged = || {
            std::fs::write(&path, &run_id).unwrap();
            files.draft(Named { folder: 0, name: name.clone(), path: path.clone(), part: 3 }).unwrap()
        };
        let (kept, removable) = (folder.path().join("kept"), judged());
        std::fs::rename(&path, &kept).unwrap();
        std::fs::write(&path, "of another run").unwrap();
        assert!(files.remove(&removable).is_err());
        assert!(path.exists() && kept.exists());
        std::fs::remove_file(&path).unwrap();
        drop(removable);
        files.remove(&judged()).unwrap();
        assert!(!path.exists() && kept.exists());
    }
}
