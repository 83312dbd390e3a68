//! A device: what it is, and its bytes in whole logical blocks.

use super::target::{By, Target};
use crate::StoreError;
use crate::positioned::write_file;
use crate::sys::drive::Made;
use crate::sys::nvme::{Identity, Namespace};
use crate::sys::passthrough::Commands;
use crate::sys::ring::{Plain, Ring};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use shotline_memory::Regions;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Extents begin at multiples of this, and so does the first behind the directory.
pub(super) const UNIT: u64 = 1 << 20;
/// Times that a command is tried again that the drive has not refused for good.
const TRIES: u32 = 5;
/// What buffers of direct reads and writes are aligned to.
const MEMORY_ALIGN: usize = 4096;
/// Bytes of one direct read or write.
const MOST_DIRECT: u32 = 1 << 20;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Looking.
    Read,
    /// Writing: nobody else may hold it, as whoever mounts it does.
    Write,
}

#[derive(Debug)]
enum Backend {
    Passthrough(Namespace),
    Direct(File),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    backend: Backend,
    /// Where it begins: of a partition that is reached through its namespace, the partition's first byte.
    base: u64,
    /// What locks are taken on: the block device, by whichever way it is written.
    handle: File,
    /// Keeps others from mounting it.
    _held: Option<File>,
}

/// What the kernel says of a block device.
struct Block {
    name: String,
    folder: PathBuf,
}

impl Block {
    /// The device that a file is; none if it is no block device.
    fn of(path: &Path) -> Option<Self> {
        let there = path.metadata().ok().filter(|there| there.file_type().is_block_device())?;
        let (major, minor) = (rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev()));
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
    /// Its first byte on the whole device, and its bytes. The kernel counts in 512 bytes here, whatever a block is.
    fn extent(&self) -> Option<(u64, u64)> {
        let start = if self.is_partition() { self.number(&["start"])? } else { 0 };
        Some((start * 512, self.number(&["size"])? * 512))
    }
    /// The most bytes of a command that the kernel passes on.
    fn most(&self) -> u32 {
        let most = self.number(&["queue/max_hw_sectors_kb", "../queue/max_hw_sectors_kb"]).unwrap_or(128) * 1024;
        // A command's memory may be as many pages as it has segments, and the first one may begin in the middle.
        let segments = self.number(&["queue/max_segments", "../queue/max_segments"]).unwrap_or(33).max(2);
        most.min((segments - 1) * 4096) as u32
    }
}

impl Device {
    /// Opens a device. For writing it is refused if somebody holds it: whoever mounts it does, and so does swap, LVM or
    /// md.
    pub(super) fn open(target: &Target, access: Access) -> Result<Self, StoreError> {
        let path = target.device.as_path();
        let there = path.metadata().map_err(|error| io_error("open", path, &error))?;
        match target.by {
            By::Passthrough => Self::passthrough(path, there.file_type().is_char_device(), access),
            By::Block => Self::direct(path, access),
        }
        .and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, StoreError> {
        let Identity { block, bytes, .. } = self.identity;
        let found = match block {
            _ if !block.is_power_of_two() || !(512..=4096).contains(&block) => {
                format!("expected logical blocks of 512 to 4096 bytes, found {block}")
            }
            _ if bytes < 4 * UNIT => format!("expected {} bytes or more, found {bytes}", 4 * UNIT),
            _ => return Ok(self),
        };
        Err(StoreError::format(&self.path, found))
    }

    fn passthrough(path: &Path, is_character: bool, access: Access) -> Result<Self, StoreError> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let not_nvme = || StoreError::NotNvme { path: path.to_owned() };
        let (character, block_path, block) = if is_character {
            // Whatever the node is called, and whether or not the block device has one here: the kernel knows it.
            let there = real.metadata().map_err(|error| io_error("open", path, &error))?;
            let numbers = (rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev()));
            let folder = Path::new(&format!("/sys/dev/char/{}:{}", numbers.0, numbers.1)).canonicalize();
            let folder = folder.map_err(|_| not_nvme())?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let block = format!("nvme{}", name.strip_prefix("ng").ok_or_else(not_nvme)?);
            (real.clone(), real.with_file_name(&block), Block::at(&folder.with_file_name(&block)))
        } else {
            let block = Block::of(&real).ok_or_else(not_nvme)?;
            let whole = block.folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let whole = if block.is_partition() { whole.into_owned() } else { block.name.clone() };
            let numbers = whole.strip_prefix("nvme").ok_or_else(not_nvme)?;
            (real.with_file_name(format!("ng{numbers}")), real.clone(), Some(block))
        };
        let held = match (&block, access) {
            (Some(_), Access::Write) => Some(hold(&block_path)?),
            _ => None,
        };
        let flags = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = rustix::fs::open(&character, flags | OFlags::CLOEXEC, Mode::empty());
        let file: File = file.map_err(StoreError::io("open", &character))?.into();
        let handle = match &held {
            Some(held) => held.try_clone(),
            None => File::open(&block_path).or_else(|_| file.try_clone()),
        };
        let handle = handle.map_err(|error| io_error("open", path, &error))?;
        let namespace = Namespace::open(file).map_err(|source| StoreError::Identify { path: character, source })?;
        let mut identity = namespace.identity().clone();
        if let Some(block) = &block {
            identity.most = identity.most.min(block.most());
        }
        identity.most -= identity.most % identity.block.max(4096);
        // A power of two: registered buffers have that length, and no command is longer.
        identity.most = 1 << identity.most.max(identity.block).ilog2();
        if identity.serial.is_empty() {
            identity.serial = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        let extent = block.filter(Block::is_partition).and_then(|block| block.extent());
        let (base, bytes) = extent.unwrap_or((0, identity.bytes));
        if !base.is_multiple_of(u64::from(identity.block)) || base.saturating_add(bytes) > identity.bytes {
            return Err(StoreError::format(
                path,
                format!("expected a partition inside {} bytes, found {bytes} from {base}", identity.bytes),
            ));
        }
        identity.bytes = bytes - bytes % u64::from(identity.block);
        let backend = Backend::Passthrough(namespace);
        Ok(Self { path: path.to_owned(), identity, backend, base, handle, _held: held })
    }

    fn direct(path: &Path, access: Access) -> Result<Self, StoreError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let access_flags = if access == Access::Write { OFlags::RDWR } else { OFlags::RDONLY };
        let Some(block) = Block::of(path) else {
            if !path.is_file() {
                return Err(StoreError::format(path, "expected a block device, found something else"));
            }
            let file = rustix::fs::open(path, access_flags | OFlags::CLOEXEC, Mode::empty());
            let file: File = file.map_err(StoreError::io("open", path))?.into();
            let bytes = file.metadata().map_or(0, |there| there.len()) & !511;
            let identity =
                Identity { serial: name, block: 512, bytes, most: MOST_DIRECT, volatile: true, ..Identity::default() };
            let handle = file.try_clone().map_err(|error| io_error("open", path, &error))?;
            let backend = Backend::Direct(file);
            return Ok(Self { path: path.to_owned(), identity, backend, base: 0, handle, _held: None });
        };
        let held = if access == Access::Write { Some(hold(path)?) } else { None };
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
            most: MOST_DIRECT,
            volatile: true,
        };
        let handle = file.try_clone().map_err(|error| io_error("open", path, &error))?;
        let backend = Backend::Direct(file);
        Ok(Self { path: path.to_owned(), identity, backend, base: 0, handle, _held: held })
    }

    /// What locks are taken on.
    pub(super) fn handle(&self) -> &File {
        &self.handle
    }

    /// Fills whole blocks.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        self.inside(at, to.len())?;
        let most = self.identity.most as usize;
        for (at, piece) in (at..).step_by(most).zip(to.chunks_mut(most)) {
            again(|| match &self.backend {
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
    pub(super) fn write(&self, at: u64, from: &[u8]) -> Result<(), Errno> {
        self.inside(at, from.len())?;
        let most = self.identity.most as usize;
        for (at, piece) in (at..).step_by(most).zip(from.chunks(most)) {
            again(|| match &self.backend {
                Backend::Passthrough(namespace) => namespace.write(self.base + at, piece),
                Backend::Direct(file) => {
                    let mut piece = piece.to_vec();
                    direct(&mut piece, |piece| write_file(file, at, piece))
                }
            })?;
        }
        Ok(())
    }

    /// Makes what has been written durable.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        match &self.backend {
            _ if !self.identity.volatile => Ok(()),
            Backend::Passthrough(namespace) => again(|| namespace.flush()),
            Backend::Direct(file) => rustix::fs::fdatasync(file),
        }
    }

    fn inside(&self, at: u64, len: usize) -> Result<(), Errno> {
        let Identity { block, bytes, .. } = self.identity;
        let whole = at.is_multiple_of(u64::from(block)) && (len as u64).is_multiple_of(u64::from(block));
        let inside = at.checked_add(len as u64).is_some_and(|end| end <= bytes);
        if whole && inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// What shots are written with, from an offset on.
    pub(super) fn drive(&self, from: u64, depth: u32, regions: &Regions) -> io::Result<Made> {
        Ok(match &self.backend {
            Backend::Passthrough(namespace) => {
                let Identity { most, volatile, .. } = self.identity;
                let commands = Commands::new(namespace, most, volatile);
                let to = (namespace.file(), commands);
                let (ring, refused) = Ring::new(depth, regions, to, self.base + from)?;
                (Box::new(ring), refused)
            }
            Backend::Direct(file) => {
                let (ring, refused) = Ring::new(depth, regions, (file, Plain), from)?;
                (Box::new(ring), refused)
            }
        })
    }
}

/// Tries again what a drive may do the next time.
fn again(mut what: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    let mut result = what();
    for _ in 1..TRIES {
        match result {
            Err(Errno::IO | Errno::AGAIN | Errno::INTR | Errno::BUSY) => result = what(),
            _ => break,
        }
    }
    result
}

/// Direct reads and writes go from and to aligned memory.
fn direct(piece: &mut [u8], what: impl FnOnce(&mut [u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    if piece.as_ptr().align_offset(MEMORY_ALIGN) == 0 {
        return what(piece);
    }
    let mut room = vec![0; piece.len() + MEMORY_ALIGN];
    let start = room.as_ptr().align_offset(MEMORY_ALIGN).min(MEMORY_ALIGN);
    let aligned = &mut room[start..start + piece.len()];
    aligned.copy_from_slice(piece);
    what(aligned)?;
    piece.copy_from_slice(aligned);
    Ok(())
}

/// Holds a block device as whoever mounts it does, and so refuses one that is held.
fn hold(path: &Path) -> Result<File, StoreError> {
    match rustix::fs::open(path, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(Errno::BUSY) => Err(StoreError::Held { path: path.to_owned() }),
        Err(errno) => Err(StoreError::io("open", path)(errno)),
    }
}

fn io_error(what: &'static str, path: &Path, error: &io::Error) -> StoreError {
    let source = Errno::from_io_error(error).unwrap_or(Errno::IO);
    StoreError::Io { what, path: path.to_owned(), source }
}
