//! Division of the pool's buffers: assembly, the queue to the recorder, events that wait for links or triggers.

use super::error::RunError;
use crate::config::{ResolvedSettings, Sink};
use crate::receiver;
use crate::stream::StreamConfig;
use shotline_wire::setup::Mode;

/// Minimum capacity of the queue to the recorder, in events.
const MIN_QUEUE: usize = 4;
/// Maximum number of events that wait for lagging links.
const MAX_WAITING: usize = 4096;

/// Division of a run's pool.
#[derive(Clone, Copy)]
pub(super) struct PoolBudget<'a> {
    pub(super) resolved: ResolvedSettings<'a>,
    pub(super) configs: &'a [StreamConfig],
    /// Size of a buffer in bytes.
    pub(super) slot_bytes: u32,
    /// Buffers that assembly holds for a device that consumes receives in order.
    pub(super) in_order: usize,
    /// Buffers that are lent to an observer, or held by a program beside the recorder.
    pub(super) lent: usize,
}

/// Part of the pool that is lent to an observer: one buffer in this many.
const LENT_PART: usize = 16;

impl PoolBudget<'_> {
    /// Refuses a pool that is too small.
    ///
    /// # Errors
    /// If it is too small, with the size that is needed.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let slot_bytes = u64::from(self.slot_bytes);
        let min_slots = (self.reserve() + self.in_order + MIN_QUEUE * self.configs.len()) as u64;
        // Regions are rounded up to whole huge pages: the requested size counts.
        let pool_bytes = self.resolved.pool_bytes;
        let slots = pool_bytes / slot_bytes;
        if slots >= min_slots {
            return Ok(());
        }
        Err(RunError::Settings(format!(
            "a pool of {pool_bytes} bytes holds {slots} shots of {slot_bytes} bytes, assembly and the queue need {min_slots}: use --pool {}MiB",
            (min_slots * slot_bytes).div_ceil(1 << 20),
        )))
    }

    /// Returns how many events' buffers of a pool of `slots` can be lent to an observer.
    pub(super) fn lent_events(&self, slots: u32) -> usize {
        let links = self.configs.len();
        let spare = (slots as usize).saturating_sub(self.reserve() + self.in_order + MIN_QUEUE * links);
        (slots as usize / LENT_PART).max(links).min(spare) / links
    }

    /// Returns the number of buffers that are neither free nor in the queue at full load: under assembly, waiting for
    /// the other links' shots of their events, on their way into the file.
    fn reserve(&self) -> usize {
        let (ResolvedSettings { settings, sink, in_flight, .. }, configs) = (self.resolved, self.configs);
        let joining: usize = configs.iter().map(receiver::finished_buffers).sum();
        let writing = match sink {
            Sink::Discard => 0,
            Sink::Capture(_) => in_flight as usize + configs.len(),
            Sink::Recording(outs) => {
                // If files follow one another, one may still be writing when the next begins.
                let recorders = outs.len() * if settings.rolls() { 2 } else { 1 };
                recorders * (in_flight as usize + compressing(&self.resolved)) + configs.len()
            }
        };
        receiver::assembly_buffers(configs) + joining + writing
    }

    /// Returns the number of events that fit a pool of `slots` buffers in addition to the reserve.
    fn spare_events(&self, slots: u32) -> usize {
        (slots as usize - self.reserve() - self.in_order - self.lent) / self.configs.len()
    }

    /// Returns the number of these events that may wait for lagging links: a quarter.
    pub(super) fn waiting_events(&self, slots: u32) -> usize {
        if self.configs.len() < 2 {
            return 0;
        }
        (self.spare_events(slots).saturating_sub(MIN_QUEUE) / 4).min(MAX_WAITING)
    }

    /// Returns the capacity of the queue to the recorder in events, such that assembly never lacks a buffer.
    pub(super) fn queue_events(&self, slots: u32) -> usize {
        self.spare_events(slots) - self.waiting_events(slots)
    }

    /// Divides that capacity between the queue and events buffered for a trigger, `before_s` seconds of them.
    ///
    /// # Errors
    /// If the rate is known, and the pool too small.
    pub(super) fn split_for_trigger(&self, slots: u32, mode: Mode, before_s: f64) -> Result<(usize, usize), RunError> {
        let all = self.queue_events(slots);
        let Mode::FixedRate { millihertz } = mode else {
            // The rate is unknown: the recorder's queue takes a quarter.
            let queue = (all / 4).max(MIN_QUEUE.min(all));
            return Ok((queue, (all - queue).max(1)));
        };
        let needed = (before_s * millihertz as f64 / 1000.0).ceil() as usize + 1;
        let links = self.configs.len();
        if needed + MIN_QUEUE > all {
            // A quarter of the spare buffers waits for other links, if there are any.
            let spare = needed + MIN_QUEUE;
            let spare = if links > 1 { spare * 4 / 3 + 2 } else { spare };
            let bytes =
                (self.reserve() + self.in_order + self.lent + spare * links) as u64 * u64::from(self.slot_bytes);
            return Err(RunError::Settings(format!(
                "{before_s} s before a trigger need space for {needed} events of {links} links, a pool of {} bytes holds {}: use --pool {}MiB",
                self.resolved.pool_bytes,
                all.saturating_sub(MIN_QUEUE),
                bytes.div_ceil(1 << 20)
            )));
        }
        // The spare buffers are shared: a longer queue does no harm, and the rate is not exact to the shot.
        let spare = all - needed - MIN_QUEUE;
        Ok((MIN_QUEUE + spare / 2, needed + spare / 2))
    }
}

/// Returns the maximum number of shots under compression.
fn compressing(resolved: &ResolvedSettings<'_>) -> usize {
    let threads = || resolved.settings.compress_threads.unwrap_or_else(shotline_store::recorder::default_threads);
    resolved.codec.map_or(0, |_| shotline_store::codec::max_held_buffers(threads()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bytes, Settings};
    use shotline_wire::shot::{Geometry, Packing};

    /// Returns the size of the pool that an error suggests.
    fn suggested<T>(refused: Result<T, RunError>) -> Bytes {
        let message = refused.map(drop).unwrap_err().to_string();
        message.split("--pool ").nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_pool_of_the_suggested_size_is_accepted() {
        let geometry = Geometry::new(16, 50_000, 12, Packing::Packed12, 0).unwrap();
        let slot_bytes = geometry.slot_bytes();
        let config = |stream| StreamConfig {
            stream,
            key: stream,
            geometry,
            source: None,
            first_shot: None,
            first_psn: None,
            window: 4,
            timeout_ns: 1,
        };
        let mode = Mode::FixedRate { millihertz: 100_000 };
        for (how, links, in_order) in [
            ("discard = true", 1, 0),
            ("discard = true", 1, 5),
            ("out = \"run.h5\"", 4, 0),
            ("out = \"run.h5\"\nroll_shots = 5", 1, 0),
            ("out = \"run.h5\"\nroll_shots = 5\ncompress = \"lz4\"\ncompress_threads = 3", 4, 0),
            ("out = \"run.h5\"\nroll_shots = 5\ncompress = \"lz4\"\ncompress_threads = 3", 1, 5),
        ] {
            let case = format!("{how}, {links} links, {in_order} in order");
            let text = format!("listen = \"[::1]:9\"\nframing = \"udp\"\nlinks = {links}\n{how}");
            let settings: Settings = toml::from_str(&text).unwrap();
            let configs: Vec<_> = (0..links).map(config).collect();
            let with_budget = |pool: Bytes, act: &dyn Fn(PoolBudget<'_>, u32) -> Result<(), RunError>| {
                let settings = Settings { pool: Some(pool), ..settings.clone() };
                let resolved = settings.check().unwrap();
                act(
                    PoolBudget { resolved, configs: &configs, slot_bytes, in_order, lent: 0 },
                    (pool.0 / u64::from(slot_bytes)) as u32,
                )
            };
            let check = |budget: PoolBudget<'_>, _: u32| budget.check();
            let split = |budget: PoolBudget<'_>, slots: u32| {
                let (queue, buffered) = budget.split_for_trigger(slots, mode, 0.5)?;
                assert!(queue >= MIN_QUEUE && buffered >= 51, "{case}: {queue} and {buffered}");
                Ok(())
            };
            let min_slots = suggested(with_budget(Bytes(1), &check));
            with_budget(min_slots, &check).unwrap_or_else(|error| panic!("{case}: {error}"));
            let for_trigger = suggested(with_budget(min_slots, &split));
            with_budget(for_trigger, &check).unwrap_or_else(|error| panic!("{case}: {error}"));
            with_budget(for_trigger, &split).unwrap_or_else(|error| panic!("{case}: {error}"));
        }
    }
}
