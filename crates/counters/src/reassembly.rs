//! What IPv4 reassembly of a network namespace holds, and its limits: `/proc/net/sockstat` and `net.ipv4.ipfrag_*`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// Values of the moment, but for the limits; `None` = this kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Reassembly {
    /// Datagrams that wait for fragments.
    pub queues: Option<u64>,
    /// Memory of all that wait.
    pub memory_bytes: Option<u64>,
    /// Above this much memory every fragment is refused (`ipfrag_high_thresh`).
    pub high_thresh_bytes: Option<u64>,
    /// A datagram that is not whole by then is thrown away (`ipfrag_time`).
    pub time_s: Option<u64>,
    /// Fragments of one source that may pass between two of a datagram; 0 = any number (`ipfrag_max_dist`).
    pub max_distance: Option<u64>,
}

/// Reads all of it; bound to the network namespace of the process that makes it.
#[derive(Debug)]
pub struct ReassemblyReader {
    root: PathBuf,
    buffer: Vec<u8>,
}

impl ReassemblyReader {
    /// `root` is `/` in production and a fixture folder in tests.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            buffer: Vec::new(),
        }
    }

    /// What is held now.
    pub fn read(&mut self) -> Result<Reassembly> {
        let mut seen = Reassembly {
            high_thresh_bytes: self.limit("ipfrag_high_thresh")?,
            time_s: self.limit("ipfrag_time")?,
            max_distance: self.limit("ipfrag_max_dist")?,
            ..Reassembly::default()
        };
        if let Some(file) = HeldFile::open_if_present(self.root.join("proc/net/sockstat"))? {
            for mut line in file.in_one_piece().read(&mut self.buffer)?.lines() {
                if line.word("a table name")? == "FRAG:" {
                    seen.queues = Some(line.skip(1).number()?);
                    seen.memory_bytes = Some(line.skip(1).number()?);
                }
            }
        }
        Ok(seen)
    }

    fn limit(&mut self, name: &str) -> Result<Option<u64>> {
        let file = HeldFile::open_if_present(self.root.join("proc/sys/net/ipv4").join(name))?;
        file.map(|file| file.read(&mut self.buffer)?.line()?.number())
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add, fixture_with};

    #[test]
    fn queues_memory_and_limits() {
        let sockstat = "sockets: used 17\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 173\nRAW: inuse 0\nFRAG: inuse 3 memory 4096\n";
        let root = fixture_with("proc/net/sockstat", sockstat);
        add(&root, "proc/sys/net/ipv4/ipfrag_high_thresh", "4194304\n");
        add(&root, "proc/sys/net/ipv4/ipfrag_time", "30\n");
        let expected = Reassembly {
            queues: Some(3),
            memory_bytes: Some(4096),
            high_thresh_bytes: Some(4 << 20),
            time_s: Some(30),
            max_distance: None,
        };
        assert_eq!(ReassemblyReader::new(root.path()).read().unwrap(), expected);
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(
            ReassemblyReader::new(nothing.path()).read().unwrap(),
            Reassembly::default()
        );
    }
}
