//! Consistent reads while a recorder ends a run, which moves indexes and tables and releases their old space.
//!
//! The recorder overwrites old space only after every dataset points elsewhere. So if all pointers are the same before
//! and after a read, the read returned what was written.

use super::structure::Layout;
use super::tail;
use crate::StoreError;
use crate::metadata::header::{bytes, u64_at};
use crate::positioned::ReadAt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of attempts. The end of a run moves everything at most twice, and so does a recovery.
const MAX_ATTEMPTS: usize = 8;

/// Reads the current roots of the indexes and the end of the file.
fn pointers(file: &(impl ReadAt + ?Sized), layout: &Layout, path: &Path) -> Result<(Vec<u64>, u64), StoreError> {
    let read_u64 = |at| bytes(file, at, 8).map(|bytes| u64_at(&bytes, 0));
    let roots = layout.indexes().map(|header| read_u64(header.tree_at)).collect::<Result<_, _>>();
    let both = roots.and_then(|roots| Ok((roots, read_u64(layout.end_at)?)));
    both.map_err(|error| StoreError::format(path, error.to_string()))
}

/// Returns `true` if the pointers in the file are still those of the layout.
fn is_current(file: &(impl ReadAt + ?Sized), layout: &Layout, path: &Path) -> Result<bool, StoreError> {
    let (roots, end) = pointers(file, layout, path)?;
    Ok(roots == layout.roots && end == layout.end)
}

/// Finds row counts and offsets, discarding those that the layout already has.
pub(super) fn find(file: &(impl ReadAt + ?Sized), layout: &mut Layout, path: &Path) -> Result<(), StoreError> {
    let mut attempts = 0;
    loop {
        let mut found = Layout { rows: 0, common_rows: 0, ..layout.clone() };
        (found.roots, found.end) = pointers(file, layout, path)?;
        found.data.iter_mut().for_each(|data| data.leaves = 0);
        for table in found.shots.iter_mut().chain([&mut found.losses, &mut found.counters]) {
            (table.start, table.capacity) = (0, 0);
        }
        let outcome = tail::find(file, &mut found).map_err(|error| StoreError::format(path, error.to_string()));
        attempts += 1;
        if attempts == MAX_ATTEMPTS || is_current(file, &found, path)? {
            *layout = found;
            return outcome;
        }
    }
}

/// Reads with a layout; locates the datasets again and retries if they have moved during the read.
pub(crate) fn read_consistently<T>(
    file: &(impl ReadAt + ?Sized),
    layout: &RwLock<Arc<Layout>>,
    path: &Path,
    read: impl Fn(&Layout) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut attempts = 0;
    loop {
        let current = Arc::clone(&layout.read().unwrap_or_else(PoisonError::into_inner));
        let outcome = read(&current);
        attempts += 1;
        if attempts == MAX_ATTEMPTS || is_current(file, &current, path)? {
            return outcome;
        }
        let mut moved = Layout::clone(&current);
        find(file, &mut moved, path)?;
        *layout.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::{LinkInfo, RunInfo};
    use crate::layout::{self, Contents, CreateOptions, Opened, create, finish};
    use crate::rows::LOSS_BYTES;
    use shotline_wire::shot::{Geometry, Packing};
    use std::cell::{Cell, RefCell};

    const ROWS: u64 = 300;
    const WRITTEN_ROWS: u64 = 7;

    /// A file whose recorder ends the run before the n-th read.
    struct Ending {
        opened: RefCell<Opened>,
        losses: usize,
        /// Number of reads before the run ends.
        left: Cell<usize>,
    }

    impl Ending {
        fn end(&self) {
            let Opened { file, layout, .. } = &mut *self.opened.borrow_mut();
            let losses = vec![3; self.losses * LOSS_BYTES];
            let counters = vec![5; layout.counters.row_bytes as usize];
            let data_end = layout.data_end(WRITTEN_ROWS);
            let contents = Contents { rows: WRITTEN_ROWS, losses: &losses, counters: &counters, data_end };
            assert_eq!(finish(file, layout, contents), Ok(None));
        }
    }

    impl ReadAt for Ending {
        fn read_at(&self, offset: u64, to: &mut [u8]) -> usize {
            if self.left.replace(self.left.get().wrapping_sub(1)) == 0 {
                self.end();
            }
            self.opened.borrow().file.read_at(offset, to)
        }
    }

    fn running(folder: &Path, losses: usize) -> Ending {
        let g = Geometry::new(2, 8, 12, Packing::Packed12, 0).unwrap();
        let link = |stream| LinkInfo { name: String::new(), stream, geometry: g };
        let options = CreateOptions { rows: ROWS, overwrite: true, ..CreateOptions::default() };
        let opened = create(&folder.join("a.h5"), &RunInfo::new(vec![link(0), link(1)]), options).unwrap();
        for table in &opened.layout.shots {
            let rows: Vec<u8> = (0..WRITTEN_ROWS).flat_map(|row| vec![row as u8; table.row_bytes as usize]).collect();
            opened.file.write_all(table.row_offset(0), &rows).unwrap();
        }
        Ending { opened: RefCell::new(opened), losses, left: Cell::new(usize::MAX) }
    }

    /// Locates the datasets again.
    fn found(file: &Ending) -> Layout {
        let Opened { file, layout, path, .. } = &*file.opened.borrow();
        let mut layout = layout.clone();
        find(file, &mut layout, path).unwrap();
        layout
    }

    #[test]
    fn read_during_the_end_of_a_run_is_consistent() {
        let folder = tempfile::tempdir().unwrap();
        let path = Path::new("a.h5");
        // With more losses than the table holds, everything moves twice.
        for losses in [0, 2, 9000] {
            for reads in 0.. {
                let file = running(folder.path(), losses);
                let layout = RwLock::new(Arc::new(file.opened.borrow().layout.clone()));
                file.left.set(reads);
                let read = || {
                    read_consistently(&file, &layout, path, |layout| {
                        layout::table_rows(&file, layout.shots[1], 0..WRITTEN_ROWS, path)
                    })
                };
                let rows = read().unwrap();
                let each = rows.len() / WRITTEN_ROWS as usize;
                assert!(rows.chunks(each).enumerate().all(|(row, bytes)| bytes.iter().all(|b| usize::from(*b) == row)));
                let reached = file.left.get() > reads;
                if !reached {
                    // The run ends before the next read.
                    file.end();
                }
                assert_eq!(read().unwrap(), rows, "{losses} losses, ended at read {reads}");
                assert_eq!(**layout.read().unwrap(), found(&file));
                let all = |table: fn(&Layout) -> layout::Table| {
                    read_consistently(&file, &layout, path, |layout| layout::table_bytes(&file, table(layout), path))
                        .unwrap()
                };
                assert_eq!(all(|layout| layout.counters), vec![5; all(|layout| layout.counters).len()]);
                assert_eq!(all(|layout| layout.losses), vec![3; losses * LOSS_BYTES]);
                if !reached {
                    break;
                }
            }
        }
    }

    #[test]
    fn open_during_the_end_of_a_run_finds_one_layout() {
        let folder = tempfile::tempdir().unwrap();
        for losses in [2, 9000] {
            for reads in 0.. {
                let file = running(folder.path(), losses);
                let before = found(&file);
                let mut layout = before.clone();
                file.left.set(reads);
                find(&file, &mut layout, Path::new("a.h5")).unwrap();
                assert!(layout == before || layout == found(&file), "{losses} losses, ended at read {reads}");
                if file.left.get() <= reads {
                    break;
                }
            }
        }
    }
}
