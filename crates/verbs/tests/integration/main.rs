//! Endpoints: every provider by one suite, protocol engines over a simulated network, what peers may and may not do.

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
