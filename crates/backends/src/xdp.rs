//! `xdp:INTERFACE`: frames received from an interface's driver (AF_XDP).

use crate::backend::{About, Backend, Never};
use crate::opening::{OpenedReceiver, Options, ReceiverParameters};
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_transport::xdp::{AttachMode, CopyMode, XdpConfig, XdpIo};

/// An interface and how its frames are received: `eth1,queues=0-3,mode=native,copy=zero,chunks=8192`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The interface.
    pub interface: String,
    /// First and last of its receive queues; `None`: all.
    pub queues: Option<(u32, u32)>,
    /// Where the XDP program runs.
    pub mode: AttachMode,
    /// How received frames get into memory.
    pub copy: CopyMode,
    /// Chunks for each queue, a power of two; `None`: the backend's default.
    pub chunks: Option<u32>,
}

/// Parses a queue `2` or a range `0-3`. Queue numbers must be below 4096.
fn queues(range: &str) -> Option<(u32, u32)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < 4096).then_some((first, last))
}

impl Backend for Xdp {
    const ABOUT: About = About {
        name: "xdp",
        argument: Some("INTERFACE"),
        examples: &["xdp:eth1"],
        steers: "yes",
        credits: "no",
        one_link: &[],
        sends: false,
        sends_complete_frames: false,
        copies: "2, one by the kernel; 1 if the driver supports zero-copy",
        batch: "1",
        privileges: "root",
        feature: None,
        missing: None,
        receiver_flags: &[],
        sender_flags: &[],
        complete_frames_flags: &[],
    };
    type Io = XdpIo;
    type Sender = Never;

    fn parse(arguments: &str) -> Result<Option<Self>, String> {
        let mut rest = arguments.split(',');
        let interface = rest.next().filter(|name| !name.is_empty() && !name.contains('=')).map(str::to_owned);
        let interface =
            interface.ok_or_else(|| format!("expected an interface, such as xdp:eth1, found \"{arguments}\""))?;
        let mut this = Self { interface, queues: None, mode: AttachMode::Auto, copy: CopyMode::Auto, chunks: None };
        for word in rest {
            let unknown = || {
                format!(
                    "expected queues=0-3, mode=native, mode=generic, copy=yes, copy=zero or chunks=8192 after the interface, found {word}"
                )
            };
            match word.split_once('=').ok_or_else(unknown)? {
                ("queues", range) => this.queues = Some(queues(range).ok_or_else(unknown)?),
                ("mode", "native") => this.mode = AttachMode::Native,
                ("mode", "generic") => this.mode = AttachMode::Generic,
                ("copy", "yes") => this.copy = CopyMode::Copy,
                ("copy", "zero") => this.copy = CopyMode::Zero,
                ("chunks", count) => this.chunks = Some(count.parse().map_err(|_| unknown())?),
                _ => return Err(unknown()),
            }
        }
        Ok(Some(this))
    }

    fn arguments(&self) -> String {
        let mut arguments = self.interface.clone();
        if let Some((first, last)) = self.queues {
            arguments += &format!(",queues={first}-{last}");
        }
        arguments += match self.mode {
            AttachMode::Auto => "",
            AttachMode::Native => ",mode=native",
            AttachMode::Generic => ",mode=generic",
        };
        arguments += match self.copy {
            CopyMode::Auto => "",
            CopyMode::Copy => ",copy=yes",
            CopyMode::Zero => ",copy=zero",
        };
        self.chunks.map_or(arguments.clone(), |chunks| format!("{arguments},chunks={chunks}"))
    }

    fn open(
        &self,
        parameters: &ReceiverParameters,
        _options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<XdpIo>, IoError> {
        let ReceiverParameters { bind, sealed, remainders, capacity, scratch, .. } = *parameters;
        let defaults = XdpConfig::new(self.interface.as_str(), bind, scratch);
        let config = XdpConfig {
            queues: self.queues.map_or_else(Vec::new, |(first, last)| (first..=last).collect()),
            mode: self.mode,
            copy: self.copy,
            chunks: self.chunks.unwrap_or(defaults.chunks),
            sealed,
            remainders,
            capacity,
            ..defaults
        };
        let io = XdpIo::open(config, regions)?;
        Ok(OpenedReceiver { local: io.local_addr(), receive_buffer: io.receive_buffer(), io })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_queues_mode_copy_and_chunks() {
        let read = Xdp::parse("eth1,queues=2-4,mode=native,copy=zero,chunks=1024");
        let (mode, copy) = (AttachMode::Native, CopyMode::Zero);
        let expected = Xdp { interface: "eth1".into(), queues: Some((2, 4)), mode, copy, chunks: Some(1024) };
        assert_eq!(read, Ok(Some(expected)));
        for bad in ["", "queues=1", "eth1,queues=4-2", "eth1,queues=0-99999", "eth1,mode=fast"] {
            assert!(Xdp::parse(bad).is_err(), "{bad}");
        }
        for bad in ["eth1,copy=no", "eth1,chunks=many", "eth1,", "eth1,2"] {
            assert!(Xdp::parse(bad).unwrap_err().contains("expected queues=0-3"), "{bad}");
        }
    }
}
