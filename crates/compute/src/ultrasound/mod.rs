//! Ultrasound: the transducer and its transmissions.

mod array;

pub use array::Array;
