//! Child processes and threads.

use crate::wait_until;
use std::env;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

/// Returns the command that starts an example of the workspace. Tests that need another process run one.
///
/// `cargo test` and `cargo nextest run` build examples with the tests, unless some targets are selected.
///
/// # Panics
/// If it is not built.
pub fn example(name: &str) -> Command {
    let tests = env::current_exe().expect("a test has a path");
    let path = tests.ancestors().nth(2).expect("it is in target/*/deps").join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build --workspace --examples", path.display());
    Command::new(path)
}

/// A child process that is killed on drop.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts the process.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Kills the process with SIGKILL and waits for it.
    pub fn kill(mut self) {
        self.kill_and_wait();
    }

    fn kill_and_wait(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Process {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_and_wait();
    }
}

/// Waits until a thread of this process sleeps in the kernel. `id` is the thread id, as `gettid` returns it.
///
/// # Panics
/// If there is no such thread, or it does not sleep within [`WAIT_TIMEOUT`](crate::WAIT_TIMEOUT).
pub fn wait_until_asleep(id: i32) {
    let path = format!("/proc/self/task/{id}/stat");
    wait_until("the thread sleeps", || {
        let stat = fs::read_to_string(&path).expect("the thread is there");
        // The state follows the thread name in parentheses, which may contain any character.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    });
}
