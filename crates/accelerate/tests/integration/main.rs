//! Bytes that peers write.

mod seeds;
