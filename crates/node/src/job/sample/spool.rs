//! A file that rows are written to.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use nodrop_proto::JobError;
use nodrop_sys::file::create;

/// Buffered; its errors name the file.
pub struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Spool {
    pub fn create(path: &Path) -> Result<Self, JobError> {
        let file = create(path).map_err(|e| failed(path, &e))?;
        Ok(Self {
            path: path.into(),
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    pub fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), JobError> {
        write(&mut self.file).map_err(|e| failed(&self.path, &e))
    }

    pub fn flush(&mut self) -> Result<(), JobError> {
        self.write(Write::flush)
    }
}

pub fn failed(path: &Path, error: &io::Error) -> JobError {
    JobError::new(
        "spool",
        format!("{}: cannot write: {error}", path.display()),
    )
}
