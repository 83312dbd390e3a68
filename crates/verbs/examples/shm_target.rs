//! The peer process of the tests in `crates/verbs/tests/integration/shm_processes.rs`: an endpoint whose memory is
//! written and read. It is controlled by lines on standard input, and exits at its end.
//!
//! ```sh
//! shm_target PATH
//! ```

#[path = "../tests/integration/linked.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod linked;

use linked::Side;
use shotline_verbs::shm::ShmEndpoint;
use std::io::BufRead;

fn main() {
    let path = std::env::args_os().nth(1).expect("the path of the peer's socket");
    let mut lines = std::io::stdin().lock().lines();
    let mut side = Side::new(ShmEndpoint::connect(path).unwrap());
    println!("number {}", side.qp.0);
    let Some(peer) = lines.next() else { return };
    side.connect(peer.unwrap().parse().unwrap());
    side.region.write(100, b"from the target");
    println!("ready");
    let Some(_) = lines.next() else { return };
    let mut bytes = [0; 4];
    side.region.read(500, &mut bytes);
    let sum = side.region.fetch_add(1000, 0);
    println!("found {} {sum}", u32::from_le_bytes(bytes));
    // Keeps running until the test closes standard input.
    lines.for_each(drop);
}
