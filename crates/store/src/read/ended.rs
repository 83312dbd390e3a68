//! What was written when a run ended.

use crate::recorder::WHOLE_RUN;
use crate::rows::{self, BOOK_BYTES};
use crate::shot::{Books, StreamBooks};
use std::collections::BTreeMap;

/// What was written when the run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The books of each stream.
    pub books: Books,
    /// Counts of the whole run, by name.
    pub totals: BTreeMap<String, u64>,
}

/// What the rows of `/books` say; none if there are none.
pub(super) fn ended(entries: &[u8]) -> Option<Ended> {
    let (mut streams, mut totals) = (BTreeMap::<u32, StreamBooks>::new(), BTreeMap::new());
    for (stream, name, value) in entries.chunks_exact(BOOK_BYTES).filter_map(rows::parse_book) {
        if stream == WHOLE_RUN {
            totals.insert(name, value);
        } else {
            let books = streams.entry(stream).or_insert_with(|| StreamBooks { stream, ..StreamBooks::default() });
            books.enter(&name, value);
        }
    }
    let books = Books { streams: streams.into_values().collect() };
    (!entries.is_empty()).then_some(Ended { books, totals })
}
