//! A driver in a virtual machine: the window and the memory of the machine are files that this process and QEMU map.

use super::dma::Maps;
use super::error::CardError;
use super::session::Session;
use super::window::Window;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most memory of a machine: QEMU's q35 has so much from address 0 on, and puts more above 4 GiB.
const MAX_MEMORY: u64 = 2 << 30;

/// A virtual machine.
#[derive(Debug)]
pub(super) struct Guest {
    window: PathBuf,
    memory: OwnedFd,
    memory_bytes: u64,
}

impl Guest {
    /// Opens the memory of a machine.
    ///
    /// # Errors
    /// If it is empty or larger than 2 GiB, or cannot be opened.
    pub fn open(window: &Path, memory: &Path) -> Result<Self, CardError> {
        let failed = |error: Errno| CardError::System {
            what: format!("cannot open the memory of a virtual machine, {}, which QEMU creates", memory.display()),
            source: error.into(),
        };
        let fd = rustix::fs::open(memory, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let memory_bytes = rustix::fs::fstat(&fd).map_err(failed)?.st_size as u64;
        if !(1..=MAX_MEMORY).contains(&memory_bytes) {
            return Err(CardError::Memory { path: memory.into(), found: memory_bytes });
        }
        Ok(Self { window: window.into(), memory: fd, memory_bytes })
    }

    /// Makes the window ready, and gives the card the memory.
    ///
    /// # Errors
    /// If the window is in use by another card, or the kernel refuses a map.
    pub fn session(&self, maps: &mut Maps) -> Result<Session, CardError> {
        let failed = |what: String, source| CardError::System { what, source };
        *maps = Maps::default();
        maps.map(0, self.memory_bytes, self.memory.as_fd(), 0)
            .map_err(|error| failed("cannot map the memory of the virtual machine".into(), error.into()))?;
        let window = Window::open(&self.window).map_err(|error| {
            failed(format!("cannot map the window {}", self.window.display()), io::Error::other(error))
        })?;
        Ok(Session::of_guest(window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_rtl::card::Dma;
    use std::fs;

    const BYTES: u64 = 1 << 20;

    #[test]
    fn a_guest_address_is_the_offset_in_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (window, memory) = (folder.path().join("window"), folder.path().join("memory"));
        fs::write(&memory, vec![0; BYTES as usize]).unwrap();
        let mut maps = Maps::default();
        let guest = Guest::open(&window, &memory).unwrap();
        let _session = guest.session(&mut maps).unwrap();
        assert!(maps.write(BYTES - 4, b"last") && !maps.write(BYTES - 3, b"last"));
        assert_eq!(fs::read(&memory).unwrap()[BYTES as usize - 4..], *b"last");
        let second = Guest::open(&window, &memory).unwrap().session(&mut Maps::default());
        assert!(second.unwrap_err().to_string().contains("window"), "the window has a card");
    }

    #[test]
    fn a_window_of_an_earlier_card_becomes_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (window, memory) = (folder.path().join("window"), folder.path().join("memory"));
        fs::write(&window, vec![0xff; super::super::window::BYTES]).unwrap();
        fs::write(&memory, [0; 4096]).unwrap();
        let session = Guest::open(&window, &memory).unwrap().session(&mut Maps::default()).unwrap();
        assert_eq!((session.window.commands_given(), session.window.pieces_given(255)), (0, 0));
        session.window.close();
        assert!(fs::read(&window).unwrap().iter().all(|&byte| byte <= 1), "only the version is left");
    }

    #[test]
    fn memory_of_an_impossible_size_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let memory = folder.path().join("memory");
        let refused = |what: &str| {
            let error = Guest::open(folder.path(), &memory).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused("which QEMU creates");
        let file = fs::File::create(&memory).unwrap();
        refused("found 0 bytes");
        file.set_len(MAX_MEMORY + 4096).unwrap();
        refused("at most 2 GiB");
    }
}
