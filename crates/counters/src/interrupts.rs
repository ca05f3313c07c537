//! Interrupts of each queue of a NIC from `/proc/interrupts`: which CPU its packets are received on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use educe::Educe;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::{HeldFile, Line};

/// One interrupt line of a port: usually one queue.
#[derive(Debug, Educe, PartialEq, Eq, Default, JsonSchema, Serialize)]
#[educe(Clone)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// Whose it is.
    pub port: String,
    /// As the driver calls it: `eth0-TxRx-3`, `virtio2-input.0`.
    pub name: String,
    /// Since boot, on each online CPU, in the order of `/proc/interrupts`.
    pub per_cpu: Vec<u64>,
}

/// Reads `/proc/interrupts`, of it only the lines of chosen ports.
#[derive(Debug)]
pub struct InterruptReader {
    file: HeldFile,
    ports: Vec<String>,
    /// Which port an interrupt belongs to, as sysfs said at the start.
    owners: BTreeMap<u32, usize>,
    buffer: Vec<u8>,
}

impl InterruptReader {
    /// `root` is `/` in production and a fixture folder in tests. A virtual port has no interrupts: no error.
    pub fn new(root: &Path, ports: &[String]) -> Result<Self> {
        let mut owners = BTreeMap::new();
        for (index, port) in ports.iter().enumerate() {
            let device = root.join("sys/class/net").join(port).join("device");
            owners.extend(irqs_of(&device).into_iter().map(|irq| (irq, index)));
        }
        Ok(Self {
            file: HeldFile::open(root.join("proc/interrupts"))?,
            ports: ports.to_vec(),
            owners,
            buffer: Vec::new(),
        })
    }

    /// Replaces `rows` by the present ones, in the order of their numbers.
    pub fn read(&mut self, rows: &mut Vec<Interrupt>) -> Result<()> {
        let mut lines = self.file.read(&mut self.buffer)?.lines();
        let cpus = lines.next().map_or(0, |line| line.rest().count());
        let mut at = 0;
        for mut line in lines {
            let Some(irq) = number(&mut line) else {
                // `NMI:`, `LOC:` … are not a device's.
                continue;
            };
            let port = match self.owners.get(&irq) {
                Some(index) => &self.ports[*index],
                None => {
                    let named = line.rest().last();
                    match self.ports.iter().find(|port| is_of(named, port)) {
                        Some(port) => port,
                        None => continue,
                    }
                }
            };
            if rows.len() == at {
                rows.push(Interrupt::default());
            }
            fill(&mut rows[at], irq, port, line, cpus)?;
            at += 1;
        }
        rows.truncate(at);
        Ok(())
    }
}

fn fill(row: &mut Interrupt, irq: u32, port: &str, mut line: Line, cpus: usize) -> Result<()> {
    row.per_cpu.clear();
    for _ in 0..cpus {
        row.per_cpu.push(line.number()?);
    }
    let name = line.rest().last().unwrap_or_default();
    if (row.irq, row.port.as_str(), row.name.as_str()) != (irq, port, name) {
        (row.irq, row.port, row.name) = (irq, port.to_owned(), name.to_owned());
    }
    Ok(())
}

/// ` 38:`
fn number(line: &mut Line) -> Option<u32> {
    line.next()?.strip_suffix(':')?.parse().ok()
}

/// A driver that has no device in sysfs puts the port's name before the queue's.
fn is_of(name: Option<&str>, port: &str) -> bool {
    name.and_then(|name| name.strip_prefix(port))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Message-signalled interrupts of a device. A virtio device has those of the PCI function it sits on.
fn irqs_of(device: &Path) -> Vec<u32> {
    let real = fs::canonicalize(device).unwrap_or_default();
    let virtio = real
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"virtio"));
    let device = if virtio { real.parent() } else { Some(&*real) };
    let entries = device.and_then(|device| fs::read_dir(device.join("msi_irqs")).ok());
    let numbers = entries.into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add, fixture_with};

    #[test]
    fn lines_of_a_port_are_found_by_sysfs_or_by_name() {
        let root = fixture_with(
            "proc/interrupts",
            "           CPU0       CPU2\n\
              \x2024:  1  0  IO-APIC   5-edge      ACPI:Ged\n\
              \x2038:  3  115531 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
              \x2040:  5  6 PCI-MSI 7-edge      nd0-TxRx-0\n\
              \x2041:  7  8 PCI-MSI 7-edge      nd00\n\
              NMI:  0  0  Non-maskable interrupts\nERR:  0\n",
        );
        let pci = "sys/devices/pci/0000:00:03.0";
        add(&root, &format!("{pci}/msi_irqs/38"), "msi\n");
        add(&root, &format!("{pci}/virtio2/vendor"), "1\n");
        std::fs::create_dir_all(root.path().join("sys/class/net/eth0")).unwrap();
        std::os::unix::fs::symlink(
            root.path().join(pci).join("virtio2"),
            root.path().join("sys/class/net/eth0/device"),
        )
        .unwrap();
        let ports = ["eth0".to_owned(), "nd0".to_owned()];
        let mut reader = InterruptReader::new(root.path(), &ports).unwrap();
        let mut rows = vec![Interrupt::default(); 3];
        reader.read(&mut rows).unwrap();
        let row = |irq, port: &str, name: &str, per_cpu: &[u64]| Interrupt {
            irq,
            port: port.into(),
            name: name.into(),
            per_cpu: per_cpu.into(),
        };
        let expected = [
            row(38, "eth0", "virtio2-input.0", &[3, 115_531]),
            row(40, "nd0", "nd0-TxRx-0", &[5, 6]),
        ];
        assert_eq!(rows, expected);
    }
}
