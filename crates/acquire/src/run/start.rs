//! Starting a run: its files are laid out, then its sender is asked for shots.

use super::error::RunError;
use super::prepare::{Origin, Prepared};
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

/// A run whose sender has been asked to start, and whose files are there.
pub(super) struct Started<'a, P> {
    pub(super) prepared: Prepared<'a>,
    pub(super) origin: Origin<'a>,
    pub(super) clock: Arc<Clock>,
    pub(super) receiver: Receiver<P>,
    pub(super) sinks: Sinks<'a>,
}

impl<'a, P: PacketIo> Started<'a, P> {
    /// Lays out the files, posts the first receives, and asks the probe to start, if there is one.
    ///
    /// # Errors
    /// If any of these fails; files that were made are removed.
    pub(super) fn start(prepared: Prepared<'a>, mut origin: Origin<'a>, io: P) -> Result<Self, RunError> {
        let settings = prepared.resolved.settings;
        if prepared.policy == Policy::Block && !io.capabilities().credits {
            return Err(RunError::Settings(
                "the policy block needs a transport with credits; over UDP the kernel would drop packets meanwhile: use drop-newest or drop-oldest".into(),
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

/// Has the probe start, if it has numbers for the shots asked for; returns the first. Shots without end go on to the last
/// number that there is.
fn begin(control: &mut Control<'_>, start: Start) -> Result<u64, RunError> {
    // Asked before: once it has begun, it uses numbers up.
    let first = control.status(0)?.next_shot;
    if first.saturating_add(start.shots.max(1)) > MAX_SHOTS {
        let shots = if start.shots > 0 { format!(" and {} shots were asked for", start.shots) } else { String::new() };
        return Err(RunError::Settings(format!(
            "the probe begins with shot {first}{shots}, numbers stay below 2^48: reset it"
        )));
    }
    // A probe that may run is stopped, however often it must be asked.
    control.ask_until(None);
    Ok(control.start(start)?)
}
