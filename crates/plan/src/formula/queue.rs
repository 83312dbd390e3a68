//! Queueing: drops, backlogs and waiting times.

/// Returns the share that an overloaded stage drops in the long run, independent of its buffer.
pub fn dropped_share(load: f64, limit: f64) -> f64 {
    if load > limit { 1.0 - limit / load } else { 0.0 }
}

/// Returns the maximum backlog in bytes when `streams` bursts of `bytes` arrive at once, each at `arrive_bits_per_s`,
/// at a stage that serves `leave_bits_per_s`. Exact for a fluid; packets add up to one packet per stream.
pub fn burst_backlog_bytes(streams: f64, bytes: f64, arrive_bits_per_s: f64, leave_bits_per_s: f64) -> f64 {
    let outpaced = streams * arrive_bits_per_s > leave_bits_per_s * (1.0 + 1e-9);
    if outpaced { bytes * (streams - leave_bits_per_s / arrive_bits_per_s) } else { 0.0 }
}

/// Returns the mean waiting time before service in seconds, for Poisson arrivals and a constant service time
/// `service_s` (M/D/1, the Pollaczek-Khinchine formula). Infinite at a load of 1.
pub fn md1_wait_s(service_s: f64, load: f64) -> f64 {
    if load >= 1.0 { f64::INFINITY } else { service_s * load / (2.0 * (1.0 - load)) }
}

/// Periodic stalls of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Duration of a stall in seconds.
    pub seconds: f64,
    /// Time from the start of a stall to the start of the next in seconds; greater than the duration.
    pub every_s: f64,
}

impl Stall {
    /// Returns the share of time without stalls.
    pub fn availability(&self) -> f64 {
        1.0 - self.seconds / self.every_s
    }
}

/// Returns the measured throughput after discards (Kubálek, formula 1), where `S` is the line rate:
/// `T = S (P_arr - P_dis,input - P_dis,DMA) / P_arr`.
pub fn measured_throughput(line: f64, arrived: f64, discarded_at_input: f64, discarded_in_dma: f64) -> f64 {
    line * (arrived - discarded_at_input - discarded_in_dma) / arrived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_overloaded_stage_drops_its_excess() {
        assert!((dropped_share(16.0, 12.0) - 0.25).abs() < 1e-12);
        assert_eq!(dropped_share(12.0, 12.0), 0.0);
    }

    #[test]
    fn bursts_wait_only_if_faster_than_the_stage() {
        assert_eq!(burst_backlog_bytes(1.0, 1000.0, 100.0, 100.0), 0.0);
        assert_eq!(burst_backlog_bytes(4.0, 1000.0, 100.0, 100.0), 3000.0);
        assert_eq!(burst_backlog_bytes(1.0, 1000.0, 100.0, 40.0), 600.0);
    }
}
