//! Starts a run: lays out its files, then requests shots from its sender.

use super::error::RunError;
use super::prepare::{Origin, PreparedRun};
use super::sinks::Sinks;
use crate::clock::Clock;
use crate::control::Control;
use crate::receiver::{Receiver, ReceiverConfig};
use crate::sink::Policy;
use crate::stream::StreamConfig;
use shotline_transport::PacketIo;
use shotline_wire::setup::Start;
use shotline_wire::shot::MAX_SHOTS;
use std::sync::Arc;

/// A run whose sender was started, and whose files exist.
pub(super) struct StartedRun<'a, P> {
    pub(super) prepared: PreparedRun<'a>,
    pub(super) origin: Origin<'a>,
    pub(super) clock: Arc<Clock>,
    pub(super) receiver: Receiver<P>,
    pub(super) sinks: Sinks<'a>,
}

impl<'a, P: PacketIo> StartedRun<'a, P> {
    /// Lays out the files, posts the first receives, and starts the probe, if there is one.
    ///
    /// # Errors
    /// If any of these fails; files that were created are removed.
    pub(super) fn start(prepared: PreparedRun<'a>, mut origin: Origin<'a>, io: P) -> Result<Self, RunError> {
        let settings = prepared.resolved.settings;
        if prepared.policy == Policy::Block && !io.capabilities().credits {
            return Err(RunError::Settings(
                "--policy block needs a transport with credits, and over UDP the kernel would drop packets: use drop-newest or drop-oldest".into(),
            ));
        }
        let start = Start { mode: prepared.mode()?, shots: settings.shots.unwrap_or(0) };
        let clock = Arc::new(Clock::open(&settings.clock.clone().unwrap_or_default())?);
        let sinks = Sinks::open(&prepared, &clock, origin.local)?;
        let mut receiver = Receiver::new(
            io,
            ReceiverConfig {
                framing: Arc::clone(&prepared.framing),
                streams: prepared.configs.clone(),
                pool: Arc::clone(&prepared.pool),
                regions: prepared.regions.clone(),
                spare: prepared.spare,
                clock: Some(Arc::clone(&clock)),
            },
        );
        if let Some(control) = &mut origin.control {
            let first_shot = match begin(control, start) {
                Ok(first_shot) => first_shot,
                Err(error) => {
                    sinks.abandon();
                    return Err(error);
                }
            };
            for (index, config) in prepared.configs.iter().enumerate() {
                receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..*config });
            }
        }
        Ok(Self { prepared, origin, clock, receiver, sinks })
    }
}

/// Starts the probe, if it has enough shot numbers left; returns the first. A run without a shot limit continues to the
/// last number.
fn begin(control: &mut Control<'_>, start: Start) -> Result<u64, RunError> {
    // Query before the start, which uses numbers up.
    let first = control.status(0)?.next_shot;
    if first.saturating_add(start.shots.max(1)) > MAX_SHOTS {
        let shots = if start.shots > 0 { format!(" and {} shots are requested", start.shots) } else { String::new() };
        return Err(RunError::Settings(format!(
            "the probe's next shot is {first}{shots}, but shot numbers end at 2^48: reset the probe"
        )));
    }
    // A probe that may be running must be stopped, with as many repetitions as necessary.
    control.set_cancel_flag(None);
    Ok(control.start(start)?)
}
