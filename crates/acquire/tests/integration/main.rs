//! The receiver under every fault of a wire, against oracles that know what was sent.

mod faults;
mod foreign;
mod in_order;
mod library;
mod unseen;
