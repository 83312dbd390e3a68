//! Metrics of the progress that every command has.

use crate::status::{Family, FamilyKind, Phase, Sample};

/// Returns the phase, the duration in seconds, and the part that is over, 0 to 1, if the end is known.
pub(crate) fn families(phase: Phase, progress: Option<f64>, seconds: f64) -> Vec<Family> {
    let phases = Phase::ALL.map(|(each, name)| Sample::count(vec![("phase", name.to_owned())], (each == phase).into()));
    let help = "1 for the phase in which the run is, 0 for the others";
    let mut families = vec![
        Family { samples: phases.to_vec(), ..Family::new("run_phase", help, FamilyKind::Gauge) },
        Family {
            unit: Some("seconds"),
            ..Family::gauge("run_duration", "Time since the start of the run, until its end", seconds)
        },
    ];
    if let Some(progress) = progress {
        let help = "Part of the requested shots, of the requested time, or of the work that is over";
        families.push(Family { unit: Some("ratio"), ..Family::gauge("run_progress", help, progress) });
    }
    families
}
