//! Data of the plots of a recording. It is gathered row by row, so that memory does not grow with the run.

use super::shots::Picture;
use crate::Result;
use shotline_compute::spectrum::real_transform;
use shotline_store::read::Recording;
use shotline_wire::shot::DropCause;
use std::collections::BTreeMap;
use std::f64::consts::TAU;

/// Maximum number of bins along an axis of time or shot numbers.
const BINS: usize = 120;
/// Maximum number of points of a spectrum.
const POINTS: usize = 800;

/// Equal bins of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    /// First value of the axis.
    pub first: u64,
    /// Length of the axis, at least 1.
    pub length: u64,
    /// Number of bins.
    pub count: usize,
}

impl Bins {
    /// Divides `first..=last` into at most `max_count` bins, and at most one per unit.
    fn over(first: u64, last: u64, max_count: usize) -> Self {
        let length = last.saturating_sub(first).saturating_add(1);
        Self { first, length, count: usize::try_from(length).unwrap_or(max_count).min(max_count) }
    }
    /// Returns the bin of a value; values outside belong to the first or the last bin.
    fn of(self, value: u64) -> usize {
        let offset = u128::from(value.saturating_sub(self.first).min(self.length - 1));
        (offset * self.count as u128 / u128::from(self.length)) as usize
    }
    /// Returns the middle of a bin, relative to its start.
    pub fn middle(self, bin: usize) -> f64 {
        (bin as f64 + 0.5) * self.length as f64 / self.count as f64
    }
}

/// Shots and bits over time.
#[derive(Debug)]
pub struct Rate {
    /// Time of the senders' clocks, in nanoseconds.
    pub bins: Bins,
    /// Shots per second of all links together.
    pub shots_per_s: Vec<f64>,
    /// Gbit/s of samples that arrived.
    pub gbps: Vec<f64>,
}

/// Missing packets over the shot numbers.
#[derive(Debug)]
pub struct Lost {
    /// Shot numbers.
    pub bins: Bins,
    /// Packets of each cause. A shot that is in no row counts with all of its packets.
    pub packets: BTreeMap<DropCause, Vec<u64>>,
}

/// Gathers rate and losses; `None` where there is no data.
pub fn gather(recording: &Recording) -> Result<(Option<Rate>, Option<Lost>)> {
    let links = &recording.run().links;
    let losses = recording.losses()?;
    let (mut earliest, mut latest, mut stamped) = (u64::MAX, 0, 0_u64);
    let mut numbers: Option<(u64, u64)> = None;
    let mut extend = |first: u64, last: u64| {
        numbers = Some(numbers.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
    };
    for row in (0..links.len()).flat_map(|link| recording.rows_of(link)) {
        let row = row?;
        extend(row.number, row.number);
        if row.stamp_tai_ns > 0 {
            (earliest, latest, stamped) = (earliest.min(row.stamp_tai_ns), latest.max(row.stamp_tai_ns), stamped + 1);
        }
    }
    for loss in losses.iter().filter(|loss| loss.count > 0) {
        extend(loss.first, loss.first.saturating_add(loss.count - 1));
    }
    let Some((first, last)) = numbers else { return Ok((None, None)) };
    // Several shots fall into each bin, so that a steady run looks steady.
    let bin_count = (stamped as usize / (4 * links.len())).clamp(1, BINS);
    let time = (earliest < latest).then(|| Bins::over(earliest, latest, bin_count));
    let mut lost = Lost { bins: Bins::over(first, last, BINS), packets: BTreeMap::new() };
    let (mut shots, mut bits) = (vec![0_u64; bin_count], vec![0_u64; bin_count]);
    let bins = lost.bins;
    let mut add = |cause, number, packets| {
        lost.packets.entry(cause).or_insert_with(|| vec![0; bins.count])[bins.of(number)] += packets;
    };
    for row in (0..links.len()).flat_map(|link| recording.rows_of(link)) {
        let row = row?;
        if let Some(time) = time.filter(|_| row.stamp_tai_ns > 0) {
            shots[time.of(row.stamp_tai_ns)] += 1;
            bits[time.of(row.stamp_tai_ns)] += 8 * u64::from(row.valid_bytes);
        }
        for (cause, count) in DropCause::ALL.into_iter().zip(row.drops).filter(|(_, count)| *count > 0) {
            add(cause, row.number, u64::from(count));
        }
    }
    for loss in &losses {
        let packets = links.iter().find(|link| link.stream == loss.stream).map_or(1, |link| link.geometry.packets());
        let mut at = loss.first;
        let end = loss.first.saturating_add(loss.count);
        while at < end {
            // Handles all shots of one bin at once, so that a loss of billions takes no longer.
            let bin = bins.of(at) as u128 + 1;
            let next = (bin * u128::from(bins.length)).div_ceil(bins.count as u128) as u64;
            let next = bins.first.saturating_add(next).clamp(at + 1, end);
            add(loss.cause, at, (next - at).saturating_mul(u64::from(packets)));
            at = next;
        }
    }
    let rate = time.map(|bins| {
        let seconds = bins.length as f64 / bins.count as f64 / 1e9;
        let per_s = |counts: Vec<u64>| counts.into_iter().map(|count| count as f64 / seconds).collect::<Vec<_>>();
        Rate { bins, shots_per_s: per_s(shots), gbps: per_s(bits).into_iter().map(|rate| rate / 1e9).collect() }
    });
    Ok((rate, Some(lost)))
}

/// Returns the power spectrum of a shot, mean over its channels, as frequency and dB below its peak. The frequency is
/// in MHz, or in cycles per sample where the sample rate is unknown. Uses a Hann window, and keeps the highest of
/// neighbouring points.
pub fn spectrum(picture: &Picture) -> Result<Vec<(f64, f64)>> {
    let (samples, channels) = (picture.geometry.samples() as usize, usize::from(picture.geometry.channels()));
    let fft = real_transform(samples);
    let (mut input, mut output) = (fft.make_input_vec(), fft.make_output_vec());
    let window: Vec<f32> = (0..samples).map(|n| (0.5 - 0.5 * (TAU * n as f64 / samples as f64).cos()) as f32).collect();
    let mut power = vec![0_f64; output.len()];
    for channel in 0..channels {
        let column = picture.values.iter().skip(channel).step_by(channels);
        for ((to, value), weight) in input.iter_mut().zip(column).zip(&window) {
            *to = value * weight;
        }
        fft.process(&mut input, &mut output)?;
        for (sum, value) in power.iter_mut().zip(&output) {
            *sum += f64::from(value.norm_sqr());
        }
    }
    let peak = power.iter().copied().fold(0.0, f64::max);
    if peak <= 0.0 {
        return Ok(Vec::new());
    }
    let rate = picture.geometry.sample_rate_hz();
    let unit = if rate > 0 { f64::from(rate) / 1e6 } else { 1.0 };
    let step = power.len().div_ceil(POINTS);
    let points = power.chunks(step).enumerate().map(|(index, powers)| {
        let highest = powers.iter().copied().fold(0.0, f64::max).max(peak * 1e-15);
        ((index * step) as f64 / samples as f64 * unit, 10.0 * (highest / peak).log10())
    });
    Ok(points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::{Geometry, Packing};

    #[test]
    fn axis_values_map_to_ascending_bins() {
        for (first, last, max_count) in [(0, 0, 120), (5, 9, 120), (0, 1_000_003, 120), (u64::MAX - 9, u64::MAX, 4)] {
            let bins = Bins::over(first, last, max_count);
            assert_eq!((bins.of(first), bins.of(last)), (0, bins.count - 1));
            let mut before = 0;
            for at in (first..last).step_by(997).chain([last]) {
                assert!((before..bins.count).contains(&bins.of(at)));
                before = bins.of(at);
            }
        }
    }

    #[test]
    fn tone_peaks_at_its_frequency() {
        let geometry = Geometry::new(3, 400, 16, Packing::Int16Le, 40_000_000).unwrap();
        // 4 MHz on every channel, with a different amplitude on each.
        let wave = |n: usize| (TAU * 0.1 * (n / 3) as f64).sin() as f32 * (1 + n % 3) as f32;
        let picture = Picture { number: 0, stream: 0, geometry, values: (0..1200).map(wave).collect() };
        let points = spectrum(&picture).unwrap();
        let (at, level) = *points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!((at - 4.0).abs() < 0.051 && level == 0.0, "{at} MHz, {level} dB");
        let away = points.iter().filter(|(frequency, _)| (frequency - 4.0).abs() > 0.5);
        assert!(away.map(|(_, level)| *level).fold(-200.0, f64::max) < -60.0);
        assert!((points.last().unwrap().0 - 20.0).abs() < 0.2, "up to half of the sample rate");
    }

    #[test]
    fn silence_has_no_spectrum() {
        let geometry = Geometry::new(2, 100, 16, Packing::Int16Le, 0).unwrap();
        let picture = Picture { number: 0, stream: 0, geometry, values: vec![0.0; 200] };
        assert_eq!(spectrum(&picture).unwrap(), []);
    }
}
