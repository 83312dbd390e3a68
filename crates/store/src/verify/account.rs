//! Checks that every shot number is accounted for and that the counters balance.

use super::mismatches::Mismatches;
use super::verdict::LinkVerdict;
use crate::StoreError;
use crate::read::{FinalCounters, Recording};
use crate::rows::{NO_NUMBER, State};
use crate::set::part_manager::REMOVED_SHOTS;
use crate::shot::Loss;
use crate::shot_ranges::{ShotRange, push, union, union_with_overlaps};
use std::path::Path;

pub(super) fn check(
    recording: &Recording,
    final_counters: Option<&FinalCounters>,
    all_losses: &[Loss],
    links: &[LinkVerdict],
    mismatches: &Mismatches,
) -> Result<(), StoreError> {
    for (index, link) in recording.run().links.iter().enumerate() {
        let (mut present, mut lost) = (Vec::new(), Vec::new());
        let mut first_link = recording.rows_of(0);
        for (row, entry) in recording.rows_of(index).enumerate() {
            let entry = entry?;
            let number = first_link.next().transpose()?.map(|first| first.number);
            if recording.run().by_stamp {
                if entry.number == NO_NUMBER && entry.state == State::Lost {
                    continue;
                }
            } else if number != Some(entry.number) {
                mismatches.add(|| format!("row {row}: shot {} on link {index}, {number:?} on link 0", entry.number));
            }
            push(if entry.state == State::Lost { &mut lost } else { &mut present }, entry.number);
        }
        let losses = all_losses.iter().filter(|loss| loss.stream == link.stream);
        let mut losses: Vec<ShotRange> =
            losses.map(|loss| (loss.first, loss.first.saturating_add(loss.count))).collect();
        if final_counters.is_none() {
            // The run continues or was interrupted: shots before a loss may not be visible, but all shots before a row
            // are.
            let end = present.last().max(lost.last()).map_or(0, |run| run.1);
            losses.iter_mut().for_each(|run| run.1 = run.1.min(end));
        }
        let removed = recording.removed();
        if removed.rows > 0 {
            // Rows removed by a bounded run count as accounted for.
            let end = removed.last.saturating_add(1);
            losses.iter_mut().for_each(|run| run.0 = run.0.max(end));
            losses.push((removed.first.min(end), end));
        }
        let whole = !recording.is_stripe();
        check_numbers(link.stream, &present, &lost, &losses, whole, mismatches);
    }
    for loss in all_losses {
        if !recording.run().links.iter().any(|link| link.stream == loss.stream) {
            mismatches.add(|| format!("/losses has entries for stream {}, which is not in the recording", loss.stream));
        }
    }
    if let Some(final_counters) = final_counters {
        check_counters(recording.rows(), final_counters, links, mismatches);
    }
    recording.part_paths().iter().try_for_each(|path| check_part(path, mismatches))
}

/// Checks the counters of one file of a run against its rows.
fn check_part(path: &Path, mismatches: &Mismatches) -> Result<(), StoreError> {
    let recording = Recording::open(path)?;
    let Some(final_counters) = recording.final_counters()? else { return Ok(()) };
    let mut counts = [0; State::ALL.len()];
    for link in 0..recording.run().links.len() {
        for row in recording.rows_of(link) {
            counts[row?.state as usize] += 1;
        }
    }
    let mut expected = vec![("rows".to_owned(), recording.rows())];
    expected.extend(State::ALL.map(|state| (format!("rows_{}", state.name()), counts[state as usize])));
    for (name, count) in expected {
        let found = final_counters.totals.get(&name).copied();
        if found != Some(count) {
            mismatches
                .add(|| format!("the counters of {} have {name} = {found:?}, its tables {count}", path.display()));
        }
    }
    Ok(())
}

/// Checks that each number from the first to the last is in exactly one row or loss. A lost row may also be in a loss,
/// which gives the cause.
///
/// Gaps are checked only in a `whole` recording: the shot numbers between the rows of a stripe are in other files.
fn check_numbers(
    stream: u32,
    present: &[ShotRange],
    lost: &[ShotRange],
    losses: &[ShotRange],
    whole: bool,
    mismatches: &Mismatches,
) {
    let rows = union_with_overlaps(&[present, lost].concat(), |at| {
        mismatches.add(|| format!("stream {stream}: shot {at} is in two rows"));
    });
    let losses =
        union_with_overlaps(losses, |at| mismatches.add(|| format!("stream {stream}: shot {at} is in /losses twice")));
    union_with_overlaps(&[present, &losses].concat(), |at| {
        mismatches.add(|| format!("stream {stream}: shot {at} is in a row with data, and in /losses"));
    });
    let all = union(&[rows, losses].concat());
    for pair in all.windows(2).filter(|_| whole) {
        let ((_, end), (next, _)) = (pair[0], pair[1]);
        mismatches.add(|| format!("stream {stream}: shots {end} to {} are neither in a row nor in /losses", next - 1));
    }
}

fn check_counters(rows: u64, final_counters: &FinalCounters, links: &[LinkVerdict], mismatches: &Mismatches) {
    for stream in &final_counters.counters.streams {
        if !stream.is_balanced() {
            mismatches
                .add(|| format!("the counters of stream {} do not balance: {:?}", stream.stream, stream.entries()));
        }
        let Some(link) = links.iter().find(|link| link.stream == stream.stream) else { continue };
        let removed = stream.more.iter().filter(|(name, _)| name == REMOVED_SHOTS).map(|(_, count)| count).sum::<u64>();
        let (delivered, recorded) =
            (stream.shots_complete + stream.shots_partial, link.complete + link.partial + link.sink_error + removed);
        if delivered != recorded {
            mismatches.add(|| {
                format!(
                    "stream {}: the counters have {delivered} shots passed to the recorder, the rows {recorded}",
                    stream.stream
                )
            });
        }
    }
    let sum = |count: fn(&LinkVerdict) -> u64| links.iter().map(count).sum::<u64>();
    let expected = [
        ("rows", rows),
        ("rows_complete", sum(|link| link.complete)),
        ("rows_partial", sum(|link| link.partial)),
        ("rows_lost", sum(|link| link.lost)),
    ];
    for (name, count) in expected {
        let found = final_counters.totals.get(name).copied();
        if found != Some(count) {
            mismatches.add(|| format!("the counters have {name} = {found:?}, the tables {count}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(present: &[ShotRange], lost: &[ShotRange], losses: &[ShotRange]) -> Vec<String> {
        let mismatches = Mismatches::default();
        check_numbers(7, present, lost, losses, true, &mismatches);
        mismatches.described.into_inner().unwrap()
    }

    #[test]
    fn adjacent_rows_and_losses_account_for_all_numbers() {
        assert_eq!(described(&[(10, 20), (25, 30)], &[(20, 22)], &[(21, 25), (30, 40)]), Vec::<String>::new());
    }

    #[test]
    fn missing_and_duplicate_numbers_are_found() {
        let gap = described(&[(10, 20), (25, 30)], &[], &[(20, 24)]);
        assert_eq!(gap, ["stream 7: shots 24 to 24 are neither in a row nor in /losses"]);
        assert_eq!(described(&[(10, 20)], &[(19, 20)], &[]), ["stream 7: shot 19 is in two rows"]);
        assert_eq!(
            described(&[(10, 20)], &[], &[(15, 20)]),
            ["stream 7: shot 15 is in a row with data, and in /losses"]
        );
        assert_eq!(described(&[], &[], &[(1, 3), (2, 4)]), ["stream 7: shot 2 is in /losses twice"]);
    }
}
