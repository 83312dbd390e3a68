//! Tables I to IV of Gibson et al. (see [`super::paper`]), with this measurement next to the published figures.

use super::paper::TITLES;
use super::report::{Row, print_repairs};
use crate::output::columns;
use crate::values::Size;

/// Prints the four tables.
pub fn print(rows: &[Row]) {
    for (number, title) in TITLES {
        let of = |row: &&Row| row.paper.is_some_and(|paper| paper.table == number);
        let head = [">case", ">Gbit/s", ">paper's", ">CPU %", ">target's CPU %", ">paper's CPU %"];
        let mut table = Vec::new();
        for row in rows.iter().filter(of) {
            let words = |[average, worst]: [f64; 2]| format!("{average:.2} ({worst:.2})");
            let paper = row.paper.map(|paper| (words(paper.gbps), words(paper.cpu_percent))).unwrap_or_default();
            table.push(vec![
                format!("{} x {}", Size(row.size.into()), row.group),
                row.gbps.words(2),
                paper.0,
                row.cpu_initiator_percent.words(1),
                row.cpu_target_percent.words(1),
                paper.1,
            ]);
        }
        if !table.is_empty() {
            outln!("Table {number}: {title}; averages, the worst in parentheses; CPU of one processor:");
            columns(&head, &table);
            outln!();
        }
    }
    print_repairs(rows);
}
