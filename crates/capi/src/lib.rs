//! The C library: `libshotline.so`, `libshotline.a` and `shotline.h`.
//!
//! The doc comments of public items are the documentation of the header, which a test writes with cbindgen: they are plain
//! text for programmers of C. Files whose items are in the header are listed in `header.rs`.
//!
//! Rules of the border:
//! - Every function that can fail runs inside [`status::call`], which keeps panics inside and stores the message.
//! - A handle is a number, never an address ([`handles`]): use after close is an error, not undefined behaviour.
//! - Pointers of the caller become references only in [`arguments`], after checks for NULL and alignment.

// Names are those of C. The contract of pointers is the same for all functions, and is stated once, in the header.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

mod arguments;
mod causes;
mod handles;
#[cfg(test)]
mod header;
mod process;
mod record;
mod run;
mod status;
mod verbs;
mod version;
