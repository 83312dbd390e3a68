//! HDF5 version-1 B-tree of chunks: bulk writer and reader.
//!
//! The chunk index of a recording is a function of its geometry, so it is written in one pass, leaves first, full nodes
//! from left to right. libhdf5 would need one insertion per chunk.
//!
//! A node: `TREE`, type 1, level, entries u16, left and right sibling u64; then key, child, key, child, …,
//! key. A key: stored bytes u32, filter mask u32, and the chunk's first element in each dimension u64, with
//! a last 0 for the bytes of the element. Every node has the size of a full one.

use super::header::{HeaderError, UNDEFINED, bytes, u16_at, u32_at, u64_at};
use crate::positioned::ReadAt;

const TYPE_CHUNKS: u8 = 1;
/// Size of a node's header, in bytes.
const HEAD: usize = 24;
/// Maximum level of a node; a higher one means a cycle.
const MAX_LEVEL: u8 = 16;

/// Maximum number of dimensions of a dataset.
pub const MAX_RANK: usize = 3;
/// Maximum size of a key in bytes.
const MAX_KEY_BYTES: usize = 8 + 8 * (MAX_RANK + 1);

/// Entry of a chunk in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// First element in each dimension; 0 in unused dimensions.
    pub first: [u64; MAX_RANK],
    /// File address.
    pub address: u64,
    /// Stored size in bytes.
    pub bytes: u32,
    /// Mask of skipped filters.
    pub filter_mask: u32,
}

/// Shape of the nodes of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of dimensions of the dataset, at most [`MAX_RANK`].
    pub rank: usize,
    /// Half the fan-out.
    pub k: u16,
}

impl Shape {
    fn fan_out(self) -> u64 {
        2 * u64::from(self.k)
    }
    fn key_bytes(self) -> usize {
        8 + 8 * (self.rank + 1)
    }
    /// Returns the size of a node in bytes.
    pub fn node_bytes(self) -> u64 {
        HEAD as u64 + self.fan_out() * (self.key_bytes() as u64 + 8) + self.key_bytes() as u64
    }
    /// Returns the offset of entry `index` of a tree with contiguous leaves from `leaves` on, and the number of entries
    /// from it to the end of its leaf.
    pub fn entry_at(self, leaves: u64, index: u64) -> (u64, u64) {
        let (leaf, entry) = (index / self.fan_out(), index % self.fan_out());
        let at = leaves.saturating_add(leaf.saturating_mul(self.node_bytes()));
        (at.saturating_add(HEAD as u64 + entry * self.entry_bytes() as u64), self.fan_out() - entry)
    }
    /// Returns the size of an entry in bytes: a key and an address.
    pub fn entry_bytes(self) -> usize {
        self.key_bytes() + 8
    }
    /// Returns the size of a tree of `chunks` chunks in bytes.
    pub fn tree_bytes(self, chunks: u64) -> u64 {
        let (mut nodes, mut level) = (0, chunks);
        while level > 1 || (nodes == 0 && level == 1) {
            level = level.div_ceil(self.fan_out());
            nodes += level;
        }
        nodes * self.node_bytes()
    }
}

/// Writes the tree of `count` chunks in ascending order, for file offset `start`; `sink` receives its bytes in order.
/// Returns the address of the root: [`UNDEFINED`] for no chunks, which HDF5 reads as an empty index.
///
/// # Panics
/// If `chunks` has fewer than `count` entries.
pub fn write<E>(
    shape: Shape,
    start: u64,
    count: u64,
    chunks: impl Iterator<Item = Chunk>,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    if count == 0 {
        return Ok(UNDEFINED);
    }
    let mut address = start;
    let mut parents = write_level(shape, 0, &mut address, count, chunks, &mut sink)?;
    let mut level = 1;
    while parents.len() > 1 {
        let count = parents.len() as u64;
        parents = write_level(shape, level, &mut address, count, parents.into_iter(), &mut sink)?;
        level += 1;
    }
    Ok(parents[0].address)
}

/// Writes one level and returns the entry of each node for its parent.
fn write_level<E>(
    shape: Shape,
    level: u8,
    address: &mut u64,
    count: u64,
    entries: impl Iterator<Item = Chunk>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Vec<Chunk>, E> {
    let (fan_out, node_bytes) = (shape.fan_out(), shape.node_bytes());
    let nodes = count.div_ceil(fan_out);
    let mut parents = Vec::with_capacity(nodes as usize);
    let mut entries = entries.peekable();
    let mut node = Vec::with_capacity(node_bytes as usize);
    for index in 0..nodes {
        let used = fan_out.min(count - index * fan_out) as u16;
        let here = *address + index * node_bytes;
        node.clear();
        node.extend(b"TREE");
        node.extend([TYPE_CHUNKS, level]);
        node.extend(used.to_le_bytes());
        node.extend(if index == 0 { UNDEFINED } else { here - node_bytes }.to_le_bytes());
        node.extend(if index + 1 == nodes { UNDEFINED } else { here + node_bytes }.to_le_bytes());
        let mut last = None;
        for slot in 0..used {
            let entry = entries.next().expect("`chunks` has `count` entries");
            push_entry(shape, &mut node, &entry);
            if slot == 0 {
                parents.push(Chunk { address: here, ..entry });
            }
            last = Some(entry);
        }
        // The key after the last child is an upper bound: the first key of the next node, or one beyond all chunks.
        match (entries.peek(), last) {
            (Some(next), _) => push_key(shape, &mut node, next),
            (None, Some(mut last)) => {
                last.first[0] += END;
                last.first[1..].fill(0);
                push_key(shape, &mut node, &last);
            }
            (None, None) => {}
        }
        node.resize(node_bytes as usize, 0);
        sink(&node)?;
    }
    *address += nodes * node_bytes;
    Ok(parents)
}

/// Added to the last chunk's first row for the final key: a multiple of every chunk's rows.
const END: u64 = 1 << 32;

/// Appends the entry of a chunk.
pub fn push_entry(shape: Shape, out: &mut Vec<u8>, chunk: &Chunk) {
    let mut entry = [0; MAX_KEY_BYTES + 8];
    let key = shape.key_bytes();
    entry[..MAX_KEY_BYTES].copy_from_slice(&key_of(shape, chunk));
    entry[key..key + 8].copy_from_slice(&chunk.address.to_le_bytes());
    out.extend_from_slice(&entry[..key + 8]);
}

/// Parses an entry of `shape.entry_bytes()` bytes.
pub fn parse_entry(shape: Shape, bytes: &[u8]) -> Chunk {
    Chunk {
        first: std::array::from_fn(|d| if d < shape.rank { u64_at(bytes, 8 + 8 * d) } else { 0 }),
        address: u64_at(bytes, shape.key_bytes()),
        bytes: u32_at(bytes, 0),
        filter_mask: u32_at(bytes, 4),
    }
}

fn push_key(shape: Shape, node: &mut Vec<u8>, chunk: &Chunk) {
    node.extend_from_slice(&key_of(shape, chunk)[..shape.key_bytes()]);
}

/// Returns the key of a chunk, followed by zeros.
fn key_of(shape: Shape, chunk: &Chunk) -> [u8; MAX_KEY_BYTES] {
    let mut key = [0; MAX_KEY_BYTES];
    key[..4].copy_from_slice(&chunk.bytes.to_le_bytes());
    key[4..8].copy_from_slice(&chunk.filter_mask.to_le_bytes());
    for (to, first) in key[8..].chunks_exact_mut(8).zip(&chunk.first[..shape.rank]) {
        to.copy_from_slice(&first.to_le_bytes());
    }
    key
}

/// Visits every chunk of the tree at `root` in ascending order.
pub fn walk(
    file: &(impl ReadAt + ?Sized),
    shape: Shape,
    root: u64,
    visit: &mut impl FnMut(Chunk) -> Result<(), HeaderError>,
) -> Result<(), HeaderError> {
    if root == UNDEFINED {
        return Ok(());
    }
    walk_node(file, shape, root, None, visit)
}

/// Returns the first and the last chunk of the tree at `root`, each with the address of its leaf; `None` for an empty
/// tree. Reads two nodes of each level.
pub fn ends(file: &(impl ReadAt + ?Sized), shape: Shape, root: u64) -> Result<Option<[(u64, Chunk); 2]>, HeaderError> {
    if root == UNDEFINED {
        return Ok(None);
    }
    let end = |entry: fn(&[Chunk]) -> Option<&Chunk>| {
        let (mut address, mut level) = (root, None);
        loop {
            let (found, entries) = read_node(file, shape, address, level)?;
            let Some(entry) = entry(&entries) else {
                return Err(HeaderError::at(address, "a node with an entry", "none"));
            };
            if found == 0 {
                return Ok((address, *entry));
            }
            (address, level) = (entry.address, Some(found - 1));
        }
    };
    Ok(Some([end(|entries| entries.first())?, end(|entries| entries.last())?]))
}

fn walk_node(
    file: &(impl ReadAt + ?Sized),
    shape: Shape,
    address: u64,
    level: Option<u8>,
    visit: &mut impl FnMut(Chunk) -> Result<(), HeaderError>,
) -> Result<(), HeaderError> {
    let (found, entries) = read_node(file, shape, address, level)?;
    for entry in entries {
        if found > 0 {
            walk_node(file, shape, entry.address, Some(found - 1), visit)?;
        } else {
            visit(entry)?;
        }
    }
    Ok(())
}

/// Reads a node: its level, which must be `level` if given, and its entries; those of inner nodes have the address of a
/// child.
fn read_node(
    file: &(impl ReadAt + ?Sized),
    shape: Shape,
    address: u64,
    level: Option<u8>,
) -> Result<(u8, Vec<Chunk>), HeaderError> {
    let node = bytes(file, address, shape.node_bytes() as usize)?;
    let (kind, found, used) = (node[4], node[5], u64::from(u16_at(&node, 6)));
    if &node[..4] != b"TREE" || kind != TYPE_CHUNKS || used > shape.fan_out() {
        return Err(HeaderError::at(address, "a chunk B-tree node", "other bytes"));
    }
    if level.map_or(found > MAX_LEVEL, |level| found != level) {
        return Err(HeaderError::at(address, "a node one level below its parent", &format!("level {found}")));
    }
    let entry = |index: usize| parse_entry(shape, &node[HEAD + index * shape.entry_bytes()..]);
    Ok((found, (0..used as usize).map(entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(count: u64) -> impl Iterator<Item = Chunk> {
        (0..count).map(|i| Chunk { first: [i, 0, 0], address: 4096 * i, bytes: 100, filter_mask: 0 })
    }

    #[test]
    fn tree_of_any_size_round_trips_in_order() {
        for count in [0, 1, 3, 4, 5, 16, 17, 64, 65, 300] {
            let shape = Shape { rank: 2, k: 2 };
            let mut file = vec![0; 512];
            let root = write(shape, 512, count, chunks(count), |node| {
                file.extend_from_slice(node);
                Ok::<_, ()>(())
            })
            .unwrap();
            assert_eq!(file.len() as u64, 512 + shape.tree_bytes(count), "{count} chunks");
            let mut seen = Vec::new();
            walk(&file[..], shape, root, &mut |chunk| {
                seen.push(chunk);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, chunks(count).collect::<Vec<_>>());
            let ends = ends(&file[..], shape, root).unwrap();
            assert_eq!(
                ends.map(|ends| ends.map(|(_, chunk)| chunk)),
                seen.first().cloned().zip(seen.last().cloned()).map(<[_; 2]>::from)
            );
            for (index, chunk) in seen.iter().enumerate() {
                let (at, _) = shape.entry_at(512, index as u64);
                assert_eq!(parse_entry(shape, &file[at as usize..]), *chunk);
            }
            if let Some([(leaves, _), (last, _)]) = ends {
                let (at, _) = shape.entry_at(leaves, count - 1);
                assert!(leaves == 512 && (last..last + shape.node_bytes()).contains(&at), "{count} chunks");
            }
        }
    }

    #[test]
    fn cyclic_node_is_an_error() {
        let shape = Shape { rank: 2, k: 2 };
        let mut file = Vec::new();
        let root = write(shape, 0, 5, chunks(5), |node| {
            file.extend_from_slice(node);
            Ok::<_, ()>(())
        })
        .unwrap();
        let child = root as usize + HEAD + shape.key_bytes();
        file[child..child + 8].copy_from_slice(&root.to_le_bytes());
        assert!(walk(&file[..], shape, root, &mut |_| Ok(())).is_err());
    }
}
