//! Search for the device that has an address.

use super::selector::{DeviceSelector, OpenPort};
use super::sys::devices;
use shotline_transport::IoError;
use std::net::IpAddr;
use std::path::Path;

/// A device that has the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDevice {
    /// Its name and port, and the index of the address in the GID table.
    pub device: DeviceSelector,
    /// `true` for hardware, `false` for the kernel's software RoCE over a network interface (rxe).
    pub is_hardware: bool,
}

/// Returns the RoCEv2 device that has this address, preferring hardware over emulated devices, or `None` if no device
/// has it.
///
/// # Errors
/// If the library is missing, or the kernel has no RDMA support.
pub fn by_address(local: IpAddr) -> Result<Option<FoundDevice>, IoError> {
    let names = devices()?.into_iter().map(|device| device.name());
    let mut found: Vec<FoundDevice> = names
        .filter_map(|name| {
            let is_hardware = Path::new("/sys/class/infiniband").join(&name).join("device").exists();
            let selected = DeviceSelector { device: Some(name), ..DeviceSelector::default() };
            // A device that cannot be opened is skipped.
            let OpenPort { port, gid, .. } = selected.open_at(local).ok()?;
            Some(FoundDevice {
                device: DeviceSelector { port: Some(port), gid: Some(gid.index), ..selected },
                is_hardware,
            })
        })
        .collect();
    found.sort_by_key(|found| !found.is_hardware);
    Ok(found.into_iter().next())
}
