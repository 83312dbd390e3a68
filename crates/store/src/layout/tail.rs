//! The tail of a file: chunk indexes and tables, after the data.

use super::block_tables::BlockTable;
use super::chunks::{self, StoredChunk};
use super::datasets::{Data, Table};
use super::structure::{ALIGN, Layout};
use crate::medium::Medium;
use crate::metadata::header::{HeaderError, bytes, u64_at};
use crate::metadata::tree::{self, Chunk, Shape};
use crate::positioned::ReadAt;
use rustix::io::Errno;
use shotline_wire::block;

/// Bytes per write when copying or zeroing.
const BLOCK_BYTES: usize = 1 << 20;

/// Number of rows that a tail must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// Rows of shots.
    pub rows: u64,
    /// Rows of `/losses`.
    pub losses: u64,
    /// Rows of `/counters`.
    pub counters: u64,
}

/// Number of dimensions of a table.
const TABLE_RANK: usize = 1;
/// Number of dimensions of a sample dataset.
const DATA_RANK: usize = 3;

fn shape(layout: &Layout, rank: usize) -> Shape {
    Shape { rank, k: layout.chunk_k }
}

fn tables(layout: &mut Layout) -> impl Iterator<Item = &mut Table> {
    layout.shots.iter_mut().chain([&mut layout.losses, &mut layout.counters])
}

fn capacity(layout: &Layout, index: usize, counts: RowCounts) -> u64 {
    match index.checked_sub(layout.shots.len()) {
        None => counts.rows,
        Some(0) => counts.losses,
        Some(_) => counts.counters,
    }
}

/// Assigns the offset of every table in a tail at `start` and returns the end of the tail. The indexes come first.
pub(super) fn assign_offsets(layout: &mut Layout, start: u64, counts: RowCounts) -> u64 {
    let (mut at, data_shape) = (start, layout.data_shape());
    for data in &mut layout.data {
        data.leaves = at;
        at += data_shape.tree_bytes(counts.rows * data.links.len() as u64);
    }
    at += layout.block_tables.len() as u64 * layout.block_table_shape().tree_bytes(counts.rows);
    for index in 0..layout.shots.len() + 2 {
        let capacity = capacity(layout, index, counts);
        let shape = shape(layout, TABLE_RANK);
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

/// Writes the indexes of a tail whose offsets were assigned from `start` on; returns their roots, in the order of
/// [`assign_offsets`]. The rows of the tables are not written. The entries of a compressed run are copied from the
/// existing tail `from`; without one they refer to the slot of zeros.
pub(super) fn write(
    file: &Medium,
    layout: &Layout,
    from: Option<&Layout>,
    start: u64,
    rows: u64,
) -> Result<Vec<u64>, Errno> {
    let mut roots = Vec::new();
    let mut out = Sequential { file, start, pending: Vec::with_capacity(2 * BLOCK_BYTES) };
    for (index, data) in layout.data.iter().enumerate() {
        let (shape, at, count) = (layout.data_shape(), out.at(), rows * data.links.len() as u64);
        if let (Some(from), Some(_)) = (from, layout.codec) {
            let mut entries = chunks::Entries::new(file, from, &from.data[index], rows);
            roots.push(tree::write(shape, at, count, &mut entries, |node| out.push(node))?);
            entries.failed.map_or(Ok(()), Err)?;
            continue;
        }
        let stored = |row, link: usize| match layout.codec {
            Some(_) => layout.zeros(link),
            None => StoredChunk { offset: layout.slot(row, link), bytes: layout.slots[link].1, compressed: false },
        };
        let entries = (0..rows)
            .flat_map(|row| data.links.clone().map(move |link| layout.entry(data, row, link, stored(row, link))));
        roots.push(tree::write(shape, at, count, entries, |node| out.push(node))?);
    }
    for table in &layout.block_tables {
        let entries = (0..rows).map(|row| layout.block_table_entry(table, row));
        let at = out.at();
        roots.push(tree::write(layout.block_table_shape(), at, rows, entries, |node| out.push(node))?);
    }
    for table in layout.shots.iter().chain([&layout.losses, &layout.counters]) {
        let chunks = table.capacity / u64::from(table.chunk_rows);
        let entries = (0..chunks).map(|chunk| Chunk {
            first: [chunk * u64::from(table.chunk_rows), 0, 0],
            address: table.start + chunk * table.chunk_bytes(),
            bytes: table.chunk_bytes() as u32,
            filter_mask: 0,
        });
        let at = out.at();
        roots.push(tree::write(shape(layout, TABLE_RANK), at, chunks, entries, |node| out.push(node))?);
        out.flush()?;
        out.start = table.start + chunks * table.chunk_bytes();
    }
    Ok(roots)
}

/// Zeroes the rows of every table, so that reused blocks keep no rows of the previous file.
pub(super) fn clear_tables(file: &Medium, layout: &Layout) -> Result<(), Errno> {
    let zeros = vec![0; BLOCK_BYTES];
    layout.shots.iter().chain([&layout.losses, &layout.counters]).try_for_each(|table| clear(file, table, 0, &zeros))
}

/// Zeroes the rows of a table from row `from` on.
fn clear(file: &Medium, table: &Table, from: u64, zeros: &[u8]) -> Result<(), Errno> {
    let (mut at, end) = (table.row_offset(from), table.row_offset(table.capacity));
    while at < end {
        let count = zeros.len().min((end - at) as usize);
        file.write_all(at, &zeros[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// Writes the root addresses of the indexes into the object headers.
pub(super) fn write_roots(file: &Medium, layout: &Layout) -> Result<(), Errno> {
    for (header, root) in layout.indexes().zip(&layout.roots) {
        file.write_all(header.tree_at, &root.to_le_bytes())?;
    }
    Ok(())
}

/// Contents of a recording at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents<'a> {
    /// Number of rows of shots; the rows of their tables are in the file.
    pub rows: u64,
    /// Encoded rows of `/losses`.
    pub losses: &'a [u8],
    /// Encoded rows of `/counters`.
    pub counters: &'a [u8],
    /// End of the data: after the last slot, or the last chunk of a compressed run.
    pub data_end: u64,
}

/// Ends a recording: writes losses and counters, and releases unused slots. Concurrent readers and `kill -9` at any
/// moment are safe: the old tail stays intact until no dataset points to it.
///
/// If the file cannot be truncated (a full disk on a copy-on-write file system), losses and counters are written
/// nevertheless, and the error is returned as `Ok(Some(_))`.
pub(crate) fn finish(file: &Medium, layout: &mut Layout, contents: Contents<'_>) -> Result<Option<Errno>, Errno> {
    let counts = RowCounts {
        rows: contents.rows,
        losses: contents.losses.len() as u64 / u64::from(layout.losses.row_bytes),
        counters: contents.counters.len() as u64 / u64::from(layout.counters.row_bytes),
    };
    let fits = |layout: &Layout| counts.losses <= layout.losses.capacity && counts.counters <= layout.counters.capacity;
    if contents.data_end == layout.tail_start() && fits(layout) {
        write_in_place(file, layout, contents, counts)?;
        return Ok(truncate(file, layout).err());
    }
    // The markers are updated after the tail is moved, so a power cut may leave the old ones: the new tail must have
    // space for the rows that they show.
    let needed = |table: &Table, count: u64| Ok(count.max(visible(file, table)?.min(table.capacity)));
    let capacity = RowCounts {
        losses: needed(&layout.losses, counts.losses)?,
        counters: needed(&layout.counters, counts.counters)?,
        ..counts
    };
    match release_unused(file, layout, contents, capacity).and_then(|()| mark_and_truncate(file, layout, counts)) {
        Ok(()) => Ok(None),
        Err(errno) if fits(layout) => write_in_place(file, layout, contents, counts).map(|()| Some(errno)),
        Err(errno) => Err(errno),
    }
}

/// Returns the number of visible rows of a table.
fn visible(file: &Medium, table: &Table) -> Result<u64, Errno> {
    bytes(file, table.header.extent_at, 8).map(|extent| u64_at(&extent, 0)).map_err(|_| Errno::IO)
}

fn release_unused(
    file: &Medium,
    layout: &mut Layout,
    contents: Contents<'_>,
    capacity: RowCounts,
) -> Result<(), Errno> {
    let old_start = layout.tail_start();
    let new_start = contents.data_end;
    if assign_offsets(&mut layout.clone(), new_start, capacity) > old_start {
        // The new tail would overlap the old one, so the old one is first moved out of the way.
        move_tail(file, layout, layout.end, contents, capacity)?;
    }
    move_tail(file, layout, new_start, contents, capacity)
}

fn mark_and_truncate(file: &Medium, layout: &Layout, counts: RowCounts) -> Result<(), Errno> {
    mark(file, layout, counts)?;
    file.sync_data()?;
    truncate(file, layout)
}

/// Truncates a file to its end; nothing refers to the bytes after it.
pub(crate) fn truncate(file: &Medium, layout: &Layout) -> Result<(), Errno> {
    file.truncate(layout.end)
}

/// Writes a tail at `start` and points the datasets to it. The writes are ordered by flushes, so that after a power cut
/// all pointers refer to complete tails, and the end of the file is after everything they refer to.
fn move_tail(
    file: &Medium,
    layout: &mut Layout,
    start: u64,
    contents: Contents<'_>,
    capacity: RowCounts,
) -> Result<(), Errno> {
    let mut moved = layout.clone();
    assign_offsets(&mut moved, start, capacity);
    file.grow(moved.end)?;
    moved.roots = write(file, &moved, Some(layout), start, capacity.rows)?;
    let zeros = vec![0; BLOCK_BYTES];
    for (from, to) in layout.shots.iter().zip(&moved.shots) {
        copy(file, from.start, to.start, capacity.rows * u64::from(from.row_bytes))?;
        // This range held slots of the file, and may hold tables of an earlier part.
        clear(file, to, capacity.rows, &zeros)?;
    }
    clear(file, &moved.losses, 0, &zeros)?;
    clear(file, &moved.counters, 0, &zeros)?;
    file.write_all(moved.losses.start, contents.losses)?;
    file.write_all(moved.counters.start, contents.counters)?;
    file.sync_data()?;
    if moved.end > layout.end {
        file.write_all(moved.end_at, &moved.end.to_le_bytes())?;
        file.sync_data()?;
    }
    write_roots(file, &moved)?;
    file.sync_data()?;
    if moved.end < layout.end {
        file.write_all(moved.end_at, &moved.end.to_le_bytes())?;
        file.sync_data()?;
    }
    moved.rows = capacity.rows;
    *layout = moved;
    Ok(())
}

/// Writes losses and counters, then the markers of every table.
fn write_in_place(file: &Medium, layout: &Layout, contents: Contents<'_>, counts: RowCounts) -> Result<(), Errno> {
    file.write_all(layout.losses.start, contents.losses)?;
    file.write_all(layout.counters.start, contents.counters)?;
    file.sync_data()?;
    mark(file, layout, counts)
}

/// Writes the markers (current first dimension) of every table.
fn mark(file: &Medium, layout: &Layout, counts: RowCounts) -> Result<(), Errno> {
    for header in layout.row_headers() {
        file.write_all(header.extent_at, &counts.rows.to_le_bytes())?;
    }
    file.write_all(layout.losses.header.extent_at, &counts.losses.to_le_bytes())?;
    file.write_all(layout.counters.header.extent_at, &counts.counters.to_le_bytes())
}

/// Finds row counts and offsets from the first and last chunk of each index, which must be where a layout puts them.
/// The number of reads does not depend on the number of rows; [`check`] checks every chunk.
pub(super) fn find(file: &(impl ReadAt + ?Sized), layout: &mut Layout) -> Result<(), HeaderError> {
    let mut common = u64::MAX;
    let roots = layout.roots.clone();
    let (data_roots, rest) = roots.split_at(layout.data.len());
    let (block_table_roots, table_roots) = rest.split_at(layout.block_tables.len());
    for (index, root) in data_roots.iter().enumerate() {
        let data = layout.data[index].clone();
        let ends = tree::ends(file, shape(layout, DATA_RANK), *root)?;
        let Some([(leaves, first), (last_leaf, last)]) = ends else {
            continue;
        };
        layout.data[index].leaves = leaves;
        layout.rows = last.first[0].saturating_add(1);
        common = common.min(layout.rows);
        let end = data.links.end - 1;
        if layout.codec.is_some() {
            expect_leaf(layout, index, last_leaf)?;
            expect_first(layout, &data, 0, data.links.start, &first)?;
            expect_first(layout, &data, layout.rows - 1, end, &last)?;
            continue;
        }
        layout.data_start = first.address.saturating_sub(layout.slots[data.links.start].0);
        expect_slot(layout, &data, 0, data.links.start, &first)?;
        expect_slot(layout, &data, layout.rows - 1, end, &last)?;
    }
    for (index, root) in table_roots.iter().enumerate() {
        let table = *tables(layout).nth(index).expect("an index below the number of tables");
        let ends = tree::ends(file, shape(layout, TABLE_RANK), *root)?;
        let Some([(_, first), (_, last)]) = ends else { continue };
        let chunks = last.first[0] / u64::from(table.chunk_rows) + 1;
        expect_chunk(&table, first.address, 0, &first)?;
        expect_chunk(&table, first.address, chunks - 1, &last)?;
        let found = tables(layout).nth(index).expect("an index below the number of tables");
        (found.start, found.capacity) = (first.address, chunks.saturating_mul(u64::from(table.chunk_rows)));
    }
    for (table, root) in layout.block_tables.iter().zip(block_table_roots) {
        let ends = tree::ends(file, layout.block_table_shape(), *root)?;
        let Some([(_, first), (_, last)]) = ends else { continue };
        layout.expect_block_row(table, 0, &first)?;
        layout.expect_block_row(table, last.first[0], &last)?;
        common = common.min(last.first[0].saturating_add(1));
    }
    // After a power cut while a tail was moved, some datasets point to the old one and others to the new one.
    layout.common_rows = layout.shots.iter().map(|table| table.capacity).fold(common.min(layout.rows), u64::min);
    Ok(())
}

/// Walks every index and checks that all chunks are where the layout puts them.
pub(super) fn check(file: &(impl ReadAt + ?Sized), layout: &Layout) -> Result<(), HeaderError> {
    for data in &layout.data {
        let (mut count, links) = (0, data.links.len() as u64);
        let visible = u64_at(&bytes(file, data.header.extent_at, 8)?, 0);
        walk(file, layout, data.header.tree_at, DATA_RANK, &mut |chunk| {
            let (row, link) = (count / links, data.links.start + (count % links) as usize);
            count += 1;
            match layout.codec {
                // Entries of rows that are not visible are undefined after a power cut.
                Some(_) if row < visible => layout.parse(data, row, link, &chunk).map(drop),
                Some(_) => expect_first(layout, data, row, link, &chunk),
                None => expect_slot(layout, data, row, link, &chunk),
            }
        })?;
        if count != layout.rows * links {
            let found = format!("{count} chunks");
            return Err(HeaderError::at(data.header.tree_at, &format!("an index of {} rows", layout.rows), &found));
        }
    }
    for table in &layout.block_tables {
        let (mut row, root) = (0, u64_at(&bytes(file, table.header.tree_at, 8)?, 0));
        tree::walk(file, layout.block_table_shape(), root, &mut |chunk| {
            row += 1;
            layout.expect_block_row(table, row - 1, &chunk)
        })?;
        if row != layout.rows {
            let found = format!("{row} chunks");
            return Err(HeaderError::at(table.header.tree_at, &format!("an index of {} rows", layout.rows), &found));
        }
    }
    for table in layout.shots.iter().chain([&layout.losses, &layout.counters]) {
        let mut index = 0;
        walk(file, layout, table.header.tree_at, TABLE_RANK, &mut |chunk| {
            index += 1;
            expect_chunk(table, table.start, index - 1, &chunk)
        })?;
    }
    Ok(())
}

/// Checks that the leaves of a compressed run's index are contiguous, because entries are looked up by offset.
fn expect_leaf(layout: &Layout, data: usize, last: u64) -> Result<(), HeaderError> {
    let (data, shape) = (&layout.data[data], layout.data_shape());
    let count = layout.rows.saturating_mul(data.links.len() as u64);
    let (at, _) = shape.entry_at(data.leaves, count.saturating_sub(1));
    if (last..last.saturating_add(shape.node_bytes())).contains(&at) {
        return Ok(());
    }
    Err(HeaderError::at(
        last,
        &format!("the leaf of the last of {count} chunks, which contains offset {at}"),
        "another leaf: another program has rewritten this file",
    ))
}

/// Checks the first element of an entry, which does not depend on where its chunk is.
fn expect_first(layout: &Layout, data: &Data, row: u64, link: usize, chunk: &Chunk) -> Result<(), HeaderError> {
    let expected = layout.entry(data, row, link, layout.zeros(link)).first;
    if chunk.first == expected {
        return Ok(());
    }
    let (expected, found) = (format!("a chunk for {expected:?}"), format!("one for {:?}", chunk.first));
    Err(HeaderError::at(chunk.address, &expected, &found))
}

fn expect_slot(layout: &Layout, data: &Data, row: u64, link: usize, chunk: &Chunk) -> Result<(), HeaderError> {
    let column = (link - data.links.start) as u64 * layout.channels[link];
    let (address, bytes) = (layout.slot(row, link), layout.slots[link].1);
    if (chunk.address, chunk.bytes, chunk.filter_mask) == (address, bytes, 0) && chunk.first == [row, 0, column] {
        return Ok(());
    }
    Err(HeaderError::at(
        chunk.address,
        &format!("the slot of row {row} in {bytes} bytes at {address}"),
        &format!("{} bytes for {:?}: another program has rewritten this file", chunk.bytes, chunk.first),
    ))
}

impl Layout {
    fn block_table_shape(&self) -> Shape {
        Shape { rank: 1, k: self.chunk_k }
    }

    /// Returns the expected entry of a row in the table's index.
    fn block_table_entry(&self, table: &BlockTable, row: u64) -> Chunk {
        Chunk {
            first: [row, 0, 0],
            address: self.slot(row, table.link).wrapping_add(table.slot_offset.into()),
            bytes: block::LEN as u32,
            filter_mask: 0,
        }
    }

    /// Checks an entry of the table's index.
    fn expect_block_row(&self, table: &BlockTable, row: u64, chunk: &Chunk) -> Result<(), HeaderError> {
        let expected = self.block_table_entry(table, row);
        if *chunk == expected {
            return Ok(());
        }
        Err(HeaderError::at(
            chunk.address,
            &format!("the description of row {row} at {}", expected.address),
            &format!("{} bytes for {:?}: another program has rewritten this file", chunk.bytes, chunk.first),
        ))
    }
}

fn expect_chunk(table: &Table, start: u64, index: u64, chunk: &Chunk) -> Result<(), HeaderError> {
    let expected = start.saturating_add(index.saturating_mul(table.chunk_bytes()));
    if (chunk.address, chunk.first[0]) == (expected, index * u64::from(table.chunk_rows)) {
        return Ok(());
    }
    Err(HeaderError::at(expected, "the next chunk of a table", &format!("it at {}", chunk.address)))
}

fn walk(
    file: &(impl ReadAt + ?Sized),
    layout: &Layout,
    tree_at: u64,
    rank: usize,
    visit: &mut impl FnMut(Chunk) -> Result<(), HeaderError>,
) -> Result<(), HeaderError> {
    let root = u64_at(&bytes(file, tree_at, 8)?, 0);
    tree::walk(file, shape(layout, rank), root, visit)
}

fn copy(file: &Medium, from: u64, to: u64, len: u64) -> Result<(), Errno> {
    let mut block = vec![0; BLOCK_BYTES.min(len as usize)];
    let mut done = 0;
    while done < len {
        let count = (len - done).min(BLOCK_BYTES as u64) as usize;
        if file.read_at(from + done, &mut block[..count]) < count {
            return Err(Errno::IO);
        }
        file.write_all(to + done, &block[..count])?;
        done += count as u64;
    }
    Ok(())
}

/// Buffer that joins small consecutive pieces into large writes.
struct Sequential<'a> {
    file: &'a Medium,
    start: u64,
    pending: Vec<u8>,
}

impl Sequential<'_> {
    fn at(&self) -> u64 {
        self.start + self.pending.len() as u64
    }
    fn push(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }
    fn flush(&mut self) -> Result<(), Errno> {
        self.file.write_all(self.start, &self.pending)?;
        self.start = self.at();
        self.pending.clear();
        Ok(())
    }
}
