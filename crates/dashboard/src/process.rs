//! Use of this process's resources, from /proc.

use std::fs;

/// Processor time, memory and start of this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Processor time of all threads in user and kernel mode, in seconds.
    pub cpu_s: f64,
    /// Memory in RAM in bytes.
    pub resident_bytes: f64,
    /// Start in seconds since 1970.
    pub started_s: f64,
}

impl Usage {
    /// Returns the use until now; none if /proc cannot be read.
    pub(crate) fn now() -> Option<Self> {
        let read = |path| fs::read_to_string(path).ok();
        let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size());
        Self::parse(&read("/proc/self/stat")?, &read("/proc/stat")?, ticks as f64, page as f64)
    }

    /// Parses the files `stat` of the process and of the system (proc(5)).
    fn parse(process: &str, system: &str, ticks_per_second: f64, page_bytes: f64) -> Option<Self> {
        // The name of the program is in brackets and may contain both spaces and brackets.
        let fields: Vec<_> = process.rsplit_once(')')?.1.split_whitespace().collect();
        // Numbered from 1 in the manual page; the third one is the first here.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(Self {
            cpu_s: (field(14)? + field(15)?) / ticks_per_second,
            resident_bytes: field(24)? * page_bytes,
            started_s: booted + field(22)? / ticks_per_second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let process =
            "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 3000 1000000 12 18446744073709551615";
        let usage = Usage::parse(process, "cpu 1 2\nbtime 1700000000\n", 100.0, 4096.0);
        assert_eq!(usage, Some(Usage { cpu_s: 3.0, resident_bytes: 49152.0, started_s: 1_700_000_030.0 }));
        assert_eq!(Usage::parse("7 (a", "btime 1\n", 100.0, 4096.0), None);
        assert_eq!(Usage::parse("7 (a) S 1", "btime 1\n", 100.0, 4096.0), None);
    }

    #[test]
    fn this_process_was_started_before_now() {
        let usage = Usage::now().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(usage.started_s < now + 2.0 && usage.resident_bytes > 1e5 && usage.cpu_s >= 0.0, "{usage:?}");
    }
}
