//! An X server without a screen (Xvfb).

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

/// A running X server. It ends when this value is dropped.
pub struct Xvfb {
    child: Child,
    /// Its name for clients.
    pub name: String,
}

impl Xvfb {
    /// Starts a server with these further arguments, or returns why that is not possible here.
    pub fn start(arguments: &[&str]) -> Result<Self, String> {
        let (reader, writer) = rustix::pipe::pipe().map_err(|error| error.to_string())?;
        let writer: OwnedFd = writer;
        // The server writes the number of its display there once it accepts clients.
        let number = writer.as_raw_fd().to_string();
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).map_err(|error| error.to_string())?;
        let child = Command::new("Xvfb")
            .args(["-displayfd", &number, "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("Xvfb cannot be started: {error}"))?;
        drop(writer);
        let mut server = Self { child, name: String::new() };
        let mut text = Vec::new();
        let mut byte = [0];
        let mut reader = std::fs::File::from(reader);
        while reader.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            text.push(byte[0]);
        }
        let text = String::from_utf8(text).unwrap_or_default();
        if text.is_empty() {
            return Err("Xvfb has ended at once".into());
        }
        server.name = format!(":{text}");
        Ok(server)
    }

    /// Ends the server at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        self.kill();
    }
}
