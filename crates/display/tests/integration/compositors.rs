//! Wayland compositors without a screen: weston and sway.

use rustix::process::{Pid, Signal};
use shotline_display::DisplayKind;
use shotline_testing::wait_until_some;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Size of the screen in pixels.
pub const SCREEN: (u32, u32) = (640, 480);

/// User and group of a sway, which does not run as root.
const USER: u32 = 65_534;

/// Whole screen at 60 Hz, without what sway draws itself.
const SWAY_CONFIG: &str = "\
output * bg #000000 solid_color
output HEADLESS-1 mode --custom 640x480@60Hz
default_border none
default_floating_border none
xwayland disable
";

/// Windows that weston shows without a panel or animations.
const WESTON_CONFIG: &str = "\
[shell]
panel-position=none
animation=none
startup-animation=none
locking=false
";

/// A running compositor. It ends when this value is dropped.
pub struct Compositor {
    child: Child,
    /// Its socket.
    pub socket: PathBuf,
    folder: TempDir,
}

impl Compositor {
    /// Starts a weston with these further arguments, or returns why that is not possible here.
    pub fn weston(arguments: &[&str]) -> Result<Self, String> {
        let folder = runtime_folder();
        let config = folder.path().join("config");
        fs::write(&config, WESTON_CONFIG).unwrap();
        let mut command = Command::new("weston");
        command.args(["--backend=headless-backend.so", "--use-pixman", "--socket=wayland-0", "--idle-time=0"]);
        command.args([format!("--width={}", SCREEN.0), format!("--height={}", SCREEN.1)]);
        command.arg(format!("--config={}", config.display()));
        command.args(arguments);
        Self::start("weston", &mut command, folder)
    }

    /// Starts a sway, or returns why that is not possible here. Windows that are not fullscreen are tiled.
    pub fn sway() -> Result<Self, String> {
        let folder = runtime_folder();
        let config = folder.path().join("config");
        fs::write(&config, SWAY_CONFIG).unwrap();
        let mut command = if rustix::process::geteuid().is_root() {
            chown(folder.path(), Some(USER), Some(USER)).unwrap();
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
            command.args(["--clear-groups", "--", "sway"]);
            command
        } else {
            Command::new("sway")
        };
        command.arg("--config").arg(&config);
        command.env("WLR_BACKENDS", "headless").env("WLR_RENDERER", "pixman").env("WLR_LIBINPUT_NO_DEVICES", "1");
        Self::start("sway", &mut command, folder)
    }

    fn start(name: &str, command: &mut Command, folder: TempDir) -> Result<Self, String> {
        // setpriv would start and then not find it.
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|directory| directory.join(name).is_file());
        if !found {
            return Err(format!("{name} is not installed"));
        }
        command.env("XDG_RUNTIME_DIR", folder.path()).env("HOME", folder.path());
        command.env_remove("WAYLAND_DISPLAY").env_remove("DISPLAY");
        let log = folder.path().join("log");
        let output = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let mut compositor = Self { child, socket: PathBuf::new(), folder };
        compositor.socket = wait_until_some("the compositor accepts connections", || {
            if let Some(socket) = compositor.file("wayland-").filter(|socket| UnixStream::connect(socket).is_ok()) {
                return Some(Ok(socket));
            }
            let ended = compositor.child.try_wait().unwrap()?;
            Some(Err(format!("{name} has ended with {ended}: {}", fs::read_to_string(&log).unwrap())))
        })?;
        Ok(compositor)
    }

    /// Returns the socket in the folder of the compositor whose name begins with this.
    fn file(&self, prefix: &str) -> Option<PathBuf> {
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(prefix) && !name.ends_with(".lock")
        };
        fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).find(is_it)
    }

    /// Returns its display.
    pub fn display(&self) -> DisplayKind {
        DisplayKind::Wayland(Some(self.socket.to_str().unwrap().into()))
    }

    /// Runs a client of the compositor in its folder, and returns what it printed, or why it failed.
    pub fn client(&self, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env("WAYLAND_DISPLAY", &self.socket);
        if let Some(socket) = self.file("sway-ipc") {
            command.env("SWAYSOCK", socket);
        }
        let output = command.output().map_err(|error| format!("{program} cannot be started: {error}"))?;
        if output.status.success() { Ok(output.stdout) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the compositor at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the compositor.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Compositor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates a folder for sockets, which only its owner may enter.
fn runtime_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}
