//! The recorder and its thread.

use super::RunError;
use super::prepare::{Prepared, in_flight, pool_bytes, receive_buffer, rolls};
use super::unseen::{Failed, Unseen};
use crate::align::{ClockState, Counts};
use crate::books::Books;
use crate::clock::Clock;
use crate::config::{Align, Bytes, Nanoseconds, Settings};
use crate::latency::Latency;
use crate::live::{LinkStep, Live, Step};
use crate::pretrigger::{Due, PreTrigger, Window};
use crate::sink::Queue;
use crate::stages::Spent;
use crate::stream::{StreamConfig, Times};
use shotline_store::clocks::ClockSample;
use shotline_store::info::{ClockInfo, LinkInfo, RunInfo};
use shotline_store::nvme::{self, Target};
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::set::{Finished, Roll};
use shotline_store::shot::{Event, StreamBooks};
use shotline_store::{RecorderConfig, Set, SetConfig, StoreError};
use shotline_transport::DeviceCounts;
use shotline_wire::shot::DropCause;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time between two rows of the clock tables.
const CLOCKS_EVERY: Duration = Duration::from_secs(1);
/// Rows that a file is laid out for when nobody says how many: its tables grow with them.
const MOST_ROWS: u64 = 200_000;
/// The share of the free space that a file is laid out for when nobody says how many rows: a half.
const FREE_SHARE: u64 = 2;
/// And where another file is laid out beside it: a fifth.
const FREE_SHARE_OF_PART: u64 = 5;

/// Refuses files that cannot become recordings, before anything else is done.
pub(super) fn check(settings: &Settings, outs: &[PathBuf]) -> Result<(), RunError> {
    Ok(files(settings, outs, 1)?.check()?)
}

/// The files that settings ask for, of so many rows (those of the run, or of a part if only time ends it).
fn files(settings: &Settings, outs: &[PathBuf], rows: u64) -> Result<SetConfig, RunError> {
    let mut outs = outs.to_vec();
    // A folder stands for a file of the first one's name.
    if let Some((first, others)) = outs.split_first_mut() {
        let name = first.file_name().map(PathBuf::from).unwrap_or_default();
        others.iter_mut().filter(|out| out.is_dir()).for_each(|out| out.push(&name));
    }
    let after = settings.roll_seconds.map(Duration::from_secs_f64);
    Ok(SetConfig {
        outs,
        recorder: RecorderConfig {
            in_flight: in_flight(settings),
            direct: settings.buffered != Some(true),
            durable: settings.durable.unwrap_or(false),
            overwrite: settings.force.unwrap_or(false),
            recycle: settings.recycle.unwrap_or(false),
            serial: settings.serial.clone(),
            commit_every: Duration::from_millis(settings.commit_ms.unwrap_or(20)),
            compress_threads: settings.compress_threads,
            ..RecorderConfig::new(rows)
        },
        roll: Roll { bytes: settings.roll_size.map(|size| size.0), after, rows: settings.roll_shots },
        keep: settings.keep.map(|keep| keep.0),
        // With a trigger nobody knows how many of the shots are recorded, but no more than all.
        rows: settings.shots,
    })
}

/// Rows to lay out a file for, if the user has said how many.
fn rows_asked_for(settings: &Settings) -> Option<u64> {
    settings.capacity.or(settings.shots)
}

/// Rows to lay out a file for where nobody says how many: those that a share of the free space holds.
fn rows_that_fit(settings: &Settings, prepared: &Prepared, outs: &[PathBuf]) -> u64 {
    let slot = u64::from(prepared.geometry.slot_bytes()) * prepared.configs.len() as u64;
    let free = outs.iter().map(|out| match Target::of(out) {
        Some(device) => nvme::free_bytes(&device),
        None => {
            let folder = shotline_store::folder(out);
            rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
        }
    });
    let share = if rolls(settings) { FREE_SHARE_OF_PART } else { FREE_SHARE };
    (free.min().unwrap_or(0) / share / slot * outs.len() as u64).clamp(1, MOST_ROWS)
}

/// Lays out the file, or the first files.
pub(super) fn recorder(
    settings: &Settings,
    prepared: &Prepared,
    clock: &Clock,
    outs: &[PathBuf],
) -> Result<Set, RunError> {
    let lay_out = |rows| laid_out(settings, prepared, clock, outs, rows);
    match rows_asked_for(settings) {
        Some(rows) => lay_out(rows),
        None => with_what_fits(|| rows_that_fit(settings, prepared, outs), lay_out),
    }
}

/// Lays out as many rows as fit. Where another program has taken the room since it was looked for (a second recorder,
/// started at the same time, takes half as well), fewer do.
fn with_what_fits<T>(fit: impl Fn() -> u64, lay_out: impl Fn(u64) -> Result<T, RunError>) -> Result<T, RunError> {
    let mut rows = fit();
    loop {
        let result = lay_out(rows);
        if !matches!(result, Err(RunError::Store(StoreError::NoSpace { .. }))) {
            return result;
        }
        let fewer = fit();
        if fewer >= rows {
            return result;
        }
        rows = fewer;
    }
}

/// Lays out the file, or the first files, for so many rows.
fn laid_out(
    settings: &Settings,
    prepared: &Prepared,
    clock: &Clock,
    outs: &[PathBuf],
    rows: u64,
) -> Result<Set, RunError> {
    let config = files(settings, outs, rows)?;
    let link = |config: &StreamConfig| LinkInfo {
        name: format!("{} link {}", prepared.instrument.name, config.stream),
        stream: config.stream,
        geometry: prepared.geometry,
    };
    let health = clock.refresh();
    let chosen = chosen(settings, prepared, rows);
    let info = RunInfo {
        software: software(),
        start_tai_ns: clock.now_tai_ns(),
        clock: ClockInfo {
            source: clock.source().to_string(),
            locked: health.locked,
            max_error_ns: health.max_error_ns,
            tai_minus_utc_s: health.tai_minus_utc_s,
        },
        instrument: prepared.instrument.name.clone(),
        notes: settings.notes.clone().unwrap_or_default(),
        operator: chosen.operator.clone().unwrap_or_default(),
        framing: prepared.framing.name().into(),
        by_stamp: settings.align == Some(Align::Stamp),
        config: toml::to_string(&chosen).unwrap_or_default(),
        codec: settings.codec().map_err(RunError::Settings)?,
        pattern_period: Some(u64::from(prepared.instrument.pattern_period)).filter(|period| *period > 0),
        ..RunInfo::new(prepared.configs.iter().map(link).collect())
    };
    Ok(Set::create(&config, &info, &prepared.regions)?)
}

/// The program, its version, and the commit that it was built from.
fn software() -> String {
    let version = concat!("shotline ", env!("CARGO_PKG_VERSION"));
    match env!("SHOTLINE_COMMIT") {
        "" => version.to_owned(),
        commit => format!("{version} ({commit})"),
    }
}

/// The settings with everything that was left to this program.
fn chosen(settings: &Settings, prepared: &Prepared, rows: u64) -> Settings {
    let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
    let g = &prepared.geometry;
    let defaults = Settings {
        framing: Some(prepared.framing.name().into()),
        links: Some(prepared.configs.len() as u8),
        samples: Some(g.samples()),
        discard: Some(false),
        force: Some(false),
        durable: Some(false),
        buffered: Some(false),
        in_flight: Some(in_flight(settings)),
        capacity: Some(rows),
        policy: Some(prepared.policy),
        operator: user(),
        post_trigger: settings.pre_trigger.map(|_| POST_TRIGGER_S),
        trigger: settings.pre_trigger.map(|_| Default::default()),
        align: Some(Default::default()),
        align_patience: Some(Nanoseconds(prepared.alignment(settings).patience_ns)),
        quorum: Some(prepared.alignment(settings).quorum),
        clock: Some(Default::default()),
        pool: Some(Bytes(pool_bytes(settings))),
        receive_buffer: Some(Bytes(receive_buffer(settings) as u64)),
        window: Some(prepared.configs[0].window),
        timeout_ms: Some(prepared.configs[0].timeout_ns / 1_000_000),
        busy_poll: Some(false),
        ..Settings::default()
    };
    settings.clone().over(defaults)
}

/// Seconds that are recorded after the last trigger, if nobody says.
const POST_TRIGGER_S: f64 = 1.0;

/// Events that the queue has room for, and the pre-trigger capture if there is one.
pub(super) fn capture(settings: &Settings, prepared: &Prepared) -> Result<(usize, Option<PreTrigger>), RunError> {
    let Some(before_s) = settings.pre_trigger else { return Ok((prepared.queue_events(settings), None)) };
    let after_s = settings.post_trigger.unwrap_or(POST_TRIGGER_S);
    for (name, seconds) in [("--pre-trigger", before_s), ("--post-trigger", after_s)] {
        if !(0.0..=1e6).contains(&seconds) {
            return Err(RunError::Settings(format!("expected {name} from 0 to 1e6 s, found {seconds}")));
        }
    }
    let (queue, events) = prepared.split_for_trigger(settings, before_s)?;
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let by = settings.trigger.unwrap_or_default();
    Ok((queue, Some(PreTrigger::new(Window { before_ns: ns(before_s), after_ns: ns(after_s), events, by }))))
}

/// How the recording went.
pub(super) struct Recorded {
    pub(super) finished: Finished,
    /// From the first event until everything was in the file.
    pub(super) seconds: f64,
    /// Triggers, if there was a capture.
    pub(super) triggers: Option<u64>,
}

/// The recorder's thread.
pub(super) struct Recording<'a> {
    pub(super) set: Set,
    pub(super) capture: Option<PreTrigger>,
    pub(super) queue: &'a Queue,
    pub(super) books: &'a OnceLock<shotline_store::shot::Books>,
    pub(super) live: &'a Live,
}

impl Recording<'_> {
    /// Records to the end. Whatever goes wrong, it empties the queue, so that nobody waits for it.
    pub(super) fn run(self) -> Result<Recorded, Failed> {
        let (queue, live) = (self.queue, self.live);
        let mut unseen = Unseen::default();
        self.record(&mut unseen).map_err(|error| drain(queue, live, unseen, error))
    }

    fn record(mut self, unseen: &mut Unseen) -> Result<Recorded, StoreError> {
        let mut begun: Option<Instant> = None;
        let mut held: Option<Box<Event>> = None;
        let mut clocks_noted = Instant::now();
        let mut turned = Instant::now();
        let (mut bytes, mut taken) = (0, 0);
        loop {
            let mut busy = held.is_some() || self.set.pending() > 0;
            while held.is_none() {
                let Some(event) = self.next() else { break };
                begun.get_or_insert_with(Instant::now);
                unseen.enter(&event);
                busy = true;
                taken += 1;
                bytes += event.shots.iter().flatten().map(|shot| u64::from(shot.buffer.len())).sum::<u64>();
                held = self.offer(event);
            }
            if held.is_none() && self.queue.is_finished() {
                match &mut self.capture {
                    Some(capture) => capture.finish(),
                    None => break,
                }
                if self.capture.as_ref().is_none_or(PreTrigger::is_idle) {
                    break;
                }
                continue;
            }
            let wait = if self.queue.is_empty() || held.is_some() { Duration::from_millis(10) } else { Duration::ZERO };
            let polled = self.set.poll(Some(wait));
            let visible = self.set.visible();
            unseen.see(visible);
            self.live.set_written(visible);
            polled?;
            held = held.and_then(|event| self.offer(event));
            if clocks_noted.elapsed() >= CLOCKS_EVERY {
                clocks_noted = Instant::now();
                self.note_clocks();
            }
            self.live.set_stored(taken - u64::from(held.is_some()) - self.set.pending() as u64);
            let (now, stage) = (Instant::now(), &self.live.store);
            if begun.is_some() {
                // While the drive works, so does this stage.
                stage.spend(if busy { Spent::Busy } else { Spent::Starved }, now - turned, self.queue.filled());
                stage.passed(bytes);
            }
            turned = now;
        }
        self.note_clocks();
        self.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
        let mut warnings = Vec::new();
        let triggers = self.capture.as_ref().map(|capture| note(capture, &mut self.set, &mut warnings));
        let books = self.books.get().cloned().unwrap_or_default();
        let mut finished = self.set.finish(books)?;
        finished.report.warnings.append(&mut warnings);
        Ok(Recorded { finished, seconds: begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()), triggers })
    }

    /// Enters how the links' clocks run.
    fn note_clocks(&mut self) {
        for (index, link) in self.live.step().links.iter().enumerate().filter(|(_, link)| link.clock.at_ns > 0) {
            let ClockState { at_ns, offset_ns, drift_ppb, residual_ns, locked, jumps } = link.clock;
            let stopped = link.stopped;
            let sample = ClockSample { at_tai_ns: at_ns, offset_ns, drift_ppb, residual_ns, jumps, locked, stopped };
            self.set.clock(index, &sample);
        }
    }

    /// The next event that is to be recorded.
    fn next(&mut self) -> Option<Box<Event>> {
        loop {
            if let Some(capture) = &mut self.capture {
                match capture.pop() {
                    Some(Due::Record(event)) => return Some(event),
                    Some(Due::Discard(event)) => {
                        self.set.give_up(&event, DropCause::NotTriggered);
                        continue;
                    }
                    None if self.live.take_trigger() => {
                        capture.signal();
                        continue;
                    }
                    None => {}
                }
            }
            let event = self.queue.pop();
            // After the pop: what was lost before this event is then among them.
            self.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
            match &mut self.capture {
                Some(capture) => capture.push(event?),
                None => return event,
            }
        }
    }

    /// Gives an event to the files; it comes back if they are busy.
    fn offer(&mut self, event: Box<Event>) -> Option<Box<Event>> {
        if self.set.remaining() == 0 {
            self.live.set_full();
            self.set.give_up(&event, DropCause::SinkFull);
            return None;
        }
        self.set.offer(*event).err().map(Box::new)
    }
}

/// Empties the queue of a sink that has failed, so that nobody waits for it.
pub(super) fn drain(queue: &Queue, live: &Live, mut unseen: Unseen, error: StoreError) -> Failed {
    live.set_full();
    // Nobody waits for what was handed over, either.
    live.set_stored(u64::MAX);
    while !queue.is_finished() {
        match queue.pop() {
            Some(event) => unseen.enter(&event),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Failed { error: error.into(), given_up: unseen.give_up() }
}

/// Enters the triggers into the books, and says what could not be held. Returns how many triggers there were.
fn note(capture: &PreTrigger, set: &mut Set, warnings: &mut Vec<String>) -> u64 {
    set.note("triggers".into(), capture.count());
    for (index, trigger) in capture.triggers().iter().enumerate() {
        set.note(format!("trigger_{index}_shot"), trigger.number);
        set.note(format!("trigger_{index}_tai_ns"), trigger.tai_ns);
        set.note(format!("trigger_{index}_signal"), u64::from(trigger.signal));
    }
    if let Some(short_ns) = capture.short_ns() {
        set.note("pre_trigger_least_ns".into(), short_ns);
        warnings.push(format!(
            "the pool had room for {:.3} s before a trigger, not for all that --pre-trigger asks for: give a larger --pool",
            short_ns as f64 / 1e9
        ));
    }
    capture.count()
}

/// The books as a recording keeps them.
pub(super) fn stored_books(
    streams: &[u32],
    books: &[Books],
    times: &[Times],
    (unknown, device, counters): (&Books, DeviceCounts, &[(String, u64)]),
    step: &Step,
) -> shotline_store::shot::Books {
    let stored = |stream: u32, books: &Books| StreamBooks {
        stream,
        packets_in: books.packets,
        packets_placed: books.placed,
        packet_drops: books.packet_drops,
        shots_seen: books.shots,
        shots_complete: books.complete,
        shots_partial: books.partial,
        shot_drops: books.shot_drops,
        more: [
            ("missing_packets", books.packets_missing),
            ("repaired_packets", books.repaired),
            ("icrc_good", books.icrc_good),
            ("icrc_solved", books.icrc_solved),
            ("icrc_device", books.icrc_device),
            ("icrc_unverified", books.icrc_unverified),
            ("sender_restarts", books.restarts),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec(),
    };
    let mut all = Vec::new();
    for ((stream, books), times) in streams.iter().zip(books).zip(times) {
        let mut stored = stored(*stream, books);
        stored.more.extend(latencies("latency_from_sender", &times.from_sender));
        stored.more.extend(latencies("latency_from_kernel", &times.from_kernel));
        stored.more.extend(step.links.get(all.len()).filter(|_| streams.len() > 1).map(in_step).into_iter().flatten());
        all.push(stored);
    }
    let mut whole = stored(WHOLE_RUN, unknown);
    let lost = device.causes().into_iter().filter(|(_, count)| *count > 0);
    whole.more.extend(lost.map(|(cause, count)| (format!("device_{cause}"), count)));
    whole.more.extend(counters.iter().map(|(name, count)| (format!("counter_{name}"), *count)));
    if streams.len() > 1 {
        let Counts { complete, partial, dropped, hurried, expired, .. } = step.events;
        whole.more.extend((step.window_ns > 0).then(|| ("align_window_ns".to_owned(), step.window_ns)));
        let counts = [
            ("events_complete", complete),
            ("events_partial", partial),
            ("events_below_quorum", dropped),
            ("events_hurried", hurried),
            ("events_expired", expired),
        ];
        whole.more.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    }
    all.push(whole);
    shotline_store::shot::Books { streams: all }
}

/// How a link kept in step, as entries of the books.
fn in_step(link: &LinkStep) -> [(String, u64); 3] {
    let counts = &link.counts;
    [("events_missed", counts.missing), ("link_stops", counts.stops), ("link_rejoins", counts.rejoins)]
        .map(|(name, count)| (name.to_owned(), count))
}

/// How long complete shots took, as entries of the books.
fn latencies(name: &str, latency: &Latency) -> Vec<(String, u64)> {
    let mut entries = vec![("shots", latency.count())];
    if latency.count() > 0 {
        entries.extend([
            ("min_ns", latency.least_ns()),
            ("p50_ns", latency.percentile_ns(0.5)),
            ("p99_ns", latency.percentile_ns(0.99)),
            ("max_ns", latency.most_ns()),
        ]);
    }
    if latency.negative > 0 {
        entries.push(("negative", latency.negative));
    }
    entries.into_iter().map(|(what, value)| (format!("{name}_{what}"), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A drive with room for so many rows of which another recorder takes half just after each look at it, `times` over.
    fn beside_another(room: u64, times: u64) -> Result<u64, RunError> {
        let (free, left) = (Cell::new(room), Cell::new(times));
        with_what_fits(
            || (free.get() / FREE_SHARE).max(1),
            |rows| {
                if left.get() > 0 {
                    left.set(left.get() - 1);
                    free.set(free.get() / 2 - 1);
                }
                let no_space = StoreError::NoSpace { path: "run.h5".into(), rows, needed: rows, free: free.get() };
                if rows > free.get() { Err(no_space.into()) } else { Ok(rows) }
            },
        )
    }

    #[test]
    fn recorders_that_start_together_share_the_room_and_only_a_full_drive_refuses() {
        assert_eq!(beside_another(1000, 0).unwrap(), 500);
        assert_eq!(beside_another(1000, 1).unwrap(), 249);
        let rows: Vec<u64> = (2..5).map(|times| beside_another(1000, times).unwrap()).collect();
        assert!(rows.is_sorted_by(|more, fewer| fewer < more), "{rows:?}");
        assert!(matches!(beside_another(0, 0), Err(RunError::Store(StoreError::NoSpace { .. }))));
    }
}
