//! Where rows go: spooled to a file, so that nothing is on the wire while a trial runs, or sent as events.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nodrop_counters::ProcessReading;
use nodrop_proto::{JobError, SampleFormat, SampleSpec};
use serde::Serialize;

use super::csv::Table;
use super::row::Row;
use super::sysmon::Sysmon;
use crate::session::Session;

/// A row as it is written.
#[derive(Serialize)]
pub struct Line<'a> {
    #[serde(flatten)]
    pub row: &'a Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<&'a [ProcessReading]>,
}

impl<'a> Line<'a> {
    /// The processes belong to the tree: where that was not read, they are not told either.
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
    /// JSON lines in a file.
    Json(Spool),
    /// A table in a file.
    Csv(Spool, Table),
    /// The studies' files.
    Sysmon(Box<Sysmon>),
}

/// Rows are in the file at the latest after this, for who reads it while it grows.
const FLUSH_EVERY: Duration = Duration::from_millis(400);

impl Output {
    /// Without a path: events, or stdout for people.
    pub fn open(spec: &SampleSpec, controlled: bool) -> Result<Self, JobError> {
        Ok(match (spec.format, &spec.path) {
            (SampleFormat::Jsonl, Some(path)) => Self::Json(Spool::create(path)?),
            (SampleFormat::Csv, Some(path)) => Self::Csv(Spool::create(path)?, Table::default()),
            (SampleFormat::Sysmon, Some(path)) => Self::Sysmon(Box::new(Sysmon::open(path, spec)?)),
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
            Self::Json(spool) => {
                let line = Line::of(row, processes);
                spool.write(|file| {
                    serde_json::to_writer(&mut *file, &line)?;
                    file.write_all(b"\n")
                })?;
            }
            Self::Csv(spool, table) => spool.write(|file| table.write(row, file))?,
            Self::Sysmon(files) => files.write(row, processes)?,
        }
        Ok(())
    }

    /// Everything is in the files when this returns.
    pub fn close(&mut self) -> Result<(), JobError> {
        match self {
            Self::Events | Self::Print(..) => Ok(()),
            Self::Json(spool) | Self::Csv(spool, _) => spool.close(),
            Self::Sysmon(files) => files.close(),
        }
    }
}

/// A file that rows are written to.
pub struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    last_flush: Instant,
}

impl Spool {
    pub fn create(path: &Path) -> Result<Self, JobError> {
        let file = File::create(path).map_err(|e| failed(path, &e))?;
        Ok(Self {
            path: path.into(),
            file: BufWriter::with_capacity(1 << 16, file),
            last_flush: Instant::now(),
        })
    }

    pub fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), JobError> {
        let written = write(&mut self.file).and_then(|()| self.flush_now_and_then());
        written.map_err(|e| failed(&self.path, &e))
    }

    fn flush_now_and_then(&mut self) -> io::Result<()> {
        if self.last_flush.elapsed() < FLUSH_EVERY {
            return Ok(());
        }
        self.last_flush = Instant::now();
        self.file.flush()
    }

    pub fn close(&mut self) -> Result<(), JobError> {
        self.write(Write::flush)
    }
}

pub fn failed(path: &Path, error: &io::Error) -> JobError {
    JobError::new(
        "spool",
        format!("{}: cannot write: {error}", path.display()),
    )
}
