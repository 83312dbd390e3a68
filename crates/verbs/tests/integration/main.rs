//! Integration tests: the conformance suite on every provider, protocol engines over a simulated network, and attacks.

mod conformance;
mod control_protocol;
mod examples;
mod linked;
mod messages;
mod model;
mod seeds;
mod shm;
mod shm_emulated;
mod shm_processes;
mod sim_attacks;
mod sim_rc;
mod sim_shared;
mod sim_uc;
mod sim_ud;
mod ud;
