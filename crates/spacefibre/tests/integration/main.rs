//! Integration tests of the public API.

mod qos;
