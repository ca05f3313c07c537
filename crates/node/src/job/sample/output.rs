//! Where rows go: spooled to files, so that nothing is on the wire while a trial runs, or sent as events.

use std::io::Write;
use std::path::Path;

use nodrop_counters::ProcessReading;
use nodrop_proto::{JobError, SampleFormat, SampleSpec};
use schemars::JsonSchema;
use serde::Serialize;

use super::csv::Table;
use super::row::Row;
use super::spool::Spool;
use super::sysmon::Sysmon;
use crate::session::Session;

/// A row as it is written.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SampleRow")]
pub struct Line<'a> {
    #[serde(flatten)]
    pub row: &'a Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<ProcessReading>")]
    pub processes: Option<&'a [ProcessReading]>,
}

impl<'a> Line<'a> {
    /// The processes belong to the tree: if that was not read, they are left out too.
    pub fn of(row: &'a Row, processes: &'a [ProcessReading]) -> Self {
        let processes = (!row.tree.is_stale()).then_some(processes);
        Self { row, processes }
    }
}

/// A place and a way of writing.
pub enum Output {
    /// On stdout.
    Events,
    /// A table on stdout, for people.
    Print(Table, Vec<u8>),
    /// In files.
    Spooled(Spooled),
}

impl Output {
    /// Without a path: events, or stdout for people.
    pub fn open(spec: &SampleSpec, controlled: bool) -> Result<Self, JobError> {
        Ok(match (spec.format, &spec.path) {
            (_, Some(path)) => Self::Spooled(Spooled::create(path, spec)?),
            (SampleFormat::Csv, None) if !controlled => Self::Print(Table::default(), Vec::new()),
            (SampleFormat::Sysmon, None) if !controlled => {
                return Err(JobError::new("spec", "format sysmon writes several files")
                    .hint("give their folder with --path"));
            }
            (_, None) => Self::Events,
        })
    }

    /// One row.
    pub fn write(
        &mut self,
        row: &Row,
        processes: &[ProcessReading],
        session: &Session,
    ) -> Result<(), JobError> {
        match self {
            Self::Events => session.stream(&Line::of(row, processes)),
            Self::Print(table, text) => {
                text.clear();
                let written = table.write(row, text);
                written.map_err(|e| JobError::new("bug", e.to_string()))?;
                text.pop(); // the line end, which is added again
                session.print(text);
            }
            Self::Spooled(spooled) => spooled.take(row, processes)?,
        }
        Ok(())
    }

    /// Everything is in the files when this returns.
    pub fn close(&mut self) -> Result<(), JobError> {
        match self {
            Self::Events | Self::Print(..) => Ok(()),
            Self::Spooled(spooled) => spooled.write(),
        }
    }
}

/// Rows are in the file about a second after they were taken, for who reads it while it grows.
const TOGETHER_NS: u64 = 900_000_000;
/// However fast they come.
const MOST_TOGETHER: usize = 256;

/// Rows wait to be written together: after a tenth of a second asleep every cache is cold, and only the first of them pays for it.
pub struct Spooled {
    files: Files,
    /// The first `waiting` of these; the others are memory for later ones.
    rows: Vec<(Row, Vec<ProcessReading>)>,
    waiting: usize,
    written_ns: u64,
}

/// The formats of files.
enum Files {
    /// JSON lines.
    Json(Spool),
    /// A table.
    Csv(Spool, Table),
    /// The studies' files.
    Sysmon(Box<Sysmon>),
}

impl Spooled {
    pub fn create(path: &Path, spec: &SampleSpec) -> Result<Self, JobError> {
        Ok(Self {
            files: match spec.format {
                SampleFormat::Jsonl => Files::Json(Spool::create(path)?),
                SampleFormat::Csv => Files::Csv(Spool::create(path)?, Table::default()),
                SampleFormat::Sysmon => Files::Sysmon(Box::new(Sysmon::open(path, spec)?)),
            },
            rows: Vec::new(),
            waiting: 0,
            written_ns: 0,
        })
    }

    /// One row, which is copied.
    pub fn take(&mut self, row: &Row, processes: &[ProcessReading]) -> Result<(), JobError> {
        if self.waiting == self.rows.len() {
            self.rows.push((Row::default(), Vec::new()));
        }
        let (row_kept, processes_kept) = &mut self.rows[self.waiting];
        row_kept.clone_from(row);
        processes.clone_into(processes_kept);
        self.waiting += 1;
        let since_ns = row.mono_ns.saturating_sub(self.written_ns);
        if since_ns < TOGETHER_NS && self.waiting < MOST_TOGETHER {
            return Ok(());
        }
        self.written_ns = row.mono_ns;
        self.write()
    }

    /// Everything that waits, into the files.
    pub fn write(&mut self) -> Result<(), JobError> {
        let rows = &self.rows[..self.waiting];
        self.waiting = 0;
        match &mut self.files {
            Files::Json(spool) => spool.write(|file| {
                for (row, processes) in rows {
                    serde_json::to_writer(&mut *file, &Line::of(row, processes))?;
                    file.write_all(b"\n")?;
                }
                file.flush()
            }),
            Files::Csv(spool, table) => spool.write(|file| {
                rows.iter()
                    .try_for_each(|(row, _)| table.write(row, file))?;
                file.flush()
            }),
            Files::Sysmon(files) => {
                for (row, processes) in rows {
                    files.write(row, processes)?;
                }
                files.flush()
            }
        }
    }
}

impl Drop for Spooled {
    /// A sampler that ends with an error has written all rows before it.
    fn drop(&mut self) {
        // The first error is the one that counts.
        let _ = self.write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_wait_are_written_whatever_ends_the_sampler() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let spec: SampleSpec = serde_json::from_value(serde_json::json!({})).unwrap();
        let mut spooled = Spooled::create(&path, &spec).unwrap();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let row = Row {
            mono_ns: 5 * TOGETHER_NS,
            ..Row::default()
        };
        for _ in 0..3 {
            spooled.take(&row, &[]).unwrap();
        }
        assert_eq!(lines(), 1, "the others wait");
        drop(spooled);
        assert_eq!(lines(), 3);
    }
}
