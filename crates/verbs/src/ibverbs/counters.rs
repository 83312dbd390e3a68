//! What a device counts, as the kernel shows it: `counters` of every port, and `hw_counters` of the driver's own
//! (`rx_write_requests`, `out_of_buffer` of mlx5; `rcvd_pkts`, `rcvd_seq_err` of rxe).

use std::path::Path;

/// All of a port's counters by name, where it is in sysfs ([`super::sys::Context::sysfs`]). Those that cannot be read
/// are left out.
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

/// What was counted since then, whoever uses the port: counters that have moved, with by how much. Those that could not
/// be read then are left out.
pub fn since(before: &[(String, u64)], port: &Path) -> Vec<(String, u64)> {
    let moved = read(port).into_iter().filter_map(|(name, now)| {
        let (_, then) = before.iter().find(|(other, _)| *other == name)?;
        Some((name, growth(*then, now))).filter(|(_, growth)| *growth > 0)
    });
    moved.collect()
}

/// How much a counter has grown. One that is lower than before has gone over its 32 bits, if it was in their upper half;
/// otherwise somebody has set it to 0.
fn growth(then: u64, now: u64) -> u64 {
    match now.checked_sub(then) {
        Some(growth) => growth,
        None if (1 << 31..1 << 32).contains(&then) => now + (1 << 32) - then,
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_counter_that_went_over_its_32_bits_or_was_reset_has_still_grown() {
        assert_eq!([growth(5, 7), growth((1 << 32) - 2, 3), growth(100, 3)], [2, 5, 3]);
    }

    #[test]
    fn counters_that_have_grown_are_told_with_their_growth() {
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
