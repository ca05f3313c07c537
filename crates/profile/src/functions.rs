//! The functions of an ELF file: by its symbols, else by the table for unwinding, which a stripped file has too.

use gimli::{BaseAddresses, EhFrameHdr, NativeEndian, Pointer};
use nodrop_sys::file::MappedFile;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::path::Path;

use crate::unwinding::Sections;

/// One file that is mapped as code.
#[derive(Debug)]
pub struct Functions {
    file: MappedFile,
    /// File offset, length and address of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    /// With a name and a size, ascending.
    named: Vec<Named>,
    /// Where functions begin, ascending.
    begins: Vec<u64>,
    /// How callers are found.
    pub unwinding: Sections,
}

#[derive(Debug, PartialEq, Eq)]
struct Named {
    begin: u64,
    end: u64,
    name: String,
}

/// What an address belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A function with a symbol.
    Name(String),
    /// A function without one, by the address of its beginning in the file.
    Begins(u64),
    /// The file says nothing of this address.
    Unknown,
}

impl Functions {
    /// `None` if the file cannot be read or is no ELF file.
    pub fn open(path: &Path) -> Option<Self> {
        let file = MappedFile::open(path).ok()?;
        let elf = object::File::parse(&*file).ok()?;
        let segments = elf
            .segments()
            .map(|segment| {
                let (offset, bytes) = segment.file_range();
                (offset, bytes, segment.address())
            })
            .collect();
        let (named, begins) = (named(&[&elf]), begins(&elf).unwrap_or_default());
        Some(Self {
            segments,
            named,
            begins,
            unwinding: Sections::of(&elf),
            file,
        })
    }

    /// Takes the names of a stripped file from its debug file, if that is below this root.
    #[must_use]
    pub fn with_debug_file(mut self, root: &Path) -> Self {
        let of_both = || {
            let elf = object::File::parse(&*self.file).ok()?;
            let debug = MappedFile::open(&root.join(debug_file(elf.build_id().ok()??)?)).ok()?;
            let names = object::File::parse(&*debug).ok()?;
            (names.build_id() == elf.build_id()).then(|| named(&[&elf, &names]))
        };
        if let Some(found) = of_both() {
            self.named = found;
        }
        self
    }

    /// The address that the file itself gives an offset, if that is loaded.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let within = |(from, bytes, _): &&(u64, u64, u64)| (*from..from + bytes).contains(&offset);
        let (from, _, address) = self.segments.iter().find(within)?;
        Some(offset - from + address)
    }

    /// By an offset in the file.
    pub fn place(&self, offset: u64) -> Place {
        let Some(address) = self.address(offset) else {
            return Place::Unknown;
        };
        let after = self.named.partition_point(|named| named.begin <= address);
        // Symbols may lie within others; the innermost that holds the address begins last.
        let held = self.named[..after].iter().rev().take(8);
        if let Some(named) = held.into_iter().find(|named| address < named.end) {
            return Place::Name(named.name.clone());
        }
        let after = self.begins.partition_point(|begin| *begin <= address);
        match after.checked_sub(1) {
            Some(index) => Place::Begins(self.begins[index]),
            None => Place::Unknown,
        }
    }

    /// Whether what stands before this offset is a call, so that a function can return to it.
    pub fn is_after_call(&self, offset: u64) -> bool {
        let end = usize::try_from(offset).unwrap_or(usize::MAX);
        let before = self.file.get(end.saturating_sub(7)..end);
        before.is_some_and(ends_in_call)
    }
}

/// x86-64: `E8` with four bytes, or `FF /2` with none to five bytes of address. Elsewhere every address is believed.
fn ends_in_call(bytes: &[u8]) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return true;
    }
    let indirect = |back: usize| bytes[7 - back] == 0xff && (bytes[8 - back] >> 3) & 7 == 2;
    bytes.len() == 7 && (bytes[2] == 0xe8 || (2..=7).any(indirect))
}

/// Where packages of debug symbols put it, from the root.
fn debug_file(build_id: &[u8]) -> Option<String> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("usr/lib/debug/.build-id/{first:02x}/{rest}.debug"))
}

fn named(files: &[&object::File<'_>]) -> Vec<Named> {
    let mut found: Vec<Named> = files
        .iter()
        .flat_map(|elf| elf.symbols().chain(elf.dynamic_symbols()))
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| {
            Some(Named {
                begin: symbol.address(),
                end: symbol.address().saturating_add(symbol.size()),
                name: symbol.name().ok()?.to_owned(),
            })
        })
        .collect();
    // Of several names of one function always the same: the plainest.
    found.sort_by(|a, b| (a.begin, plainness(&a.name)).cmp(&(b.begin, plainness(&b.name))));
    found.dedup_by_key(|function| function.begin);
    for function in &mut found {
        function.name = format!("{:#}", rustc_demangle::demangle(&function.name));
    }
    found
}

/// Less is plainer: few underscores at the front, then short.
fn plainness(name: &str) -> (usize, usize, &str) {
    let underscores = name.len() - name.trim_start_matches('_').len();
    (underscores, name.len(), name)
}

/// From `.eh_frame_hdr`, the table by which a debugger or an exception finds the callers of an address.
fn begins(elf: &object::File<'_>) -> Option<Vec<u64>> {
    let address = |name: &str| Some(elf.section_by_name(name)?.address());
    let section = elf.section_by_name(".eh_frame_hdr")?;
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(section.address())
        .set_eh_frame(address(".eh_frame")?)
        .set_text(address(".text")?);
    let header = EhFrameHdr::new(section.data().ok()?, NativeEndian);
    let header = header.parse(&bases, 8).ok()?;
    let mut found = Vec::new();
    let table = header.table()?;
    let mut entries = table.iter(&bases);
    while let Ok(Some((begin, _))) = entries.next() {
        if let Pointer::Direct(begin) = begin {
            found.push(begin);
        }
    }
    found.sort_unstable();
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_return_address_stands_after_a_call() {
        assert!(ends_in_call(&[0, 0, 0xe8, 1, 2, 3, 4]));
        assert!(ends_in_call(&[0, 0, 0, 0, 0, 0xff, 0xd0])); // call *%rax
        assert!(ends_in_call(&[0, 0xff, 0x15, 1, 2, 3, 4])); // call *table(%rip)
        assert!(!ends_in_call(&[0, 0, 0, 0, 0, 0xff, 0xe0])); // jmp *%rax
        assert!(!ends_in_call(&[0xe8; 6]));
        assert!(!ends_in_call(&[0x90; 7]));
    }

    #[test]
    fn this_test_finds_itself() {
        let functions = Functions::open(Path::new("/proc/self/exe")).unwrap();
        let own = functions
            .named
            .iter()
            .find(|f| f.name.contains("this_test_finds_itself"));
        let own = own.unwrap();
        let (from, _, base) = functions
            .segments
            .iter()
            .find(|(_, bytes, base)| (*base..base + bytes).contains(&own.begin))
            .unwrap();
        let offset = own.begin - base + from;
        assert_eq!(functions.place(offset), Place::Name(own.name.clone()));
        assert_eq!(functions.place(offset + 1), Place::Name(own.name.clone()));
        assert_eq!(functions.place(u64::MAX), Place::Unknown);
        assert!(functions.begins.contains(&own.begin));
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no-elf");
        for content in [&b""[..], b"\x7fELF", b"#!/bin/sh\n"] {
            std::fs::write(&path, content).unwrap();
            assert!(Functions::open(&path).is_none());
        }
        assert!(Functions::open(folder.path()).is_none());
    }
}
