//! Builds the model of the sender if the feature `model` is enabled.

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
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const TOP: &str = "shotline_roce_ud_tx";
    const NAME: &str = "shotline_rtl";

    /// Links the model. It is cached by content in the profile's folder, because each set of features, and `cargo
    /// clippy` and `cargo test`, have different `OUT_DIR`s.
    pub fn build() {
        let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("the crate lies in crates/rtl");
        let rtl = root.join("hdl/rtl");
        for path in [rtl.as_path(), &here.join("src/sender/shim.cpp"), &here.join("src/sender/vcd.h")] {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        println!("cargo::rerun-if-env-changed=VERILATOR");

        let verilator = find(root);
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
        let compiler = compiler();
        let mut content = DefaultHasher::new();
        let inputs =
            [files(&rtl, &["sv", "svh"]), files(&here.join("src/sender"), &["cpp", "h"]), vec![here.join("build.rs")]];
        for path in inputs.into_iter().flatten() {
            path.file_name().hash(&mut content);
            fs::read(&path).expect("the source can be read").hash(&mut content);
        }
        run(Command::new(&verilator).arg("--version")).hash(&mut content);
        format!("{:?} {:?}", compiler.get_compiler(), env::var_os("TARGET")).hash(&mut content);

        let archive = format!("lib{NAME}.a");
        // target/debug/build/shotline-rtl-0123456789abcdef/out
        let shared = out.ancestors().nth(3).expect("OUT_DIR lies in a profile's folder").join("shotline-rtl-model");
        let model = shared.join(format!("{:016x}.a", content.finish()));
        if !model.is_file() {
            make(compiler, &verilator, &rtl, &here, &out);
            fs::create_dir_all(&shared).expect("the profile's folder can be written");
            // Renamed when complete, so that a concurrent build never links a partial file.
            let part = shared.join(format!("{}.part", std::process::id()));
            fs::copy(out.join(&archive), &part)
                .and_then(|_| fs::rename(&part, &model))
                .expect("the model can be cached");
        }
        fs::copy(&model, out.join(&archive)).expect("the model can be copied");
        println!("cargo::rustc-link-search=native={}", out.display());
        println!("cargo::rustc-link-lib=static={NAME}");
        println!("cargo::rustc-link-lib=stdc++");
    }

    /// Returns `true` in the release profile. Other builds enable the RTL's assertions and take half the time to
    /// compile; their model simulates a test's clocks in a second.
    fn is_release() -> bool {
        env::var("PROFILE").is_ok_and(|profile| profile == "release")
    }

    fn compiler() -> cc::Build {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(if is_release() { 3 } else { 1 });
        build.define("VL_USER_STOP", None).warnings(false).debug(false).cargo_metadata(false);
        // The model mostly computes parities.
        if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            build.flag("-mpopcnt");
        }
        for off in ["VM_COVERAGE", "VM_SC", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_VCD"] {
            build.define(off, "0");
        }
        build
    }

    /// Builds the model in `OUT_DIR`.
    fn make(mut compiler: cc::Build, verilator: &Path, rtl: &Path, here: &Path, out: &Path) {
        let generated = out.join("verilated");
        // Files of an earlier version of the RTL must not be compiled.
        let _ = fs::remove_dir_all(&generated);
        let mut command = Command::new(verilator);
        let assertions = if is_release() { "--no-assert" } else { "--assert" };
        // Most registers have no reset, so they start with random values (--x-initial unique).
        command
            .args(["--cc", assertions, "-Wall", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-timing"])
            .args(["--quiet", "--prefix", "Vsender", "--top-module", TOP])
            .arg("--Mdir")
            .arg(&generated)
            .arg(format!("-I{}", rtl.display()))
            .arg("-y")
            .arg(rtl)
            .arg(rtl.join(TOP).with_extension("sv"));
        run(&mut command);

        // One file, because small ones spend most of their compile time on Verilator's headers.
        let parts = files(&generated, &["cpp"])
            .iter()
            .map(|part| format!("#include \"{}\"\n", part.display()))
            .collect::<String>();
        let whole = out.join("model.cpp");
        fs::write(&whole, parts).expect("OUT_DIR can be written");
        let include = include(verilator);
        compiler.include(&generated).include(&include).include(include.join("vltstd")).file(whole);
        compiler.file(include.join("verilated.cpp")).file(include.join("verilated_threads.cpp"));
        compiler.file(here.join("src/sender/shim.cpp"));
        compiler.compile(NAME);
    }

    /// Runs a program and returns its standard output.
    fn run(command: &mut Command) -> String {
        let program = command.get_program().to_owned();
        let done = command.output().unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
        assert!(done.status.success(), "Verilator refuses the RTL:\n{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().into()
    }

    /// Finds Verilator: `VERILATOR`, the repository's virtual environment, then `PATH`.
    fn find(root: &Path) -> PathBuf {
        let configured = env::var_os("VERILATOR").map(PathBuf::from);
        let local = Some(root.join(".venv/bin/verilator"));
        let packages = fs::read_dir(root.join(".venv/lib")).ok().into_iter().flatten().flatten();
        let installed = packages.map(|python| python.path().join("site-packages/verilator/bin/verilator"));
        let paths = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&paths).map(|folder| folder.join("verilator")).collect::<Vec<_>>();
        configured.into_iter().chain(local).chain(installed).chain(on_path).find(|path| path.is_file()).unwrap_or_else(
            || {
                panic!(
                    "the feature `model` needs Verilator 5: run scripts/setup.sh rtl, or name it in the environment \
                 variable VERILATOR"
                )
            },
        )
    }

    /// Returns the folder of Verilator's C++ runtime.
    fn include(verilator: &Path) -> PathBuf {
        let root = PathBuf::from(run(Command::new(verilator).args(["--getenv", "VERILATOR_ROOT"])));
        let roots =
            [root, verilator.canonicalize().ok().and_then(|v| Some(v.parent()?.parent()?.into())).unwrap_or_default()];
        let found = roots.iter().map(|root| root.join("include")).find(|path| path.join("verilated.cpp").is_file());
        found.unwrap_or_else(|| panic!("no verilated.cpp next to {}", verilator.display()))
    }

    /// Returns the files of a folder with these extensions, sorted.
    fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files = entries.map(|entry| entry.expect("the folder can be read").path()).collect::<Vec<_>>();
        files.retain(|path| extensions.iter().any(|extension| path.extension() == Some(OsStr::new(extension))));
        files.sort();
        files
    }
}
