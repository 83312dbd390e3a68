//! Device names, and the driver arguments with which each frame fits into one buffer.

use std::ffi::CString;
use std::io;
use std::path::Path;

/// Maximum buffer size of a memif's ring, in bytes. A frame of the longest IP packet does not fit, but no Ethernet MTU
/// allows one.
const MAX_BSIZE: u16 = 64_000;

/// DPDK's drivers, as far as they differ for this backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory between two processes.
    Memif,
    /// A kernel interface, through `AF_PACKET` rings.
    AfPacket,
    /// A kernel interface, through `AF_XDP` sockets.
    AfXdp,
    /// Capture files.
    Pcap,
    /// A device on the PCI bus.
    Pci,
    /// The packet card.
    Shotline,
    /// Another software port.
    Other,
}

/// A port's device in DPDK's syntax: `net_memif0,role=client,id=0` or `0000:03:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub kind: Kind,
    pub name: String,
    arguments: Vec<(String, String)>,
    /// Value of the argument `split`, which is not the driver's.
    pub split: Option<bool>,
}

/// Returns `true` if a device, in DPDK's syntax with our argument `split`, writes payloads to posted receives if it can:
/// a packet card unless the argument is `off`, another one if it is `on`.
pub fn writes_receives(device: &str) -> bool {
    Device::parse(device).is_ok_and(|device| device.splits())
}

impl Device {
    /// Parses a device's name and arguments.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default().to_owned();
        if name.is_empty() || text.contains('\0') {
            return Err(format!(
                "expected a device such as net_memif0,role=client,id=0 or 0000:03:00.0, found \"{text}\""
            ));
        }
        let pairs = words.map(|word| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
        let arguments = pairs.collect::<Option<Vec<_>>>();
        let mut arguments = arguments
            .ok_or_else(|| format!("expected device arguments of the form key=value,key=value, found \"{text}\""))?;
        let split = arguments.iter().position(|(key, _)| key == "split").map(|at| arguments.remove(at).1);
        let split = match split.as_deref() {
            None => None,
            Some("on") => Some(true),
            Some("off") => Some(false),
            Some(other) => return Err(format!("expected split=on or split=off, found split={other}")),
        };
        let driver = [
            ("net_shotline", Kind::Shotline),
            ("net_memif", Kind::Memif),
            ("net_af_packet", Kind::AfPacket),
            ("net_af_xdp", Kind::AfXdp),
            ("net_pcap", Kind::Pcap),
            ("eth_af_packet", Kind::AfPacket),
        ];
        let kind = driver.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| *kind);
        let kind = kind.unwrap_or(if is_pci(&name) { Kind::Pci } else { Kind::Other });
        Ok(Self { kind, name, arguments, split })
    }

    /// Returns `true` if header split is to be used.
    pub fn splits(&self) -> bool {
        self.split.unwrap_or(self.kind == Kind::Shotline)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.arguments.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn add(&mut self, key: &str, value: impl ToString) {
        if self.get(key).is_none() {
            self.arguments.push((key.to_owned(), value.to_string()));
        }
    }

    /// Sets the driver's buffer size, unless the user has, so that frames of `frame` bytes fit into one buffer. Returns
    /// the required size of receive and of send buffers, in bytes.
    pub fn set_buffer_size(&mut self, frame: u16) -> Result<(u16, u16), String> {
        match self.kind {
            // The driver has two copy paths: one assumes that a buffer is long enough for any length that the peer
            // writes into the ring, the other uses as many buffers as the length requires. It takes the second path
            // when the receive buffers are shorter than its own, and when the send buffers are longer. Only that path
            // is memory-safe.
            Kind::Memif => {
                self.add("bsize", frame.next_multiple_of(64) + 64);
                let size = self.get("bsize").and_then(|size| size.parse::<u16>().ok());
                // The driver of DPDK 22.11 writes out of bounds if a frame needs two slots and only one is free.
                let size = size.filter(|size| (frame.max(256)..=MAX_BSIZE).contains(size));
                let min = frame.max(256);
                let size = size.ok_or_else(|| {
                    format!(
                        "expected a memif bsize of {min} to {MAX_BSIZE} bytes, so that a frame of the MTU fits in one buffer"
                    )
                })?;
                Ok((size - 64, frame.max(size) + 64))
            }
            Kind::AfPacket => {
                // The kernel's header precedes the frame. Blocks are whole pages.
                let size = (u32::from(frame) + 128).next_power_of_two().max(4096);
                self.add("blocksz", size);
                self.add("framesz", size);
                self.add("framecnt", ((1 << 25) / size).clamp(64, 2048));
                let size = self.get("framesz").and_then(|size| size.parse::<u16>().ok());
                let size = size.filter(|size| *size <= MAX_BSIZE);
                Ok((size.ok_or_else(|| format!("expected an af_packet framesz of at most {MAX_BSIZE} bytes"))?, frame))
            }
            _ => Ok((frame.max(2048), frame)),
        }
    }

    /// Returns the buffers that a queue with this many descriptors holds.
    pub fn queue_buffers(&self, descriptors: u16) -> u32 {
        let descriptors = u32::from(descriptors);
        // The driver always fills a ring of 2048 shared with the kernel, and reserves as many for sending.
        if self.kind == Kind::AfXdp { 2 * descriptors.max(2048) } else { descriptors }
    }

    /// Returns `true` if the driver accepts frames in several pieces from any memory, and has copied them when its
    /// burst returns.
    pub fn gathers(&self) -> bool {
        matches!(self.kind, Kind::Memif | Kind::AfPacket | Kind::Pcap) && !self.is_zero_copy()
    }

    /// Returns `true` if the driver leaves sent frames in place until the peer has read them: a memif client with
    /// zero-copy=yes. A server ignores that argument.
    pub fn is_zero_copy(&self) -> bool {
        self.is_memif_client() && self.get("zero-copy") == Some("yes")
    }

    /// Returns `true` if the driver copies received frames into pool buffers, which may be in any memory.
    pub fn receives_direct(&self) -> bool {
        self.kind == Kind::Memif && !self.is_zero_copy()
    }

    /// Makes a memif client zero-copy, unless the user has set that argument.
    pub fn enable_zero_copy(&mut self) {
        if self.is_memif_client() {
            self.add("zero-copy", "yes");
        }
    }

    /// Returns `true` for the side of a memif that connects to the other.
    pub fn is_memif_client(&self) -> bool {
        self.kind == Kind::Memif && !self.is_server()
    }

    fn is_server(&self) -> bool {
        matches!(self.get("role"), Some("server" | "master"))
    }

    /// Returns the socket file of a memif server; `None` if it is not a server or uses an abstract address.
    pub fn socket_path(&self) -> Option<&Path> {
        let server = self.kind == Kind::Memif && self.is_server();
        (server && self.get("socket-abstract") == Some("no"))
            .then(|| Path::new(self.get("socket").unwrap_or("/run/memif.sock")))
    }

    /// Returns what is missing for the link to come up, as the end of an error message.
    pub fn link_hint(&self) -> String {
        match self.kind {
            Kind::Memif => {
                let (role, other) = if self.is_server() { ("server", "client") } else { ("client", "server") };
                format!(
                    "; it is a memif {role}: its {other} must run, with the same socket ({}), socket-abstract ({}), id \
                     ({}) and secret",
                    self.get("socket").unwrap_or("/run/memif.sock"),
                    self.get("socket-abstract").unwrap_or("yes"),
                    self.get("id").unwrap_or("0"),
                )
            }
            Kind::AfPacket | Kind::AfXdp => "; is the interface up? (ip link)".into(),
            Kind::Shotline => "; does the simulated card run?".into(),
            _ => "; is the cable plugged in?".into(),
        }
    }

    /// Returns what to check if the device cannot be attached, as the end of an error message.
    pub fn attach_hint(&self) -> String {
        match self.kind {
            Kind::Pci => format!(
                "; {} must exist (lspci), be bound to vfio-pci (dpdk-devbind.py) unless its driver shares it with the \
                 kernel, and be accessible to this user",
                self.name
            ),
            Kind::AfPacket | Kind::AfXdp => {
                format!("; the interface {} must exist, and root is required", self.get("iface").unwrap_or("(iface=)"))
            }
            Kind::Pcap => "; its capture files must be readable (rx_pcap=) or writable (tx_pcap=)".into(),
            Kind::Memif => "; the folder of its socket must be writable, and no other port may have its name".into(),
            Kind::Shotline => {
                "; its socket must be that of shotline emulate card --listen, and its driver must be built \
                 (make pmd) and loaded (--eal \"-d target/dpdk/librte_net_shotline.so\")"
                    .into()
            }
            Kind::Other => "; expected the name of a driver and a number (dpdk-testpmd lists the drivers)".into(),
        }
    }

    /// Returns the device's name, and the name with its arguments.
    pub fn c_strings(&self) -> Result<(CString, CString), String> {
        let pairs: String = self.arguments.iter().map(|(key, value)| format!(",{key}={value}")).collect();
        let word =
            |text: String| CString::new(text).map_err(|_| "a device's name cannot contain a zero byte".to_owned());
        Ok((word(self.name.clone())?, word(format!("{}{pairs}", self.name))?))
    }
}

/// Returns `true` for a PCI address: optional domain, bus, device and function, such as `0000:03:00.0`.
fn is_pci(name: &str) -> bool {
    let parts: Vec<_> = name.split([':', '.']).collect();
    let hex = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (3..=4).contains(&parts.len()) && name.contains(':') && name.contains('.') && parts.iter().all(hex)
}

/// Removes the stale socket file of a server that has ended, with which DPDK could not listen. A socket in use, or a
/// file that is not a socket, is an error and is kept.
pub fn remove_stale_socket(path: &Path) -> Result<(), String> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let show = path.display();
    if !found.file_type().is_socket() {
        return Err(format!("{show} exists and is not a socket: use another path for this memif"));
    }
    // A memif listens on another socket type, so the kernel reports EPROTOTYPE without a connection. A real connection
    // would crash DPDK's driver, which does not handle a client that disconnects before the handshake.
    let attempt = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .and_then(|fd| connect(&fd, &SocketAddrUnix::new(path)?));
    match attempt {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path)
            .map_err(|error| format!("no process listens on {show}, but it cannot be removed: {error}")),
        Ok(()) | Err(rustix::io::Errno::PROTOTYPE) => {
            Err(format!("another process listens on {show} (ss -xlp): use another socket for this memif"))
        }
        Err(error) => Err(format!("cannot determine whether a process listens on {show}: {}", io::Error::from(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_parse_accepts_dpdk_syntax() {
        for (text, kind) in [
            ("net_memif0,role=client,id=0", Kind::Memif),
            ("net_af_packet1,iface=eth0", Kind::AfPacket),
            ("net_af_xdp0,iface=eth0", Kind::AfXdp),
            ("net_pcap0,rx_pcap=a.pcap", Kind::Pcap),
            ("0000:03:00.0", Kind::Pci),
            ("03:00.1,some=thing", Kind::Pci),
            ("net_null0", Kind::Other),
            ("net_shotline0,socket=/run/card.sock", Kind::Shotline),
        ] {
            let device = Device::parse(text).unwrap();
            assert_eq!(device.kind, kind, "{text}");
            assert_eq!(device.c_strings().unwrap().1.to_str().unwrap(), text);
        }
        for wrong in ["", ",id=0", "net_memif0,client", "net_null0,split=maybe"] {
            assert!(Device::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn header_split_is_for_packet_cards_and_on_request() {
        for (text, splits, arguments) in [
            ("net_shotline0,socket=a", true, "net_shotline0,socket=a"),
            ("net_shotline0,split=off,socket=a", false, "net_shotline0,socket=a"),
            ("0000:03:00.0", false, "0000:03:00.0"),
            ("0000:03:00.0,split=on", true, "0000:03:00.0"),
        ] {
            assert_eq!(writes_receives(text), splits, "{text}");
            assert_eq!(Device::parse(text).unwrap().c_strings().unwrap().1.to_str().unwrap(), arguments);
        }
    }

    #[test]
    fn memif_buffers_hold_whole_frames_and_use_the_safe_copy_path() {
        let mut device = Device::parse("net_memif0,role=client").unwrap();
        let (receive, send) = device.set_buffer_size(4200).unwrap();
        assert!(device.c_strings().unwrap().1.to_str().unwrap().ends_with(",bsize=4288"));
        assert!((4200..4288).contains(&receive) && send > 4288);
        // The user's size is kept if a frame fits.
        for size in [4200, 9216, MAX_BSIZE] {
            let mut device = Device::parse(&format!("net_memif0,bsize={size}")).unwrap();
            let (receive, send) = device.set_buffer_size(4200).unwrap();
            assert!(receive < size && send > size && send >= 4200, "{size}: {receive} and {send}");
        }
        for size in ["64", "2048", "4199", "65535", "70000", "junk"] {
            assert!(
                Device::parse(&format!("net_memif0,bsize={size}")).unwrap().set_buffer_size(4200).is_err(),
                "{size}"
            );
        }
    }

    #[test]
    fn only_stale_socket_files_are_removed() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
        let folder = std::env::temp_dir().join(format!("shotline-memif-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("m.sock");
        assert!(remove_stale_socket(&path).is_ok(), "nothing is there");
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 1).unwrap();
        assert!(remove_stale_socket(&path).unwrap_err().contains("another process listens"));
        drop(fd);
        assert!(path.exists());
        remove_stale_socket(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(remove_stale_socket(&path).unwrap_err().contains("not a socket"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
