//! What a process really runs: its program, the files that it was shown, its rights.

use std::collections::BTreeMap;
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
        files: shown.collect::<Result<_>>()?,
        capabilities: word("CapBnd", 0).into(),
        effective_capabilities: word("CapEff", 0).into(),
        no_new_privileges: word("NoNewPrivs", 0) == "1",
        user_id: word("Uid", 1).parse().unwrap_or(u32::MAX),
        filters_system_calls: word("Seccomp", 0) == "2",
    })
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
        assert_eq!(seen.capabilities.len(), 16);
        assert_eq!(seen.user_id, nix::unistd::geteuid().as_raw());
        assert!(of(own, &["/no/such/file".into()]).unwrap().is_none());
        assert!(of(1 << 22, &[]).unwrap().is_none());
    }
}
