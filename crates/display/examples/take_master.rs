//! Takes a display device from the program that is its master, as a switch of the virtual terminal does, and darkens it.
//!
//! `take_master PID DEVICE [FILE]`, as root. Prints a line when it is the master, and stays that until the file exists.

use drm::Device as _;
use drm::control::Device as _;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

struct Card(OwnedFd);

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl drm::Device for Card {}
impl drm::control::Device for Card {}

/// Returns the open file of a device that another process has.
fn file_of(process: &str, device: &str) -> Result<Card, String> {
    let pid = process.parse().ok().and_then(Pid::from_raw).ok_or("expected the id of a process")?;
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).map_err(|error| error.to_string())?;
    let is_device = |path: &Path| path.read_link().is_ok_and(|target| target == Path::new(device));
    let found = entries.flatten().find(|entry| is_device(&entry.path()));
    let found = found.and_then(|entry| entry.file_name().to_str()?.parse().ok());
    let number =
        found.ok_or_else(|| format!("expected a process that has opened {device}, found none in {process}"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| error.to_string())?;
    let file = pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()).map_err(|error| error.to_string())?;
    Ok(Card(file))
}

fn take() -> Result<(), String> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [process, device, file @ ..] = &words[..] else { return Err("expected PID DEVICE [FILE]".into()) };
    file_of(process, device)?.release_master_lock().map_err(|error| error.to_string())?;
    let card = File::options().read(true).write(true).open(device).map_err(|error| error.to_string())?;
    let card = Card(card.into());
    card.acquire_master_lock().map_err(|error| error.to_string())?;
    let resources = card.resource_handles().map_err(|error| error.to_string())?;
    for crtc in resources.crtcs() {
        card.set_crtc(*crtc, None, (0, 0), &[], None).map_err(|error| error.to_string())?;
    }
    println!("is master");
    while file.iter().any(|file| !Path::new(file).exists()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn main() -> ExitCode {
    match take() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("take_master: {error}");
            ExitCode::FAILURE
        }
    }
}
