//! Makes the model of the sender where its feature is on; nothing otherwise.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "model")]
    model::build();
}

#[cfg(feature = "model")]
mod model {
    use std::env;
    use std::ffi::OsStr;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const TOP: &str = "roce_ud_tx";

    pub fn build() {
        let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("the crate lies in crates/rtl");
        let rtl = root.join("hdl/rtl");
        for path in [rtl.as_path(), &here.join("src/shim.cpp"), &here.join("src/vcd.h")] {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        println!("cargo::rerun-if-env-changed=VERILATOR");

        let verilator = find(root);
        let made = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")).join("verilated");
        // What an earlier version of the RTL left must not be compiled.
        let _ = fs::remove_dir_all(&made);
        let mut command = Command::new(&verilator);
        // The RTL's assertions are on where Rust's are: in tests, not in a release build, which is for speed.
        let assertions =
            if env::var("PROFILE").is_ok_and(|profile| profile == "release") { "--no-assert" } else { "--assert" };
        // Registers begin with random values (--x-initial unique), as nothing resets most of them.
        command
            .args(["--cc", assertions, "-Wall", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-timing"])
            .args(["--quiet", "--prefix", "Vsender", "--top-module", TOP])
            .arg("--Mdir")
            .arg(&made)
            .arg(format!("-I{}", rtl.display()))
            .arg("-y")
            .arg(&rtl)
            .arg(rtl.join(TOP).with_extension("sv"));
        let done = command.output().unwrap_or_else(|error| panic!("{} does not run: {error}", verilator.display()));
        assert!(done.status.success(), "Verilator refuses the RTL:\n{}", String::from_utf8_lossy(&done.stderr));

        let include = include(&verilator);
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").include(&made).include(&include).include(include.join("vltstd"));
        // The model is useless without optimization, also where the rest is built for debugging.
        build.opt_level(3).define("VL_USER_STOP", None).warnings(false);
        // Parities are what the model computes most.
        if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            build.flag("-mpopcnt");
        }
        for off in ["VM_COVERAGE", "VM_SC", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_VCD"] {
            build.define(off, "0");
        }
        build.files(sources(&made)).file(include.join("verilated.cpp")).file(include.join("verilated_threads.cpp"));
        build.file(here.join("src/shim.cpp"));
        build.compile("shotline_rtl");
    }

    /// `VERILATOR`, the repository's virtual environment, then the path.
    fn find(root: &Path) -> PathBuf {
        let asked = env::var_os("VERILATOR").map(PathBuf::from);
        let local = Some(root.join(".venv/bin/verilator"));
        let packages = fs::read_dir(root.join(".venv/lib")).ok().into_iter().flatten().flatten();
        let installed = packages.map(|python| python.path().join("site-packages/verilator/bin/verilator"));
        let paths = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&paths).map(|folder| folder.join("verilator")).collect::<Vec<_>>();
        asked.into_iter().chain(local).chain(installed).chain(on_path).find(|path| path.is_file()).unwrap_or_else(
            || {
                panic!(
                    "the feature `model` needs Verilator 5: run scripts/setup.sh rtl, or name it in the environment \
                 variable VERILATOR"
                )
            },
        )
    }

    /// Where Verilator's own C++ is.
    fn include(verilator: &Path) -> PathBuf {
        let told = Command::new(verilator).args(["--getenv", "VERILATOR_ROOT"]).output().expect("Verilator ran before");
        let told = PathBuf::from(String::from_utf8_lossy(&told.stdout).trim());
        let roots =
            [told, verilator.canonicalize().ok().and_then(|v| Some(v.parent()?.parent()?.into())).unwrap_or_default()];
        let found = roots.iter().map(|root| root.join("include")).find(|path| path.join("verilated.cpp").is_file());
        found.unwrap_or_else(|| panic!("no verilated.cpp beside {}", verilator.display()))
    }

    fn sources(made: &Path) -> Vec<PathBuf> {
        let files =
            fs::read_dir(made).expect("Verilator made a folder").map(|entry| entry.expect("it can be read").path());
        let mut files: Vec<_> = files.filter(|path| path.extension() == Some(OsStr::new("cpp"))).collect();
        files.sort();
        files
    }
}
