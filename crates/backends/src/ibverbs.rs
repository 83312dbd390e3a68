//! `ibverbs:DEVICE`: a queue pair of an RDMA device.

use crate::backend::{About, Backend, Finding, Never};
use crate::opening::{OpenedReceiver, Options, ReceiverParameters, Role};
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_verbs::ibverbs::DeviceSelector;
use shotline_verbs::ibverbs::find::{self, FoundDevice};
use shotline_verbs::ibverbs::ud::{UdConfig, UdIo};
use shotline_wire::shot::PACKET_BYTES;
use std::net::IpAddr;

/// A device, one of its addresses, and how it receives: `mlx5_0,port=1,gid=3,headers=keep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ibverbs {
    /// The device and its address (port and GID).
    pub choice: DeviceSelector,
    /// Keep route headers although the device could drop them.
    pub keep_headers: bool,
}

const KEEP: &str = "headers=keep";

impl Backend for Ibverbs {
    const ABOUT: About = About {
        name: "ibverbs",
        argument: Some("DEVICE"),
        examples: &["ibverbs:mlx5_0"],
        steers: "no: fills receives in the order of arrival",
        credits: "no",
        one_link: &[Role::Receiver],
        sends: false,
        sends_complete_frames: false,
        copies: "0; 1 with a software device (rxe)",
        batch: "64",
        privileges: "locked memory (ulimit -l)",
        feature: None,
        missing: None,
        receiver_flags: &[],
        sender_flags: &[],
        complete_frames_flags: &[],
    };
    type Io = UdIo;
    type Sender = Never;

    fn parse(arguments: &str) -> Result<Option<Self>, String> {
        let choice: Vec<_> = arguments.split(',').filter(|word| *word != KEEP).collect();
        let keep_headers = arguments.split(',').any(|word| word == KEEP);
        Ok(Some(Self { choice: choice.join(",").parse()?, keep_headers }))
    }

    fn arguments(&self) -> String {
        if self.keep_headers { format!("{},{KEEP}", self.choice) } else { self.choice.to_string() }
    }

    fn open(
        &self,
        parameters: &ReceiverParameters,
        _options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<UdIo>, IoError> {
        let Self { choice, keep_headers } = self.clone();
        let (local, capacity) = (parameters.bind.ip(), parameters.capacity);
        let io = UdIo::open(&UdConfig { selector: choice, local, capacity, remainders: true, keep_headers }, regions)?;
        // The device buffers only what was posted.
        Ok(OpenedReceiver { local: io.local_addr(), receive_buffer: parameters.capacity * PACKET_BYTES as usize, io })
    }

    /// Reports the machine's RDMA devices, and whether one of them can receive.
    fn doctor(local: Option<IpAddr>) -> Option<Finding> {
        let mut devices: Vec<_> = std::fs::read_dir("/sys/class/infiniband")
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        devices.sort();
        let names = devices.join(", ");
        let (good, found, fix) = match local.map(find::by_address) {
            _ if devices.is_empty() => (true, "none: sockets are used".into(), ""),
            Some(Ok(Some(FoundDevice { device: choice, is_hardware: hardware }))) => {
                let device = choice.device.unwrap_or_default();
                let kind = if hardware { "a card" } else { "a software device, slower than sockets" };
                let found =
                    format!("{names}; {device} ({kind}) has this address: --transport ibverbs:{device} --links 1");
                (true, found, "")
            }
            // If there is a device that cannot be used, the user needs the reason.
            Some(Err(error)) => (false, format!("{names}; {error}"), "sudo apt install libibverbs1 ibverbs-providers"),
            None => (true, names, ""),
            Some(Ok(None)) => (true, format!("{names}: none has the address that packets are sent to"), ""),
        };
        Some(Finding {
            name: "RDMA devices",
            good,
            found,
            expected: "none needed; a card with the address saves the copy",
            fix: fix.into(),
            names: Some(("devices", devices)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_port_gid_and_headers() {
        let choice = DeviceSelector { device: Some("mlx5_0".into()), port: Some(2), gid: Some(3) };
        let expected = Ibverbs { choice, keep_headers: true };
        assert_eq!(Ibverbs::parse("mlx5_0,port=2,gid=3,headers=keep"), Ok(Some(expected)));
        for bad in ["port=1", "rxe0,port=300", "rxe0,gid=x", "rxe0,mtu=1"] {
            assert!(Ibverbs::parse(bad).is_err(), "{bad}");
        }
    }
}
