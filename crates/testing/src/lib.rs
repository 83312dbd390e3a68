//! Test helpers shared by all crates: skips, seeds, sizes of random runs, waits, processes, committed files, and mutations
//! of seeds.
//!
//! | environment variable | meaning |
//! |---|---|
//! | `SHOTLINE_SEEDS=FIRST..LAST` | seeds of every call of [`seeds`], instead of the few of a normal run |
//! | `PROPTEST_CASES=N` | cases of every `proptest!`, instead of those for a normal run |
//! | `UPDATE=1` | [`assert_committed`] rewrites its files instead of comparing them |

mod committed;
mod mutations;
mod process;
mod seeds;
mod skip;
mod sockets;
mod wait;

pub use committed::{assert_committed, is_update};
pub use mutations::check_mutations;
pub use process::{Process, example, wait_until_asleep};
pub use seeds::{Seeds, cases, seeds};
pub use skip::print_skip;
pub use sockets::lingering_socket;
pub use wait::{WAIT_TIMEOUT, wait_until, wait_until_some};

/// Returns the command that runs the current test again, as far as its name is known.
fn command() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    // libtest names the thread after its test.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
    format!("cargo test -p {package} {test}").trim_end().to_owned()
}
