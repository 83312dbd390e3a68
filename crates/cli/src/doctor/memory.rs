//! Checks of memory and processors.

use super::check::State::{Fail, Ok as Good, Warn};
use super::check::{Check, Requirements, kernel_file, size};
use nix::sys::resource::{Resource, getrlimit};
use shotline_memory::{Pages, Pool, Registrar};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::{Recorder, RecorderConfig, StoreError};

const HUGE_PAGE: u64 = 2 << 20;

pub fn checks(required: &Requirements) -> Vec<Check> {
    let mut checks = pool(required);
    checks.push(processors());
    checks.push(simd());
    checks
}

/// Creates a pool as a run does, and has a recorder register it.
fn pool(required: &Requirements) -> Vec<Check> {
    const PAGES: &str = "huge pages";
    let slot = required.geometry.slot_bytes();
    let slots = (required.pool / u64::from(slot)).clamp(1, 1 << 24) as u32;
    let mut registrar = Registrar::new();
    let pool = match Pool::new(&mut registrar, slots, slot) {
        Ok(pool) => pool,
        Err(error) => return vec![Check::new("pool", Fail, error.to_string(), size(required.pool))],
    };
    let reserved = kernel_file("/proc/sys/vm/nr_hugepages").unwrap_or_else(|| "unknown".into());
    let thp = kernel_file("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let selected = thp.split(['[', ']']).nth(1).unwrap_or("unknown");
    let backing = match pool.region().pages() {
        Pages::Huge => "reserved huge pages",
        _ if selected == "never" || selected == "unknown" => "small pages",
        _ => "transparent huge pages",
    };
    let state = if backing == "small pages" { Warn } else { Good };
    let pages = Check::new(
        PAGES,
        state,
        format!("a pool of {} on {backing} (vm.nr_hugepages {reserved}, transparent {selected})", size(required.pool)),
        "reserved or transparent huge pages",
    )
    .fix(format!("sudo sysctl -w vm.nr_hugepages={}", required.pool.div_ceil(HUGE_PAGE) + 8))
    .measured("pool_bytes", pool.region().len());
    vec![pages, registration(required, &registrar.finish(), pool.region().len() as u64)]
}

/// Creates a recorder in a temporary directory and reports its warnings.
fn registration(required: &Requirements, regions: &shotline_memory::Regions, bytes: u64) -> Check {
    const NAME: &str = "io_uring";
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    let limited = if limit == u64::MAX { "unlimited".into() } else { size(limit) };
    let all = format!("{} registered once, so that writes do not pin pages again", size(bytes));
    let trial = || -> crate::Result<Vec<String>> {
        let folder =
            tempfile::Builder::new().prefix(".shotline-doctor-").tempdir_in(shotline_store::folder(&required.out))?;
        let run = RunInfo::new(vec![LinkInfo { name: "trial".into(), stream: 0, geometry: required.geometry }]);
        let recorder = Recorder::create(&folder.path().join("trial.h5"), &RecorderConfig::new(1), &run, regions)?;
        Ok(recorder.warnings().to_vec())
    };
    match trial() {
        Ok(warnings) if warnings.is_empty() => {
            let found = format!("{} of shot buffers registered (locked memory: {limited})", size(bytes));
            Check::new(NAME, Good, found, all)
        }
        Ok(warnings) => Check::new(NAME, Warn, warnings.join("; "), all)
            .fix(format!("ulimit -l {}   (permanently: memlock in /etc/security/limits.conf)", bytes.div_ceil(1024))),
        Err(error) => {
            let check = Check::new(NAME, Fail, format!("cannot create a recorder: {error}"), all);
            match error.downcast_ref() {
                Some(StoreError::Ring { .. }) => check.fix("sudo sysctl -w kernel.io_uring_disabled=0"),
                _ => check,
            }
        }
    }
    .measured("locked_memory_limit_bytes", (limit != u64::MAX).then_some(limit))
}

fn processors() -> Check {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let state = if count < 2 { Warn } else { Good };
    Check::new("processors", state, count.to_string(), "2 or more: one receives, one records")
        .fix("taskset -pc $$   (shows the processors of this shell)")
        .measured("processors", count)
}

fn simd() -> Check {
    let features = features();
    let missing: Vec<_> = features.iter().filter(|(_, available)| !available).map(|(name, _)| *name).collect();
    let available: Vec<_> = features.iter().filter(|(_, available)| *available).map(|(name, _)| *name).collect();
    let state = if missing.is_empty() { Good } else { Warn };
    let found = match (available.is_empty(), missing.is_empty()) {
        (true, _) => "none of the features that are used".to_owned(),
        (_, true) => available.join(", "),
        _ => format!("{}; not {}", available.join(", "), missing.join(", ")),
    };
    Check::new("SIMD", state, found, "carry-less multiplication for the ICRC, wide integers for packing")
        .fix("lscpu   (another processor, or a virtual machine with the host's: qemu -cpu host)")
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("pclmulqdq", std::arch::is_x86_feature_detected!("pclmulqdq")),
        ("sse4.1", std::arch::is_x86_feature_detected!("sse4.1")),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![("crc", std::arch::is_aarch64_feature_detected!("crc"))]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}
