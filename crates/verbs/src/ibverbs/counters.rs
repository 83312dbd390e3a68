//! Hardware counters of a device, as exposed by the kernel: `counters` of every port, and the driver-specific
//! `hw_counters` (`rx_write_requests`, `out_of_buffer` of mlx5; `rcvd_pkts`, `rcvd_seq_err` of rxe).

use std::path::Path;

/// Returns all counters of a port by name. `port` is its directory in sysfs ([`super::sys::Context::sysfs`]).
/// Unreadable counters are left out.
pub fn read(port: &Path) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for folder in ["counters", "hw_counters"] {
        let Ok(entries) = std::fs::read_dir(port.join(folder)) else { continue };
        all.extend(entries.flatten().filter_map(|entry| {
            let count = std::fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), count))
        }));
    }
    all.sort();
    all.dedup_by(|later, earlier| later.0 == earlier.0);
    all
}

/// Returns the counters that have increased since `before`, with the difference; they count all users of the port.
/// Counters that are missing in `before` are left out.
pub fn since(before: &[(String, u64)], port: &Path) -> Vec<(String, u64)> {
    let increased = read(port).into_iter().filter_map(|(name, now)| {
        let (_, then) = before.iter().find(|(other, _)| *other == name)?;
        Some((name, increase(*then, now))).filter(|(_, increase)| *increase > 0)
    });
    increased.collect()
}

/// Returns the increase of a counter. If it is lower than before, it has wrapped around at 32 bits if it was in the
/// upper half of that range; otherwise it was reset.
fn increase(then: u64, now: u64) -> u64 {
    match now.checked_sub(then) {
        Some(increase) => increase,
        None if (1 << 31..1 << 32).contains(&then) => now + (1 << 32) - then,
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn increase_handles_wraparound_and_reset() {
        assert_eq!([increase(5, 7), increase((1 << 32) - 2, 3), increase(100, 3)], [2, 5, 3]);
    }

    #[test]
    fn since_returns_only_increased_counters() {
        let port = tempfile::tempdir().unwrap();
        let set = |folder: &str, name: &str, text: &str| {
            fs::create_dir_all(port.path().join(folder)).unwrap();
            fs::write(port.path().join(folder).join(name), text).unwrap();
        };
        set("counters", "port_rcv_packets", "7\n");
        set("hw_counters", "out_of_buffer", "0\n");
        set("hw_counters", "lifespan", "not a number\n");
        let before = read(port.path());
        assert_eq!(before, [("out_of_buffer".to_owned(), 0), ("port_rcv_packets".to_owned(), 7)]);
        set("hw_counters", "out_of_buffer", "3\n");
        assert_eq!(since(&before, port.path()), [("out_of_buffer".to_owned(), 3)]);
        assert_eq!(since(&before, &port.path().join("gone")), []);
    }
}
