//! Every process of this host, to find one by its parent, its name or its arguments.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nodrop_counters::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::process::reading;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ProcessEntry")]
pub struct Entry {
    /// 0 = it is the first of its namespace, or the kernel's.
    parent: u32,
    name: String,
    arguments: Vec<String>,
}

/// By PID; kernel threads too, zombies not.
pub fn list() -> Result<BTreeMap<u32, Entry>> {
    let proc = Path::new("/proc");
    let mut found = BTreeMap::new();
    for folder in fs::read_dir(proc).map_err(reading(proc))? {
        let name = folder.map_err(reading(proc))?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        found.extend(entry(&proc.join(name)).map(|entry| (pid, entry)));
    }
    Ok(found)
}

/// `None` for one that ends meanwhile, and one that has ended.
fn entry(folder: &Path) -> Option<Entry> {
    let stat = fs::read(folder.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (head, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let arguments = fs::read(folder.join("cmdline")).ok()?;
    let words = arguments.split(|byte| *byte == 0);
    Some(Entry {
        parent: fields.next()?.parse().ok()?,
        name: head.split_once('(')?.1.to_owned(),
        arguments: words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_them() {
        let own = &list().unwrap()[&std::process::id()];
        assert_eq!(own.parent.to_string(), nix::unistd::getppid().to_string());
        assert!(
            own.arguments
                .iter()
                .zip(std::env::args())
                .all(|(a, b)| *a == b)
        );
        assert!(!own.name.is_empty());
    }
}
