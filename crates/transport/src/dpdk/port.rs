//! What a port is called, and what its driver has to be told so that whole frames pass.

use std::ffi::CString;
use std::io;
use std::path::Path;

/// Longest buffer of a memif's ring: a frame of the longest packet fits neither it nor any Ethernet.
const MOST_BSIZE: u16 = 64_000;

/// Which of DPDK's drivers a port has, as far as it makes a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory between two processes.
    Memif,
    /// A kernel interface, by `AF_PACKET` rings.
    AfPacket,
    /// A kernel interface, by `AF_XDP` sockets.
    AfXdp,
    /// Capture files.
    Pcap,
    /// A device on the PCI bus.
    Pci,
    /// Another software port.
    Other,
}

/// A port's device as DPDK writes it: `net_memif0,role=client,id=0` or `0000:03:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub kind: Kind,
    pub name: String,
    arguments: Vec<(String, String)>,
}

impl Device {
    /// Reads a device's name and arguments.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default().to_owned();
        if name.is_empty() || text.contains('\0') {
            return Err(format!("\"{text}\" names no device: such as net_memif0,role=client,id=0 or 0000:03:00.0"));
        }
        let pairs = words.map(|word| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
        let arguments = pairs.collect::<Option<Vec<_>>>();
        let arguments = arguments.ok_or_else(|| format!("\"{text}\": a device's arguments are key=value,key=value"))?;
        let driver = [
            ("net_memif", Kind::Memif),
            ("net_af_packet", Kind::AfPacket),
            ("net_af_xdp", Kind::AfXdp),
            ("net_pcap", Kind::Pcap),
            ("eth_af_packet", Kind::AfPacket),
        ];
        let kind = driver.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| *kind);
        let kind = kind.unwrap_or(if is_pci(&name) { Kind::Pci } else { Kind::Other });
        Ok(Self { kind, name, arguments })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.arguments.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn add(&mut self, key: &str, value: impl ToString) {
        if self.get(key).is_none() {
            self.arguments.push((key.to_owned(), value.to_string()));
        }
    }

    /// Tells the driver, unless the user has, to take frames of so many bytes whole. Returns how long the buffers for
    /// frames that come, and for those that go, must be.
    pub fn size(&mut self, frame: u16) -> Result<(u16, u16), String> {
        match self.kind {
            // The driver has two ways of copying: into buffers that it believes to be long enough for whatever length
            // the other side writes into the ring, and into as many as that length takes. It goes the second way when
            // receiving into buffers shorter than its own, and when sending from longer ones. Only that is safe.
            Kind::Memif => {
                self.add("bsize", frame.next_multiple_of(64) + 64);
                let size = self.get("bsize").and_then(|size| size.parse::<u16>().ok());
                // The driver of 22.11 writes into a slot that it does not have when a frame needs two and one is free.
                let size = size.filter(|size| (frame.max(256)..=MOST_BSIZE).contains(size));
                let least = frame.max(256);
                let size = size.ok_or_else(|| {
                    format!("a memif's bsize is {least} to {MOST_BSIZE} bytes here, so that a frame of the MTU is one buffer")
                })?;
                Ok((size - 64, frame.max(size) + 64))
            }
            Kind::AfPacket => {
                // Beside the frame there is the kernel's header. Blocks are whole pages.
                let size = (u32::from(frame) + 128).next_power_of_two().max(4096);
                self.add("blocksz", size);
                self.add("framesz", size);
                self.add("framecnt", ((1 << 25) / size).clamp(64, 2048));
                let size = self.get("framesz").and_then(|size| size.parse::<u16>().ok());
                let size = size.filter(|size| *size <= MOST_BSIZE);
                Ok((size.ok_or_else(|| format!("an af_packet's framesz is at most {MOST_BSIZE} bytes here"))?, frame))
            }
            _ => Ok((frame.max(2048), frame)),
        }
    }

    /// Buffers that a queue with so many descriptors holds.
    pub fn held(&self, descriptors: u16) -> u32 {
        let descriptors = u32::from(descriptors);
        // The driver fills a ring of 2048 with the kernel, whatever it is told, and takes as many to send from.
        if self.kind == Kind::AfXdp { 2 * descriptors.max(2048) } else { descriptors }
    }

    /// Its driver takes frames in pieces, and has copied them when its burst returns, from whatever memory they lie in.
    pub fn gathers(&self) -> bool {
        matches!(self.kind, Kind::Memif | Kind::AfPacket | Kind::Pcap) && !self.lends()
    }

    /// Its driver leaves frames where they are until the other side has read them: a memif client with zero-copy=yes. A
    /// server ignores that word.
    pub fn lends(&self) -> bool {
        self.dials() && self.get("zero-copy") == Some("yes")
    }

    /// Its driver copies what comes into buffers as long as their pool says, which may be anywhere.
    pub fn places(&self) -> bool {
        self.kind == Kind::Memif && !self.lends()
    }

    /// Has a memif client leave frames where they are, unless the user says otherwise.
    pub fn lend(&mut self) {
        if self.dials() {
            self.add("zero-copy", "yes");
        }
    }

    /// It is the side of a memif that looks for the other.
    pub fn dials(&self) -> bool {
        self.kind == Kind::Memif && !self.is_server()
    }

    fn is_server(&self) -> bool {
        matches!(self.get("role"), Some("server" | "master"))
    }

    /// The file that a memif server listens on, if it is one and not an abstract address.
    pub fn listens_on(&self) -> Option<&Path> {
        let server = self.kind == Kind::Memif && self.is_server();
        (server && self.get("socket-abstract") == Some("no"))
            .then(|| Path::new(self.get("socket").unwrap_or("/run/memif.sock")))
    }

    /// What else has to happen for the link to come up, as the end of a message.
    pub fn missing_link(&self) -> String {
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
            _ => "; is the cable in?".into(),
        }
    }

    /// What to look at when it cannot be attached, as the end of a message.
    pub fn missing_device(&self) -> String {
        match self.kind {
            Kind::Pci => format!(
                "; {} must be there (lspci), bound to vfio-pci (dpdk-devbind.py) unless its driver shares it with the \
                 kernel, and readable to this user",
                self.name
            ),
            Kind::AfPacket | Kind::AfXdp => {
                format!("; the interface {} must be there, and it takes root", self.get("iface").unwrap_or("(iface=)"))
            }
            Kind::Pcap => "; its capture files must be readable (rx_pcap=) or writable (tx_pcap=)".into(),
            Kind::Memif => "; the folder of its socket must be writable, and no other port may have its name".into(),
            Kind::Other => "; is it the name of a driver with a number (dpdk-testpmd lists them)?".into(),
        }
    }

    /// The device's name, and name and arguments together.
    pub fn words(&self) -> Result<(CString, CString), String> {
        let pairs: String = self.arguments.iter().map(|(key, value)| format!(",{key}={value}")).collect();
        let word = |text: String| CString::new(text).map_err(|_| "a device's name has no zero bytes".to_owned());
        Ok((word(self.name.clone())?, word(format!("{}{pairs}", self.name))?))
    }
}

/// Domain (or none), bus, device and function: `0000:03:00.0`.
fn is_pci(name: &str) -> bool {
    let parts: Vec<_> = name.split([':', '.']).collect();
    let hex = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (3..=4).contains(&parts.len()) && name.contains(':') && name.contains('.') && parts.iter().all(hex)
}

/// Removes the socket file of a server that is gone: with it there, DPDK could not listen. One that is in use is an
/// error; what is no socket is left alone.
pub fn clear_socket(path: &Path) -> Result<(), String> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let show = path.display();
    if !found.file_type().is_socket() {
        return Err(format!("{show} is there and is no socket: name another file for this memif"));
    }
    // A memif listens for another type of connection, so the kernel says that it is there without disturbing it: DPDK's
    // driver does not survive a client that comes and goes before it is greeted.
    let attempt = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .and_then(|fd| connect(&fd, &SocketAddrUnix::new(path)?));
    match attempt {
        Err(rustix::io::Errno::CONNREFUSED) => {
            std::fs::remove_file(path).map_err(|error| format!("nobody listens on {show}, but removing it: {error}"))
        }
        Ok(()) | Err(rustix::io::Errno::PROTOTYPE) => {
            Err(format!("another process listens on {show} (ss -xlp): name another socket for this memif"))
        }
        Err(error) => Err(format!("who listens on {show}? {}", io::Error::from(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_dpdk_writes_them() {
        for (text, kind) in [
            ("net_memif0,role=client,id=0", Kind::Memif),
            ("net_af_packet1,iface=eth0", Kind::AfPacket),
            ("net_af_xdp0,iface=eth0", Kind::AfXdp),
            ("net_pcap0,rx_pcap=a.pcap", Kind::Pcap),
            ("0000:03:00.0", Kind::Pci),
            ("03:00.1,some=thing", Kind::Pci),
            ("net_null0", Kind::Other),
        ] {
            let device = Device::parse(text).unwrap();
            assert_eq!(device.kind, kind, "{text}");
            assert_eq!(device.words().unwrap().1.to_str().unwrap(), text);
        }
        for wrong in ["", ",id=0", "net_memif0,client"] {
            assert!(Device::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_memif_is_told_to_hold_whole_frames_and_its_buffers_keep_to_the_safe_way() {
        let mut device = Device::parse("net_memif0,role=client").unwrap();
        let (receive, send) = device.size(4200).unwrap();
        assert!(device.words().unwrap().1.to_str().unwrap().ends_with(",bsize=4288"));
        assert!((4200..4288).contains(&receive) && send > 4288);
        // What the user says stays, if a frame fits.
        for size in [4200, 9216, MOST_BSIZE] {
            let mut device = Device::parse(&format!("net_memif0,bsize={size}")).unwrap();
            let (receive, send) = device.size(4200).unwrap();
            assert!(receive < size && send > size && send >= 4200, "{size}: {receive} and {send}");
        }
        for size in ["64", "2048", "4199", "65535", "70000", "junk"] {
            assert!(Device::parse(&format!("net_memif0,bsize={size}")).unwrap().size(4200).is_err(), "{size}");
        }
    }

    #[test]
    fn a_socket_file_that_nobody_listens_on_is_removed_and_any_other_is_not() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
        let folder = std::env::temp_dir().join(format!("shotline-memif-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("m.sock");
        assert!(clear_socket(&path).is_ok(), "nothing is there");
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 1).unwrap();
        assert!(clear_socket(&path).unwrap_err().contains("another process listens"));
        drop(fd);
        assert!(path.exists());
        clear_socket(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(clear_socket(&path).unwrap_err().contains("no socket"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
