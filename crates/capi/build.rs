//! Names the shared library: `libshotline.so.0`, with the number of `SHOTLINE_ABI_VERSION`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is repeated in `src/lib.rs`; tests/test_c_library.py compares the two.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshotline.so.0");
}
