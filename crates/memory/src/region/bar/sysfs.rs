//! BARs in sysfs: their lengths, the device's configuration space, and the mapping.

use super::error::BarError;
use super::spec::{BARS, BarSpec, PciAddress};
use super::vfio::VfioDevice;
use crate::format_bytes;
use crate::region::map::Mapping;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Flags of a resource (`include/linux/ioport.h`).
const IORESOURCE_IO: u64 = 0x100;
const IORESOURCE_MEM: u64 = 0x200;
const IORESOURCE_PREFETCH: u64 = 0x2000;
const IORESOURCE_DISABLED: u64 = 0x1000_0000;
const IORESOURCE_UNSET: u64 = 0x2000_0000;
/// The command register of the configuration space, and its bit that enables memory space (PCI 3.0, 6.2.2).
const COMMAND: u64 = 4;
const COMMAND_MEMORY: u16 = 2;

/// Folders of the kernel.
pub(super) struct Roots {
    pub(super) sys: PathBuf,
    pub(super) dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }
}

/// A BAR as `resource` describes it. Its length is 0 if there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Resource {
    start: u64,
    len: u64,
    flags: u64,
}

impl Resource {
    fn is_memory(self) -> bool {
        self.len > 0 && self.flags & IORESOURCE_MEM != 0 && self.is_assigned()
    }

    /// Returns `true` if the BAR has an address. Otherwise its mapping would be other memory.
    fn is_assigned(self) -> bool {
        self.start != 0 && self.flags & (IORESOURCE_DISABLED | IORESOURCE_UNSET) == 0
    }
}

/// Configuration space of a device.
#[derive(Debug)]
pub(super) struct Config {
    address: PciAddress,
    source: ConfigSource,
    /// A virtual function of SR-IOV: its own vendor id reads as ones, and its memory is enabled by the physical function.
    is_virtual: bool,
}

#[derive(Debug)]
enum ConfigSource {
    /// The file `config`.
    Sysfs(OwnedFd),
    /// A range of the device's file.
    Vfio(VfioDevice, u64),
}

impl Config {
    fn read(&self, register: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        let read = match &self.source {
            ConfigSource::Sysfs(fd) => rustix::io::pread(fd, &mut bytes, register),
            ConfigSource::Vfio(device, offset) => rustix::io::pread(&device.fd, &mut bytes, offset + register),
        };
        (read == Ok(2)).then_some(u16::from_le_bytes(bytes))
    }

    /// Checks that the device answers and decodes accesses to its memory.
    pub(super) fn check(&self) -> Result<(), BarError> {
        // The file cannot be read any more once the device has been removed.
        match (self.read(0), self.read(COMMAND)) {
            (Some(_), Some(_)) if self.is_virtual => Ok(()),
            (None | Some(u16::MAX), _) | (_, None) => Err(BarError::Lost(self.address)),
            (_, Some(command)) if command & COMMAND_MEMORY == 0 => Err(BarError::Disabled(self.address)),
            _ => Ok(()),
        }
    }
}

/// A mapped BAR.
#[derive(Debug)]
pub(super) struct Bar {
    // Before the device: it is unmapped first.
    pub(super) mapping: Mapping,
    /// Offset of the BAR's first byte in the mapping.
    pub(super) offset: usize,
    pub(super) config: Config,
}

/// Maps the first `len` bytes of a BAR, which must answer. Nothing is read from the BAR: registers can change by that.
pub(super) fn open(roots: &Roots, spec: &BarSpec, len: usize, writable: bool) -> Result<Bar, BarError> {
    let BarSpec { address, bar, access: _ } = *spec;
    let folder = roots.sys.join("bus/pci/devices").join(address.to_string());
    if !folder.exists() {
        return Err(BarError::NoDevice { address, path: folder });
    }
    let resource = resource(&folder, address, bar)?;
    if len as u64 > resource.len {
        return Err(BarError::TooLarge { address, bar, found: resource.len, requested: len as u64 });
    }
    if link_name(&folder.join("driver")).as_deref() == Some("vfio-pci") {
        return open_vfio(roots, &folder, spec, len, writable);
    }
    let source = ConfigSource::Sysfs(open_file(&folder.join("config"), false)?);
    let config = Config { address, source, is_virtual: folder.join("physfn").exists() };
    config.check()?;
    let combining = folder.join(format!("resource{bar}_wc"));
    let is_combining = resource.flags & IORESOURCE_PREFETCH != 0 && combining.exists();
    let path = if is_combining { combining } else { folder.join(format!("resource{bar}")) };
    let fd = open_file(&path, writable)?;
    // The kernel maps whole pages: those that contain the BAR, if it is smaller than one.
    let offset = (resource.start % rustix::param::page_size() as u64) as usize;
    let mapping = Mapping::new(fd.as_fd(), 0, offset + len, writable);
    let mapping = mapping.map_err(|source| BarError::Map { path, source })?;
    Ok(Bar { mapping, offset, config })
}

fn open_vfio(roots: &Roots, folder: &Path, spec: &BarSpec, len: usize, writable: bool) -> Result<Bar, BarError> {
    let path = folder.join("iommu_group");
    let group = link_name(&path).ok_or(BarError::File { path, source: Errno::NOENT })?;
    let device = VfioDevice::open(&roots.dev, &group, spec.address)?;
    let mapping = device.map(spec.bar, len, writable)?;
    let offset = device.config()?;
    // VFIO emulates the registers that a virtual function lacks.
    let config = Config { address: spec.address, source: ConfigSource::Vfio(device, offset), is_virtual: false };
    if let (ConfigSource::Vfio(device, offset), Some(command)) = (&config.source, config.read(COMMAND)) {
        // No driver has enabled the device's memory. The check below reports whether it is enabled now.
        let _ = rustix::io::pwrite(&device.fd, &(command | COMMAND_MEMORY).to_le_bytes(), offset + COMMAND);
    }
    config.check()?;
    Ok(Bar { mapping, offset: 0, config })
}

/// Returns the description of a memory BAR.
fn resource(folder: &Path, address: PciAddress, bar: u8) -> Result<Resource, BarError> {
    let path = folder.join("resource");
    let text = std::fs::read_to_string(&path).map_err(|error| BarError::File {
        path: path.clone(),
        source: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    let parsed: Vec<_> = text.lines().take(BARS.into()).map(parse).collect();
    let requested = parsed.get(usize::from(bar)).copied().flatten();
    let requested = requested.ok_or_else(|| BarError::Malformed {
        path,
        bar,
        found: text.lines().nth(bar.into()).unwrap_or("no line").to_owned(),
    })?;
    if requested.is_memory() {
        return Ok(requested);
    }
    let memory =
        parsed.iter().enumerate().filter_map(|(bar, resource)| Some((bar, resource.filter(|r| r.is_memory())?)));
    let memory: Vec<_> = memory.map(|(bar, resource)| format!("{bar} ({})", format_bytes(resource.len))).collect();
    let found = match requested {
        Resource { len: 0, .. } => "absent",
        Resource { flags, .. } if flags & IORESOURCE_IO != 0 => "of I/O ports",
        _ => "without an address (the firmware or the kernel assigned none)",
    };
    let others = if memory.is_empty() { "no memory BAR".to_owned() } else { memory.join(", ") };
    Err(BarError::NotMemory { address, bar, found, others })
}

/// Parses `START END FLAGS`.
fn parse(line: &str) -> Option<Resource> {
    let mut numbers = line.split_whitespace().map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let len = if end == 0 { 0 } else { end.checked_sub(start)?.checked_add(1)? };
    Some(Resource { start, len, flags })
}

fn open_file(path: &Path, writable: bool) -> Result<OwnedFd, BarError> {
    let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| BarError::File { path: path.into(), source })
}

/// Returns the last part of a symbolic link's target.
fn link_name(path: &Path) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}
