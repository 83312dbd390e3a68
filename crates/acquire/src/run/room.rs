//! How the buffers of the pool are shared: assembly, the queue to the recorder, events that wait for links or triggers.

use super::error::RunError;
use crate::config::{Resolved, Sink};
use crate::receiver;
use crate::stream::StreamConfig;
use shotline_wire::setup::Mode;

/// Shots in the queue to the recorder that the pool has room for at least.
const LEAST_QUEUE: usize = 4;
/// A quarter of this number of events may wait for links that are behind, however large the pool is.
const MOST_WAITING: usize = 1 << 14;

/// The room of a run.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) resolved: Resolved<'a>,
    pub(super) configs: &'a [StreamConfig],
    /// Bytes of a buffer.
    pub(super) slot_bytes: u32,
    /// Buffers that assembly holds because a device takes receives in their order.
    pub(super) in_order: usize,
}

impl Room<'_> {
    /// Refuses a pool that is too small.
    ///
    /// # Errors
    /// With the size that is needed.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let slot_bytes = u64::from(self.slot_bytes);
        let least = (self.reserve() + self.in_order + LEAST_QUEUE * self.configs.len()) as u64;
        // Regions are rounded up to whole huge pages: what counts is what was asked for.
        let pool_bytes = self.resolved.pool_bytes;
        let slots = pool_bytes / slot_bytes;
        if slots >= least {
            return Ok(());
        }
        Err(RunError::Settings(format!(
            "a pool of {pool_bytes} bytes holds {slots} shots of {slot_bytes} bytes, assembly and the queue need {least}: --pool {}MiB",
            (least * slot_bytes).div_ceil(1 << 20),
        )))
    }

    /// Buffers that are neither free nor in the queue when everything is busy: under assembly, waiting for the other
    /// links' shots of their events, on their way into the file.
    fn reserve(&self) -> usize {
        let (Resolved { settings, sink, in_flight, .. }, configs) = (self.resolved, self.configs);
        let joining: usize = configs.iter().map(|config| config.window as usize + 1).sum();
        let writing = match sink {
            Sink::Discard => 0,
            Sink::Capture(_) => in_flight as usize + configs.len(),
            Sink::Recording(outs) => {
                // Where files follow one another, one may still be writing when the next begins.
                let recorders = outs.len() * if settings.rolls() { 2 } else { 1 };
                recorders * (in_flight as usize + compressing(&self.resolved)) + configs.len()
            }
        };
        receiver::held(configs) + joining + writing
    }

    /// Events that a pool of `slots` buffers has room for beside what assembly needs.
    fn spare_events(&self, slots: u32) -> usize {
        (slots as usize - self.reserve() - self.in_order) / self.configs.len()
    }

    /// Of these, events that wait for links that are behind: a quarter.
    pub(super) fn waiting_events(&self, slots: u32) -> usize {
        if self.configs.len() > 1 {
            self.spare_events(slots).saturating_sub(LEAST_QUEUE).min(MOST_WAITING) / 4
        } else {
            0
        }
    }

    /// Events that the queue to the recorder may hold, so that assembly never lacks a buffer.
    pub(super) fn queue_events(&self, slots: u32) -> usize {
        self.spare_events(slots) - self.waiting_events(slots)
    }

    /// Splits that room between the queue and events that are held for a trigger, `before_s` seconds of them.
    ///
    /// # Errors
    /// If the rate is known, and the room too small.
    pub(super) fn split_for_trigger(&self, slots: u32, mode: Mode, before_s: f64) -> Result<(usize, usize), RunError> {
        let all = self.queue_events(slots);
        let Mode::FixedRate { millihertz } = mode else {
            // The rate is unknown: the recorder's queue takes a quarter.
            let queue = (all / 4).max(LEAST_QUEUE.min(all));
            return Ok((queue, (all - queue).max(1)));
        };
        let needed = (before_s * millihertz as f64 / 1000.0).ceil() as usize + 1;
        let links = self.configs.len();
        if needed + LEAST_QUEUE > all {
            // Of what is spare a quarter waits for other links, if there are any.
            let spare = needed + LEAST_QUEUE;
            let spare = if links > 1 { spare * 4 / 3 + 2 } else { spare };
            let bytes = (self.reserve() + self.in_order + spare * links) as u64 * u64::from(self.slot_bytes);
            return Err(RunError::Settings(format!(
                "{before_s} s before a trigger are {needed} events of {links} links, a pool of {} bytes holds {}: --pool {}MiB",
                self.resolved.pool_bytes,
                all.saturating_sub(LEAST_QUEUE),
                bytes.div_ceil(1 << 20)
            )));
        }
        // What is spare is shared: more queue does no harm, and a rate is not kept to the shot.
        let spare = all - needed - LEAST_QUEUE;
        Ok((LEAST_QUEUE + spare / 2, needed + spare / 2))
    }
}

/// Shots that compression holds at most.
fn compressing(resolved: &Resolved<'_>) -> usize {
    let threads = || resolved.settings.compress_threads.unwrap_or_else(shotline_store::recorder::default_threads);
    resolved.codec.map_or(0, |_| shotline_store::codec::held(threads()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bytes, Settings};
    use shotline_wire::shot::{Geometry, Packing};

    /// The size of the pool that an error asks for.
    fn suggested<T>(refused: Result<T, RunError>) -> Bytes {
        let message = refused.map(drop).unwrap_err().to_string();
        message.split("--pool ").nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_pool_of_the_size_that_an_error_suggests_is_accepted() {
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
            let with_room = |pool: Bytes, act: &dyn Fn(Room<'_>, u32) -> Result<(), RunError>| {
                let settings = Settings { pool: Some(pool), ..settings.clone() };
                let resolved = settings.check().unwrap();
                act(Room { resolved, configs: &configs, slot_bytes, in_order }, (pool.0 / u64::from(slot_bytes)) as u32)
            };
            let check = |room: Room<'_>, _: u32| room.check();
            let split = |room: Room<'_>, slots: u32| {
                let (queue, held) = room.split_for_trigger(slots, mode, 0.5)?;
                assert!(queue >= LEAST_QUEUE && held >= 51, "{case}: {queue} and {held}");
                Ok(())
            };
            let least = suggested(with_room(Bytes(1), &check));
            with_room(least, &check).unwrap_or_else(|error| panic!("{case}: {error}"));
            let for_trigger = suggested(with_room(least, &split));
            with_room(for_trigger, &check).unwrap_or_else(|error| panic!("{case}: {error}"));
            with_room(for_trigger, &split).unwrap_or_else(|error| panic!("{case}: {error}"));
        }
    }
}
