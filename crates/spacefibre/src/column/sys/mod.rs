//! Kernels that calculate CRCs by carry-less multiplication, with vector instructions.
//!
//! A CRC is linear: it is the sum of the products of the words and powers of x that depend on how many words follow. A
//! lane has few words in a frame, so all powers are in a table ([`FACTORS`](tables::FACTORS)), and no product
//! depends on another. Two successive words of a lane are multiplied at once.
//!
//! Vectors are loaded in the order of the data, XORed with the key stream, stored, and permuted so that two words of a
//! lane are adjacent.

mod avx512;
mod pclmul;
mod tables;

use super::form::Form;

/// A form, and whether the processor has the features that it requires.
struct Candidate {
    is_supported: fn() -> bool,
    form: Form,
}

/// Forms, fastest first.
static CANDIDATES: [Candidate; 2] = [
    Candidate { is_supported: avx512::is_supported, form: avx512::FORM },
    Candidate { is_supported: pclmul::is_supported, form: pclmul::FORM },
];

/// Returns the forms that this processor supports, fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Form> {
    CANDIDATES.iter().filter(|candidate| (candidate.is_supported)()).map(|candidate| &candidate.form)
}
