//! Callers without frame pointers: from a copy of the stack, by the table for unwinding that every program has.

use std::ops::Range;
use std::rc::Rc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use nodrop_sys::perf::Program;
use object::{Object, ObjectSection};

/// As many as the kernel gives.
const MOST_FRAMES: usize = 127;

/// Of one file, kept while any process has it mapped.
#[derive(Debug, Default)]
pub struct Sections {
    text: Option<Range<u64>>,
    table: Option<(Range<u64>, Rc<[u8]>)>,
    index: Option<(Range<u64>, Rc<[u8]>)>,
}

impl Sections {
    pub fn of(elf: &object::File<'_>) -> Self {
        let lies = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let held = |name: &str| {
            let data = elf.section_by_name(name)?.data().ok()?;
            Some((lies(name)?, data.into()))
        };
        Self {
            text: lies(".text"),
            table: held(".eh_frame"),
            index: held(".eh_frame_hdr"),
        }
    }

    fn info(&self) -> ExplicitModuleSectionInfo<Rc<[u8]>> {
        let (eh_frame_svma, eh_frame) = self.table.clone().unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = self.index.clone().unzip();
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: self.text.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..Default::default()
        }
    }
}

/// Of one process. Where a file has no table, the frame pointer is followed.
pub struct Unwinding {
    unwinder: UnwinderNative<Rc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Unwinding {
    pub fn new() -> Self {
        Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
        }
    }

    /// Code that is mapped here; the file says its own address 0 lies at `base`.
    pub fn add(&mut self, mapped: Range<u64>, base: u64, sections: &Sections) {
        let module = Module::new(String::new(), mapped, base, sections.info());
        self.unwinder.add_module(module);
    }

    /// The addresses of a stack, the innermost first.
    pub fn addresses(&mut self, program: &Program<'_>, into: &mut Vec<u64>) {
        let mut read = |address: u64| {
            let offset = address.checked_sub(program.stack_pointer).ok_or(())?;
            let index = usize::try_from(offset / 8).map_err(|_| ())?;
            let word = program.stack.get(index).filter(|_| offset % 8 == 0);
            word.copied().ok_or(())
        };
        let (unwinder, cache) = (&self.unwinder, &mut self.cache);
        let mut frames =
            unwinder.iter_frames(program.instruction, registers(program), cache, &mut read);
        for _ in 0..MOST_FRAMES {
            let Ok(Some(frame)) = frames.next() else {
                break;
            };
            into.push(frame.address());
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(program: &Program<'_>) -> UnwindRegsNative {
    UnwindRegsNative::new(
        program.instruction,
        program.stack_pointer,
        program.frame_pointer,
    )
}

#[cfg(target_arch = "aarch64")]
fn registers(program: &Program<'_>) -> UnwindRegsNative {
    UnwindRegsNative::new(program.link, program.stack_pointer, program.frame_pointer)
}

impl std::fmt::Debug for Unwinding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Unwinding")
    }
}
