//! Stacks, each kept once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nodrop_sys::perf::{IN_KERNEL, IN_PROGRAM};

use crate::addresses::{Addresses, FunctionId, Known};

/// What stands for a stack in tallies.
pub type StackId = u32;

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
