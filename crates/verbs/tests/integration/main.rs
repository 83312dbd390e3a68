//! Integration tests: the conformance suite on every provider, protocol engines over a simulated network, and attacks.

mod conformance;
mod linked;
mod messages;
mod model;
mod pair_attacks;
mod pair_rc;
mod pair_shared;
mod pair_uc;
mod pair_ud;
mod seeds;
mod shm;
mod shm_processes;
mod ud;
