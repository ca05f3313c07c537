//! What the files below `/proc/PID` say.

use std::fs;
use std::path::Path;

use super::{ProcessIo, ProcessReading, ThreadReading};
use crate::clock::tick_ns;
use crate::held::HeldFile;
use crate::{CounterError, Result};

#[derive(PartialEq, Eq)]
pub(super) enum State {
    Living,
    Ended,
}

/// `PID (NAME) STATE …`: a name may hold spaces and parentheses, so fields are counted from the last parenthesis.
pub(super) fn read_stat(
    file: &HeldFile,
    reading: &mut ProcessReading,
    buffer: &mut Vec<u8>,
) -> Result<State> {
    let text = file.read(buffer)?;
    let malformed = || text.wrong(1, text.text.trim_end(), "PID (NAME) STATE …");
    let (head, rest) = text.text.rsplit_once(')').ok_or_else(malformed)?;
    let (_, name) = head.split_once('(').ok_or_else(malformed)?;
    if reading.name != name {
        reading.name = name.into();
    }
    // Field 3 of proc_pid_stat(5) comes first.
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().ok_or_else(malformed)?;
    let mut field = |skip: usize| -> Result<u64> {
        fields
            .nth(skip)
            .and_then(|word| word.parse().ok())
            .ok_or_else(malformed)
    };
    reading.minor_faults = field(6)?;
    reading.major_faults = field(1)?;
    reading.cpu_ns = field(1)?
        .saturating_add(field(0)?)
        .saturating_mul(tick_ns());
    // A zombie has ended; its parent has just not looked.
    Ok(if matches!(state, "Z" | "X") {
        State::Ended
    } else {
        State::Living
    })
}

pub(super) fn read_schedstat(
    file: &HeldFile,
    thread: &mut ThreadReading,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let mut line = file.read(buffer)?.line()?;
    thread.cpu_ns = line.number()?;
    thread.wait_ns = line.number()?;
    thread.slices = line.number()?;
    Ok(())
}

/// Its state is field 3 of proc_pid_stat(5), the CPU it ran on last field 39.
pub(super) fn read_thread_stat(
    file: &HeldFile,
    thread: &mut ThreadReading,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let text = file.read(buffer)?;
    let malformed = || text.wrong(1, text.text.trim_end(), "TID (NAME) STATE …");
    let (_, rest) = text.text.rsplit_once(')').ok_or_else(malformed)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().and_then(|word| word.chars().next());
    thread.state = state.ok_or_else(malformed)?;
    let last_cpu = fields.nth(35).and_then(|word| word.parse().ok());
    thread.last_cpu = last_cpu.ok_or_else(malformed)?;
    Ok(())
}

/// `0` if it sleeps no longer, or to whom may not look.
pub(super) fn read_wait_channel(file: &HeldFile, thread: &mut ThreadReading, buffer: &mut Vec<u8>) {
    if let Ok(text) = file.read(buffer) {
        let name = text.text.trim();
        thread
            .wait_channel
            .push_str(if name == "0" { "" } else { name });
    }
}

pub(super) fn peak(status: &HeldFile, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
    for mut line in status.read(buffer)?.lines() {
        if line.next() == Some("VmHWM:") {
            return Ok(Some(line.number::<u64>()?.saturating_mul(1024)));
        }
    }
    Ok(None)
}

pub(super) fn thread_ids(folder: &Path) -> Result<Vec<u32>> {
    let failed = |source| CounterError::Read {
        path: folder.into(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut ids = entries
        .filter_map(|entry| match entry {
            Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
            Err(e) => Some(Err(failed(e))),
        })
        .collect::<Result<Vec<u32>>>()?;
    ids.sort_unstable();
    Ok(ids)
}

/// Children belong to the thread that made them.
pub(super) fn read_children(
    file: &HeldFile,
    children: &mut Vec<u32>,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    for mut line in file.read(buffer)?.lines() {
        while let Some(pid) = line.number_if_present()? {
            children.push(pid);
        }
    }
    Ok(())
}

/// Its name comes first in the file, with backslashes and line ends escaped; its context switches come last.
pub(super) fn read_status(
    file: &HeldFile,
    thread: &mut ThreadReading,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let text = file.read(buffer)?;
    if let Some(name) = text
        .text
        .lines()
        .next()
        .and_then(|l| l.strip_prefix("Name:\t"))
    {
        if thread.name != name {
            thread.name = name.into();
        }
    }
    for mut line in text.lines() {
        let place = match line.next() {
            Some("voluntary_ctxt_switches:") => &mut thread.voluntary_switches,
            Some("nonvoluntary_ctxt_switches:") => &mut thread.involuntary_switches,
            _ => continue,
        };
        *place = Some(line.number()?);
    }
    Ok(())
}

/// Lines of `NAME: NUMBER`, see proc_pid_io(5).
pub(super) fn read_io(file: &HeldFile, buffer: &mut Vec<u8>) -> Result<ProcessIo> {
    let mut io = ProcessIo::default();
    for mut line in file.read(buffer)?.lines() {
        let place = match line.next() {
            Some("syscr:") => &mut io.read_calls,
            Some("syscw:") => &mut io.write_calls,
            Some("read_bytes:") => &mut io.read_bytes,
            Some("write_bytes:") => &mut io.write_bytes,
            _ => continue,
        };
        *place = line.number()?;
    }
    Ok(io)
}
