//! Display devices of the kernel: opening one, and what of it shows frames.

use drm::control::{Device as _, ResourceHandles, connector, crtc, encoder};
use drm::{Device as _, DriverCapability, VblankWaitFlags, VblankWaitTarget};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folder of the display devices.
const DEVICES: &str = "/dev/dri";
/// `DRM_PRIME_CAP_EXPORT` of `include/uapi/drm/drm.h`.
const PRIME_EXPORT: u64 = 2;

/// An open display device, whose master this process is.
#[derive(Debug)]
pub(super) struct Card {
    fd: OwnedFd,
    /// Its device file.
    pub path: PathBuf,
}

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl drm::Device for Card {}
impl drm::control::Device for Card {}

/// A connector with a screen, and the CRTC that scans frames out to it.
#[derive(Debug)]
pub(super) struct Output {
    pub connector: connector::Info,
    pub crtc: crtc::Handle,
    /// Index of the CRTC among those of the device.
    pub index: u32,
    /// What the CRTC showed before, and on which connectors.
    pub before: Option<(crtc::Info, Vec<connector::Handle>)>,
}

impl Card {
    /// Opens a device and its first connector with a screen, or those of the first device that has one.
    /// Otherwise returns the name of the display and the reason.
    pub(super) fn open(device: Option<&Path>) -> Result<(Self, Output), (String, String)> {
        if let Some(path) = device {
            return Self::open_path(path).map_err(|reason| (format!("kms={}", path.display()), reason));
        }
        let mut reasons = Vec::new();
        for path in devices() {
            match Self::open_path(&path) {
                Ok(found) => return Ok(found),
                Err(reason) => reasons.push(format!("{}: {reason}", path.display())),
            }
        }
        let none = || format!("expected a device {DEVICES}/card*, found none: no driver of a display is loaded");
        Err(("kms".into(), if reasons.is_empty() { none() } else { reasons.join("; ") }))
    }

    fn open_path(path: &Path) -> Result<(Self, Output), String> {
        let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        let fd = opened.map_err(|error| match error {
            rustix::io::Errno::ACCESS => format!("{error}; this user must be in the group of the device (video)"),
            _ => error.to_string(),
        })?;
        let card = Self { fd, path: path.into() };
        let resources = card.resource_handles();
        let resources =
            resources.map_err(|error| format!("expected a display device whose driver sets modes (KMS): {error}"))?;
        card.acquire_master_lock().map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy | ErrorKind::PermissionDenied => {
                "another program is its master, probably an X server or a Wayland compositor; end that program, or switch \
                 to another virtual terminal (Ctrl+Alt+F3) and start this one there"
                    .to_owned()
            }
            _ => format!("this process cannot become its master: {error}"),
        })?;
        let output = card.output(&resources)?;
        Ok((card, output))
    }

    /// Returns the first connector with a screen, and a CRTC for it.
    fn output(&self, resources: &ResourceHandles) -> Result<Output, String> {
        let connectors = resources.connectors().iter().filter_map(|handle| self.get_connector(*handle, true).ok());
        let connectors: Vec<_> = connectors.collect();
        let is_usable = |info: &&connector::Info| info.state() == connector::State::Connected;
        let Some(connector) = connectors.iter().find(is_usable) else {
            let names: Vec<_> = connectors.iter().map(ToString::to_string).collect();
            return Err(format!("expected a screen at one of its connectors ({}), found none", names.join(", ")));
        };
        let shown = |info: &connector::Info| self.get_encoder(info.current_encoder()?).ok()?.crtc();
        let crtcs: Vec<(connector::Handle, crtc::Handle)> =
            connectors.iter().filter_map(|info| shown(info).map(|crtc| (info.handle(), crtc))).collect();
        let crtc = self.crtc(resources, connector, &crtcs);
        let crtc = crtc.ok_or_else(|| format!("expected a free CRTC for the connector {connector}, found none"))?;
        let index = resources.crtcs().iter().position(|other| *other == crtc).unwrap_or(0) as u32;
        let cloned = crtcs.iter().filter(|(_, of)| *of == crtc).map(|(handle, _)| *handle).collect();
        let before = self.get_crtc(crtc).ok().map(|info| (info, cloned));
        Ok(Output { connector: connector.clone(), crtc, index, before })
    }

    /// Returns the CRTC of a connector, or one that none uses, for one of its encoders.
    fn crtc(
        &self,
        resources: &ResourceHandles,
        connector: &connector::Info,
        used: &[(connector::Handle, crtc::Handle)],
    ) -> Option<crtc::Handle> {
        if let Some((_, crtc)) = used.iter().find(|(handle, _)| *handle == connector.handle()) {
            return Some(*crtc);
        }
        let encoders = connector.encoders().iter().filter_map(|handle| self.get_encoder(*handle).ok());
        let mut possible = encoders.flat_map(|info: encoder::Info| resources.filter_crtcs(info.possible_crtcs()));
        possible.find(|crtc| !used.iter().any(|(_, other)| other == crtc))
    }

    /// Returns why frame buffers of the device cannot be memory of this process, or `None` if they can.
    pub(super) fn lacks_shared_memory(&self) -> Option<String> {
        let capability = |capability| self.get_driver_capability(capability).unwrap_or(0);
        let driver = self.get_driver().map(|driver| driver.name().to_string_lossy().into_owned());
        let driver = driver.unwrap_or_else(|_| "without a name".into());
        if capability(DriverCapability::DumbBuffer) == 0 {
            return Some(format!("its driver {driver} has no buffers that the processor can fill (dumb buffers)"));
        }
        let exports = capability(DriverCapability::Prime) & PRIME_EXPORT != 0;
        (!exports).then(|| format!("its driver {driver} exports no buffers (dma-buf)"))
    }

    /// Returns the number and time of the last refresh, or `None` if the driver does not count them.
    pub(super) fn last_refresh(&self, index: u32) -> Option<(u32, Duration)> {
        let reply = self.wait_vblank(VblankWaitTarget::Relative(0), VblankWaitFlags::empty(), index, 0).ok()?;
        Some((reply.frame(), reply.time()?))
    }

    /// Returns the file that says whether a connector has a screen (`connected`).
    pub(super) fn status_file(&self, connector: &connector::Info) -> Option<PathBuf> {
        let device = rustix::fs::fstat(&self.fd).ok()?.st_rdev;
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let folder = Path::new("/sys/dev/char").join(numbers).canonicalize().ok()?;
        let card = folder.file_name()?.to_str()?;
        Some(folder.join(format!("{card}-{connector}")).join("status"))
    }
}

/// Returns the display devices of this machine in the order of their numbers.
fn devices() -> Vec<PathBuf> {
    let number = |name: &str| name.strip_prefix("card")?.parse::<u32>().ok();
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns `true` if an error means that the device does not exist any more.
pub(super) fn is_removed(error: &Error) -> bool {
    let removed = [rustix::io::Errno::NODEV, rustix::io::Errno::NXIO];
    error.raw_os_error().is_some_and(|code| removed.contains(&rustix::io::Errno::from_raw_os_error(code)))
}
