//! Runs of shot numbers: what is accounted for is kept as these, so that it does not grow with the recording.

/// Numbers from the first up to the second, which is not among them.
pub(crate) type Run = (u64, u64);

/// Adds a number behind the last run, or to it.
pub(crate) fn push(runs: &mut Vec<Run>, number: u64) {
    match runs.last_mut() {
        Some(last) if last.1 == number => last.1 = number.saturating_add(1),
        _ => runs.push((number, number.saturating_add(1))),
    }
}

/// Sorts runs and joins those that touch.
pub(crate) fn union(runs: &[Run]) -> Vec<Run> {
    union_with_overlaps(runs, |_| ())
}

/// The same; tells a number of each overlap.
pub(crate) fn union_with_overlaps(runs: &[Run], mut overlap: impl FnMut(u64)) -> Vec<Run> {
    let mut sorted: Vec<Run> = runs.iter().copied().filter(|run| run.0 < run.1).collect();
    sorted.sort_unstable();
    let mut out: Vec<Run> = Vec::with_capacity(sorted.len());
    for run in sorted {
        match out.last_mut() {
            Some(last) if run.0 <= last.1 => {
                if run.0 < last.1 {
                    overlap(run.0);
                }
                last.1 = last.1.max(run.1);
            }
            _ => out.push(run),
        }
    }
    out
}

/// What of a run is in none of the others, which are a union.
pub(crate) fn minus(run: Run, others: &[Run]) -> Vec<Run> {
    let (mut at, mut out) = (run.0, Vec::new());
    let begin = others.partition_point(|other| other.1 <= run.0);
    for other in others[begin..].iter().take_while(|other| other.0 < run.1) {
        if at < other.0 {
            out.push((at, other.0));
        }
        at = at.max(other.1);
    }
    if at < run.1 {
        out.push((at, run.1));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_is_cut_out_of_a_run() {
        let taken = union(&[(5, 7), (20, 30), (7, 9), (40, 41), (3, 3)]);
        assert_eq!(taken, [(5, 9), (20, 30), (40, 41)]);
        assert_eq!(minus((0, 50), &taken), [(0, 5), (9, 20), (30, 40), (41, 50)]);
        assert_eq!(minus((6, 25), &taken), [(9, 20)]);
        assert_eq!(minus((21, 29), &taken), []);
        assert_eq!(minus((10, 12), &taken), [(10, 12)]);
    }

    #[test]
    fn an_overlap_is_told_and_a_touch_is_not() {
        let mut told = Vec::new();
        assert_eq!(union_with_overlaps(&[(0, 5), (5, 9), (8, 12)], |at| told.push(at)), [(0, 12)]);
        assert_eq!(told, [8]);
    }
}
