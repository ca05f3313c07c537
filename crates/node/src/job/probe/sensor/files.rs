//! Files of /proc and /sys, and a list of those that this user may not read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

pub const TRACE: &str = "root, or CAP_SYS_PTRACE";
pub const ENTER: &str = "root, or CAP_SYS_ADMIN and CAP_SYS_PTRACE";
const BEYOND_ROOT: &str = "more than root's rights: a user namespace or a security module hides it";
pub const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "SensorLack")]
pub struct Lack {
    pub what: String,
    pub needs: String,
}

/// Reads below `root`, which is a recorded tree in tests.
pub struct Files {
    pub root: PathBuf,
    missing: RefCell<Vec<Lack>>,
}

impl Files {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.into(),
            missing: RefCell::default(),
        }
    }

    pub fn missing(&self) -> Vec<Lack> {
        self.missing.borrow().clone()
    }

    pub fn forget(&self) {
        self.missing.borrow_mut().clear();
    }

    pub fn lacks(&self, what: impl Into<String>, needs: &str) {
        let lack = self.lack(what, needs);
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&lack) {
            missing.push(lack);
        }
    }

    pub fn lack(&self, what: impl Into<String>, needs: &str) -> Lack {
        let root = [TRACE, ENTER].contains(&needs)
            && self.capable(CAP_SYS_PTRACE)
            && self.capable(CAP_SYS_ADMIN);
        Lack {
            what: what.into(),
            needs: if root { BEYOND_ROOT } else { needs }.into(),
        }
    }

    pub fn capable(&self, number: u32) -> bool {
        let status = fs::read_to_string(self.root.join("proc/self/status")).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set >> number & 1 == 1)
    }

    /// `None` if there is no such file, or this user may not read it, which is noted then.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = path.as_ref();
        match fs::read(self.root.join(path)) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied {
                    self.lacks(format!("/{}", path.display()), "root");
                }
                None
            }
        }
    }

    pub fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        let word = self.text(path)?.trim().to_owned();
        (!word.is_empty()).then_some(word)
    }

    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.word(path)?.parse().ok()
    }

    pub fn cpus(&self, path: impl AsRef<Path>) -> Vec<u32> {
        self.word(path)
            .and_then(|text| cpu_list(&text))
            .unwrap_or_default()
    }

    /// Names in a folder, in order; none if there is no such folder.
    pub fn names(&self, folder: impl AsRef<Path>) -> BTreeSet<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }
}

/// `0-2,5` → each of them; `None` if it is no such list.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut found = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        found.extend(first..=last);
    }
    Some(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), None);
        assert_eq!(cpu_list("x"), None);
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        for (set, needs) in [
            ("000001ffffffffff", BEYOND_ROOT),
            ("0000000000280000", BEYOND_ROOT),
            ("0000000000200000", TRACE),
            ("0000000000000000", TRACE),
        ] {
            let status = format!("Name:\tx\nCapEff:\t{set}\n");
            fs::write(root.path().join("proc/self/status"), status).unwrap();
            let files = Files::new(root.path());
            files.lacks("a", TRACE);
            files.lacks("a", TRACE);
            let expected = Lack {
                what: "a".into(),
                needs: needs.into(),
            };
            assert_eq!(files.missing(), [expected]);
        }
    }
}
