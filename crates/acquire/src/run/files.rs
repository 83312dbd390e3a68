//! Files of a recording: their configuration and layout.

use super::error::RunError;
use super::prepare::{PreparedRun, receive_buffer};
use crate::clock::Clock;
use crate::config::{Align, Bytes, Nanoseconds, ResolvedSettings, Settings};
use crate::stream::StreamConfig;
use shotline_store::info::{ClockInfo, LinkInfo, RunInfo};
use shotline_store::nvme::{self, Target};
use shotline_store::set::Roll;
use shotline_store::{RecorderConfig, RunRecorder, RunRecorderConfig, StoreError};
use std::path::PathBuf;
use std::time::Duration;

/// Default number of seconds recorded after the last trigger.
pub(super) const POST_TRIGGER_S: f64 = 1.0;

/// Maximum default number of rows that a file is laid out for: its tables grow with them.
const MAX_ROWS: u64 = 200_000;
/// Divisor of the free space that a file is laid out for by default.
const FREE_SPACE_DIVISOR: u64 = 2;
/// The same for a run of several parts, of which two are laid out at the same time.
const PART_FREE_SPACE_DIVISOR: u64 = 5;

/// Refuses files that cannot become recordings, before anything else is done.
pub(super) fn check(resolved: &ResolvedSettings<'_>, outs: &[PathBuf]) -> Result<(), RunError> {
    Ok(recording_config(resolved, outs, 1).check()?)
}

/// Returns the configuration of the files, with this number of rows (those of the run, or of a part if only time ends
/// it).
fn recording_config(resolved: &ResolvedSettings<'_>, outs: &[PathBuf], rows: u64) -> RunRecorderConfig {
    let ResolvedSettings { settings, in_flight, .. } = *resolved;
    let mut outs = outs.to_vec();
    // A folder stands for a file with the first one's name.
    if let Some((first, others)) = outs.split_first_mut() {
        let name = first.file_name().map(PathBuf::from).unwrap_or_default();
        others.iter_mut().filter(|out| out.is_dir()).for_each(|out| out.push(&name));
    }
    let after = settings.roll_seconds.map(Duration::from_secs_f64);
    RunRecorderConfig {
        outs,
        recorder: RecorderConfig {
            in_flight,
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
        // With a trigger the number of recorded shots is unknown, at most all of them.
        rows: settings.shots,
    }
}

/// Returns the configured number of rows to lay out a file for.
fn requested_rows(settings: &Settings) -> Option<u64> {
    settings.capacity.or(settings.shots)
}

/// Returns the default number of rows to lay out a file for: those that fit a fraction of the free space.
fn rows_that_fit(prepared: &PreparedRun<'_>, outs: &[PathBuf]) -> u64 {
    let slot = u64::from(prepared.geometry.slot_bytes()) * prepared.configs.len() as u64;
    let free = outs.iter().map(|out| match Target::of(out) {
        Some(device) => nvme::free_bytes(&device),
        None => {
            let folder = shotline_store::folder(out);
            rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
        }
    });
    let divisor = if prepared.resolved.settings.rolls() { PART_FREE_SPACE_DIVISOR } else { FREE_SPACE_DIVISOR };
    (free.min().unwrap_or(0) / divisor / slot * outs.len() as u64).clamp(1, MAX_ROWS)
}

/// Lays out the file, or the first files.
///
/// # Errors
/// If one cannot be created: it exists and may not be replaced, or the drive is full.
pub(super) fn lay_out(prepared: &PreparedRun<'_>, clock: &Clock, outs: &[PathBuf]) -> Result<RunRecorder, RunError> {
    let laid_out = |rows| lay_out_rows(prepared, clock, outs, rows);
    match requested_rows(prepared.resolved.settings) {
        Some(rows) => laid_out(rows),
        None => retry_with_free_space(|| rows_that_fit(prepared, outs), laid_out),
    }
}

/// Lays out as many rows as fit. Fewer fit if another program has allocated the space since it was measured (a second
/// recorder, started at the same time, takes half as well).
fn retry_with_free_space<T>(
    fit: impl Fn() -> u64,
    lay_out: impl Fn(u64) -> Result<T, RunError>,
) -> Result<T, RunError> {
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

/// Lays out the file, or the first files, for this number of rows.
fn lay_out_rows(
    prepared: &PreparedRun<'_>,
    clock: &Clock,
    outs: &[PathBuf],
    rows: u64,
) -> Result<RunRecorder, RunError> {
    let ResolvedSettings { settings, codec, .. } = prepared.resolved;
    let effective = effective_settings(prepared, rows);
    let info = RunInfo {
        software: software(),
        notes: settings.notes.clone().unwrap_or_default(),
        operator: effective.operator.clone().unwrap_or_default(),
        by_stamp: settings.align == Some(Align::Stamp),
        config: toml::to_string(&effective).unwrap_or_default(),
        codec,
        pattern_period: Some(u64::from(prepared.instrument.pattern_period)).filter(|period| *period > 0),
        ..run_info(prepared, clock)
    };
    Ok(RunRecorder::create(&recording_config(&prepared.resolved, outs, rows), &info, &prepared.regions)?)
}

/// Returns the run's description for any file.
pub(super) fn run_info(prepared: &PreparedRun<'_>, clock: &Clock) -> RunInfo {
    let link = |config: &StreamConfig| LinkInfo {
        name: format!("{} link {}", prepared.instrument.name, config.stream),
        stream: config.stream,
        geometry: prepared.geometry,
    };
    let health = clock.refresh();
    RunInfo {
        start_tai_ns: clock.now_tai_ns(),
        clock: ClockInfo {
            source: clock.source().to_string(),
            locked: health.locked,
            max_error_ns: health.max_error_ns,
            tai_minus_utc_s: health.tai_minus_utc_s,
        },
        instrument: prepared.instrument.name.clone(),
        array: prepared.instrument.array,
        framing: prepared.framing.name().into(),
        ..RunInfo::new(prepared.configs.iter().map(link).collect())
    }
}

/// Returns the name of the program, its version, and the commit that it was built from.
fn software() -> String {
    let version = concat!("shotline ", env!("CARGO_PKG_VERSION"));
    match env!("SHOTLINE_COMMIT") {
        "" => version.to_owned(),
        commit => format!("{version} ({commit})"),
    }
}

/// Returns the settings with the defaults that were chosen.
fn effective_settings(prepared: &PreparedRun<'_>, rows: u64) -> Settings {
    let ResolvedSettings { settings, framing, pool_bytes, in_flight, .. } = prepared.resolved;
    let alignment = prepared.alignment();
    let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
    let g = &prepared.geometry;
    let defaults = Settings {
        framing,
        links: Some(prepared.configs.len() as u8),
        samples: Some(g.samples()),
        discard: Some(false),
        force: Some(false),
        durable: Some(false),
        buffered: Some(false),
        in_flight: Some(in_flight),
        capacity: Some(rows),
        policy: Some(prepared.policy),
        operator: user(),
        post_trigger: settings.pre_trigger.map(|_| POST_TRIGGER_S),
        trigger: settings.pre_trigger.map(|_| Default::default()),
        align: Some(Default::default()),
        align_timeout: Some(Nanoseconds(alignment.timeout_ns)),
        quorum: Some(alignment.quorum),
        clock: Some(Default::default()),
        pool: Some(Bytes(pool_bytes)),
        pool_memory: settings.pool_region_kind(),
        receive_buffer: settings.has_receive_buffer().then(|| Bytes(receive_buffer(settings) as u64)),
        window: Some(prepared.configs[0].window),
        timeout_ms: Some(prepared.configs[0].timeout_ns / 1_000_000),
        busy_poll: Some(false),
        ..Settings::default()
    };
    settings.clone().over(defaults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Simulates a drive with space for `space` rows, of which another recorder takes half just after each measurement,
    /// `times` times.
    fn with_another_recorder(space: u64, times: u64) -> Result<u64, RunError> {
        let (free, remaining) = (Cell::new(space), Cell::new(times));
        retry_with_free_space(
            || (free.get() / FREE_SPACE_DIVISOR).max(1),
            |rows| {
                if remaining.get() > 0 {
                    remaining.set(remaining.get() - 1);
                    free.set(free.get() / 2 - 1);
                }
                let no_space = StoreError::NoSpace { path: "run.h5".into(), rows, needed: rows, free: free.get() };
                if rows > free.get() { Err(no_space.into()) } else { Ok(rows) }
            },
        )
    }

    #[test]
    fn concurrent_recorders_share_the_space_until_the_drive_is_full() {
        assert_eq!(with_another_recorder(1000, 0).unwrap(), 500);
        assert_eq!(with_another_recorder(1000, 1).unwrap(), 249);
        let rows: Vec<u64> = (2..5).map(|times| with_another_recorder(1000, times).unwrap()).collect();
        assert!(rows.is_sorted_by(|more, fewer| fewer < more), "{rows:?}");
        assert!(matches!(with_another_recorder(0, 0), Err(RunError::Store(StoreError::NoSpace { .. }))));
    }
}
