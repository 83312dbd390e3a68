//! An emulated probe in a child process.

use super::{program, spawn};
use crate::Result;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// An emulated probe in a child process. It ends when this value is dropped, or when this program ends.
pub struct Probe(Child);

impl Probe {
    /// Starts `shotline emulate probe` with `args` on a port that the kernel chooses. Also returns its set-up address.
    pub fn start(args: &[String]) -> Result<(Self, SocketAddr)> {
        let mut command = Command::new(program()?);
        command.args(["emulate", "probe", "--listen", "[::1]:0", "--until-stdin-ends"]).args(args);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C must reach only this program, which then stops the probe cleanly.
        let mut child = spawn(command.process_group(0))?;
        let mut line = String::new();
        let stderr = child.stderr.take().ok_or("the emulated probe has no standard error")?;
        let mut stderr = BufReader::new(stderr);
        stderr.read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().and_then(|word| word.parse().ok());
        let probe = Self(child);
        // Keep reading, so that the probe never blocks on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        match address {
            Some(address) => Ok((probe, address)),
            None => Err(format!("the emulated probe did not start: {}", line.trim()).into()),
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
