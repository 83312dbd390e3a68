//! Signals. The first SIGINT, SIGTERM or SIGHUP requests a clean end; a second SIGINT or SIGTERM ends the process at
//! once. SIGUSR1 is a trigger. Also notifies a service manager of readiness.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let (stop, twice) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        // A signal may arrive between any two of these calls. The flag is registered first, so that no signal is lost,
        // and the call that arms the shutdown by the next signal is last.
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&twice))?;
        signal_hook::flag::register(signal, Arc::clone(&twice))?;
    }
    // The kernel and the shell may both send it when a terminal closes, so a second one must not end the process. Under
    // nohup it is ignored, and the process continues.
    if !is_ignored(SIGHUP) {
        signal_hook::flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Sets the flag when standard input ends.
pub fn stop_at_end_of_stdin(stop: &AtomicBool) {
    let mut sink = [0; 64];
    while !matches!(std::io::stdin().read(&mut sink), Ok(0) | Err(_)) {}
    stop.store(true, Ordering::Relaxed);
}

/// Returns `true` if the process was started with a signal ignored (`SigIgn` of proc(5), a mask in hexadecimal).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Sets a flag on SIGUSR1.
pub fn on_trigger(flag: Arc<AtomicBool>) -> std::io::Result<()> {
    signal_hook::flag::register(SIGUSR1, flag).map(|_| ())
}

/// Notifies the service manager that started this process, if one did, that it is ready (sd_notify(3)). Never blocks:
/// if the manager's queue is full, a thread waits for space.
pub fn notify_ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // Errors are ignored: the manager may not be listening.
    let Ok((socket, to)) = address(&path).and_then(|to| Ok((UnixDatagram::unbound()?, to))) else { return };
    let send = move |socket: &UnixDatagram| socket.send_to_addr(b"READY=1", &to);
    let sent = socket.set_nonblocking(true).and_then(|()| send(&socket));
    if sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        let wait = move || drop(socket.set_nonblocking(false).and_then(|()| send(&socket)));
        drop(std::thread::Builder::new().name("notify".into()).spawn(wait));
    }
}

/// Parses a path or, after `@`, an abstract name.
fn address(path: &OsStr) -> std::io::Result<SocketAddr> {
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }
}
