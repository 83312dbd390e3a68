//! Check of the available memory. The kernel overcommits memory and kills a process that touches too much of it, so
//! regions that do not fit are refused before they are created.

use crate::{MemoryError, Pages};
use std::fs::read_to_string;
use std::path::Path;

/// Length of a reserved huge page, in bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Length in bytes below which a region is created without a check.
const SMALL: usize = 16 << 20;

/// Available memory, and the name of the limit that determines it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Available {
    bytes: u64,
    limit: String,
}

/// Checks that regions of these kinds and lengths, created in this order, fit together in the available memory of the
/// machine and of each control group of this process. Regions of [`Pages::Transparent`] use reserved huge pages first,
/// as [`Region::host`](crate::Region::host) does. Reserved pages, files and devices have separate limits, which the
/// kernel checks when such a region is created.
///
/// # Errors
/// [`MemoryError::TooLarge`] if they do not fit.
pub fn check_capacity(regions: impl IntoIterator<Item = (Pages, u64)>) -> Result<(), MemoryError> {
    let reserved = huge_pages("free_hugepages").saturating_sub(huge_pages("resv_hugepages"));
    let requested = ordinary(regions, reserved.saturating_mul(HUGE_PAGE as u64));
    let available = machine().into_iter().chain(control_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
    fits(requested, available.min_by_key(|available| available.bytes))
}

/// Like [`check_capacity`], for one region. The check reads a dozen kernel files, so small regions skip it.
pub(crate) fn check_one(pages: Pages, bytes: usize) -> Result<(), MemoryError> {
    if bytes < SMALL { Ok(()) } else { check_capacity([(pages, bytes as u64)]) }
}

/// Returns the bytes of ordinary memory that regions need if `reserved` bytes of reserved huge pages are free.
fn ordinary(regions: impl IntoIterator<Item = (Pages, u64)>, mut reserved: u64) -> u64 {
    let mut requested = 0_u64;
    for (pages, bytes) in regions {
        let whole = bytes.checked_next_multiple_of(HUGE_PAGE as u64).unwrap_or(u64::MAX);
        match pages {
            Pages::Transparent | Pages::Huge if whole <= reserved => reserved -= whole,
            Pages::Transparent | Pages::Small | Pages::Memfd => requested = requested.saturating_add(bytes),
            Pages::Huge | Pages::File | Pages::Device => {}
        }
    }
    requested
}

fn fits(requested: u64, available: Option<Available>) -> Result<(), MemoryError> {
    match available {
        Some(Available { bytes, limit }) if requested > bytes => {
            Err(MemoryError::TooLarge { requested, available: bytes, limit })
        }
        _ => Ok(()),
    }
}

/// Returns a count of the machine's reserved 2 MiB pages: `free_hugepages`, `nr_hugepages`, ...
pub(crate) fn huge_pages(name: &str) -> u64 {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
    read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn machine() -> Option<Available> {
    let kibibytes = number_after(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(Available { bytes: kibibytes << 10, limit: "MemAvailable in /proc/meminfo".into() })
}

/// Returns the available memory of each control group of this process and of their ancestors, of version 2 or 1.
fn control_groups(of_process: &str, mounted: &str) -> Vec<Available> {
    let mut found = Vec::new();
    for line in read_to_string(of_process).unwrap_or_default().lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (root, max_name, usage_name, cache_name) = if controllers.is_empty() {
            (mounted.to_owned(), "memory.max", "memory.current", "inactive_file")
        } else if controllers.split(',').any(|name| name == "memory") {
            (format!("{mounted}/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        } else {
            continue;
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let group = Path::new(&root).join(group);
            let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let (Some(max), Some(used)) = (number(max_name), number(usage_name)) else { continue };
            // The kernel reclaims these pages before it kills a process.
            let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
            let used = used.saturating_sub(number_after(&stat, cache_name).unwrap_or(0));
            found
                .push(Available { bytes: max.saturating_sub(used), limit: group.join(max_name).display().to_string() });
        }
    }
    found
}

/// Returns the number that follows a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(line)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn error_has_requested_and_available_bytes() {
        let available = || Some(Available { bytes: 24 << 30, limit: "a limit".into() });
        assert!(fits(24 << 30, available()).is_ok() && fits(u64::MAX, None).is_ok());
        let words = fits(900 << 30, available()).unwrap_err().to_string();
        assert!(words.contains("900.0 GiB") && words.contains("24.0 GiB") && words.contains("a limit"), "{words}");
        assert!(machine().is_some_and(|machine| machine.bytes > 0));
    }

    #[test]
    fn reserved_pages_are_used_in_the_order_of_the_regions() {
        let page = HUGE_PAGE as u64;
        let regions = [(Pages::Huge, page), (Pages::Transparent, 3 * page), (Pages::Transparent, page - 1)];
        assert_eq!(ordinary(regions, 0), 4 * page - 1);
        assert_eq!(ordinary(regions, 3 * page), 3 * page);
        assert_eq!(ordinary(regions, 5 * page), 0);
        let others = [(Pages::Small, 5), (Pages::Memfd, 6), (Pages::File, page), (Pages::Device, page)];
        assert_eq!(ordinary(others, 9 * page), 11);
        assert_eq!(ordinary([(Pages::Transparent, u64::MAX); 2], u64::MAX - 1), u64::MAX);
    }

    #[test]
    fn control_groups_of_both_versions_and_ancestors_count() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for group in ["a/b", "memory/c"] {
            create_dir_all(at(group)).unwrap();
        }
        write(at("own"), "1:cpu,memory:/c\n3:pids:/c\n0::/a/b\n").unwrap();
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 5\ninactive_file 100\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "700\n"),
            ("memory/c/memory.limit_in_bytes", "500\n"),
            ("memory/c/memory.usage_in_bytes", "600\n"),
        ];
        files.iter().for_each(|(name, text)| write(at(name), text).unwrap());
        let own = at("own").display().to_string();
        let found = control_groups(&own, &folder.path().display().to_string());
        let bytes: Vec<_> = found.iter().map(|available| available.bytes).collect();
        assert_eq!(bytes, [0, 400], "{found:?}");
        assert!(found[1].limit.ends_with("a/memory.max"), "{found:?}");
    }
}
