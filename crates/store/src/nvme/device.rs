//! A device: its identity, and reads and writes of whole logical blocks.

use super::target::{AccessMethod, Target};
use crate::StoreError;
use crate::positioned::write_file;
use crate::sys::drive::DriveSetup;
use crate::sys::nvme::{Identity, Namespace};
use crate::sys::passthrough::Commands;
use crate::sys::ring::{FileTarget, Ring};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shotline_memory::Regions;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Alignment of extents in bytes; also the offset of the first one, after the directory.
pub(super) const EXTENT_ALIGN: u64 = 1 << 20;
/// Maximum number of attempts of a command that fails with a transient error.
const MAX_ATTEMPTS: u32 = 5;
/// Alignment of buffers for direct I/O.
const MEMORY_ALIGN: usize = 4096;
/// Maximum size of one direct read or write in bytes.
const DIRECT_IO_BYTES: u32 = 1 << 20;

/// Access mode of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Read and write, exclusive: fails if the device is mounted or otherwise held.
    Write,
}

#[derive(Debug)]
enum Backend {
    Passthrough(Namespace),
    Direct(File),
}

/// An open device. See the module.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    backend: Backend,
    /// Offset of a partition in its namespace, in bytes: passthrough commands address the whole namespace. 0 for
    /// `O_DIRECT`, which addresses the partition.
    base: u64,
    /// File on which locks are taken: the block device, for both access methods.
    handle: File,
    /// Exclusive open of the block device, which keeps it from being mounted.
    _exclusive: Option<File>,
}

/// A block device in sysfs.
struct BlockDevice {
    name: String,
    folder: PathBuf,
}

impl BlockDevice {
    /// Returns the block device of a path; `None` if it is not one.
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Self::at(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
    }
    fn at(link: &Path) -> Option<Self> {
        let folder = link.canonicalize().ok()?;
        Some(Self { name: folder.file_name()?.to_str()?.to_owned(), folder })
    }
    fn text(&self, names: &[&str]) -> Option<String> {
        let own = |name: &&str| std::fs::read_to_string(self.folder.join(name)).ok();
        names.iter().find_map(own).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }
    fn number(&self, names: &[&str]) -> Option<u64> {
        self.text(names)?.parse().ok()
    }
    fn is_partition(&self) -> bool {
        self.folder.join("partition").exists()
    }
    /// Returns the offset on the whole device and the length, in bytes. sysfs counts in units of 512 bytes.
    fn extent(&self) -> Option<(u64, u64)> {
        let start = if self.is_partition() { self.number(&["start"])? } else { 0 };
        Some((start * 512, self.number(&["size"])? * 512))
    }
    /// Returns the maximum size of a passthrough command's data in bytes.
    fn max_transfer(&self) -> u32 {
        let max_bytes = self.number(&["queue/max_hw_sectors_kb", "../queue/max_hw_sectors_kb"]).unwrap_or(128) * 1024;
        // Each page of a command's memory is a segment, and the first page may be partial.
        let segments = self.number(&["queue/max_segments", "../queue/max_segments"]).unwrap_or(33).max(2);
        max_bytes.min((segments - 1) * 4096) as u32
    }
}

impl Device {
    /// Opens a device. For writing this fails if it is held by a mount, swap, LVM or md.
    pub(super) fn open(target: &Target, access: Access) -> Result<Self, StoreError> {
        let path = target.device.as_path();
        let metadata = path.metadata().map_err(|error| io_error("open", path, &error))?;
        match target.method {
            AccessMethod::Passthrough => Self::passthrough(path, metadata.file_type().is_char_device(), access),
            AccessMethod::Block => Self::direct(path, access),
        }
        .and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, StoreError> {
        let Identity { block, bytes, .. } = self.identity;
        let found = match block {
            _ if !block.is_power_of_two() || !(512..=4096).contains(&block) => {
                format!("expected logical blocks of 512 to 4096 bytes, found {block}")
            }
            _ if bytes < 4 * EXTENT_ALIGN => format!("expected {} bytes or more, found {bytes}", 4 * EXTENT_ALIGN),
            _ => return Ok(self),
        };
        Err(StoreError::format(&self.path, found))
    }

    /// Opens a namespace for passthrough commands, by its character device, its block device or a partition.
    fn passthrough(path: &Path, is_character: bool, access: Access) -> Result<Self, StoreError> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let not_nvme = || StoreError::NotNvme { path: path.to_owned() };
        let (character, block_path, block) = if is_character {
            // sysfs finds the block device by number, whatever the name of the node and even without a block node.
            let metadata = real.metadata().map_err(|error| io_error("open", path, &error))?;
            let numbers = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            let folder = Path::new(&format!("/sys/dev/char/{}:{}", numbers.0, numbers.1)).canonicalize();
            let folder = folder.map_err(|_| not_nvme())?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let block = format!("nvme{}", name.strip_prefix("ng").ok_or_else(not_nvme)?);
            (real.clone(), real.with_file_name(&block), BlockDevice::at(&folder.with_file_name(&block)))
        } else {
            let block = BlockDevice::of(&real).ok_or_else(not_nvme)?;
            let whole = block.folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let whole = if block.is_partition() { whole.into_owned() } else { block.name.clone() };
            let numbers = whole.strip_prefix("nvme").ok_or_else(not_nvme)?;
            (real.with_file_name(format!("ng{numbers}")), real.clone(), Some(block))
        };
        let exclusive = match (&block, access) {
            (Some(_), Access::Write) => Some(open_exclusive(&block_path)?),
            _ => None,
        };
        let flags = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = rustix::fs::open(&character, flags | OFlags::CLOEXEC, Mode::empty());
        let file: File = file.map_err(StoreError::io("open", &character))?.into();
        let handle = match &exclusive {
            Some(exclusive) => exclusive.try_clone(),
            None => File::open(&block_path).or_else(|_| file.try_clone()),
        };
        let handle = handle.map_err(|error| io_error("open", path, &error))?;
        let namespace = Namespace::open(file).map_err(|source| StoreError::Identify { path: character, source })?;
        let mut identity = namespace.identity().clone();
        if let Some(block) = &block {
            identity.max_transfer = identity.max_transfer.min(block.max_transfer());
        }
        identity.max_transfer -= identity.max_transfer % identity.block.max(4096);
        // A power of two, because it is also the length of registered buffers.
        identity.max_transfer = 1 << identity.max_transfer.max(identity.block).ilog2();
        if identity.serial.is_empty() {
            identity.serial = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        let extent = block.filter(BlockDevice::is_partition).and_then(|block| block.extent());
        let (base, bytes) = extent.unwrap_or((0, identity.bytes));
        if !base.is_multiple_of(u64::from(identity.block)) || base.saturating_add(bytes) > identity.bytes {
            return Err(StoreError::format(
                path,
                format!("expected a partition inside {} bytes, found {bytes} from {base}", identity.bytes),
            ));
        }
        identity.bytes = bytes - bytes % u64::from(identity.block);
        let backend = Backend::Passthrough(namespace);
        Ok(Self { path: path.to_owned(), identity, backend, base, handle, _exclusive: exclusive })
    }

    /// Opens a block device with `O_DIRECT`, or a plain file without it.
    fn direct(path: &Path, access: Access) -> Result<Self, StoreError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let access_flags = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let Some(block) = BlockDevice::of(path) else {
            if !path.is_file() {
                return Err(StoreError::format(path, "expected a block device, found something else"));
            }
            let file = rustix::fs::open(path, access_flags | OFlags::CLOEXEC, Mode::empty());
            let file: File = file.map_err(StoreError::io("open", path))?.into();
            let bytes = file.metadata().map_or(0, |metadata| metadata.len()) & !511;
            let identity = Identity {
                serial: name,
                block: 512,
                bytes,
                max_transfer: DIRECT_IO_BYTES,
                volatile: true,
                ..Identity::default()
            };
            let handle = file.try_clone().map_err(|error| io_error("open", path, &error))?;
            let backend = Backend::Direct(file);
            return Ok(Self { path: path.to_owned(), identity, backend, base: 0, handle, _exclusive: None });
        };
        let exclusive = if access == Access::Write { Some(open_exclusive(path)?) } else { None };
        let file = rustix::fs::open(path, access_flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
        let file: File = file.map_err(StoreError::io("open", path))?.into();
        let serials = ["device/serial", "../device/serial", "serial", "../serial", "device/wwid", "../device/wwid"];
        let identity = Identity {
            serial: block.text(&serials).unwrap_or(name),
            model: block.text(&["device/model", "../device/model"]).unwrap_or_default(),
            block: block
                .number(&["queue/logical_block_size", "../queue/logical_block_size"])
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(4096),
            bytes: block.extent().map_or(0, |(_, bytes)| bytes),
            max_transfer: DIRECT_IO_BYTES,
            volatile: true,
        };
        let handle = file.try_clone().map_err(|error| io_error("open", path, &error))?;
        let backend = Backend::Direct(file);
        Ok(Self { path: path.to_owned(), identity, backend, base: 0, handle, _exclusive: exclusive })
    }

    /// Returns the file on which locks are taken.
    pub(super) fn handle(&self) -> &File {
        &self.handle
    }

    /// Reads whole blocks.
    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Errno> {
        self.check_range(at, buf.len())?;
        let max_transfer = self.identity.max_transfer as usize;
        for (at, piece) in (at..).step_by(max_transfer).zip(buf.chunks_mut(max_transfer)) {
            retry(|| match &self.backend {
                Backend::Passthrough(namespace) => namespace.read(self.base + at, piece),
                Backend::Direct(file) => direct(piece, |piece| {
                    let mut done = 0;
                    while done < piece.len() {
                        match rustix::io::pread(file, &mut piece[done..], at + done as u64) {
                            Ok(0) => return Err(Errno::IO),
                            Ok(count) => done += count,
                            Err(Errno::INTR) => {}
                            Err(errno) => return Err(errno),
                        }
                    }
                    Ok(())
                }),
            })?;
        }
        Ok(())
    }

    /// Writes whole blocks.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.check_range(at, bytes.len())?;
        let max_transfer = self.identity.max_transfer as usize;
        for (at, piece) in (at..).step_by(max_transfer).zip(bytes.chunks(max_transfer)) {
            retry(|| match &self.backend {
                Backend::Passthrough(namespace) => namespace.write(self.base + at, piece),
                Backend::Direct(file) => {
                    let mut piece = piece.to_vec();
                    direct(&mut piece, |piece| write_file(file, at, piece))
                }
            })?;
        }
        Ok(())
    }

    /// Makes written data durable.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        match &self.backend {
            _ if !self.identity.volatile => Ok(()),
            Backend::Passthrough(namespace) => retry(|| namespace.flush()),
            Backend::Direct(file) => rustix::fs::fdatasync(file),
        }
    }

    fn check_range(&self, at: u64, len: usize) -> Result<(), Errno> {
        let Identity { block, bytes, .. } = self.identity;
        let whole = at.is_multiple_of(u64::from(block)) && (len as u64).is_multiple_of(u64::from(block));
        let inside = at.checked_add(len as u64).is_some_and(|end| end <= bytes);
        if whole && inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Creates the drive that writes shots, with offsets relative to `from`.
    pub(super) fn drive(&self, from: u64, depth: u32, regions: &Regions) -> io::Result<DriveSetup> {
        Ok(match &self.backend {
            Backend::Passthrough(namespace) => {
                let Identity { max_transfer, volatile, .. } = self.identity;
                let commands = Commands::new(namespace, max_transfer, volatile);
                let to = (namespace.file(), commands);
                let (ring, register_error) = Ring::new(depth, regions, to, self.base + from)?;
                (Box::new(ring), register_error)
            }
            Backend::Direct(file) => {
                let (ring, register_error) = Ring::new(depth, regions, (file, FileTarget), from)?;
                (Box::new(ring), register_error)
            }
        })
    }
}

/// Retries an operation on transient errors.
fn retry(mut what: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    let mut result = what();
    for _ in 1..MAX_ATTEMPTS {
        match result {
            Err(Errno::IO | Errno::AGAIN | Errno::INTR | Errno::BUSY) => result = what(),
            _ => break,
        }
    }
    result
}

/// Runs direct I/O on aligned memory, through a bounce buffer if needed.
fn direct(piece: &mut [u8], what: impl FnOnce(&mut [u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    if piece.as_ptr().align_offset(MEMORY_ALIGN) == 0 {
        return what(piece);
    }
    let mut bounce = vec![0; piece.len() + MEMORY_ALIGN];
    let start = bounce.as_ptr().align_offset(MEMORY_ALIGN).min(MEMORY_ALIGN);
    let aligned = &mut bounce[start..start + piece.len()];
    aligned.copy_from_slice(piece);
    what(aligned)?;
    piece.copy_from_slice(aligned);
    Ok(())
}

/// Opens a block device with `O_EXCL`, as a mount does. Fails if it is held.
fn open_exclusive(path: &Path) -> Result<File, StoreError> {
    match rustix::fs::open(path, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(Errno::BUSY) => Err(StoreError::DeviceBusy { path: path.to_owned() }),
        Err(errno) => Err(StoreError::io("open", path)(errno)),
    }
}

fn io_error(what: &'static str, path: &Path, error: &io::Error) -> StoreError {
    let source = Errno::from_io_error(error).unwrap_or(Errno::IO);
    StoreError::Io { what, path: path.to_owned(), source }
}
