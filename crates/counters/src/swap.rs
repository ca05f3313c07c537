//! What was moved to swap and back, from `/proc/vmstat`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::clock::page_bytes;
use crate::held::HeldFile;

/// Since boot; `None` = this kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Swap {
    /// Read back from swap.
    pub in_bytes: Option<u64>,
    /// Written to swap.
    pub out_bytes: Option<u64>,
    /// Page faults of all processes that had to read a disk.
    pub major_faults: Option<u64>,
}

/// Reads `/proc/vmstat`.
#[derive(Debug)]
pub struct SwapReader {
    file: HeldFile,
    buffer: Vec<u8>,
}

impl SwapReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let file = HeldFile::open(root.join("proc/vmstat"))?;
        let buffer = Vec::new();
        Ok(Self { file, buffer })
    }

    /// Swapping since boot.
    pub fn read(&mut self) -> Result<Swap> {
        let mut swap = Swap::default();
        for mut line in self.file.read(&mut self.buffer)?.lines() {
            let (place, unit) = match line.word("a name")? {
                "pswpin" => (&mut swap.in_bytes, page_bytes()),
                "pswpout" => (&mut swap.out_bytes, page_bytes()),
                "pgmajfault" => (&mut swap.major_faults, 1),
                _ => continue,
            };
            *place = Some(line.number::<u64>()?.saturating_mul(unit));
        }
        Ok(swap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture_with;

    #[test]
    fn pages_become_bytes() {
        let root = fixture_with("proc/vmstat", "nr_free_pages 9\npswpin 2\npgmajfault 7\n");
        let swap = SwapReader::new(root.path()).unwrap().read().unwrap();
        let expected = Swap {
            in_bytes: Some(2 * page_bytes()),
            out_bytes: None,
            major_faults: Some(7),
        };
        assert_eq!(swap, expected);
    }
}
