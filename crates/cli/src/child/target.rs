//! A target in a child process.

use super::{program, spawn};
use crate::Result;
use shotline_verbs::api::ControlSocket;
use shotline_verbs::cm::{ControlAddress, Token};
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::spacefibre::{CarrierKind, LinkSelector};
use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A target in a child process. It ends when this value is dropped, or when this program ends.
pub struct ChildTarget {
    child: Child,
    /// Address that it listens on.
    pub listen: ControlAddress,
    /// Token that it accepts.
    pub token: Token,
    /// Directory of its socket, if the socket has a path.
    _folder: Option<tempfile::TempDir>,
}

/// Time that the target has to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that it has to exit cleanly, with its report: freeing its memory may take long.
const END_TIMEOUT: Duration = Duration::from_secs(60);

impl ChildTarget {
    /// Starts `shotline target` with these arguments. Its token is read from a pipe that only this process reads.
    pub fn start(provider: &ProviderKind, args: &[String]) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args(["target", "--until-stdin-ends", "--json"]).args(args);
        let folder = match provider.description().control {
            ControlSocket::Tcp => None,
            ControlSocket::Unix => Some(tempfile::tempdir()?),
        };
        if let Some(folder) = &folder {
            command.arg("--listen").arg(folder.path().join("target"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C must reach only this program, which then ends the target cleanly.
        let mut child = spawn(command.process_group(0))?;
        let stderr = child.stderr.take().ok_or("the target has no standard error")?;
        let mut stderr = BufReader::new(stderr);
        let (mut listen, mut token, mut output) = (None, None, String::new());
        while listen.is_none() {
            let mut line = String::new();
            if stderr.read_line(&mut line)? == 0 {
                let _ = child.wait();
                return Err(format!("the target did not start: {}", output.trim()).into());
            }
            let last = line.trim().rsplit(' ').next().unwrap_or_default();
            match line.split(' ').next() {
                Some("token") => token = last.parse().ok(),
                Some("target") => {
                    listen = Some(last.parse().map_or_else(|_| ControlAddress::Unix(last.into()), ControlAddress::Tcp));
                }
                _ => {}
            }
            output.push_str(&line);
        }
        // Keep reading, so that the target never blocks on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        match (listen, token) {
            (Some(listen), Some(token)) => Ok(Self { child, listen, token, _folder: folder }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("unexpected output of the target: {}", output.trim()).into())
            }
        }
    }

    /// Ends the target cleanly. Returns an error unless its counters balance.
    pub fn end(self) -> Result {
        self.end_if_possible()?.map_or(Ok(()), |how| Err(how.into()))
    }

    /// Ends the target cleanly, as [`Self::end`] does. If a signal has ended it, or it hangs, returns how it ended.
    pub fn end_if_possible(mut self) -> Result<Option<String>> {
        drop(self.child.stdin.take());
        let Some(mut stdout) = self.child.stdout.take() else { return Err("the target has no standard output".into()) };
        let (sender, receiver) = channel();
        // Its report ends with its process, which may be stopped.
        std::thread::spawn(move || {
            let mut report = String::new();
            let read = stdout.read_to_string(&mut report);
            let _ = sender.send(read.map(|_| report));
        });
        let report = receiver.recv_timeout(END_TIMEOUT).ok();
        let status = if report.is_some() { self.exited_within(EXIT_TIMEOUT)? } else { None };
        let (Some(report), Some(status)) = (report, status) else {
            self.kill();
            return Ok(Some(format!("the target did not end within {} s, and was killed", END_TIMEOUT.as_secs())));
        };
        match status.code() {
            Some(0) => Ok(None),
            Some(_) => Err(format!("the target ended with {status}: {}", report?.trim()).into()),
            None => Ok(Some(format!("the target ended with {status}"))),
        }
    }

    /// Waits until the process has exited. Returns `None` if it has not after this time.
    fn exited_within(&mut self, time: Duration) -> std::io::Result<Option<ExitStatus>> {
        let end = Instant::now() + time;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= end {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the target at once, even if it is stopped.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        // What is left is done when it is dropped.
    }
}

impl Drop for ChildTarget {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !matches!(self.exited_within(EXIT_TIMEOUT), Ok(Some(_))) {
            // Kills exactly this child, by its handle.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the arguments that select the addresses of a target on this machine.
pub fn address_arguments(transport: &ProviderKind, is_v6: bool) -> Result<Vec<String>> {
    Ok(match transport {
        ProviderKind::Soft | ProviderKind::SpaceFibre(LinkSelector { carrier: CarrierKind::Udp, .. }) => {
            let [memory, control] = if is_v6 { ["[::1]:0"; 2] } else { ["127.0.0.2:0", "127.0.0.1:0"] };
            ["--bind", memory, "--listen", control].map(str::to_owned).into()
        }
        // Both sides use the only address of the device.
        ProviderKind::Ibverbs(choice) => {
            vec!["--listen".into(), SocketAddr::new(choice.open()?.gid.ip(), 0).to_string()]
        }
        ProviderKind::Shm | ProviderKind::SpaceFibre(LinkSelector { carrier: CarrierKind::Shm, .. }) => Vec::new(),
    })
}
