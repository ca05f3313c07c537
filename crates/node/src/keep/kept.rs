//! The folders of what is kept on this host: one for each connection, locked as long as its keeper lives.

use std::fs::{File, read_dir, remove_dir_all};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use serde::{Deserialize, Serialize};

use super::labelled::{self, Ended};

const BEGINNING: &str = "kept.";
const RECORD: &str = "run.json";

/// Whose it is.
#[derive(Clone, Serialize, Deserialize)]
pub struct Run {
    /// What its processes carry.
    pub label: String,
    /// In words.
    holder: String,
    /// For its controller's machine.
    #[serde(default)]
    controller: String,
    since_unix_s: u64,
    /// Of its keeper.
    pid: u32,
}

impl Run {
    /// One that is kept from now on by this process.
    pub fn new(label: &str, holder: &str, controller: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            label: label.into(),
            holder: holder.into(),
            controller: controller.into(),
            since_unix_s: since.map_or(0, |since| since.as_secs()),
            pid: std::process::id(),
        }
    }
}

/// All of them; locked, no other keeper begins or sweeps meanwhile.
pub struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

/// What a sweep has seen.
#[derive(Default)]
pub struct Swept {
    /// Runs of which nothing is left now.
    pub ended: Vec<(Run, Ended)>,
    /// Runs whose keeper lives.
    pub goes_on: Vec<Run>,
}

impl Folder {
    /// Waits for its lock.
    pub fn locked(path: &Path) -> anyhow::Result<Self> {
        let lock = Flock::lock(opened(path)?, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self {
            path: path.into(),
            _lock: lock,
        })
    }

    /// Ends what has no keeper any more, and what is `wanted` (its name, its run if that is known).
    pub fn sweep(&self, wanted: impl Fn(&str, Option<&Run>) -> bool) -> anyhow::Result<Swept> {
        let mut swept = Swept::default();
        for entry in read_dir(&self.path).with_context(|| self.path.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(BEGINNING) || !entry.file_type()?.is_dir() {
                continue;
            }
            let Ok(folder) = File::open(entry.path()) else {
                continue; // its keeper has just removed it
            };
            let run = recorded(&entry.path());
            let mut lock = free(folder);
            if let (None, Some(run), true) = (&lock, &run, wanted(&name, run.as_ref())) {
                anyhow::ensure!(
                    labelled::kill_if(run.pid, &["keep", &run.label]),
                    "the keeper of run {} (pid {}) does not end",
                    run.label,
                    run.pid
                );
                lock = File::open(entry.path()).ok().and_then(free);
            }
            match (lock, run) {
                (None, Some(run)) => swept.goes_on.push(run),
                (None, None) => {}
                (Some(_lock), run) => {
                    if let Some(run) = run {
                        let ended = labelled::end(&run.label, std::time::Duration::ZERO);
                        swept.ended.push((run, ended));
                    }
                    removed(&entry.path())?;
                }
            }
        }
        Ok(swept)
    }

    /// A folder of our own, which is locked before anyone else can look.
    pub fn keep(self, run: &Run) -> anyhow::Result<Kept> {
        let failed = || format!("nothing can be kept in {}", self.path.display());
        umask(Mode::S_IRWXG | Mode::S_IRWXO);
        let folder = tempfile::Builder::new()
            .prefix(BEGINNING)
            .tempdir_in(&self.path)
            .with_context(failed)?;
        let lock = free(opened(folder.path())?).context("a new folder is locked")?;
        let record = folder.path().join(RECORD);
        std::fs::write(&record, serde_json::to_vec(run)?).with_context(failed)?;
        Ok(Kept {
            path: folder.keep(),
            _lock: lock,
        })
    }
}

/// Files of a connection.
pub struct Kept {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Kept {
    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// With all that is in it.
    pub fn remove(self) -> anyhow::Result<()> {
        removed(&self.path)
    }
}

fn recorded(folder: &Path) -> Option<Run> {
    serde_json::from_slice(&std::fs::read(folder.join(RECORD)).ok()?).ok()
}

/// Its lock, if no keeper has it.
fn free(folder: File) -> Option<Flock<File>> {
    match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Some(lock),
        Err((_, Errno::EWOULDBLOCK)) => None,
        Err(_) => None,
    }
}

fn removed(folder: &Path) -> anyhow::Result<()> {
    match remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn opened(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| path.display().to_string())
}
