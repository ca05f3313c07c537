//! The functions of the kernel, from `/proc/kallsyms`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// Ascending by address. Empty if the kernel does not show its addresses (kptr_restrict).
#[derive(Debug, Default)]
pub struct KernelFunctions(Vec<(u64, Box<str>)>);

impl KernelFunctions {
    /// Of a `/proc`.
    pub fn read(proc: &Path) -> Self {
        let Ok(file) = File::open(proc.join("kallsyms")) else {
            return Self::default();
        };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        let mut found: Vec<_> = lines.filter_map(|line| function(&line)).collect();
        found.sort();
        found.dedup_by_key(|(address, _)| *address);
        Self(found)
    }

    /// The function an address lies in.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(begin, _)| *begin <= address);
        self.0.get(after.checked_sub(1)?).map(|(_, name)| &**name)
    }

    /// Nothing can be named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `ADDRESS TYPE NAME [MODULE]`; code has type t, T, w or W.
fn function(line: &str) -> Option<(u64, Box<str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    (address > 0 && is_code).then_some((address, words.next()?.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_belong_to_the_function_before_them() {
        let proc = tempfile::tempdir().unwrap();
        let text = "ffff0300 T futex_wait\nffff0100 t veth_xmit\t[veth]\nffff0200 D data\n";
        std::fs::write(proc.path().join("kallsyms"), text).unwrap();
        let kernel = KernelFunctions::read(proc.path());
        assert_eq!(kernel.name(0xffff_00ff), None);
        assert_eq!(kernel.name(0xffff_0100), Some("veth_xmit"));
        assert_eq!(kernel.name(0xffff_02ff), Some("veth_xmit"));
        assert_eq!(kernel.name(u64::MAX), Some("futex_wait"));
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let proc = tempfile::tempdir().unwrap();
        let text = "0000000000000000 T futex_wait\n";
        std::fs::write(proc.path().join("kallsyms"), text).unwrap();
        assert!(KernelFunctions::read(proc.path()).is_empty());
        assert!(KernelFunctions::read(Path::new("/nowhere")).is_empty());
    }
}
