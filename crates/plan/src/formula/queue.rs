//! What happens where more comes than goes.

/// Share that an overloaded stage drops in the long run, whatever its buffer: what comes less what goes.
pub fn dropped_share(load: f64, limit: f64) -> f64 {
    if load > limit { 1.0 - limit / load } else { 0.0 }
}

/// Bytes that wait when `streams` bursts of `bytes` arrive at once, each at `arrive_bits_per_s`, at a stage that takes
/// `leave_bits_per_s`. Exact for a fluid; packets add one of each stream.
pub fn burst_backlog_bytes(streams: f64, bytes: f64, arrive_bits_per_s: f64, leave_bits_per_s: f64) -> f64 {
    let outpaced = streams * arrive_bits_per_s > leave_bits_per_s * (1.0 + 1e-9);
    if outpaced { bytes * (streams - leave_bits_per_s / arrive_bits_per_s) } else { 0.0 }
}

/// Mean seconds that a packet waits before it is served, if packets come at random (Poisson) and all take `service_s`
/// (M/D/1, the Pollaczek-Khinchine formula). Infinite at a load of 1.
pub fn md1_wait_s(service_s: f64, load: f64) -> f64 {
    if load >= 1.0 { f64::INFINITY } else { service_s * load / (2.0 * (1.0 - load)) }
}

/// A stage that stops now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// For how long, in seconds.
    pub seconds: f64,
    /// From one stall to the next, in seconds; more than it lasts.
    pub every_s: f64,
}

impl Stall {
    /// Share of the time that is left for work.
    pub fn availability(&self) -> f64 {
        1.0 - self.seconds / self.every_s
    }
}

/// Shares of `arrived` packets that got through (paper 3, formula 1): `T = S (P_arr - P_dis,input - P_dis,DMA) / P_arr`,
/// `S` the line's rate.
pub fn measured_throughput(line: f64, arrived: f64, discarded_at_input: f64, discarded_in_dma: f64) -> f64 {
    line * (arrived - discarded_at_input - discarded_in_dma) / arrived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overloaded_stage_drops_what_is_over_and_another_nothing() {
        assert!((dropped_share(16.0, 12.0) - 0.25).abs() < 1e-12);
        assert_eq!(dropped_share(12.0, 12.0), 0.0);
    }

    #[test]
    fn bursts_wait_only_where_they_outpace_the_stage() {
        assert_eq!(burst_backlog_bytes(1.0, 1000.0, 100.0, 100.0), 0.0);
        assert_eq!(burst_backlog_bytes(4.0, 1000.0, 100.0, 100.0), 3000.0);
        assert_eq!(burst_backlog_bytes(1.0, 1000.0, 100.0, 40.0), 600.0);
    }
}
