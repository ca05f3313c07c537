//! Stacks, each kept once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nodrop_sys::perf::{IN_KERNEL, IN_PROGRAM, Program};

use crate::addresses::{Addresses, FunctionId, Known, StackId};
use crate::concurrency::Together;

/// What all threads share.
pub struct Shared<'a> {
    pub stacks: &'a mut Stacks,
    pub known: &'a mut Known,
    pub process: &'a mut Addresses,
    pub together: &'a mut Together,
}

impl Shared<'_> {
    /// Of addresses, or of those that the kernel knows and a copy of the program's stack.
    pub fn stack(&mut self, addresses: &[u64], program: Option<Program<'_>>) -> StackId {
        match program {
            None => self.stacks.id(addresses, self.process, self.known),
            Some(program) => {
                let whole = self.process.whole(addresses, &program, self.known);
                self.stacks.id(&whole, self.process, self.known)
            }
        }
    }
}

/// Each as functions, the outermost caller first.
#[derive(Debug, Default)]
pub struct Stacks {
    ids: HashMap<Box<[FunctionId]>, StackId, RandomState>,
    all: Vec<Vec<FunctionId>>,
    frames: Vec<FunctionId>,
}

impl Stacks {
    /// Of addresses as the kernel gives them: the innermost first, first those of the kernel.
    pub fn id(&mut self, addresses: &[u64], process: &mut Addresses, known: &mut Known) -> StackId {
        if let Some(id) = process.stack(addresses) {
            return id;
        }
        let id = self.named(addresses, process, known);
        process.remember(addresses, id);
        id
    }

    fn named(&mut self, addresses: &[u64], process: &mut Addresses, known: &mut Known) -> StackId {
        self.frames.clear();
        let mut context = IN_PROGRAM;
        let mut innermost = true;
        for &address in addresses {
            if matches!(address, IN_KERNEL | IN_PROGRAM) {
                (context, innermost) = (address, true);
                continue;
            }
            let frame = if context == IN_KERNEL {
                Some(known.in_kernel(address - u64::from(!innermost)))
            } else if innermost {
                Some(process.running(address, known))
            } else {
                process.caller(address, known)
            };
            innermost = false;
            // What lies beyond a wrong frame pointer is no caller.
            let Some(frame) = frame else { break };
            self.frames.push(frame);
        }
        self.frames.reverse();
        if let Some(id) = self.ids.get(&*self.frames) {
            return *id;
        }
        let id = StackId::try_from(self.all.len()).unwrap_or(StackId::MAX);
        self.ids.insert(self.frames.as_slice().into(), id);
        self.all.push(self.frames.clone());
        id
    }

    pub fn into_all(self) -> Vec<Vec<FunctionId>> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stack_that_was_met_before_is_the_same() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("5")).unwrap();
        let maps = "7f00-7f10 r-xp 0 00:00 0 \n7f20-7f30 r-xp 0 00:00 0 [vdso]\n";
        std::fs::write(proc.path().join("5/maps"), maps).unwrap();
        let mut known = Known::new(proc.path());
        let mut process = Addresses::of(5, proc.path(), &mut known);
        let mut stacks = Stacks::default();
        let met: [&[u64]; 4] = [
            &[IN_PROGRAM, 0x7f01, 0x7f21],
            &[IN_PROGRAM, 0x7f21, 0x7f01],
            &[IN_PROGRAM, 0x7f01, 0x7f21],
            &[IN_PROGRAM, 0x7f02, 0x7f22],
        ];
        let ids = met.map(|addresses| stacks.id(addresses, &mut process, &mut known));
        assert_eq!(ids, [0, 1, 0, 0], "by functions, not by addresses");
        assert_eq!(stacks.into_all().len(), 2);
    }
}
