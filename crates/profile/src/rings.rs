//! How much of a stack is copied, and how large the rings for it are.

/// Of a stack, as it is copied 99 times a second.
pub const STACK_BYTES: u32 = 8192;
/// Less shows too few callers.
const LEAST_STACK_BYTES: u32 = 1024;
/// Of a sample beside that: at most 127 addresses.
const ADDRESSES_BYTES: u64 = 1024;
const MOST_RING_PAGES: usize = 512;

/// For so many samples a second. What is not the kernel's own sampling is shown to anyone, but a normal user's rings are small.
pub fn stack_bytes(hertz: u64, with_kernel: bool) -> u32 {
    let bytes = u64::from(STACK_BYTES) * 99 / hertz.max(99);
    let bytes = u32::try_from(bytes).unwrap_or(0) & !7;
    if with_kernel && bytes >= LEAST_STACK_BYTES {
        bytes
    } else {
        0
    }
}

/// A power of two, as a ring's: half a second of such samples.
pub fn ring_pages(hertz: u64, stack_bytes: u32) -> usize {
    let bytes = hertz.div_ceil(2) * (ADDRESSES_BYTES + u64::from(stack_bytes));
    let pages = usize::try_from(bytes.div_ceil(4096)).unwrap_or(MOST_RING_PAGES);
    pages.next_power_of_two().min(MOST_RING_PAGES)
}
