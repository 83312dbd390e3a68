//! Passes the commit that this program is built from to the compiler, if it is built from a checkout.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).unwrap_or_default();
    println!("cargo:rustc-env=SHOTLINE_COMMIT={commit}");
    // This file changes with every commit and every checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| std::path::Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// Returns the first line of git's output; none without git, or outside a checkout of this repository.
fn git(arguments: &[&str]) -> Option<String> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    let top =
        Command::new("git").args(["ls-files", "--error-unmatch", "build.rs"]).current_dir(&manifest).output().ok()?;
    let answer = Command::new("git").args(arguments).current_dir(&manifest).output().ok()?;
    let line = String::from_utf8(answer.stdout).ok()?.lines().next()?.trim().to_owned();
    (top.status.success() && answer.status.success() && !line.is_empty()).then_some(line)
}
