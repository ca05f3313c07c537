//! From the addresses of a process to functions: what it has mapped where, and what those files say.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use foldhash::fast::RandomState;
use nodrop_sys::perf::{IN_PROGRAM, Program};

use crate::functions::{Functions, Place};
use crate::kernel::KernelFunctions;
use crate::outcome::Function;
use crate::unwinding::Unwinding;

/// What stands for a function in stacks.
pub type FunctionId = u32;

/// What stands for a stack in tallies.
pub type StackId = u32;

/// Every function that was met, once; and the files that name them.
#[derive(Debug)]
pub struct Known {
    kernel: KernelFunctions,
    /// By device and inode: programs share libraries.
    files: HashMap<(String, u64), Option<Rc<Functions>>>,
    functions: Vec<Function>,
    ids: HashMap<Function, FunctionId, RandomState>,
}

impl Known {
    pub fn new(proc: &Path) -> Self {
        Self {
            kernel: KernelFunctions::read(proc),
            files: HashMap::new(),
            functions: Vec::new(),
            ids: HashMap::default(),
        }
    }

    pub fn names_the_kernel(&self) -> bool {
        !self.kernel.is_empty()
    }

    pub fn in_kernel(&mut self, address: u64) -> FunctionId {
        let name = self.kernel.name(address).map(ToOwned::to_owned);
        self.id(Function {
            module: "[kernel]".into(),
            name,
            begins: None,
        })
    }

    pub fn into_functions(self) -> Vec<Function> {
        self.functions
    }

    fn id(&mut self, function: Function) -> FunctionId {
        if let Some(id) = self.ids.get(&function) {
            return *id;
        }
        let id = FunctionId::try_from(self.functions.len()).unwrap_or(FunctionId::MAX);
        self.functions.push(function.clone());
        self.ids.insert(function, id);
        id
    }
}

/// The code that a process has mapped.
#[derive(Debug)]
pub struct Addresses {
    folder: PathBuf,
    mapped: Vec<Mapped>,
    /// Of addresses that ran, and of those that were returned to.
    ran: HashMap<u64, FunctionId, RandomState>,
    called: HashMap<u64, Option<FunctionId>, RandomState>,
    /// Of whole stacks, as the kernel gave them: a thread that is woken for every packet leaves with the same few.
    stacks: HashMap<Box<[u64]>, StackId, RandomState>,
    /// An unknown address is looked for anew once between two refreshes.
    may_look: bool,
    unwinding: Unwinding,
}

/// Kept for each process; a program in a loop has some hundred.
const MOST_STACKS: usize = 1 << 16;

#[derive(Debug)]
struct Mapped {
    begin: u64,
    end: u64,
    offset: u64,
    module: Rc<str>,
    functions: Option<Rc<Functions>>,
}

impl Addresses {
    pub fn of(pid: u32, proc: &Path, known: &mut Known) -> Self {
        let mut addresses = Self {
            folder: proc.join(pid.to_string()),
            mapped: Vec::new(),
            ran: HashMap::default(),
            called: HashMap::default(),
            stacks: HashMap::default(),
            may_look: false,
            unwinding: Unwinding::new(),
        };
        addresses.look(known);
        addresses
    }

    /// From now on an unknown address may be looked for again.
    pub fn refresh(&mut self) {
        self.may_look = true;
    }

    /// What such a stack was, if it was met before.
    pub fn stack(&self, addresses: &[u64]) -> Option<StackId> {
        self.stacks.get(addresses).copied()
    }

    /// Remembers what a stack is.
    pub fn remember(&mut self, addresses: &[u64], stack: StackId) {
        if self.stacks.len() >= MOST_STACKS {
            self.stacks.clear();
        }
        self.stacks.insert(addresses.into(), stack);
    }

    /// The function that was running.
    pub fn running(&mut self, address: u64, known: &mut Known) -> FunctionId {
        if let Some(id) = self.ran.get(&address) {
            return *id;
        }
        self.look_for(address, known);
        let function = self.function(address);
        let id = known.id(function);
        self.ran.insert(address, id);
        id
    }

    /// The function that an address returns to; `None` if no call stands before it: then the frame pointer was something else.
    pub fn caller(&mut self, returns_to: u64, known: &mut Known) -> Option<FunctionId> {
        if let Some(id) = self.called.get(&returns_to) {
            return *id;
        }
        let called = self.find(returns_to).is_some_and(|mapped| {
            let offset = returns_to - mapped.begin + mapped.offset;
            mapped
                .functions
                .as_ref()
                .is_none_or(|file| file.is_after_call(offset))
        });
        let id = called.then(|| self.running(returns_to - 1, known));
        self.called.insert(returns_to, id);
        id
    }

    /// A whole stack in the form of the kernel's: of `addresses` those inside it, then the program's by its tables.
    pub fn whole(
        &mut self,
        addresses: &[u64],
        program: &Program<'_>,
        known: &mut Known,
    ) -> Vec<u64> {
        self.look_for(program.instruction, known);
        let in_kernel = addresses.iter().take_while(|one| **one != IN_PROGRAM);
        let mut whole: Vec<_> = in_kernel.copied().collect();
        whole.push(IN_PROGRAM);
        self.unwinding.addresses(program, &mut whole);
        whole
    }

    fn look_for(&mut self, address: u64, known: &mut Known) {
        if self.find(address).is_none() && self.may_look {
            self.may_look = false;
            self.look(known);
        }
    }

    fn find(&self, address: u64) -> Option<&Mapped> {
        let held = |mapped: &&Mapped| (mapped.begin..mapped.end).contains(&address);
        self.mapped.iter().find(held)
    }

    fn function(&self, address: u64) -> Function {
        let Some(mapped) = self.find(address) else {
            return Function::unknown("[unknown]");
        };
        let module = mapped.module.to_string();
        let offset = address - mapped.begin + mapped.offset;
        match mapped.functions.as_ref().map(|file| file.place(offset)) {
            Some(Place::Name(name)) => Function {
                module,
                name: Some(name),
                begins: None,
            },
            Some(Place::Begins(begins)) => Function {
                module,
                name: None,
                begins: Some(begins),
            },
            Some(Place::Unknown) | None => Function::unknown(&module),
        }
    }

    /// Reads `/proc/PID/maps`. A process that has ended keeps what was known.
    fn look(&mut self, known: &mut Known) {
        let Ok(text) = std::fs::read_to_string(self.folder.join("maps")) else {
            return;
        };
        let lines = text.lines().filter_map(Line::parse);
        self.mapped = lines.map(|line| self.mapped(&line, known)).collect();
        self.unwinding = Unwinding::new();
        for mapped in &self.mapped {
            let Some(functions) = &mapped.functions else {
                continue;
            };
            let base = functions
                .address(mapped.offset)
                .and_then(|address| mapped.begin.checked_sub(address));
            if let Some(base) = base {
                self.unwinding
                    .add(mapped.begin..mapped.end, base, &functions.unwinding);
            }
        }
    }

    fn mapped(&self, line: &Line<'_>, known: &mut Known) -> Mapped {
        let key = (line.device.to_owned(), line.inode);
        let functions = if line.inode == 0 {
            None
        } else {
            let open = || self.open(line).map(Rc::new);
            known.files.entry(key).or_insert_with(open).clone()
        };
        Mapped {
            begin: line.begin,
            end: line.end,
            offset: line.offset,
            module: line.module().into(),
            functions,
        }
    }

    /// The file itself, whatever has its name by now. If that is not permitted, by its name: in the process's root, or, as the
    /// kernel names a file of a process that has another root, from our own.
    fn open(&self, line: &Line<'_>) -> Option<Functions> {
        let itself = format!("map_files/{:x}-{:x}", line.begin, line.end);
        let inside = line.path.trim_start_matches('/');
        let (root, ours) = (self.folder.join("root"), Path::new(line.path));
        let is_it = || ours.metadata().is_ok_and(|found| found.ino() == line.inode);
        let found = Functions::open(&self.folder.join(itself))
            .or_else(|| Functions::open(&root.join(inside)))
            .or_else(|| is_it().then(|| Functions::open(ours)).flatten());
        found.map(|functions| functions.with_debug_file(&root))
    }
}

/// `BEGIN-END rwxp OFFSET DEVICE INODE PATH`, see proc_pid_maps(5).
struct Line<'a> {
    begin: u64,
    end: u64,
    offset: u64,
    device: &'a str,
    inode: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    /// `None` if it is not code.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        if fields.next()?.as_bytes().get(2) != Some(&b'x') {
            return None;
        }
        Some(Self {
            begin: hexadecimal(begin)?,
            end: hexadecimal(end)?,
            offset: hexadecimal(fields.next()?)?,
            device: fields.next()?,
            inode: fields.next()?.parse().ok()?,
            path: fields.next().unwrap_or_default().trim_start(),
        })
    }

    /// The file's name without its folders; code that was made while running has none.
    fn module(&self) -> &str {
        let path = self.path.trim_end_matches(" (deleted)");
        match path.rsplit('/').next() {
            None | Some("") => "[made while running]",
            Some(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MAPS: &str = "\
55a0-55b0 r--p 00000000 fe:00 77                         /usr/bin/suricata
55b0-55c0 r-xp 00001000 fe:00 77                         /usr/bin/suricata
7f00-7f10 rwxp 00000000 00:00 0 \n\
7f20-7f30 r-xp 00000000 00:00 0                          [vdso]
7f40-7f50 r-xp 00000000 fe:00 78                         /usr/lib/a b.so (deleted)
nonsense
";

    #[test]
    fn code_is_known_by_its_module() {
        let lines: Vec<_> = MAPS.lines().filter_map(Line::parse).collect();
        let modules: Vec<_> = lines.iter().map(Line::module).collect();
        assert_eq!(
            modules,
            ["suricata", "[made while running]", "[vdso]", "a b.so"]
        );
        assert_eq!(
            (lines[0].begin, lines[0].offset, lines[0].inode),
            (0x55b0, 0x1000, 77)
        );
    }

    #[test]
    fn addresses_without_a_file_are_still_told_apart() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("5")).unwrap();
        std::fs::write(proc.path().join("5/maps"), MAPS).unwrap();
        let mut known = Known::new(proc.path());
        let mut addresses = Addresses::of(5, proc.path(), &mut known);
        let ids = [0x7f01, 0x7f21, 0x55b1, 0x7f02, 1].map(|a| addresses.running(a, &mut known));
        assert_eq!(ids, [0, 1, 2, 0, 3]);
        // No file says whether a call stands before it, so it is believed; what is not code is not.
        assert_eq!(addresses.caller(0x7f05, &mut known), Some(0));
        assert_eq!(addresses.caller(2, &mut known), None);
        let modules: Vec<_> = known
            .into_functions()
            .into_iter()
            .map(|f| f.module)
            .collect();
        assert_eq!(
            modules,
            ["[made while running]", "[vdso]", "suricata", "[unknown]"]
        );
    }
}
