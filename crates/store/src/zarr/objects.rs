//! Storage of Zarr objects: files in a folder, or an S3 object store (feature `s3`).

mod error;
#[cfg(feature = "s3")]
mod s3;

use crate::confined_path::Folder;
pub use error::ObjectError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Object storage. Keys are relative paths separated by `/`.
#[derive(Debug)]
pub enum Objects {
    /// Files below a folder.
    Folder(PathBuf),
    /// Objects below a prefix of a bucket.
    #[cfg(feature = "s3")]
    S3(Box<s3::S3>),
}

/// Returns `true` if the path names an object store rather than a folder.
pub fn is_remote(to: &Path) -> bool {
    to.to_str().is_some_and(|to| to.starts_with("s3:"))
}

impl Objects {
    /// Opens a folder, or `s3://bucket/prefix` with endpoint and credentials from the environment. Sends no request.
    ///
    /// # Errors
    /// [`ObjectError::Address`] if the address or a setting is invalid, or if this crate is built without feature `s3`.
    pub fn open(at: &Path) -> Result<Self, ObjectError> {
        if !is_remote(at) {
            return Ok(Self::Folder(at.to_owned()));
        }
        #[cfg(feature = "s3")]
        return Ok(Self::S3(Box::new(s3::S3::open(&at.to_string_lossy())?)));
        #[cfg(not(feature = "s3"))]
        Err(ObjectError::Address(format!(
            "{}: this program was built without object stores: build it with --features s3, or name a folder",
            at.display()
        )))
    }

    /// Writes an object.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(key);
                let parent = path.parent().unwrap_or(folder);
                fs::create_dir_all(parent).map_err(failed("create", parent))?;
                fs::write(&path, bytes).map_err(failed("write", &path))
            }
            #[cfg(feature = "s3")]
            Self::S3(store) => store.put(key, bytes),
        }
    }

    /// Reads an object of at most `max_bytes` bytes. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the object is larger or cannot be read, or, in a folder, if it is not a regular file in or below the folder.
    pub fn get(&self, key: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        match self {
            Self::Folder(folder) => match read_below(folder, key, max_bytes) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed("read", &folder.join(key))(error)),
            },
            #[cfg(feature = "s3")]
            Self::S3(store) => store.get(key, max_bytes),
        }
    }

    /// Removes every object of a store whose key starts with `part`. Does nothing for a folder, which gets its name
    /// only when it is complete.
    #[cfg_attr(not(feature = "s3"), allow(unused_variables))]
    pub fn clear(&self, part: &str) -> Result<(), ObjectError> {
        match self {
            Self::Folder(_) => Ok(()),
            #[cfg(feature = "s3")]
            Self::S3(store) => store.clear(part),
        }
    }

    /// Removes an object of a store. Does nothing for a folder.
    #[cfg_attr(not(feature = "s3"), allow(unused_variables))]
    pub fn remove(&self, key: &str) -> Result<(), ObjectError> {
        match self {
            Self::Folder(_) => Ok(()),
            #[cfg(feature = "s3")]
            Self::S3(store) => store.remove(key),
        }
    }
}

fn read_below(folder: &Path, key: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = Folder::open(folder)?.file(Path::new(key), OFlags::RDONLY).map_err(|errno| match errno {
        Errno::XDEV => io::Error::other("expected a file within the folder of the source, found a link out of it"),
        Errno::INVAL => io::Error::other("expected a regular file, found a folder, pipe or device"),
        errno => errno.into(),
    })?;
    let mut bytes = Vec::new();
    if (&file).take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)? as u64 > max_bytes {
        return Err(io::Error::other(format!("expected {max_bytes} bytes at most, found more")));
    }
    Ok(bytes)
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ObjectError {
    let path = path.to_owned();
    move |source| ObjectError::File { what, path, source }
}
