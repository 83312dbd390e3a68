//! Figures of tables I to IV of Gibson et al. ("Efficient High Data Rate Networking Using Remote Direct Memory Access
//! Over SpaceFibre", paper 2 of `shotline plan --paper`): a ZCU102 with four lanes of 7.8125 Gbit/s, of which at most
//! about 23.8 Gbit/s are payload; ten iterations of ten seconds each. Its processor is a quad-core Cortex-A53; the paper
//! does not state how many cores its utilisation refers to.

use super::point::{Metric, Point, Verb};
use serde::Serialize;
use std::time::Duration;

/// One line of the paper's tables, with average and worst of each figure.
#[derive(Debug, PartialEq, Serialize)]
pub struct Paper {
    /// Number of the table.
    pub table: &'static str,
    #[serde(skip)]
    verb: Verb,
    #[serde(skip)]
    kib: u32,
    #[serde(skip)]
    group: u16,
    pub gbps: [f64; 2],
    pub cpu_percent: [f64; 2],
}

/// Number and title of each table.
pub const TITLES: [(&str, &str); 4] = [
    ("I", "single RDMA write"),
    ("II", "grouped RDMA write"),
    ("III", "single RDMA read"),
    ("IV", "grouped RDMA read"),
];

impl Paper {
    /// Returns the line of the paper for a measurement.
    pub fn of(verb: Verb, size: u32, group: u16) -> Option<&'static Self> {
        PAPER.iter().find(|line| line.verb == verb && line.kib << 10 == size && line.group == group)
    }
}

/// Returns the paper's measurements, in its order.
pub fn points(seconds: Duration, iterations: u16) -> Vec<Point> {
    let point = |line: &Paper| Point {
        metric: Metric::Rate(line.verb),
        size: line.kib << 10,
        group: line.group,
        seconds,
        iterations,
    };
    PAPER.iter().map(point).collect()
}

const fn line(
    table: &'static str,
    verb: Verb,
    (kib, group): (u32, u16),
    gbps: [f64; 2],
    cpu_percent: [f64; 2],
) -> Paper {
    Paper { table, verb, kib, group, gbps, cpu_percent }
}

const PAPER: [Paper; 28] = [
    line("I", Verb::Write, (4, 1), [2.60, 2.59], [17.64, 18.10]),
    line("I", Verb::Write, (8, 1), [4.20, 4.19], [15.26, 15.94]),
    line("I", Verb::Write, (16, 1), [7.32, 7.32], [14.87, 16.39]),
    line("I", Verb::Write, (32, 1), [11.35, 11.34], [10.62, 11.27]),
    line("I", Verb::Write, (64, 1), [15.61, 15.59], [7.91, 8.29]),
    line("I", Verb::Write, (128, 1), [19.21, 19.19], [7.49, 8.59]),
    line("I", Verb::Write, (256, 1), [21.47, 21.47], [2.56, 2.67]),
    line("II", Verb::Write, (4, 128), [17.93, 17.93], [7.04, 7.34]),
    line("II", Verb::Write, (8, 128), [20.47, 20.47], [3.67, 3.75]),
    line("II", Verb::Write, (16, 128), [22.03, 22.03], [2.82, 3.00]),
    line("II", Verb::Write, (32, 64), [22.77, 22.77], [1.95, 2.21]),
    line("II", Verb::Write, (64, 32), [23.16, 23.15], [0.74, 0.84]),
    line("II", Verb::Write, (128, 16), [23.35, 23.35], [0.51, 0.62]),
    line("II", Verb::Write, (256, 8), [23.45, 23.44], [0.48, 0.58]),
    line("III", Verb::Read, (4, 1), [2.01, 2.00], [15.72, 16.73]),
    line("III", Verb::Read, (8, 1), [3.71, 3.70], [14.46, 16.48]),
    line("III", Verb::Read, (16, 1), [6.41, 6.40], [13.07, 13.77]),
    line("III", Verb::Read, (32, 1), [10.12, 10.11], [10.37, 10.97]),
    line("III", Verb::Read, (64, 1), [14.21, 14.21], [3.51, 5.51]),
    line("III", Verb::Read, (128, 1), [17.81, 17.80], [4.22, 4.41]),
    line("III", Verb::Read, (256, 1), [20.40, 20.39], [2.23, 2.40]),
    line("IV", Verb::Read, (4, 128), [17.73, 17.73], [5.05, 5.11]),
    line("IV", Verb::Read, (8, 128), [20.33, 20.33], [3.49, 3.55]),
    line("IV", Verb::Read, (16, 128), [21.96, 21.96], [1.63, 1.69]),
    line("IV", Verb::Read, (32, 64), [22.64, 22.64], [0.47, 0.63]),
    line("IV", Verb::Read, (64, 32), [23.01, 23.01], [0.71, 0.79]),
    line("IV", Verb::Read, (128, 16), [23.19, 23.18], [0.51, 0.59]),
    line("IV", Verb::Read, (256, 8), [23.28, 23.28], [0.42, 0.47]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_seven_cases_of_4_to_256_kib() {
        for (number, _) in TITLES {
            let lines: Vec<_> = PAPER.iter().filter(|line| line.table == number).collect();
            assert_eq!(lines.iter().map(|line| line.kib).collect::<Vec<_>>(), [4, 8, 16, 32, 64, 128, 256]);
            assert!(
                lines.iter().all(|line| line.gbps[1] <= line.gbps[0] && line.cpu_percent[0] <= line.cpu_percent[1])
            );
            let grouped = lines[0].group > 1;
            assert!(lines.iter().all(|line| (line.group > 1) == grouped));
        }
        // A group moves 512 KiB to 2 MiB.
        assert!(
            PAPER
                .iter()
                .filter(|line| line.group > 1)
                .all(|line| (512..=2048).contains(&(line.kib * u32::from(line.group))))
        );
    }

    #[test]
    fn best_paper_figure_is_grouped_write_of_256_kib() {
        let best = PAPER.iter().max_by(|a, b| a.gbps[0].total_cmp(&b.gbps[0])).unwrap();
        assert_eq!(Paper::of(Verb::Write, 256 << 10, 8), Some(best));
        assert_eq!(best.gbps, [23.45, 23.44]);
    }
}
