//! DPDK's environment abstraction layer (EAL): initialised once per process; its arguments and errors.

use super::sys;
use crate::IoError;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Page size of DPDK's own memory.
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

/// Configuration of EAL. All ports of a process share it, so all must use the same configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Memory for buffers, in units of 2^20 bytes.
    pub memory_mib: u32,
    /// Page size of that memory.
    pub pages: Pages,
    /// More arguments for EAL's command line, such as `--log-level=pmd.net.memif:debug`.
    pub arguments: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self { memory_mib: 256, pages: Pages::Any, arguments: Vec::new() }
    }
}

/// EAL's configuration as it was started.
struct Started {
    config: EalConfig,
    /// The PCI bus is enabled.
    pci: bool,
}

/// File of the packet card's driver, which is not part of DPDK.
const CARD_DRIVER: &str = "librte_net_shotline.so";

impl EalConfig {
    /// Returns the configuration with which EAL also loads the packet card's driver, if it is near the program and the
    /// user loads no driver. Otherwise it may be in DPDK's folder of drivers.
    pub(super) fn with_card_driver(mut self) -> Self {
        if !has_argument(&self, &["-d"])
            && let Some(file) = std::env::current_exe().ok().and_then(|program| card_driver(&program))
        {
            self.arguments.extend(["-d".to_owned(), file.to_string_lossy().into_owned()]);
        }
        self
    }
}

/// Returns the driver's file next to a program, or where `make pmd` writes it for a program of the same tree.
fn card_driver(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let folders = [folder.to_owned(), folder.join("../dpdk"), folder.join("../../dpdk")];
    folders.into_iter().map(|folder| folder.join(CARD_DRIVER)).find(|file| file.is_file())
}

static STARTED: OnceLock<Result<Started, String>> = OnceLock::new();

/// Locks the opening of ports, which must be done by one thread at a time.
pub fn lock() -> MutexGuard<'static, ()> {
    static CONTROL: Mutex<()> = Mutex::new(());
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts EAL unless it already runs with this configuration. `pci` is the PCI device that will be opened, if any.
pub fn start(config: &EalConfig, pci: Option<&str>) -> Result<(), IoError> {
    refuse_help(config).map_err(IoError::Config)?; // EAL was not started: another port may still start it
    let started = STARTED.get_or_init(|| init(config, pci)).as_ref().map_err(|why| IoError::Config(why.clone()))?;
    if started.config != *config {
        return Err(IoError::Config(format!(
            "DPDK is initialised once per process, and it was initialised with {:?}; a port with {config:?} needs a \
             process of its own",
            started.config
        )));
    }
    if let (Some(device), false) = (pci, started.pci) {
        return Err(IoError::Config(format!(
            "DPDK was initialised for software ports only: open {device} before those, or in a process of its own"
        )));
    }
    Ok(())
}

fn init(config: &EalConfig, pci: Option<&str>) -> Result<Started, String> {
    let arguments = command_line(config, pci)?;
    let text = arguments.join(" ");
    let c_arguments = arguments
        .into_iter()
        .map(|argument| CString::new(argument).map_err(|_| "EAL's arguments cannot contain a zero byte".into()));
    match sys::start_eal(c_arguments.collect::<Result<_, String>>()?) {
        Ok(()) => Ok(Started { config: config.clone(), pci: pci.is_some() }),
        Err(code) => {
            let why = std::io::Error::from_raw_os_error(code);
            Err(format!("cannot initialise DPDK ({text}): {why}{}{}", hint(config), log_suffix()))
        }
    }
}

/// Returns `true` if one of the user's arguments starts with one of these prefixes.
fn has_argument(config: &EalConfig, prefixes: &[&str]) -> bool {
    config.arguments.iter().any(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
}

fn refuse_help(config: &EalConfig) -> Result<(), String> {
    if has_argument(config, &["-h", "--help", "-v", "--version"]) {
        return Err("EAL's --help or --version ends the process: see dpdk-testpmd --help".into());
    }
    Ok(())
}

/// Builds EAL's command line. The user's arguments come last, because EAL lets the last one win.
fn command_line(config: &EalConfig, pci: Option<&str>) -> Result<Vec<String>, String> {
    let mut words = vec!["shotline".into(), "--file-prefix=shotline".into(), "--no-telemetry".into()];
    words.extend(["-m".into(), config.memory_mib.to_string()]);
    let huge = match config.pages {
        Pages::Huge => true,
        Pages::Normal => false,
        Pages::Any => huge_mib() >= u64::from(config.memory_mib),
    };
    // In both cases processes do not share memory, and nothing is left in the file system.
    let private: &[_] = if huge { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    words.extend(private.iter().map(|word| (*word).to_owned()));
    // All memory in one file: a zero-copy memif passes the file's descriptor to its peer.
    words.push("--single-file-segments".into());
    match pci {
        Some(device) => words.extend(["-a".into(), device.into()]),
        None => words.push("--no-pci".into()),
    }
    if !has_argument(config, &["-l", "-c", "--lcores"]) {
        // One logical core on any processor: the threads that use ports are not EAL threads and keep their affinity.
        let allowed = allowed_processors();
        words.push(format!("--lcores=0@({allowed})"));
    }
    words.extend(config.arguments.iter().cloned());
    Ok(words)
}

/// Returns the processors that this process may use, as a comma-separated list.
fn allowed_processors() -> String {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return "0".into() };
    let list = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let list: Vec<_> = list.map(|cpu| cpu.to_string()).collect();
    if list.is_empty() { "0".into() } else { list.join(",") }
}

/// Returns the free huge pages, in units of 2^20 bytes.
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
            "; {} MiB of huge pages are free and {} are needed: sysctl -w vm.nr_hugepages={pages}, or allow normal \
             pages",
            huge_mib(),
            config.memory_mib
        );
    }
    String::new()
}

/// Takes DPDK's log since the last call, formatted as the end of an error message.
pub fn log_suffix() -> String {
    let log = sys::take_log();
    let mut lines: Vec<&str> = Vec::new();
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines.retain(|known| *known != line); // the message of a repeated attempt is shown once
        lines.push(line);
    }
    let newest = &lines[lines.len().saturating_sub(4)..];
    if newest.is_empty() { String::new() } else { format!("; DPDK's log: {}", newest.join(" / ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eal_arguments_keep_memory_private_and_limit_devices() {
        let config = EalConfig { pages: Pages::Normal, arguments: vec!["--foo".into()], ..EalConfig::default() };
        let software = command_line(&config, None).unwrap().join(" ");
        assert!(software.starts_with(
            "shotline --file-prefix=shotline --no-telemetry -m 256 --no-huge --no-shconf --single-file-segments --no-pci --lcores=0@("
        ));
        assert!(software.ends_with(" --foo"), "the user's arguments come last: {software}");
        let pci = command_line(&config, Some("0000:03:00.0")).unwrap().join(" ");
        assert!(pci.contains("-a 0000:03:00.0") && !pci.contains("--no-pci"));
        let own = EalConfig { arguments: vec!["-l".into(), "3".into()], ..config };
        assert!(!command_line(&own, None).unwrap().join(" ").contains("--lcores"));
    }

    #[test]
    fn the_card_driver_is_found_in_the_tree_of_the_program() {
        let folder = std::env::temp_dir().join(format!("shotline-driver-{}", std::process::id()));
        let [debug, dpdk] = ["debug", "dpdk"].map(|name| folder.join(name));
        for folder in [&debug, &dpdk] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let program = debug.join("shotline");
        assert_eq!(card_driver(&program), None);
        for folder in [&dpdk, &debug] {
            std::fs::write(folder.join(CARD_DRIVER), "").unwrap();
            let found = card_driver(&program).unwrap();
            assert_eq!(found.canonicalize().unwrap(), folder.join(CARD_DRIVER).canonicalize().unwrap());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn eal_arguments_that_end_the_process_are_refused() {
        let config = EalConfig { arguments: vec!["--help".into()], ..EalConfig::default() };
        assert!(refuse_help(&config).unwrap_err().contains("ends the process"));
        // Refused before EAL is started, so a later call with other arguments does not get this error.
        assert!(matches!(start(&config, None), Err(IoError::Config(words)) if words.contains("ends the process")));
        assert!(STARTED.get().is_none_or(|started| !matches!(started, Err(why) if why.contains("ends the process"))));
    }
}
