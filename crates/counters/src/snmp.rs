//! Protocol counters of a network namespace: `/proc/net/snmp`, `netstat` and `snmp6`, each name with its table before it.

use std::path::Path;

use crate::Result;
use crate::held::{HeldFile, Text};
use crate::named::{Named, Renewal};

/// `Ip.ReasmReqds`, `TcpExt.ListenDrops`, `Ip6ReasmReqds` → value. Signed, because `Tcp.MaxConn` is -1.
pub type Snmp = Named<i64>;

/// Reads the three files; bound to the network namespace of the thread that makes it.
#[derive(Debug)]
pub struct SnmpReader {
    /// snmp and netstat: a line of names, a line of values.
    tables: Vec<HeldFile>,
    /// Absent if IPv6 is not in the kernel.
    six: Option<HeldFile>,
    buffer: Vec<u8>,
}

impl SnmpReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        Self::within(&root.join("proc/net"))
    }

    /// Of the namespace that a process is in.
    pub fn of_process(root: &Path, pid: u32) -> Result<Self> {
        Self::within(&root.join(format!("proc/{pid}/net")))
    }

    fn within(folder: &Path) -> Result<Self> {
        Ok(Self {
            tables: vec![
                HeldFile::open(folder.join("snmp"))?.in_one_piece(),
                HeldFile::open(folder.join("netstat"))?.in_one_piece(),
            ],
            six: HeldFile::open_if_present(folder.join("snmp6"))?.map(HeldFile::in_one_piece),
            buffer: Vec::new(),
        })
    }

    /// Replaces `all` by every counter this kernel has.
    pub fn read(&mut self, all: &mut Snmp) -> Result<()> {
        let mut all = all.renew();
        for file in &self.tables {
            read_tables(file.read(&mut self.buffer)?, &mut all)?;
        }
        if let Some(file) = &self.six {
            for mut line in file.read(&mut self.buffer)?.lines() {
                all.put(&[line.word("a name")?], line.number()?);
            }
        }
        Ok(())
    }
}

fn read_tables(text: Text<'_, '_>, all: &mut Renewal<'_, i64>) -> Result<()> {
    let mut lines = text.lines();
    while let (Some(mut names), Some(mut values)) = (lines.next(), lines.next()) {
        let table = names.word("a table name")?;
        let values_of = values.word("a table name")?;
        if table != values_of {
            return Err(values.wrong(values_of, "the values of the line before"));
        }
        let table = table.trim_end_matches(':');
        for name in names.rest() {
            all.put(&[table, ".", name], values.number()?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fixture, fixture_with};

    fn read(root: &Path) -> Result<Snmp> {
        let mut all = Snmp::default();
        SnmpReader::new(root)?.read(&mut all).map(|()| all)
    }

    #[test]
    fn all_three_files_are_in_one_map() {
        let snmp = read(&fixture()).unwrap();
        assert_eq!(snmp.get("Ip.ReasmReqds"), Some(&0));
        assert_eq!(snmp.get("Ip.Forwarding"), Some(&2));
        assert_eq!(snmp.get("Tcp.MaxConn"), Some(&-1));
        for name in ["TcpExt.ListenDrops", "IpExt.InNoRoutes", "Ip6ReasmReqds"] {
            assert!(snmp.get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_kernel_without_ipv6_has_no_ipv6_counters() {
        let root = fixture_with("proc/net/snmp", "Ip: ReasmReqds ReasmOKs\nIp: 3 1\n");
        std::fs::write(root.path().join("proc/net/netstat"), "").unwrap();
        let snmp = read(root.path()).unwrap();
        assert_eq!(
            snmp.iter().collect::<Vec<_>>(),
            [("Ip.ReasmReqds", &3), ("Ip.ReasmOKs", &1)]
        );
    }

    #[test]
    fn a_missing_value_is_an_error() {
        let root = fixture_with("proc/net/snmp", "Ip: ReasmReqds ReasmOKs\nIp: 3\n");
        std::fs::write(root.path().join("proc/net/netstat"), "").unwrap();
        let error = read(root.path()).unwrap_err();
        assert!(
            format!("{error}").ends_with("snmp:2: `end of line` is not a number"),
            "{error}"
        );
    }
}
