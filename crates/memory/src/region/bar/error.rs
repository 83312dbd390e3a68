//! Errors of BARs.

use super::spec::PciAddress;
use rustix::io::Errno;
use std::path::PathBuf;

/// Reason for which the memory behind a BAR cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BarError {
    /// The machine has no such device.
    #[error("no PCI device {address}: {path} does not exist; lspci -D lists the devices", path = path.display())]
    NoDevice {
        /// Requested device.
        address: PciAddress,
        /// Its folder in sysfs.
        path: PathBuf,
    },
    /// The device has no such BAR, or it is of I/O ports.
    #[error("BAR {bar} of {address} is {found}, expected a memory BAR: the device has {others}")]
    NotMemory {
        /// Requested device.
        address: PciAddress,
        /// Requested BAR.
        bar: u8,
        /// What the BAR is.
        found: &'static str,
        /// Memory BARs of the device, with their lengths.
        others: String,
    },
    /// The request exceeds the BAR.
    #[error("BAR {bar} of {address} has {found} bytes, {requested} bytes are requested: request less")]
    TooLarge {
        /// Requested device.
        address: PciAddress,
        /// Requested BAR.
        bar: u8,
        /// Length of the BAR in bytes.
        found: u64,
        /// Requested length in bytes.
        requested: u64,
    },
    /// A file of sysfs has other contents than the kernel writes.
    #[error("{path}: expected START END FLAGS of BAR {bar}, found {found}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Requested BAR.
        bar: u8,
        /// Line of the file.
        found: String,
    },
    /// A file could not be opened or read.
    #[error("{path}: {source}{advice}", path = path.display(), advice = advice(*source))]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The kernel could not map the BAR.
    #[error(
        "cannot map {path}: {source}; {advice}",
        path = path.display(), advice = map_advice(*source)
    )]
    Map {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The device does not decode accesses to its memory.
    #[error(
        "the memory space of {0} is disabled, so every read returns ones: echo 1 | sudo tee \
         /sys/bus/pci/devices/{0}/enable"
    )]
    Disabled(PciAddress),
    /// The device does not answer.
    #[error(
        "{0} does not answer (its vendor id reads as 0xffff, or not at all): it is lost, removed, in reset, or without \
         power; check it with lspci -s {0}, and reset or rescan it"
    )]
    Lost(PciAddress),
    /// The device is bound to vfio-pci, and a request of VFIO failed.
    #[error("VFIO, {call} of {address}: {source}; {advice}")]
    Vfio {
        /// The device.
        address: PciAddress,
        /// Name of the request.
        call: &'static str,
        /// Error of the kernel.
        source: Errno,
        /// What to do.
        advice: &'static str,
    },
}

const fn map_advice(source: Errno) -> &'static str {
    match source {
        Errno::INVAL => {
            "a driver has probably claimed the BAR: unbind it (echo ADDRESS | sudo tee \
             /sys/bus/pci/devices/ADDRESS/driver/unbind), or bind the device to vfio-pci"
        }
        _ => "a kernel that is locked down (Secure Boot) maps BARs only for devices that are bound to vfio-pci",
    }
}

const fn advice(source: Errno) -> &'static str {
    match source {
        Errno::ACCESS | Errno::PERM => "; run as root, or let a udev rule give this user access",
        _ => "",
    }
}
