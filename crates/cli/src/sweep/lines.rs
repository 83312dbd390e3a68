//! The JSON lines of points, trials and results.

use super::measure::LinkCounters;
use super::stats::Spread;
use serde::Serialize;

/// The JSON line of one link at one point.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "point")]
pub struct Line<'a> {
    pub framing: &'a str,
    pub samples: u32,
    pub shot_bytes: u32,
    pub shot_packets: u32,
    pub trigger_hz: f64,
    pub link: usize,
    pub frame_rate_hz: Spread,
    pub bandwidth_gbps: Spread,
    /// Rate of all links together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_gbps: Option<Spread>,
    pub runs: Vec<&'a LinkCounters>,
}

impl Line<'_> {
    /// Returns the missed triggers, if they are counted, the lost shots and the lost packets of all runs.
    pub fn lost(&self) -> (Option<u64>, u64, u64) {
        let missed = self.runs.iter().map(|run| run.triggers_missed).sum();
        let shots = self.runs.iter().map(|run| run.shots_lost()).sum();
        (missed, shots, self.runs.iter().map(|run| run.packets_lost()).sum())
    }
}

/// Cause of a failed trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The probe did not reach the requested rate.
    Sender,
    /// Packets were lost before they were placed, or there was no buffer for a shot.
    Receiver,
    /// The recorder dropped shots.
    Recorder,
}

impl Failure {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Recorder => "recorder",
        }
    }
}

/// The JSON line of a trial.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "trial")]
pub struct Trial {
    pub framing: &'static str,
    pub sink: &'static str,
    pub requested_gbps: f64,
    pub requested_hz: f64,
    pub received_gbps: f64,
    pub passed: bool,
    pub failed_by: Option<Failure>,
    pub shots_sent: Option<u64>,
    pub shots_lost: u64,
}

/// The JSON line of a result.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "loss_free_rate")]
pub struct SearchResult {
    pub framing: &'static str,
    pub sink: &'static str,
    pub samples: u32,
    pub rate_gbps: f64,
    pub low_gbps: Option<f64>,
    pub high_gbps: Option<f64>,
    pub rate_hz: f64,
    pub low_hz: Option<f64>,
    pub high_hz: Option<f64>,
    pub confidence: f64,
    pub passing: f64,
    pub trials: u32,
    pub precision_reached: bool,
    pub limited_by: Option<Failure>,
}
