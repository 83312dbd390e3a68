//! The tail: chunk indexes and tables, behind the data.

use super::header::{HeaderError, ReadAt, bytes, u64_at};
use super::tree::{self, Chunk, Shape};
use super::{ALIGN, Layout, Table};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;

const BLOCK: usize = 1 << 20;

/// How much a tail must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Rows of shots.
    pub rows: u64,
    /// Rows of `/losses`.
    pub losses: u64,
    /// Rows of `/books`.
    pub books: u64,
}

const TABLE: usize = 1;
const DATA: usize = 3;

fn shape(layout: &Layout, rank: usize) -> Shape {
    Shape { rank, k: layout.chunk_k }
}

fn tables(layout: &mut Layout) -> impl Iterator<Item = &mut Table> {
    layout.shots.iter_mut().chain([&mut layout.losses, &mut layout.books])
}

fn capacity(layout: &Layout, index: usize, counts: Counts) -> u64 {
    match index.checked_sub(layout.shots.len()) {
        None => counts.rows,
        Some(0) => counts.losses,
        Some(_) => counts.books,
    }
}

/// Gives every table its place in a tail at `start` and returns the tail's end. The indexes come first.
pub(super) fn place(layout: &mut Layout, start: u64, counts: Counts) -> u64 {
    let mut at = start;
    for data in &layout.data {
        at += shape(layout, DATA).tree_bytes(counts.rows * data.links.len() as u64);
    }
    for index in 0..layout.shots.len() + 2 {
        let capacity = capacity(layout, index, counts);
        let shape = shape(layout, TABLE);
        let table = tables(layout).nth(index).expect("an index below the number of tables");
        let chunks = capacity.div_ceil(u64::from(table.chunk_rows));
        at += shape.tree_bytes(chunks);
        table.start = at.next_multiple_of(8);
        table.capacity = chunks * u64::from(table.chunk_rows);
        at = table.start + chunks * table.chunk_bytes();
    }
    layout.end = at.next_multiple_of(ALIGN);
    layout.end
}

/// Writes the indexes of a tail that was placed at `start`; returns their roots, in the order of [`place`].
/// The tables' rows are not touched.
pub(super) fn write(file: &File, layout: &Layout, start: u64, rows: u64) -> Result<Vec<u64>, Errno> {
    let mut roots = Vec::new();
    let mut out = Sequential { file, start, pending: Vec::with_capacity(2 * BLOCK) };
    for data in &layout.data {
        let (shape, links) = (shape(layout, DATA), data.links.clone());
        let chunks = (0..rows).flat_map(|row| {
            links.clone().map(move |link| Chunk {
                first: vec![row, 0, (link - data.links.start) as u64 * layout.channels[link]],
                address: layout.slot(row, link),
                bytes: layout.slots[link].1,
                filter_mask: 0,
            })
        });
        let at = out.at();
        roots.push(tree::write(shape, at, rows * links.len() as u64, chunks, |node| out.push(node))?);
    }
    for table in layout.shots.iter().chain([&layout.losses, &layout.books]) {
        let chunks = table.capacity / u64::from(table.chunk_rows);
        let entries = (0..chunks).map(|chunk| Chunk {
            first: vec![chunk * u64::from(table.chunk_rows)],
            address: table.start + chunk * table.chunk_bytes(),
            bytes: table.chunk_bytes() as u32,
            filter_mask: 0,
        });
        let at = out.at();
        roots.push(tree::write(shape(layout, TABLE), at, chunks, entries, |node| out.push(node))?);
        out.flush()?;
        out.start = table.start + chunks * table.chunk_bytes();
    }
    Ok(roots)
}

/// Points the datasets to the roots of their indexes, and the superblock to the end of the file.
pub(super) fn point(file: &File, layout: &Layout, roots: &[u64]) -> Result<(), Errno> {
    let tables = layout.shots.iter().chain([&layout.losses, &layout.books]).map(|table| table.marks);
    for (marks, root) in layout.data.iter().map(|data| data.marks).chain(tables).zip(roots) {
        write_all(file, marks.tree_at, &root.to_le_bytes())?;
    }
    write_all(file, layout.end_at, &layout.end.to_le_bytes())
}

/// What a recording holds when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents<'a> {
    /// Rows of shots; those of the tables are in the file.
    pub rows: u64,
    /// The rows of `/losses`.
    pub losses: &'a [u8],
    /// The rows of `/books`.
    pub books: &'a [u8],
}

/// Ends a recording: enters losses and books, and sheds the slots that no row needs. A reader may look at
/// any moment, and the program may be killed at any: the old tail stands until nothing points to it.
///
/// If the file cannot be cut (a full disk where writing into allocated space takes new space), everything is
/// entered nevertheless, and the reason comes back.
pub(crate) fn finish(file: &File, layout: &mut Layout, contents: Contents<'_>) -> Result<Option<Errno>, Errno> {
    let counts = Counts {
        rows: contents.rows,
        losses: contents.losses.len() as u64 / u64::from(layout.losses.row_bytes),
        books: contents.books.len() as u64 / u64::from(layout.books.row_bytes),
    };
    let fits = |layout: &Layout| counts.losses <= layout.losses.capacity && counts.books <= layout.books.capacity;
    if counts.rows == layout.rows && fits(layout) {
        return enter(file, layout, contents, counts).map(|()| None);
    }
    match shed(file, layout, contents, counts) {
        Ok(()) => Ok(None),
        Err(errno) if fits(layout) => enter(file, layout, contents, counts).map(|()| Some(errno)),
        Err(errno) => Err(errno),
    }
}

fn shed(file: &File, layout: &mut Layout, contents: Contents<'_>, counts: Counts) -> Result<(), Errno> {
    let old_start = layout.data_end(layout.rows);
    let new_start = layout.data_end(counts.rows);
    if place(&mut layout.clone(), new_start, counts) > old_start {
        // The new tail would lie over the old one: make way for it first.
        move_tail(file, layout, layout.end, contents, counts)?;
    }
    move_tail(file, layout, new_start, contents, counts)?;
    rustix::fs::ftruncate(file, layout.end)?;
    rustix::fs::fsync(file)
}

fn move_tail(
    file: &File,
    layout: &mut Layout,
    start: u64,
    contents: Contents<'_>,
    counts: Counts,
) -> Result<(), Errno> {
    let mut moved = layout.clone();
    place(&mut moved, start, counts);
    if file.metadata().is_ok_and(|m| m.len() < moved.end) {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, moved.end)
            .or_else(|_| rustix::fs::ftruncate(file, moved.end))?;
    }
    let roots = write(file, &moved, start, counts.rows)?;
    for (from, to) in layout.shots.iter().zip(&moved.shots) {
        copy(file, from.start, to.start, counts.rows * u64::from(from.row_bytes))?;
    }
    enter(file, &moved, contents, counts)?;
    point(file, &moved, &roots)?;
    rustix::fs::fdatasync(file)?;
    moved.rows = counts.rows;
    *layout = moved;
    Ok(())
}

/// Writes losses and books to their places, then the markers of every table.
fn enter(file: &File, layout: &Layout, contents: Contents<'_>, counts: Counts) -> Result<(), Errno> {
    write_all(file, layout.losses.start, contents.losses)?;
    write_all(file, layout.books.start, contents.books)?;
    rustix::fs::fdatasync(file)?;
    for table in &layout.shots {
        write_all(file, table.marks.extent_at, &counts.rows.to_le_bytes())?;
    }
    write_all(file, layout.losses.marks.extent_at, &counts.losses.to_le_bytes())?;
    write_all(file, layout.books.marks.extent_at, &counts.books.to_le_bytes())
}

/// Finds rows and places by walking the indexes; refuses a file whose slots are not in a row.
pub(super) fn find(file: &(impl ReadAt + ?Sized), layout: &mut Layout) -> Result<(), HeaderError> {
    for index in 0..layout.data.len() {
        let data = layout.data[index].clone();
        let (mut count, mut links) = (0, data.links.clone().cycle());
        walk(file, layout, data.marks.tree_at, DATA, &mut |layout, chunk| {
            let Some(link) = links.next() else { return Ok(()) };
            let row = count / data.links.len() as u64;
            if count == 0 {
                layout.data_start = chunk.address.saturating_sub(layout.slots[link].0);
            }
            let column = (link - data.links.start) as u64 * layout.channels[link];
            let expected = (layout.slot(row, link), layout.slots[link].1, [row, 0, column]);
            if (chunk.address, chunk.bytes) != (expected.0, expected.1)
                || chunk.first != expected.2
                || chunk.filter_mask != 0
            {
                return Err(HeaderError::at(
                    chunk.address,
                    &format!("the slot of row {row} in {} bytes at {}", expected.1, expected.0),
                    &format!("{} bytes for {:?}: another program has rewritten this file", chunk.bytes, chunk.first),
                ));
            }
            count += 1;
            Ok(())
        })?;
        layout.rows = count / data.links.len() as u64;
    }
    for index in 0..layout.shots.len() + 2 {
        let table = *tables(layout).nth(index).expect("an index below the number of tables");
        let (mut start, mut chunks) = (0, 0);
        walk(file, layout, table.marks.tree_at, TABLE, &mut |_, chunk| {
            if chunks == 0 {
                start = chunk.address;
            }
            let expected = (start + chunks * table.chunk_bytes(), chunks * u64::from(table.chunk_rows));
            if (chunk.address, chunk.first[0]) != expected {
                return Err(HeaderError::at(expected.0, "a table's next chunk", &format!("it at {}", chunk.address)));
            }
            chunks += 1;
            Ok(())
        })?;
        let found = tables(layout).nth(index).expect("an index below the number of tables");
        (found.start, found.capacity) = (start, chunks * u64::from(table.chunk_rows));
    }
    Ok(())
}

fn walk(
    file: &(impl ReadAt + ?Sized),
    layout: &mut Layout,
    tree_at: u64,
    rank: usize,
    visit: &mut impl FnMut(&mut Layout, Chunk) -> Result<(), HeaderError>,
) -> Result<(), HeaderError> {
    let root = u64_at(&bytes(file, tree_at, 8)?, 0);
    let shape = shape(layout, rank);
    tree::walk(file, shape, root, &mut |chunk| visit(layout, chunk))
}

fn copy(file: &File, from: u64, to: u64, len: u64) -> Result<(), Errno> {
    let mut block = vec![0; BLOCK.min(len as usize)];
    let mut done = 0;
    while done < len {
        let count = (len - done).min(BLOCK as u64) as usize;
        if file.read_at(from + done, &mut block[..count]) < count {
            return Err(Errno::IO);
        }
        write_all(file, to + done, &block[..count])?;
        done += count as u64;
    }
    Ok(())
}

/// Writes all bytes at an offset.
pub(crate) fn write_all(file: &File, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                at += count as u64;
                bytes = &bytes[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gathers small pieces that stand one behind the other into large writes.
struct Sequential<'a> {
    file: &'a File,
    start: u64,
    pending: Vec<u8>,
}

impl Sequential<'_> {
    fn at(&self) -> u64 {
        self.start + self.pending.len() as u64
    }
    fn push(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= BLOCK { self.flush() } else { Ok(()) }
    }
    fn flush(&mut self) -> Result<(), Errno> {
        write_all(self.file, self.start, &self.pending)?;
        self.start = self.at();
        self.pending.clear();
        Ok(())
    }
}
