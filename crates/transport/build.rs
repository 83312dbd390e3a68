//! Compiles the C shim over DPDK if the feature `dpdk` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

/// Compiles the shim (`src/dpdk/shim.c`): DPDK's burst functions are inline and its structure layouts are not stable,
/// so only C can call them.
#[cfg(feature = "dpdk")]
fn dpdk() {
    let dpdk = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk").unwrap_or_else(|error| {
        panic!("the feature dpdk needs DPDK 22.11 or newer (on Debian: apt-get install libdpdk-dev dpdk): {error}")
    });
    const SOURCES: [&str; 5] =
        ["src/dpdk/shim.c", "src/dpdk/burst.c", "src/dpdk/zero_copy.c", "src/dpdk/direct.c", "src/dpdk/split.c"];
    for file in SOURCES.iter().chain(&["src/dpdk/shim.h", "src/dpdk/port.h"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    build.files(SOURCES).includes(&dpdk.include_paths).std("gnu11");
    // Flags of pkg-config's output that the `pkg-config` crate does not pass on.
    build.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        build.flag("-march=corei7");
    }
    // DPDK's headers have unused parameters.
    build.flag("-Wno-unused-parameter").compile("shotline_dpdk");
}
