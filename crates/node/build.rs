//! The compiler's version, for what a node says that was built without the jobs that take a newer one.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output();
    let said = said.map_or_else(
        |_| String::new(),
        |done| String::from_utf8_lossy(&done.stdout).into_owned(),
    );
    let version = said
        .split_whitespace()
        .nth(1)
        .unwrap_or("of an unknown version");
    println!("cargo::rustc-env=NODROP_RUSTC={version}");
}
