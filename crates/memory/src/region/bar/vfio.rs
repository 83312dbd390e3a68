//! BARs of devices that are bound to vfio-pci.
//!
//! Structures and numbers are those of `include/uapi/linux/vfio.h` (container and group interface, API version 0). The
//! device does no DMA for this program, so the IOMMU is selected, as VFIO requires, and nothing is mapped in it.

use super::error::BarError;
use super::spec::PciAddress;
use crate::region::map::Mapping;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, c_int, c_ulong, c_void};
use std::path::Path;
use std::ptr;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`.
const fn request(number: c_ulong) -> c_ulong {
    ((b';' as c_ulong) << 8) | (100 + number)
}
const GET_API_VERSION: c_ulong = request(0);
const SET_IOMMU: c_ulong = request(2);
const GROUP_GET_STATUS: c_ulong = request(3);
const GROUP_SET_CONTAINER: c_ulong = request(4);
const GROUP_GET_DEVICE_FD: c_ulong = request(6);
const DEVICE_GET_REGION_INFO: c_ulong = request(8);

const API_VERSION: c_int = 0;
const GROUP_FLAGS_VIABLE: u32 = 1;
const TYPE1_IOMMU: usize = 1;
const REGION_FLAG_MMAP: u32 = 4;
const CONFIG_REGION: u32 = 7;

/// `struct vfio_group_status`.
#[repr(C)]
#[derive(Default)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// An open device.
#[derive(Debug)]
pub(super) struct VfioDevice {
    address: PciAddress,
    pub(super) fd: OwnedFd,
    // Closing these while the device is open is allowed, but they are kept so that errors cannot depend on it.
    _group: OwnedFd,
    _container: OwnedFd,
}

impl VfioDevice {
    /// Opens a device of an IOMMU group. `dev` is `/dev`.
    pub(super) fn open(dev: &Path, group: &str, address: PciAddress) -> Result<Self, BarError> {
        let open = |path: std::path::PathBuf| {
            rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map_err(|source| BarError::File { path, source })
        };
        let failed = |call, advice| move |source| BarError::Vfio { address, call, source, advice };
        let container = open(dev.join("vfio/vfio"))?;
        let group = open(dev.join("vfio").join(group)).map_err(|error| match error {
            BarError::File { source: Errno::BUSY, .. } => failed(
                "opening the IOMMU group",
                "a group can be opened once: another program uses it, or another region of this one",
            )(Errno::BUSY),
            other => other,
        })?;
        // SAFETY: the request has no argument.
        let version = unsafe { ioctl(container.as_fd(), GET_API_VERSION, ptr::null_mut()) };
        if version != Ok(API_VERSION) {
            let source = version.err().unwrap_or(Errno::OPNOTSUPP);
            return Err(failed("the API version", "expected version 0: another kernel is needed")(source));
        }
        let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, ..GroupStatus::default() };
        // SAFETY: the kernel writes the structure, whose length it is given, and which outlives the call.
        unsafe { ioctl(group.as_fd(), GROUP_GET_STATUS, (&raw mut status).cast()) }
            .map_err(failed("the group's status", "check the driver with lspci -k"))?;
        let advice = "bind all devices of its IOMMU group to vfio-pci (ls /sys/bus/pci/devices/*/iommu_group/devices)";
        if status.flags & GROUP_FLAGS_VIABLE == 0 {
            return Err(failed("the group's status", advice)(Errno::BUSY));
        }
        let container_fd = container.as_raw_fd();
        // SAFETY: the kernel reads an int, which outlives the call.
        unsafe { ioctl(group.as_fd(), GROUP_SET_CONTAINER, (&raw const container_fd).cast_mut().cast()) }
            .map_err(failed("joining the container", "end the other program that uses the group"))?;
        // SAFETY: the argument is a number.
        unsafe { ioctl(container.as_fd(), SET_IOMMU, ptr::without_provenance_mut(TYPE1_IOMMU)) }.map_err(failed(
            "selecting the IOMMU",
            "switch the IOMMU on (intel_iommu=on, or the firmware's settings)",
        ))?;
        let name = CString::new(address.to_string()).unwrap_or_default();
        // SAFETY: the kernel reads a string that ends with a zero and outlives the call.
        let fd = unsafe { ioctl(group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut().cast()) }
            .map_err(failed("opening the device", "check that no other program uses it"))?;
        // SAFETY: the kernel returned a new descriptor, which this value owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { address, fd, _group: group, _container: container })
    }

    /// Returns the offset of the configuration space in the device's file.
    pub(super) fn config(&self) -> Result<u64, BarError> {
        Ok(self.region(CONFIG_REGION)?.offset)
    }

    /// Maps the first `len` bytes of a BAR.
    pub(super) fn map(&self, bar: u8, len: usize, writable: bool) -> Result<Mapping, BarError> {
        let info = self.region(bar.into())?;
        let failed = |source| BarError::Vfio {
            address: self.address,
            call: "mapping the BAR",
            source,
            advice: "expected a BAR that VFIO can map: not below a page, and not with an MSI-X table on an old kernel",
        };
        if info.flags & REGION_FLAG_MMAP == 0 {
            return Err(failed(Errno::OPNOTSUPP));
        }
        Mapping::new(self.fd.as_fd(), info.offset, len, writable).map_err(failed)
    }

    fn region(&self, index: u32) -> Result<RegionInfo, BarError> {
        let mut info = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index, ..RegionInfo::default() };
        // SAFETY: the kernel writes the structure, whose length it is given, and which outlives the call.
        unsafe { ioctl(self.fd.as_fd(), DEVICE_GET_REGION_INFO, (&raw mut info).cast()) }.map_err(|source| {
            BarError::Vfio {
                address: self.address,
                call: "the description of a region",
                source,
                advice: "check the device with lspci -v",
            }
        })?;
        Ok(info)
    }
}

/// Makes a request of a VFIO file descriptor.
///
/// # Safety
/// `argument` is what the request expects: a number, or the address of a structure that outlives the call.
unsafe fn ioctl(fd: BorrowedFd<'_>, request: c_ulong, argument: *mut c_void) -> Result<c_int, Errno> {
    // SAFETY: guaranteed by the caller.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        value => Ok(value),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_those_of_the_kernel_header() {
        assert_eq!((GET_API_VERSION, DEVICE_GET_REGION_INFO), (0x3B64, 0x3B6C));
        assert_eq!((size_of::<GroupStatus>(), size_of::<RegionInfo>()), (8, 32));
    }

    #[test]
    fn other_file_than_a_container_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("vfio")).unwrap();
        let open = || VfioDevice::open(folder.path(), "7", PciAddress::default()).unwrap_err().to_string();
        assert!(open().contains("vfio/vfio: No such file"), "{}", open());
        for name in ["vfio/vfio", "vfio/7"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(open().contains("the API version of 0000:00:00.0"), "{}", open());
    }
}
