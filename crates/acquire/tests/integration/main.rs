//! Receiver tests with every fault of a network, against oracles of what was sent.

mod examples;
mod faults;
mod foreign;
mod in_order;
mod library;
mod single_packets;
