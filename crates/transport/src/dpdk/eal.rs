//! DPDK's environment abstraction layer (EAL): once per process, with its words and its errors as ours.

use super::sys;
use crate::IoError;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The pages that DPDK's own memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages if enough are free, normal ones otherwise.
    #[default]
    Any,
    /// Huge pages, or an error.
    Huge,
    /// Normal pages: enough for software ports; a device that needs physical addresses needs huge ones.
    Normal,
}

/// How to start EAL. Every port of a process shares it, so every port must ask for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Memory for buffers, in units of 2^20 bytes.
    pub memory_mib: u32,
    /// What it is made of.
    pub pages: Pages,
    /// More words for EAL's command line, such as `--log-level=pmd.net.memif:debug`.
    pub arguments: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self { memory_mib: 256, pages: Pages::Any, arguments: Vec::new() }
    }
}

/// EAL as it was started.
struct Started {
    config: EalConfig,
    /// It knows PCI devices.
    pci: bool,
}

static STARTED: OnceLock<Result<Started, String>> = OnceLock::new();

/// One thread at a time opens and closes ports.
pub fn lock() -> MutexGuard<'static, ()> {
    static CONTROL: Mutex<()> = Mutex::new(());
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts EAL unless it runs with these settings already. `pci`: the PCI device that will be opened, if it is one.
pub fn start(config: &EalConfig, pci: Option<&str>) -> Result<(), IoError> {
    refuse_help(config).map_err(IoError::Config)?; // nothing was started: another port may still do so
    let started = STARTED.get_or_init(|| init(config, pci)).as_ref().map_err(|why| IoError::Config(why.clone()))?;
    if started.config != *config {
        return Err(IoError::Config(format!(
            "DPDK starts once in a process, and it was started with {:?}; a port that asks for {config:?} needs a \
             process of its own",
            started.config
        )));
    }
    if let (Some(device), false) = (pci, started.pci) {
        return Err(IoError::Config(format!(
            "DPDK was started for software ports only: open {device} before those, or in a process of its own"
        )));
    }
    Ok(())
}

fn init(config: &EalConfig, pci: Option<&str>) -> Result<Started, String> {
    let words = words(config, pci)?;
    let text = words.join(" ");
    let c_words = words.into_iter().map(|word| CString::new(word).map_err(|_| "EAL's words have no zero bytes".into()));
    match sys::start_eal(c_words.collect::<Result<_, String>>()?) {
        Ok(()) => Ok(Started { config: config.clone(), pci: pci.is_some() }),
        Err(code) => {
            let why = std::io::Error::from_raw_os_error(code);
            Err(format!("DPDK does not start ({text}): {why}{}{}", hint(config), said()))
        }
    }
}

/// Whether one of the user's words begins so.
fn asks(config: &EalConfig, prefixes: &[&str]) -> bool {
    config.arguments.iter().any(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

fn refuse_help(config: &EalConfig) -> Result<(), String> {
    if asks(config, &["-h", "--help", "-v", "--version"]) {
        return Err("EAL's arguments ask for its help, which ends the process: see dpdk-testpmd --help".into());
    }
    Ok(())
}

/// EAL's command line. Words of the user's come last, where EAL lets the last one win.
fn words(config: &EalConfig, pci: Option<&str>) -> Result<Vec<String>, String> {
    let mut words = vec!["shotline".into(), "--file-prefix=shotline".into(), "--no-telemetry".into()];
    words.extend(["-m".into(), config.memory_mib.to_string()]);
    let huge = match config.pages {
        Pages::Huge => true,
        Pages::Normal => false,
        Pages::Any => huge_mib() >= u64::from(config.memory_mib),
    };
    // Either way processes do not see each other's memory, and none of it is left in the file system.
    let private: &[_] = if huge { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    words.extend(private.iter().map(|word| (*word).to_owned()));
    // One file that holds all of it: a memif that lends its memory has to show a file.
    words.push("--single-file-segments".into());
    match pci {
        Some(device) => words.extend(["-a".into(), device.into()]),
        None => words.push("--no-pci".into()),
    }
    if !asks(config, &["-l", "-c", "--lcores"]) {
        // One logical core anywhere: the threads that use ports are not EAL's and stay where they are.
        let allowed = allowed_processors();
        words.push(format!("--lcores=0@({allowed})"));
    }
    words.extend(config.arguments.iter().cloned());
    Ok(words)
}

/// The processors that this process may use, as a list.
fn allowed_processors() -> String {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return "0".into() };
    let list = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let list: Vec<_> = list.map(|cpu| cpu.to_string()).collect();
    if list.is_empty() { "0".into() } else { list.join(",") }
}

/// Free huge pages, in units of 2^20 bytes.
fn huge_mib() -> u64 {
    let free = |size: u64, folder| {
        let count = std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/{folder}/free_hugepages"));
        count.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * size
    };
    free(2, "hugepages-2048kB") + free(1024, "hugepages-1048576kB")
}

fn hint(config: &EalConfig) -> String {
    if config.pages == Pages::Huge && huge_mib() < u64::from(config.memory_mib) {
        let pages = config.memory_mib.div_ceil(2);
        return format!(
            "; {} MiB of huge pages are free and {} are asked for: sysctl -w vm.nr_hugepages={pages}, or let it use \
             normal pages",
            huge_mib(),
            config.memory_mib
        );
    }
    String::new()
}

/// What DPDK itself has said since it was last asked, as the end of a message.
pub fn said() -> String {
    let log = sys::take_log();
    let mut lines: Vec<&str> = Vec::new();
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines.retain(|known| *known != line); // what is tried again and again is said once
        lines.push(line);
    }
    let newest = &lines[lines.len().saturating_sub(4)..];
    if newest.is_empty() { String::new() } else { format!("; DPDK says: {}", newest.join(" / ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eal_is_told_to_leave_nothing_behind_and_to_look_only_at_what_was_asked_for() {
        let config = EalConfig { pages: Pages::Normal, arguments: vec!["--foo".into()], ..EalConfig::default() };
        let software = words(&config, None).unwrap().join(" ");
        assert!(software.starts_with(
            "shotline --file-prefix=shotline --no-telemetry -m 256 --no-huge --no-shconf --single-file-segments --no-pci --lcores=0@("
        ));
        assert!(software.ends_with(" --foo"), "the user's words come last: {software}");
        let pci = words(&config, Some("0000:03:00.0")).unwrap().join(" ");
        assert!(pci.contains("-a 0000:03:00.0") && !pci.contains("--no-pci"));
        let own = EalConfig { arguments: vec!["-l".into(), "3".into()], ..config };
        assert!(!words(&own, None).unwrap().join(" ").contains("--lcores"));
    }

    #[test]
    fn words_that_would_end_the_process_are_refused() {
        let config = EalConfig { arguments: vec!["--help".into()], ..EalConfig::default() };
        assert!(refuse_help(&config).unwrap_err().contains("ends the process"));
        // Before anything is started: whoever asks for something else afterwards is not told the same.
        assert!(matches!(start(&config, None), Err(IoError::Config(words)) if words.contains("ends the process")));
        assert!(STARTED.get().is_none_or(|started| !matches!(started, Err(why) if why.contains("ends the process"))));
    }
}
