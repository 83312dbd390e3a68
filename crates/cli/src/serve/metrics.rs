//! Results of measurements as a page shows them.

use crate::trigger::stats::Quantiles;
use serde::Serialize;
use serde_json::Value;
use shotline_dashboard::status::{Family, FamilyKind, LatencyReading, Sample, Table, Text};

/// Smallest and largest duration of a histogram's bins, as powers of two nanoseconds: 1 us to 17 s.
const BINS: std::ops::RangeInclusive<u32> = 10..=34;

/// Labels of a sample, and their values.
pub type Labels = Vec<(&'static str, String)>;

/// Metrics whose samples come one after the other. Each sample has other labels.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<Family>);

impl Metrics {
    /// Returns the value with these labels, at first 0. `family` describes the metric, without samples.
    fn value(&mut self, family: Family, labels: Labels) -> &mut f64 {
        let at = self.0.iter().position(|known| known.name == family.name && known.is_loss == family.is_loss);
        let at = at.unwrap_or_else(|| {
            self.0.push(family);
            self.0.len() - 1
        });
        let samples = &mut self.0[at].samples;
        let known = samples.iter().position(|sample| sample.labels == labels);
        let known = known.unwrap_or_else(|| {
            samples.push(Sample { labels, value: 0.0 });
            samples.len() - 1
        });
        &mut samples[known].value
    }

    /// Adds a count to a counter, or to a gauge that counts.
    pub fn add(&mut self, family: Family, labels: Labels, count: u64) {
        *self.value(family, labels) += count as f64;
    }

    /// Sets a gauge.
    pub fn set(&mut self, family: Family, labels: Labels, value: f64) {
        *self.value(family, labels) = value;
    }

    /// Returns all metrics.
    pub fn families(&self) -> Vec<Family> {
        self.0.clone()
    }
}

/// Describes a counter.
pub fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, FamilyKind::Counter)
}

/// Describes a gauge.
pub fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, help, FamilyKind::Gauge)
}

/// Describes a count of lost data.
pub fn loss(family: Family) -> Family {
    Family { is_loss: true, ..family }
}

/// Describes a metric with a unit.
pub fn with_unit(unit: &'static str, family: Family) -> Family {
    Family { unit: Some(unit), ..family }
}

/// Returns the counters in the fields of a structure, by their names.
pub fn numbers(counters: &impl Serialize) -> Vec<(String, u64)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(counters) else { return Vec::new() };
    fields.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

/// Returns a table without the columns in which no row has anything but `-`.
pub fn table(title: &'static str, columns: &[&'static str], rows: &[Vec<String>]) -> Table {
    let is_used = |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| cell != "-"));
    let used: Vec<usize> = (0..columns.len()).filter(is_used).collect();
    let columns = used.iter().map(|column| columns[*column].into()).collect();
    let row = |row: &Vec<String>| used.iter().map(|column| row.get(*column).cloned().unwrap_or_default()).collect();
    Table { title: title.into(), columns, rows: rows.iter().map(row).collect() }
}

/// Returns a distribution, or `None` if it is empty. `up_to` returns the number of durations below so many nanoseconds.
pub fn latency(
    (name, help): (impl Into<Text>, impl Into<Text>),
    labels: Labels,
    quantiles: Option<Quantiles>,
    sum_ns: u128,
    up_to: impl Fn(u64) -> u64,
) -> Option<LatencyReading> {
    let Quantiles { count, min, p50, p99, p999, max, .. } = quantiles?;
    let bin = |power: u32| {
        let end = 1_u64 << power;
        (end as f64 / 1e9, up_to(end))
    };
    Some(LatencyReading {
        name: name.into(),
        help: help.into(),
        labels,
        count: count as u64,
        sum_s: sum_ns as f64 / 1e9,
        quantiles_s: [min, p50, p99, p999, max].map(|us| us / 1e6),
        bins: BINS.map(bin).collect(),
    })
}

/// Returns the distribution of these nanoseconds, or `None` if there are none.
pub fn latency_of(
    name: (impl Into<Text>, impl Into<Text>),
    labels: Labels,
    mut ns: Vec<u64>,
) -> Option<LatencyReading> {
    ns.sort_unstable();
    let sum = ns.iter().map(|ns| u128::from(*ns)).sum();
    latency(name, labels, Quantiles::of(ns.clone()), sum, |end| ns.partition_point(|ns| *ns < end) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_with_the_same_labels_are_added() {
        let mut metrics = Metrics::default();
        let of = |link: &str| vec![("link", link.to_owned())];
        for (link, count) in [("0", 3), ("1", 4), ("0", 5)] {
            metrics.add(loss(counter("lost", "Lost")), of(link), count);
            metrics.set(gauge("rate", "Rate"), of(link), count as f64);
        }
        let [lost, rate] = metrics.families().try_into().unwrap();
        let values = |family: &Family| family.samples.iter().map(|sample| sample.value).collect::<Vec<_>>();
        assert_eq!((values(&lost), lost.is_loss), (vec![8.0, 4.0], true));
        assert_eq!((values(&rate), rate.is_loss), (vec![5.0, 4.0], false));
    }

    #[test]
    fn columns_of_tables_that_no_row_uses_are_left_out() {
        let rows = [["a", "-", "1"], ["b", "-", "-"]].map(|row| row.map(str::to_owned).to_vec());
        let found = table("Title", &["name", "none", "some"], &rows);
        assert_eq!(found.columns, ["name", "some"]);
        assert_eq!(found.rows, [["a", "1"], ["b", "-"]]);
        assert!(table("Title", &["name"], &[]).columns.is_empty());
    }

    #[test]
    fn bins_count_all_durations_up_to_their_end() {
        let found = latency_of(("a", "A"), Vec::new(), vec![4_000, 1_023, 1_024, 4_000]).unwrap();
        assert_eq!((found.count, found.sum_s), (4, 10_047e-9));
        let counts: Vec<_> = found.bins.iter().map(|(_, count)| *count).collect();
        assert_eq!((&counts[..4], counts.last()), (&[1, 2, 4, 4][..], Some(&4)));
        assert_eq!(found.bins[0].0, 1024e-9);
        assert!(latency_of(("a", "A"), Vec::new(), Vec::new()).is_none());
    }
}
