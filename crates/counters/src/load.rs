//! How crowded the host is: `/proc/loadavg` and, if the kernel has it, `/proc/pressure`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::held::HeldFile;

/// The load averages and what is runnable this instant.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema, Serialize)]
pub struct Load {
    /// Mean of runnable and uninterruptible tasks over a minute, exponentially weighted.
    pub one: f64,
    /// Over five.
    pub five: f64,
    /// Over fifteen.
    pub fifteen: f64,
    /// Runnable now.
    pub runnable: u64,
    /// All threads there are.
    pub tasks: u64,
}

/// µs since boot during which some, or all, tasks that wanted to run waited for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct Pressure {
    /// At least one task waited for a CPU.
    pub cpu_some_us: Option<u64>,
    /// At least one task waited for memory.
    pub memory_some_us: Option<u64>,
    /// All of them did.
    pub memory_full_us: Option<u64>,
    /// At least one task waited for a disk.
    pub io_some_us: Option<u64>,
    /// All of them did.
    pub io_full_us: Option<u64>,
}

/// Reads both.
#[derive(Debug)]
pub struct LoadReader {
    average: HeldFile,
    /// cpu, memory, io; absent without CONFIG_PSI or with psi=0.
    pressure: [Option<HeldFile>; 3],
    buffer: Vec<u8>,
}

impl LoadReader {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn new(root: &Path) -> Result<Self> {
        let pressure = |name: &str| -> Result<_> {
            let file = HeldFile::open_if_present(root.join("proc/pressure").join(name))?;
            Ok(file.map(HeldFile::in_one_piece))
        };
        Ok(Self {
            average: HeldFile::open(root.join("proc/loadavg"))?.in_one_piece(),
            pressure: [pressure("cpu")?, pressure("memory")?, pressure("io")?],
            buffer: Vec::new(),
        })
    }

    /// Load now.
    pub fn load(&mut self) -> Result<Load> {
        let mut line = self.average.read(&mut self.buffer)?.line()?;
        let (one, five, fifteen) = (line.number()?, line.number()?, line.number()?);
        let word = line.word("runnable/tasks")?;
        let (runnable, tasks) = word
            .split_once('/')
            .and_then(|(runnable, tasks)| Some((runnable.parse().ok()?, tasks.parse().ok()?)))
            .ok_or_else(|| line.wrong(word, "runnable/tasks"))?;
        Ok(Load {
            one,
            five,
            fifteen,
            runnable,
            tasks,
        })
    }

    /// Pressure since boot.
    pub fn pressure(&mut self) -> Result<Pressure> {
        let mut totals = [(None, None); 3];
        for (file, total) in self.pressure.iter().zip(&mut totals) {
            if let Some(file) = file {
                *total = some_and_full(file, &mut self.buffer)?;
            }
        }
        let [cpu, memory, io] = totals;
        Ok(Pressure {
            cpu_some_us: cpu.0,
            memory_some_us: memory.0,
            memory_full_us: memory.1,
            io_some_us: io.0,
            io_full_us: io.1,
        })
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, then the same with `full`.
fn some_and_full(file: &HeldFile, buffer: &mut Vec<u8>) -> Result<(Option<u64>, Option<u64>)> {
    let (mut some, mut full) = (None, None);
    for mut line in file.read(buffer)?.lines() {
        let place = match line.word("some or full")? {
            "some" => &mut some,
            "full" => &mut full,
            _ => continue,
        };
        let word = line.skip(3).word("total=")?;
        let number = word
            .strip_prefix("total=")
            .and_then(|number| number.parse().ok());
        *place = Some(number.ok_or_else(|| line.wrong(word, "total=NUMBER"))?);
    }
    Ok((some, full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add, fixture, fixture_with};

    #[test]
    fn the_totals_of_pressure_are_read() {
        let root = fixture_with("proc/loadavg", "0.20 0.37 0.30 1/93 3908\n");
        let line =
            |word, total| format!("{word} avg10=0.03 avg60=0.72 avg300=1.36 total={total}\n");
        add(
            &root,
            "proc/pressure/cpu",
            &(line("some", 7) + &line("full", 0)),
        );
        add(
            &root,
            "proc/pressure/io",
            &(line("some", 5) + &line("full", 4)),
        );
        let mut reader = LoadReader::new(root.path()).unwrap();
        let expected = Pressure {
            cpu_some_us: Some(7),
            memory_some_us: None,
            memory_full_us: None,
            io_some_us: Some(5),
            io_full_us: Some(4),
        };
        assert_eq!(reader.pressure().unwrap(), expected);
        let load = Load {
            one: 0.2,
            five: 0.37,
            fifteen: 0.3,
            runnable: 1,
            tasks: 93,
        };
        assert_eq!(reader.load().unwrap(), load);
    }

    #[test]
    fn a_6_18_kernel_has_pressure() {
        let mut reader = LoadReader::new(&fixture()).unwrap();
        assert!(reader.pressure().unwrap().cpu_some_us > Some(0));
        assert!(reader.load().unwrap().tasks > 0);
    }
}
