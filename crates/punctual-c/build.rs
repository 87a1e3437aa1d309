//! The shared library stays in a process once it is loaded: signal handlers and ends of threads may still come to it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
