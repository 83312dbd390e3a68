//! Assigns a shot number to every row, and accounts for every number in a row or as a loss.

use super::examine::{ExaminedShot, ShotState};
use super::recovered::Recovered;
use crate::info::RunInfo;
use crate::inspect::LossSummary;
use crate::layout::Layout;
use crate::rows::{Row, RowFormat, State};
use crate::shot::Loss;
use crate::shot_ranges::{ShotRange, minus, push, union};
use shotline_wire::shot::{DropCause, Geometry, MAX_SHOTS};
use std::ops::Range;

/// Shot numbers in the other files of a run, for the recovery of one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SiblingFiles<'a> {
    /// Numbers accounted for by files on other drives.
    pub taken: &'a [ShotRange],
    /// Number after the last one of the previous part.
    pub min_number: Option<u64>,
    /// Numbers that no file accounts for are not recorded as losses of this file: another file records them, or they
    /// may be in a file that is missing.
    pub skip_gaps: bool,
}

/// Changes to one link's shot of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowChange {
    pub row: u64,
    pub link: usize,
    /// New table row.
    pub table_row: Option<Vec<u8>>,
    /// Range of its slot that must be zeroed.
    pub zero: Option<Range<u32>>,
}

/// Result of the accounting: what recovery must write.
#[derive(Debug)]
pub(super) struct RecoveryPlan {
    pub recovered: Recovered,
    pub changes: Vec<RowChange>,
    pub losses: Vec<Loss>,
    pub losses_changed: bool,
}

/// Accounting of rows, which must be added in order.
#[derive(Debug)]
pub(super) struct Accounting {
    streams: Vec<u32>,
    formats: Vec<RowFormat>,
    geometries: Vec<Geometry>,
    /// Numbers in the losses of any stream, or in other files of the run.
    claimed: Vec<ShotRange>,
    /// Numbers of rows so far that were read from a valid row or record.
    known: Vec<ShotRange>,
    /// Numbers of all rows so far.
    rows: Vec<ShotRange>,
    /// For each link, the numbers whose shots are in the file.
    present: Vec<Vec<ShotRange>>,
    /// Latest rows without a known number: row, visible, shots.
    holes: Vec<(u64, bool, Vec<ExaminedShot>)>,
    changes: Vec<RowChange>,
    /// Row after the last one with a number.
    next: u64,
    /// Lowest possible number: the one after the previous part.
    min_number: u64,
    recovered: Recovered,
}

impl Accounting {
    pub(super) fn new(run: &RunInfo, layout: &Layout, losses: &[Loss], siblings: SiblingFiles<'_>) -> Self {
        let claimed = losses.iter().map(|loss| (loss.first, loss.first.saturating_add(loss.count)));
        let claimed: Vec<ShotRange> = claimed.chain(siblings.taken.iter().copied()).collect();
        Self {
            streams: run.links.iter().map(|link| link.stream).collect(),
            formats: layout.formats.clone(),
            geometries: run.links.iter().map(|link| link.geometry).collect(),
            claimed: union(&claimed),
            known: Vec::new(),
            rows: Vec::new(),
            present: vec![Vec::new(); run.links.len()],
            holes: Vec::new(),
            changes: Vec::new(),
            next: 0,
            min_number: siblings.min_number.unwrap_or(0),
            recovered: Recovered::default(),
        }
    }

    fn last(&self) -> Option<u64> {
        self.rows.last().map(|range| range.1 - 1)
    }

    /// Adds the next row.
    pub(super) fn row(&mut self, row: u64, visible: bool, shots: Vec<ExaminedShot>) {
        let known = |state: &ShotState| match state {
            ShotState::Valid(entry) => Some(entry.number),
            ShotState::Rebuilt(number, _) => Some(*number),
            ShotState::Torn(_) | ShotState::Nothing => None,
        };
        let torn = |state: &ShotState| if let ShotState::Torn(number) = state { *number } else { None };
        let valid_number = shots.iter().find_map(|shot| known(&shot.state));
        let number = valid_number.or_else(|| shots.iter().find_map(|shot| torn(&shot.state)));
        // Rows that were not visible must continue after the other rows.
        let after = self.last().map_or(0, |last| last + 1) + self.holes.len() as u64;
        let number = number.filter(|number| visible || valid_number.is_some() && *number >= after);
        match number {
            Some(number) => {
                push(&mut self.known, number);
                self.fill_holes(number);
                self.assign(row, visible, number, shots);
            }
            None => self.holes.push((row, visible, shots)),
        }
    }

    /// Assigns numbers to rows without one that precede a row with number `before`, from those that no loss claims if
    /// there are enough.
    fn fill_holes(&mut self, before: u64) {
        let holes = std::mem::take(&mut self.holes);
        let numbers = match self.last() {
            Some(last) => first_numbers((last + 1, before), holes.len(), &self.claimed),
            None => last_numbers((self.min_number.min(before), before), holes.len(), &self.claimed),
        };
        for ((row, visible, shots), number) in holes.into_iter().zip(numbers) {
            self.assign(row, visible, number, shots);
        }
    }

    /// Assigns a number to a row, and makes each shot that does not have it a lost one.
    fn assign(&mut self, row: u64, visible: bool, number: u64, shots: Vec<ExaminedShot>) {
        for (link, shot) in shots.into_iter().enumerate() {
            let (table_row, zero) = match shot.state {
                ShotState::Valid(entry) if entry.number == number => {
                    self.keep(link, &entry);
                    (None, shot.zero)
                }
                ShotState::Rebuilt(own, bytes) if own == number => {
                    self.recovered.complete += 1;
                    self.recovered.rebuilt += 1;
                    push(&mut self.present[link], number);
                    (Some(bytes), shot.zero)
                }
                // The slot holds no shot with this row's number.
                state => {
                    let all = 0..self.geometries[link].slot_bytes();
                    let zero = if matches!(state, ShotState::Torn(_)) { shot.zero } else { Some(all) };
                    self.count_incomplete(link, number, State::Lost, DropCause::PowerCut);
                    (Some(self.lost_row(link, number)), zero)
                }
            };
            if table_row.is_some() || zero.is_some() {
                self.changes.push(RowChange { row, link, table_row, zero });
            }
        }
        push(&mut self.rows, number);
        self.recovered.adopted += u64::from(!visible);
        self.next = row + 1;
    }

    /// Counts a row that stays unchanged.
    fn keep(&mut self, link: usize, entry: &Row) {
        if has_shot(entry.state) {
            push(&mut self.present[link], entry.number);
        }
        if entry.state == State::Complete {
            self.recovered.complete += 1;
            return;
        }
        let dominant = DropCause::ALL.into_iter().zip(entry.drops).max_by_key(|(_, count)| *count);
        let cause = dominant.filter(|(_, count)| *count > 0).map_or(DropCause::WireGap, |(cause, _)| cause);
        self.count_incomplete(link, entry.number, entry.state, cause);
    }

    /// Counts a shot that is not complete.
    fn count_incomplete(&mut self, link: usize, number: u64, state: State, cause: DropCause) {
        match state {
            State::Lost => self.recovered.lost += 1,
            _ => self.recovered.partial += 1,
        }
        push_summary(&mut self.recovered.incomplete, self.streams[link], cause, number, 1);
    }

    fn lost_row(&self, link: usize, number: u64) -> Vec<u8> {
        let format = self.formats[link];
        let mut bytes = Vec::with_capacity(format.bytes());
        format.push_lost(number, &mut bytes);
        format.mark_lost(&mut bytes, format.recordable_cause(DropCause::PowerCut));
        bytes
    }

    /// Computes `/losses`: the valid parts of the old entries, and the numbers that are in no row.
    pub(super) fn end(mut self, run: &RunInfo, old: Vec<Loss>, siblings: SiblingFiles<'_>) -> RecoveryPlan {
        // Rows at the end without a number are discarded, visible or not.
        for (row, _, shots) in std::mem::take(&mut self.holes) {
            for (link, shot) in shots.into_iter().enumerate().filter(|(_, shot)| shot.zero.is_some()) {
                self.changes.push(RowChange { row, link, table_row: None, zero: shot.zero });
            }
        }
        self.recovered.rows = self.next;
        let rows = union(&self.rows);
        let all = union(&[&rows, siblings.taken].concat());
        let whole = match (all.first(), all.last()) {
            (Some(first), Some(last)) if !siblings.skip_gaps => {
                (siblings.min_number.map_or(first.0, |min_number| min_number.min(first.0)), last.1)
            }
            _ => (0, 0),
        };
        let mut losses: Vec<Loss> = Vec::new();
        for (link, stream) in run.links.iter().map(|link| link.stream).enumerate() {
            // Numbers of shots in the file, and of earlier entries.
            let mut accounted = union(&self.present[link]);
            for loss in old.iter().filter(|loss| loss.stream == stream && loss.first < MAX_SHOTS) {
                let entry = (loss.first, loss.first.saturating_add(loss.count).min(MAX_SHOTS));
                for (first, end) in minus(entry, &accounted) {
                    losses.push(Loss { first, count: end - first, ..*loss });
                }
                accounted = union(&[accounted, vec![entry]].concat());
            }
            let all_accounted = union(&[&accounted[..], &rows, siblings.taken].concat());
            for (first, end) in minus(whole, &all_accounted) {
                let cause = self.formats[link].recordable_cause(DropCause::PowerCut);
                losses.push(Loss { stream, cause, first, count: end - first });
            }
        }
        losses.sort_by_key(|loss| (loss.first, loss.stream));
        for loss in losses.iter().filter(|loss| loss.cause != DropCause::NotData) {
            // Lost rows are counted already.
            for (first, end) in minus((loss.first, loss.first + loss.count), &rows) {
                push_summary(&mut self.recovered.incomplete, loss.stream, loss.cause, first, end - first);
            }
        }
        self.recovered.incomplete.sort_by_key(|entry| (entry.first, entry.stream));
        let certain = losses.iter().map(|loss| (loss.first, loss.first + loss.count));
        self.recovered.numbers = union(&certain.chain(self.known).collect::<Vec<_>>());
        let mut before = old;
        before.sort_by_key(|loss| (loss.first, loss.stream));
        let losses_changed = before != losses;
        RecoveryPlan { recovered: self.recovered, changes: self.changes, losses, losses_changed }
    }
}

/// Appends an entry, or extends the last one of the same stream and cause if it is adjacent.
fn push_summary(summaries: &mut Vec<LossSummary>, stream: u32, cause: DropCause, first: u64, count: u64) {
    let same = |entry: &&mut LossSummary| (entry.stream, entry.cause) == (stream, cause.name());
    match summaries.iter_mut().rev().take(16).find(same) {
        Some(entry) if entry.first + entry.count == first => entry.count += count,
        _ => summaries.push(LossSummary { stream, cause: cause.name(), first, count }),
    }
}

/// Returns the lowest `count` unclaimed numbers of a range; the lowest of all if there are too few.
fn first_numbers(range: ShotRange, count: usize, claimed: &[ShotRange]) -> Vec<u64> {
    let free: Vec<u64> = minus(range, claimed).into_iter().flat_map(|range| range.0..range.1).take(count).collect();
    if free.len() == count { free } else { (range.0..).take(count).collect() }
}

/// Returns the highest `count` unclaimed numbers of a range, ascending; the highest of all if there are too few.
fn last_numbers(range: ShotRange, count: usize, claimed: &[ShotRange]) -> Vec<u64> {
    let free = minus(range, claimed).into_iter().rev().flat_map(|range| (range.0..range.1).rev());
    let mut last: Vec<u64> = free.take(count).collect();
    last.reverse();
    if last.len() == count { last } else { (range.1.saturating_sub(count as u64)..).take(count).collect() }
}

/// Returns `true` if a shot of this state is in the file.
fn has_shot(state: State) -> bool {
    state != State::Lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_number_get_unclaimed_numbers() {
        assert_eq!(first_numbers((5, 10), 2, &[(5, 7)]), [7, 8]);
        assert_eq!(last_numbers((0, 10), 2, &[(8, 9)]), [7, 9]);
    }

    #[test]
    fn first_rows_get_no_numbers_of_the_previous_part() {
        // Part 6 begins at 24, its second row is shot 25, and a stream has lost shot 24.
        assert_eq!(last_numbers((24, 25), 1, &[(24, 25)]), [24]);
        assert_eq!(last_numbers((20, 25), 3, &[(20, 24)]), [22, 23, 24]);
    }
}
