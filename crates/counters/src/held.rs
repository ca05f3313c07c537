//! Kernel files that stay open: opening costs more than reading, and an open one cannot become another process's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::{CounterError, Result};

/// An open file and where it came from.
#[derive(Debug)]
pub(crate) struct HeldFile {
    path: PathBuf,
    file: File,
    /// Fewer bytes than this from one call are the last ones.
    ends_below: Option<usize>,
}

/// What seq_file fills per call, at least.
const PAGE: usize = 4096;

impl HeldFile {
    pub fn open(path: PathBuf) -> Result<Self> {
        match File::open(&path) {
            Ok(file) => Ok(Self {
                path,
                file,
                ends_below: None,
            }),
            Err(source) => Err(CounterError::Read { path, source }),
        }
    }

    /// For files that the kernel makes as one record (single_open(), kernfs): less than was asked for is all there is, so that
    /// the second call, which would only say the end, is saved.
    pub fn in_one_piece(self) -> Self {
        Self {
            ends_below: Some(usize::MAX),
            ..self
        }
    }

    /// For files of many records, none of them longer than half a page: the kernel fills a page per call as long as the next
    /// record fits in, so less than half of one is the rest.
    pub fn of_short_records(self) -> Self {
        Self {
            ends_below: Some(PAGE / 2),
            ..self
        }
    }

    /// `None` if this kernel has no such file.
    pub fn open_if_present(path: PathBuf) -> Result<Option<Self>> {
        match Self::open(path) {
            Ok(held) => Ok(Some(held)),
            Err(e) if e.is_gone() => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a read would say once the process is gone.
    pub fn gone(&self) -> CounterError {
        let source = io::Error::from_raw_os_error(libc::ESRCH);
        CounterError::Read {
            path: self.path.clone(),
            source,
        }
    }

    /// Reads the whole file anew into `buffer`, which only grows.
    pub fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<Text<'_, 'b>> {
        let failed = |source| CounterError::Read {
            path: self.path.clone(),
            source,
        };
        let length = self.fill(buffer).map_err(failed)?;
        Ok(Text {
            path: &self.path,
            text: readable(&mut buffer[..length]),
        })
    }

    /// The kernel hands out at most a page or so per call: read on until it says the end.
    fn fill(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut length = 0;
        loop {
            if buffer.len() < length + PAGE {
                buffer.resize(length + PAGE, 0);
            }
            match self.file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => return Ok(length),
                Ok(more) => {
                    length += more;
                    let is_short = self.ends_below.is_some_and(|bytes| more < bytes);
                    if is_short && length < buffer.len() {
                        return Ok(length);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// A program may give itself any bytes for a name: they must not end the reading of all others.
fn readable(bytes: &mut [u8]) -> &str {
    if !bytes.is_ascii() {
        let mut start = 0;
        while let Err(wrong) = std::str::from_utf8(&bytes[start..]) {
            start += wrong.valid_up_to();
            bytes[start] = b'?';
        }
    }
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// What a file held, with its name for errors.
#[derive(Clone, Copy)]
pub(crate) struct Text<'p, 't> {
    pub path: &'p Path,
    pub text: &'t str,
}

impl<'p, 't> Text<'p, 't> {
    /// The first line of a file that must have one.
    pub fn line(self) -> Result<Line<'p, 't>> {
        self.lines()
            .next()
            .ok_or_else(|| self.wrong(1, "", "a line"))
    }

    pub fn wrong(self, line: usize, item: &str, expected: &'static str) -> CounterError {
        CounterError::Parse {
            path: self.path.into(),
            line,
            item: item.into(),
            expected,
        }
    }

    pub fn lines(self) -> impl Iterator<Item = Line<'p, 't>> {
        self.text
            .lines()
            .enumerate()
            .map(move |(index, text)| Line {
                path: self.path,
                number: index + 1,
                words: text.split_ascii_whitespace(),
            })
    }
}

/// One line, taken word by word.
pub(crate) struct Line<'p, 't> {
    path: &'p Path,
    number: usize,
    words: SplitAsciiWhitespace<'t>,
}

impl<'t> Line<'_, 't> {
    pub fn next(&mut self) -> Option<&'t str> {
        self.words.next()
    }

    /// The words that are left.
    pub fn rest(&self) -> SplitAsciiWhitespace<'t> {
        self.words.clone()
    }

    pub fn wrong(&self, item: &str, expected: &'static str) -> CounterError {
        CounterError::Parse {
            path: self.path.into(),
            line: self.number,
            item: item.into(),
            expected,
        }
    }

    pub fn word(&mut self, expected: &'static str) -> Result<&'t str> {
        let end = "end of line";
        self.words.next().ok_or_else(|| self.wrong(end, expected))
    }

    pub fn number<T: FromStr>(&mut self) -> Result<T> {
        let word = self.word("a number")?;
        word.parse().map_err(|_| self.wrong(word, "a number"))
    }

    /// Absent columns are those an older kernel does not have.
    pub fn number_if_present<T: FromStr>(&mut self) -> Result<Option<T>> {
        match self.words.next() {
            None => Ok(None),
            Some(word) => word
                .parse()
                .map(Some)
                .map_err(|_| self.wrong(word, "a number")),
        }
    }

    pub fn hex(&mut self) -> Result<u64> {
        let word = self.word("a hexadecimal number")?;
        u64::from_str_radix(word, 16).map_err(|_| self.wrong(word, "a hexadecimal number"))
    }

    pub fn hex_if_present(&mut self) -> Result<Option<u64>> {
        match self.words.next() {
            None => Ok(None),
            Some(word) => u64::from_str_radix(word, 16)
                .map(Some)
                .map_err(|_| self.wrong(word, "a hexadecimal number")),
        }
    }

    pub fn skip(&mut self, words: usize) -> &mut Self {
        for _ in 0..words {
            self.words.next();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_become_question_marks() {
        let mut bytes = *b"a\xffb\xc3(\xe2\x82";
        assert_eq!(readable(&mut bytes), "a?b?(??");
        assert_eq!(readable(&mut "grün".to_owned().into_bytes()), "grün");
    }
}
