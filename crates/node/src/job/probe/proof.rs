//! What a process really runs: its program, the files that it was shown, its rights.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use nodrop_counters::Result;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::process::reading;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ProcessProof")]
pub struct Proof {
    exe: String,
    exe_sha256: String,
    /// Null if it is gone from there.
    libraries: BTreeMap<String, Option<String>>,
    files: BTreeMap<String, String>,
    capabilities: String,
    effective_capabilities: String,
    no_new_privileges: bool,
    user_id: u32,
    filters_system_calls: bool,
}

/// `None` if there is no such process, or a file is gone.
pub fn of(pid: u32, files: &[String]) -> Result<Option<Proof>> {
    match look(pid, files) {
        Err(error) if error.is_gone() => Ok(None),
        proof => proof.map(Some),
    }
}

fn look(pid: u32, files: &[String]) -> Result<Proof> {
    let folder = Path::new("/proc").join(pid.to_string());
    let (exe, status) = (folder.join("exe"), folder.join("status"));
    let name = fs::read_link(&exe).map_err(reading(&exe))?;
    let said = fs::read(&status).map_err(reading(&status))?;
    let said = String::from_utf8_lossy(&said);
    let word = |key: &str, place: usize| {
        let line = said.lines().find_map(|line| line.strip_prefix(key));
        let words = line.and_then(|line| line.strip_prefix(':'));
        words
            .and_then(|words| words.split_ascii_whitespace().nth(place))
            .unwrap_or_default()
    };
    let shown = files.iter().map(|path| {
        let there = folder.join("root").join(path.trim_start_matches('/'));
        Ok((path.clone(), sha256(&there)?))
    });
    Ok(Proof {
        exe: name.to_string_lossy().into_owned(),
        // By the link, which leads to the very file that is mapped, whatever its name.
        exe_sha256: sha256(&exe)?,
        libraries: libraries(&folder, &name)?,
        files: shown.collect::<Result<_>>()?,
        capabilities: word("CapBnd", 0).into(),
        effective_capabilities: word("CapEff", 0).into(),
        no_new_privileges: word("NoNewPrivs", 0) == "1",
        user_id: word("Uid", 1).parse().unwrap_or(u32::MAX),
        filters_system_calls: word("Seccomp", 0) == "2",
    })
}

/// What else of files it runs code from.
fn libraries(process: &Path, exe: &Path) -> Result<BTreeMap<String, Option<String>>> {
    let maps = process.join("maps");
    let said = fs::read(&maps).map_err(reading(&maps))?;
    let said = String::from_utf8_lossy(&said);
    let paths: BTreeSet<&str> = (said.lines())
        .filter_map(code_of)
        .filter(|path| Path::new(path) != exe)
        .collect();
    let root = process.join("root");
    let hashed = paths.into_iter().map(|path| {
        // Of a place whose root lies below ours, the kernel says the path from ours.
        let there = [root.join(path.trim_start_matches('/')), path.into()];
        let hash = there.iter().find_map(|path| sha256(path).ok());
        (path.to_owned(), hash)
    });
    Ok(hashed.collect())
}

/// The file of a line of /proc/PID/maps (address, rights, offset, device, inode, path) whose bytes may be executed.
fn code_of(line: &str) -> Option<&str> {
    let (rights, path) = (line.split(' ').nth(1)?, line.find('/')?);
    rights.contains('x').then(|| &line[path..])
}

fn sha256(path: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut digest))
        .map_err(reading(path))?;
    let hash = digest.finalize();
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process_of_a_file_and_of_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let own = std::process::id();
        let seen = of(own, std::slice::from_ref(&path)).unwrap().unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(seen.files[&path], abc);
        assert_eq!(Path::new(&seen.exe), std::env::current_exe().unwrap());
        assert_eq!(
            seen.exe_sha256,
            sha256(&std::env::current_exe().unwrap()).unwrap()
        );
        // A test is linked to the C library: with itself, or by a file.
        for (path, hash) in &seen.libraries {
            assert_eq!(hash.as_deref(), sha256(Path::new(path)).ok().as_deref());
        }
        assert_eq!(seen.capabilities.len(), 16);
        assert_eq!(seen.user_id, nix::unistd::geteuid().as_raw());
        assert!(of(own, &["/no/such/file".into()]).unwrap().is_none());
        assert!(of(1 << 22, &[]).unwrap().is_none());
    }

    #[test]
    fn code_comes_from_files_with_the_right_to_be_executed() {
        for (line, path) in [
            (
                "7f0e9c3b0000-7f0e9c52f000 r-xp 00026000 fe:00 1583  /usr/lib/libc.so.6",
                Some("/usr/lib/libc.so.6"),
            ),
            (
                "7f0e9c3b0000-7f0e9c52f000 r-xp 00000000 00:2a 7  /a b/x.so (deleted)",
                Some("/a b/x.so (deleted)"),
            ),
            (
                "5581-5582 r--p 00000000 fe:00 1583    /usr/lib/libc.so.6",
                None,
            ),
            ("7ffd-7ffe rw-p 00000000 00:00 0       [stack]", None),
            ("7ffe-7fff r-xp 00000000 00:00 0       [vdso]", None),
            ("", None),
        ] {
            assert_eq!(code_of(line), path, "{line}");
        }
    }
}
