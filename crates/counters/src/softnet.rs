//! Backlog counters of each CPU from `/proc/net/softnet_stat`: hexadecimal, one line per online CPU, the same in every
//! network namespace.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// One CPU's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SoftnetRow {
    /// Column 13, since 5.10. Offline CPUs have no line, so before that the line number is only a guess: the order.
    pub cpu: u64,
    /// Column 1: frames taken out of the backlog or handed up by a driver's poll.
    pub processed: u64,
    /// Column 2: frames refused because the backlog (`net.core.netdev_max_backlog`) was full.
    pub dropped: u64,
    /// Column 3: times the poll stopped with work left (`net.core.netdev_budget`, `netdev_budget_usecs`).
    pub time_squeeze: u64,
    /// Column 10: times this CPU was woken by another one's RPS.
    pub received_rps: Option<u64>,
    /// Column 11: frames refused by the flow limit.
    pub flow_limit: Option<u64>,
}

/// Reads `/proc/net/softnet_stat`.
#[derive(Debug)]
pub struct SoftnetReader {
    file: HeldFile,
    buffer: Vec<u8>,
}

impl SoftnetReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let file = HeldFile::open(root.join("proc/net/softnet_stat"))?.of_short_records();
        Ok(Self {
            file,
            buffer: Vec::new(),
        })
    }

    /// Replaces `rows` by the present ones.
    pub fn read(&mut self, rows: &mut Vec<SoftnetRow>) -> Result<()> {
        rows.clear();
        for (order, mut line) in self.file.read(&mut self.buffer)?.lines().enumerate() {
            let (processed, dropped, time_squeeze) = (line.hex()?, line.hex()?, line.hex()?);
            let received_rps = line.skip(6).hex_if_present()?;
            let flow_limit = line.hex_if_present()?;
            let cpu = line.skip(1).hex_if_present()?.unwrap_or(order as u64);
            rows.push(SoftnetRow {
                cpu,
                processed,
                dropped,
                time_squeeze,
                received_rps,
                flow_limit,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, fixture_with};

    #[test]
    fn rows_of_a_6_18_kernel() {
        let mut rows = Vec::new();
        SoftnetReader::new(&fixture())
            .unwrap()
            .read(&mut rows)
            .unwrap();
        let row = |cpu, processed| SoftnetRow {
            cpu,
            processed,
            dropped: 0,
            time_squeeze: 0,
            received_rps: Some(0),
            flow_limit: Some(0),
        };
        assert_eq!(rows, [row(0, 0x17f44), row(1, 0x29479)]);
    }

    #[test]
    fn an_offline_cpu_does_not_shift_the_others() {
        let line = "0000000a 00000003 00000002 0 0 0 0 0 0 00000004 00000005 0 00000007 0 0\n";
        let root = fixture_with("proc/net/softnet_stat", line);
        let mut rows = Vec::new();
        SoftnetReader::new(root.path())
            .unwrap()
            .read(&mut rows)
            .unwrap();
        let row = SoftnetRow {
            cpu: 7,
            processed: 10,
            dropped: 3,
            time_squeeze: 2,
            received_rps: Some(4),
            flow_limit: Some(5),
        };
        assert_eq!(rows, [row]);
    }

    #[test]
    fn what_is_not_a_number_is_named_with_its_line() {
        let root = fixture_with("proc/net/softnet_stat", "1 2 3\n1 zz 3\n");
        let error = SoftnetReader::new(root.path())
            .unwrap()
            .read(&mut Vec::new())
            .unwrap_err();
        let words = format!("{error}");
        assert!(
            words.ends_with("softnet_stat:2: `zz` is not a hexadecimal number"),
            "{words}"
        );
    }
}
