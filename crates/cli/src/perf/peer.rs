//! A target of one's own, in a process of its own.

use crate::Result;
use shotline_verbs::api::ControlSocket;
use shotline_verbs::cm::{Listen, Token};
use shotline_verbs::provider::ProviderKind;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A target that ends when this is dropped, or when this program ends.
pub struct Peer {
    child: Child,
    /// Where it listens.
    pub listen: Listen,
    /// What it wants to hear.
    pub token: Token,
    /// Where its socket is, if it has a path.
    _folder: Option<tempfile::TempDir>,
}

/// How long a target may take to end.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

impl Peer {
    /// Starts `shotline target` with these arguments. Its token comes over a pipe that only this program reads.
    pub fn start(provider: &ProviderKind, args: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["target", "--until-stdin-ends", "--json"]).args(args);
        let folder = match provider.description().control {
            ControlSocket::Tcp => None,
            ControlSocket::Unix => Some(tempfile::tempdir()?),
        };
        if let Some(folder) = &folder {
            command.arg("--listen").arg(folder.path().join("target"));
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for this program, which then ends the target in order.
            .process_group(0)
            .spawn()?;
        let stderr = child.stderr.take().ok_or("the target has no standard error")?;
        let mut stderr = BufReader::new(stderr);
        let (mut listen, mut token, mut said) = (None, None, String::new());
        while listen.is_none() {
            let mut line = String::new();
            if stderr.read_line(&mut line)? == 0 {
                let _ = child.wait();
                return Err(format!("the target did not start: {}", said.trim()).into());
            }
            let last = line.trim().rsplit(' ').next().unwrap_or_default();
            match line.split(' ').next() {
                Some("token") => token = last.parse().ok(),
                Some("target") => {
                    listen = Some(last.parse().map_or_else(|_| Listen::Unix(last.into()), Listen::Tcp));
                }
                _ => {}
            }
            said.push_str(&line);
        }
        // Read on, so that the target never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        match (listen, token) {
            (Some(listen), Some(token)) => Ok(Self { child, listen, token, _folder: folder }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the target says what this program does not understand: {}", said.trim()).into())
            }
        }
    }

    /// Ends it in order. Its counters must balance.
    pub fn end(mut self) -> Result {
        drop(self.child.stdin.take());
        let mut report = String::new();
        if let Some(stdout) = &mut self.child.stdout {
            stdout.read_to_string(&mut report)?;
        }
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the target ended with {status}: {}", report.trim()).into()) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + WAIT_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                // This very process, by its handle.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
