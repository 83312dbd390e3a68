//! Builds the models of the sender and of the packet card if the feature `model` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "model")]
    model::build();
}

#[cfg(feature = "model")]
mod model {
    use std::collections::BTreeSet;
    use std::env;
    use std::ffi::OsStr;
    use std::fs;
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// A module that becomes a C++ class.
    struct Top {
        class: &'static str,
        module: &'static str,
        parameters: &'static [(&'static str, u32)],
    }

    /// An archive: models, and C++ files in `src`.
    struct Library {
        name: &'static str,
        tops: &'static [Top],
        sources: &'static [&'static str],
    }

    const LIBRARIES: &[Library] = &[
        Library {
            name: "shotline_rtl_sender",
            tops: &[Top { class: "Vsender", module: "shotline_roce_ud_tx", parameters: &[] }],
            sources: &["sender/shim.cpp"],
        },
        Library {
            name: "shotline_rtl_card",
            tops: &[
                Top { class: "Vcard", module: "shotline_card_dma", parameters: &[("CHANNELS_LOG2", 8)] },
                Top {
                    class: "Vcard_small",
                    module: "shotline_card_dma",
                    parameters: &[("CHANNELS_LOG2", 3), ("PREFETCH_LOG2", 5), ("TAGS_LOG2", 2), ("ROWS_LOG2", 5)],
                },
                Top {
                    class: "Vcard_port",
                    module: "shotline_card_port",
                    parameters: &[("CHANNELS_LOG2", 8), ("TABLE_LOG2", 10)],
                },
                Top { class: "Vcard_pcie", module: "shotline_card", parameters: &[("CHANNELS_LOG2", 8)] },
                Top {
                    class: "Vcard_ethernet",
                    module: "shotline_card_ethernet",
                    parameters: &[("CHANNELS_LOG2", 8), ("TABLE_LOG2", 10)],
                },
            ],
            sources: &["card/shim.cpp"],
        },
        // The last, because the others need it.
        Library { name: "shotline_rtl_runtime", tops: &[], sources: &["runtime.cpp"] },
    ];
    const HEADERS: &[&str] = &["runtime.h", "sender/vcd.h"];

    /// Folders and programs of a build.
    struct Build {
        verilator: PathBuf,
        /// The runtime of Verilator.
        include: PathBuf,
        rtl: PathBuf,
        sources: PathBuf,
        out: PathBuf,
    }

    /// Links the models. They are cached by content in the profile's folder, because each set of features, and `cargo
    /// clippy` and `cargo test`, have different `OUT_DIR`s.
    pub fn build() {
        let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("the crate lies in crates/rtl");
        let verilator = find(root);
        let build = Build {
            include: include(&verilator),
            verilator,
            rtl: root.join("hdl/rtl"),
            sources: here.join("src"),
            out: PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")),
        };
        println!("cargo::rerun-if-changed={}", build.rtl.display());
        for source in LIBRARIES.iter().flat_map(|library| library.sources).chain(HEADERS) {
            println!("cargo::rerun-if-changed={}", build.sources.join(source).display());
        }
        println!("cargo::rerun-if-env-changed=VERILATOR");
        println!("cargo::rustc-link-search=native={}", build.out.display());
        for library in LIBRARIES {
            build.link(library);
            println!("cargo::rustc-link-lib=static={}", library.name);
        }
        println!("cargo::rustc-link-lib=stdc++");
    }

    impl Build {
        fn link(&self, library: &Library) {
            let archive = self.out.join(format!("lib{}.a", library.name));
            // target/debug/build/shotline-rtl-0123456789abcdef/out
            let profile = self.out.ancestors().nth(3).expect("OUT_DIR lies in a profile's folder");
            let shared = profile.join("shotline-rtl-model");
            let model = shared.join(format!("{}-{:016x}.a", library.name, self.digest(library)));
            if !model.is_file() {
                self.make(library);
                fs::create_dir_all(&shared).expect("the profile's folder can be written");
                // Renamed when complete, so that a concurrent build never links a partial file.
                let part = shared.join(format!("{}.part", std::process::id()));
                fs::copy(&archive, &part).and_then(|_| fs::rename(&part, &model)).expect("the model can be cached");
            }
            fs::copy(&model, &archive).expect("the model can be copied");
        }

        /// Hashes what an archive is made of.
        fn digest(&self, library: &Library) -> u64 {
            let mut content = DefaultHasher::new();
            let sources = library.sources.iter().chain(HEADERS).map(|source| self.sources.join(source));
            let modules = library.tops.iter().flat_map(|top| self.below(top.module));
            for path in sources.chain(modules).chain([self.sources.join("../build.rs")]) {
                path.file_name().hash(&mut content);
                fs::read(&path).expect("the source can be read").hash(&mut content);
            }
            run(Command::new(&self.verilator).arg("--version")).hash(&mut content);
            format!("{:?} {:?}", compiler().get_compiler(), env::var_os("TARGET")).hash(&mut content);
            content.finish()
        }

        /// Returns the files of a module, of its submodules and of what they include: all whose names occur in them.
        fn below(&self, top: &str) -> BTreeSet<PathBuf> {
            let mut found = BTreeSet::new();
            let mut pending = vec![self.rtl.join(top).with_extension("sv")];
            while let Some(path) = pending.pop() {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                if found.insert(path) {
                    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect::<BTreeSet<_>>();
                    let names = words.into_iter().filter(|word| !word.is_empty());
                    let files =
                        names.flat_map(|name| ["sv", "svh"].map(|kind| self.rtl.join(name).with_extension(kind)));
                    pending.extend(files.filter(|file| file.is_file() && !found.contains(file)));
                }
            }
            found
        }

        /// Builds an archive in `OUT_DIR`.
        fn make(&self, library: &Library) {
            let mut compiler = compiler();
            compiler.include(&self.include).include(self.include.join("vltstd"));
            for top in library.tops {
                let generated = self.verilate(top);
                // One file, because small ones spend most of their compile time on Verilator's headers.
                let parts = files(&generated, &["cpp"]);
                let whole = parts.iter().map(|part| format!("#include \"{}\"\n", part.display())).collect::<String>();
                let file = self.out.join(top.class).with_extension("cpp");
                fs::write(&file, whole).expect("OUT_DIR can be written");
                compiler.include(&generated).file(file);
            }
            if library.tops.is_empty() {
                compiler.file(self.include.join("verilated.cpp")).file(self.include.join("verilated_threads.cpp"));
            }
            compiler.files(library.sources.iter().map(|source| self.sources.join(source))).compile(library.name);
        }

        /// Translates a module to C++ and returns the folder.
        fn verilate(&self, top: &Top) -> PathBuf {
            let generated = self.out.join(top.class);
            // Files of an earlier version of the RTL must not be compiled.
            let _ = fs::remove_dir_all(&generated);
            let assertions = if is_release() { "--no-assert" } else { "--assert" };
            let mut command = Command::new(&self.verilator);
            // Most registers have no reset, so they start with random values (--x-initial unique).
            command
                .args([
                    "--cc",
                    assertions,
                    "-Wall",
                    "-O3",
                    "--x-assign",
                    "fast",
                    "--x-initial",
                    "unique",
                    "--no-timing",
                ])
                .args(["--quiet", "--prefix", top.class, "--top-module", top.module])
                .args(top.parameters.iter().map(|(name, value)| format!("-G{name}={value}")))
                .arg("--Mdir")
                .arg(&generated)
                .arg(format!("-I{}", self.rtl.display()))
                .arg("-y")
                .arg(&self.rtl)
                .arg(self.rtl.join(top.module).with_extension("sv"));
            run(&mut command);
            generated
        }
    }

    /// Returns `true` in the release profile. Other builds enable the RTL's assertions and take half the time to
    /// compile; their models simulate a test's clocks in a second.
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
