//! Memory that this machine has left, so that regions are refused that it cannot hold: the kernel would take them, and
//! end a process when they fill.

use super::report::bytes_in_words;
use crate::Result;
use std::fs::read_to_string;
use std::path::Path;

/// How much memory there is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Available {
    bytes: u64,
    by: String,
}

/// Refuses regions that take more memory, all together, than the machine or a control group has left.
pub fn check(asked: u64) -> Result {
    let available = machine().into_iter().chain(control_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
    fits(asked, available.min_by_key(|available| available.bytes))
}

fn fits(asked: u64, least: Option<Available>) -> Result {
    match least {
        Some(Available { bytes, by }) if asked > bytes => Err(format!(
            "the regions need {} of memory, and {} are available ({by}): make them smaller, or keep them in files (file=PATH)",
            bytes_in_words(asked),
            bytes_in_words(bytes)
        )
        .into()),
        _ => Ok(()),
    }
}

fn machine() -> Option<Available> {
    let kibibytes = number_after(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(Available { bytes: kibibytes << 10, by: "MemAvailable in /proc/meminfo".into() })
}

/// What each control group of this process, and each group above it, has left: of version 2 or 1.
fn control_groups(of_process: &str, mounted: &str) -> Vec<Available> {
    let mut found = Vec::new();
    for line in read_to_string(of_process).unwrap_or_default().lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (root, limit, usage, cache) = if controllers.is_empty() {
            (mounted.to_owned(), "memory.max", "memory.current", "inactive_file")
        } else if controllers.split(',').any(|name| name == "memory") {
            (format!("{mounted}/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        } else {
            continue;
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let group = Path::new(&root).join(group);
            let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let (Some(most), Some(used)) = (number(limit), number(usage)) else { continue };
            // The kernel drops these pages before it ends a process.
            let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
            let used = used.saturating_sub(number_after(&stat, cache).unwrap_or(0));
            found.push(Available { bytes: most.saturating_sub(used), by: group.join(limit).display().to_string() });
        }
    }
    found
}

/// The number behind a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    };
    text.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn what_is_asked_for_and_what_there_is_stand_in_the_refusal() {
        let available = || Some(Available { bytes: 24 << 30, by: "a limit".into() });
        assert!(fits(24 << 30, available()).is_ok() && fits(u64::MAX, None).is_ok());
        let words = fits(900 << 30, available()).unwrap_err().to_string();
        assert!(words.contains("900.0 GiB") && words.contains("24.0 GiB") && words.contains("a limit"), "{words}");
        assert!(machine().is_some_and(|machine| machine.bytes > 0));
    }

    #[test]
    fn control_groups_of_both_versions_and_those_above_count() {
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
        assert!(found[1].by.ends_with("a/memory.max"), "{found:?}");
    }
}
