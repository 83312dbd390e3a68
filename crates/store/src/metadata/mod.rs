//! HDF5 metadata as bytes: superblock, object headers, string attributes, and the B-trees that index chunks.
//!
//! Used where libhdf5 would need the file open for writing, and for damaged files, on which libhdf5 can crash.

pub(crate) mod header;
pub(crate) mod text;
pub(crate) mod tree;
