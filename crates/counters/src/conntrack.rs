//! What connection tracking of a network namespace counted, from `/proc/net/stat/nf_conntrack`: a line of names, a line of
//! hexadecimal values per CPU.

use std::path::Path;

use crate::Result;
use crate::held::HeldFile;
use crate::named::Named;

/// `drop`, `early_drop`, `insert_failed` … → sum over the CPUs; empty if it is not loaded.
pub type Conntrack = Named<u64>;

/// Reads the file; bound to the network namespace of the thread that makes it.
#[derive(Debug)]
pub struct ConntrackReader {
    file: Option<HeldFile>,
    buffer: Vec<u8>,
}

impl ConntrackReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        Ok(Self {
            file: HeldFile::open_if_present(root.join("proc/net/stat/nf_conntrack"))?,
            buffer: Vec::new(),
        })
    }

    /// Replaces `all` by the present sums; `entries`, which every line repeats, is left out.
    pub fn read(&mut self, all: &mut Conntrack) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut lines = file.read(&mut self.buffer)?.lines();
        let names: Vec<&str> = match lines.next() {
            Some(line) => line.rest().collect(),
            None => Vec::new(),
        };
        let mut sums = vec![0_u64; names.len()];
        for mut line in lines {
            for sum in &mut sums {
                *sum = sum.saturating_add(line.hex_if_present()?.unwrap_or(0));
            }
        }
        let mut all = all.renew();
        for (name, sum) in names
            .iter()
            .zip(sums)
            .filter(|(name, _)| **name != "entries")
        {
            all.put(&[name], sum);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture_with;

    #[test]
    fn the_cpus_are_summed() {
        let text = "entries  found drop early_drop\n00000005 00000001 0000000a 00000000\n00000005 00000002 00000001 00000003\n";
        let root = fixture_with("proc/net/stat/nf_conntrack", text);
        let mut all = Conntrack::default();
        ConntrackReader::new(root.path())
            .unwrap()
            .read(&mut all)
            .unwrap();
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            [("found", &3), ("drop", &11), ("early_drop", &3)]
        );
        let nothing = tempfile::tempdir().unwrap();
        let mut none = Conntrack::default();
        ConntrackReader::new(nothing.path())
            .unwrap()
            .read(&mut none)
            .unwrap();
        assert_eq!(none.iter().count(), 0);
    }
}
