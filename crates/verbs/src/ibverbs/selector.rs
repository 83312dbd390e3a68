//! Selection of a device, port and address.

use super::sys::abi::{IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, ibv_port_attr};
use super::sys::{Context, Device, Gid, GidKind, devices};
use shotline_transport::IoError;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Selects a device, port and address; parsed from `DEVICE[,port=N][,gid=INDEX]`. Omitted parts are chosen: the first
/// active port, and the preferred RoCE version 2 address of its GID table: IPv4, then global IPv6, then link-local IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSelector {
    /// Name of the device; `None` selects the first one that has an active port with an address.
    pub device: Option<String>,
    /// Port number, counted from 1.
    pub port: Option<u8>,
    /// Index of the address in the port's GID table.
    pub gid: Option<u8>,
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.device.as_deref().unwrap_or_default())?;
        self.port.map_or(Ok(()), |port| write!(f, ",port={port}"))?;
        self.gid.map_or(Ok(()), |gid| write!(f, ",gid={gid}"))
    }
}

impl FromStr for DeviceSelector {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected DEVICE[,port=N][,gid=INDEX] such as mlx5_0,gid=3, found {text:?}");
        let mut parts = text.split(',');
        let device = parts.next().filter(|device| !device.contains('=')).ok_or_else(expected)?;
        let mut selector = Self { device: (!device.is_empty()).then(|| device.to_owned()), ..Self::default() };
        for part in parts {
            let (name, number) = part.split_once('=').ok_or_else(expected)?;
            let field = match name {
                "port" => &mut selector.port,
                "gid" => &mut selector.gid,
                _ => return Err(expected()),
            };
            if field.replace(number.parse().map_err(|_| expected())?).is_some() {
                return Err(expected());
            }
        }
        Ok(selector)
    }
}

/// An open device with a port and an address.
#[derive(Clone)]
pub struct OpenPort {
    /// The device.
    pub context: Arc<Context>,
    /// Port number.
    pub port: u8,
    /// Port attributes.
    pub attributes: ibv_port_attr,
    /// Address (GID).
    pub gid: Gid,
}

impl DeviceSelector {
    /// Opens the device and chooses the port and address that are not given.
    ///
    /// # Errors
    /// If there is no such device, port or address; the error lists the existing ones.
    pub fn open(&self) -> Result<OpenPort, IoError> {
        self.open_where(None)
    }

    /// Like [`Self::open`], with this address unless the selector has a GID index.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_at(&self, address: IpAddr) -> Result<OpenPort, IoError> {
        self.open_where(Some(address.to_canonical()))
    }

    fn open_where(&self, address: Option<IpAddr>) -> Result<OpenPort, IoError> {
        match &self.device {
            Some(name) => self.open_port(&Device::named(name)?.open()?, address),
            None => {
                let mut last_error = IoError::Config("there is no RDMA device (rdma link show)".into());
                for device in devices()? {
                    match device.open().and_then(|context| self.open_port(&context, address)) {
                        Ok(opened) => return Ok(opened),
                        Err(error) => last_error = error,
                    }
                }
                Err(last_error)
            }
        }
    }

    fn open_port(&self, context: &Arc<Context>, address: Option<IpAddr>) -> Result<OpenPort, IoError> {
        let name = context.name();
        let ports: Vec<u8> = match self.port {
            Some(port) => vec![port],
            None => (1..=context.attributes()?.phys_port_cnt).collect(),
        };
        for port in ports {
            let attributes = context.port(port)?;
            if attributes.state != IBV_PORT_ACTIVE || u32::from(attributes.link_layer) == IBV_LINK_LAYER_INFINIBAND {
                continue;
            }
            let gids = context.gids(port)?;
            let gid = match (self.gid, address) {
                (Some(index), _) => gids.iter().find(|gid| gid.index == index),
                (None, Some(address)) => gids.iter().find(|gid| is_rocev2(gid) && gid.ip() == address),
                (None, None) => default_gid(&gids),
            };
            let which = self.gid.map(|index| index.to_string()).or(address.map(|address| address.to_string()));
            let gid = gid.ok_or_else(|| no_address(name, port, which, &gids))?;
            if !is_rocev2(gid) {
                let message = format!("GID {} of {name} is RoCE version 1: choose another with gid=", gid.index);
                return Err(IoError::Config(message));
            }
            return Ok(OpenPort { context: Arc::clone(context), port, attributes, gid: gid.clone() });
        }
        let problem = match self.port {
            Some(port) => format!("port {port} of {name} is not an active Ethernet port"),
            None => format!("{name} has no active Ethernet port"),
        };
        Err(IoError::Config(format!("{problem}: is its network interface up (ip link)?")))
    }
}

/// Returns `true` if packets of this GID are UDP, or if the kernel does not report their type.
fn is_rocev2(gid: &Gid) -> bool {
    matches!(gid.kind, GidKind::RoceV2 | GidKind::Unknown)
}

/// Returns the preferred address: IPv4, then global IPv6, then link-local IPv6.
fn default_gid(gids: &[Gid]) -> Option<&Gid> {
    let rank = |gid: &&Gid| match gid.ip() {
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    };
    gids.iter().filter(|gid| is_rocev2(gid)).min_by_key(rank)
}

fn no_address(device: &str, port: u8, wanted: Option<String>, gids: &[Gid]) -> IoError {
    let all: Vec<_> = gids.iter().map(|gid| format!("{} ({})", gid.index, gid.ip())).collect();
    let found =
        if all.is_empty() { "none: assign an IP address to its network interface".into() } else { all.join(", ") };
    let which = wanted.map_or_else(String::new, |wanted| format!(" {wanted}"));
    IoError::Config(format!("port {port} of {device} has no RoCE version 2 GID{which}; its GIDs: {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn selector_is_parsed_and_printed() {
        let selector = |device: &str, port, gid| DeviceSelector { device: Some(device.into()), port, gid };
        assert_eq!("rxe0".parse(), Ok(selector("rxe0", None, None)));
        assert_eq!("mlx5_0,gid=3,port=2".parse(), Ok(selector("mlx5_0", Some(2), Some(3))));
        assert_eq!(selector("mlx5_0", Some(2), Some(3)).to_string(), "mlx5_0,port=2,gid=3");
        assert_eq!("".parse(), Ok(DeviceSelector::default()));
        for text in ["gid=1", "rxe0,gid", "rxe0,gid=x", "rxe0,gid=1,gid=2", "rxe0,gid=256", "rxe0,lid=1"] {
            assert!(text.parse::<DeviceSelector>().is_err(), "{text}");
        }
    }

    #[test]
    fn default_gid_is_ipv4_and_rocev2() {
        let gid = |index, ip: &str, kind| {
            let raw = ip.parse::<Ipv6Addr>().unwrap().octets();
            Gid { index, raw, kind, netdev: None }
        };
        let all = [
            gid(0, "fe80::1", GidKind::RoceV2),
            gid(1, "::ffff:10.0.0.1", GidKind::RoceV1),
            gid(2, "fd00::1", GidKind::RoceV2),
            gid(3, "::ffff:10.0.0.1", GidKind::RoceV2),
        ];
        let index = |gids| default_gid(gids).map(|gid| gid.index);
        assert_eq!(
            [index(&all), index(&all[..3]), index(&all[..1]), index(&all[1..2])],
            [Some(3), Some(2), Some(0), None]
        );
    }
}
