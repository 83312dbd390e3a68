//! `xdp:INTERFACE`: frames taken from an interface's driver (AF_XDP).

use crate::backend::{About, Backend, Never};
use crate::opening::{Opened, Options, Wanted};
use shotline_memory::Regions;
use shotline_transport::IoError;
use shotline_transport::xdp::{Copy, Mode, XdpConfig, XdpIo};

/// An interface and how its frames are taken: `eth1,queues=0-3,mode=native,copy=zero,chunks=8192`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The interface.
    pub interface: String,
    /// First and last of its receive queues; none: all.
    pub queues: Option<(u32, u32)>,
    /// Where the program runs.
    pub mode: Mode,
    /// How frames come into memory.
    pub copy: Copy,
    /// Chunks for each queue, a power of two; none: the backend's usual number.
    pub chunks: Option<u32>,
}

/// `2`, or `0-3`: fewer than 4096 of them.
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
        sends_whole_frames: false,
        copies: "2, of which one is the kernel's; 1 where the driver has zero-copy",
        batch: "1",
        privileges: "root",
        feature: None,
        missing: None,
        receiver_flags: &[],
        sender_flags: &[],
        whole_frames_flags: &[],
    };
    type Io = XdpIo;
    type Sender = Never;

    fn parse(words: &str) -> Result<Option<Self>, String> {
        let mut rest = words.split(',');
        let interface = rest.next().filter(|name| !name.is_empty() && !name.contains('=')).map(str::to_owned);
        let interface = interface.ok_or_else(|| format!("\"{words}\" names no interface: such as xdp:eth1"))?;
        let mut this = Self { interface, queues: None, mode: Mode::Auto, copy: Copy::Auto, chunks: None };
        for word in rest {
            let unknown = || {
                format!(
                    "expected queues=0-3, mode=native, mode=generic, copy=yes, copy=zero or chunks=8192 behind the interface, found {word}"
                )
            };
            match word.split_once('=').ok_or_else(unknown)? {
                ("queues", range) => this.queues = Some(queues(range).ok_or_else(unknown)?),
                ("mode", "native") => this.mode = Mode::Native,
                ("mode", "generic") => this.mode = Mode::Generic,
                ("copy", "yes") => this.copy = Copy::Copy,
                ("copy", "zero") => this.copy = Copy::Zero,
                ("chunks", count) => this.chunks = Some(count.parse().map_err(|_| unknown())?),
                _ => return Err(unknown()),
            }
        }
        Ok(Some(this))
    }

    fn words(&self) -> String {
        let mut words = self.interface.clone();
        if let Some((first, last)) = self.queues {
            words += &format!(",queues={first}-{last}");
        }
        words += match self.mode {
            Mode::Auto => "",
            Mode::Native => ",mode=native",
            Mode::Generic => ",mode=generic",
        };
        words += match self.copy {
            Copy::Auto => "",
            Copy::Copy => ",copy=yes",
            Copy::Zero => ",copy=zero",
        };
        self.chunks.map_or(words.clone(), |chunks| format!("{words},chunks={chunks}"))
    }

    fn open(&self, wanted: &Wanted, _options: &Options, regions: &Regions) -> Result<Opened<XdpIo>, IoError> {
        let Wanted { bind, sealed, remainders, capacity, scratch, .. } = *wanted;
        let usual = XdpConfig::new(self.interface.as_str(), bind, scratch);
        let config = XdpConfig {
            queues: self.queues.map_or_else(Vec::new, |(first, last)| (first..=last).collect()),
            mode: self.mode,
            copy: self.copy,
            chunks: self.chunks.unwrap_or(usual.chunks),
            sealed,
            remainders,
            capacity,
            ..usual
        };
        let io = XdpIo::open(config, regions)?;
        Ok(Opened { local: io.local_addr(), receive_buffer: io.receive_buffer(), io })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_may_have_queues_a_mode_a_copy_and_chunks() {
        let read = Xdp::parse("eth1,queues=2-4,mode=native,copy=zero,chunks=1024");
        let (mode, copy) = (Mode::Native, Copy::Zero);
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
