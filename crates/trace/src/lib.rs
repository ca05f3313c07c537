//! What a trace contains and what the kernel will do to it; synthetic traces.

pub mod checksums;
mod duplicates;
pub mod frag;
pub mod info;
mod info_text;
pub mod make;
pub mod peak;
pub mod prepare;
pub mod reassembly;
pub mod survey;
mod tally;
pub mod tap;
pub mod window;
