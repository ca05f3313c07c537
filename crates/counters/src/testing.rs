//! Captured kernel files, and small ones made up for one test.

use std::path::PathBuf;

use tempfile::TempDir;

/// Files captured on a 2-CPU virtual machine with Linux 6.18 and cgroup v1 (hybrid).
pub fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/linux-6.18"))
}

/// A root folder with one file in it.
pub fn fixture_with(path: &str, text: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    add(&root, path, text);
    root
}

/// Adds a file to such a folder.
pub fn add(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
