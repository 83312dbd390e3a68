//! HDF5 metadata in bytes: superblock, object headers, string attributes, and the B-trees that index chunks.
//!
//! What libhdf5 cannot do from outside a file that it has open, or must not do with a damaged one.

pub(crate) mod header;
pub(crate) mod text;
pub(crate) mod tree;
