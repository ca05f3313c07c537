//! Where the fields of the kernel's structs lie, by the kernel's own description of its types (BTF, `/sys/kernel/btf/vmlinux`):
//! offsets differ from kernel to kernel, and names rarely.

use std::collections::HashMap;
use std::path::Path;

use crate::netlink::{u16_at, u32_at};
use crate::{CounterError, Result};

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const TYPE: usize = 12;

/// Kinds of `enum` BTF_KIND_* that are looked into.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;
/// A name, a qualifier or a tag of another type: typedef, volatile, const, restrict, type tag.
const OTHER_NAMES: [u32; 5] = [8, 9, 10, 11, 18];

/// The types of a kernel.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type begins, by its id; type 0 is `void`.
    types: Vec<usize>,
    /// Structs, unions and functions.
    named: HashMap<(u32, Vec<u8>), u32>,
}

/// A field of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    offset_bytes: u32,
    of: u32,
}

impl Btf {
    /// `root` is `/` in production and a fixture folder in tests.
    pub fn of_kernel(root: &Path) -> Result<Self> {
        let path = root.join("sys/kernel/btf/vmlinux");
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(bytes).ok_or_else(|| CounterError::Kernel {
                call: "BTF of this kernel",
                source: std::io::ErrorKind::InvalidData.into(),
            }),
            Err(source) => Err(CounterError::Read { path, source }),
        }
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let word = |at| u32_at(&bytes, at).map(|word| word as usize);
        let header = word(4)?;
        if u16_at(&bytes, 0)? != MAGIC || header < HEADER {
            return None;
        }
        let mut at = header + word(8)?;
        let end = at + word(12)?;
        let strings = header + word(16)?;
        let mut found = Self {
            strings,
            types: vec![0],
            named: HashMap::new(),
            bytes,
        };
        while at < end {
            let id = u32::try_from(found.types.len()).ok()?;
            found.types.push(at);
            let (kind, length) = found.kind(id)?;
            if matches!(kind, STRUCT | UNION | FUNC) {
                let name = found.text(u32_at(&found.bytes, at)?)?.to_vec();
                found.named.entry((kind, name)).or_insert(id);
            }
            at += TYPE + tail(kind, length);
        }
        Some(found)
    }

    /// The id of a function.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.named.get(&(FUNC, name.as_bytes().to_vec())).copied()
    }

    /// The offset in bytes of `struct.field.field`; `None` if this kernel has no such field, or it is one of bits.
    pub fn offset(&self, path: &str) -> Option<u32> {
        let mut names = path.split('.');
        let outer = names.next()?.as_bytes().to_vec();
        let mut within = *self.named.get(&(STRUCT, outer))?;
        let mut offset = 0;
        for name in names {
            let found = self.member(within, name.as_bytes())?;
            offset += found.offset_bytes;
            within = found.of;
        }
        Some(offset)
    }

    /// Also within structs and unions that have no name.
    fn member(&self, of: u32, name: &[u8]) -> Option<Member> {
        let id = self.behind_names(of)?;
        let (kind, length) = self.kind(id)?;
        if !matches!(kind, STRUCT | UNION) {
            return None;
        }
        let begins = *self.types.get(id as usize)?;
        let with_bits = u32_at(&self.bytes, begins + 4)? >> 31 == 1;
        for number in 0..length {
            let at = begins + TYPE + 12 * number;
            let place = u32_at(&self.bytes, at + 8)?;
            let bits = if with_bits { place & 0xff_ffff } else { place };
            let found = Member {
                offset_bytes: bits / 8,
                of: u32_at(&self.bytes, at + 4)?,
            };
            let own = self.text(u32_at(&self.bytes, at)?)?;
            if own == name {
                let is_bits = with_bits && place >> 24 != 0;
                return (!is_bits).then_some(found);
            }
            let inner = own.is_empty().then(|| self.member(found.of, name));
            if let Some(inner) = inner.flatten() {
                return Some(Member {
                    offset_bytes: found.offset_bytes + inner.offset_bytes,
                    of: inner.of,
                });
            }
        }
        None
    }

    fn behind_names(&self, mut id: u32) -> Option<u32> {
        // No chain of names is as long.
        for _ in 0..32 {
            if !OTHER_NAMES.contains(&self.kind(id)?.0) {
                return Some(id);
            }
            id = u32_at(&self.bytes, self.types.get(id as usize)? + 8)?;
        }
        None
    }

    /// And how many entries follow.
    fn kind(&self, id: u32) -> Option<(u32, usize)> {
        let info = u32_at(&self.bytes, self.types.get(id as usize)? + 4)?;
        Some((info >> 24 & 31, (info & 0xffff) as usize))
    }

    fn text(&self, at: u32) -> Option<&[u8]> {
        let rest = self.bytes.get(self.strings + at as usize..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

/// Bytes behind `struct btf_type`.
fn tail(kind: u32, length: usize) -> usize {
    match kind {
        1 | 14 | 17 => 4,
        3 => 12,
        STRUCT | UNION | 15 | 19 => 12 * length,
        6 | 13 => 8 * length,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { u32 first; const struct { u16 a; named inner; }; }`, and function `f`.
    fn made() -> Vec<u8> {
        let strings = b"\0outer\0first\0a\0inner\0named\0deep\0f\0";
        let name = |wanted: &str| {
            let wanted = [b"\0", wanted.as_bytes(), b"\0"].concat();
            let at = strings.windows(wanted.len()).position(|w| *w == wanted[..]);
            u32::try_from(at.unwrap() + 1).unwrap()
        };
        let mut types: Vec<u32> = Vec::new();
        types.extend([0, 1 << 24, 4, 32]); // 1: int
        types.extend([name("outer"), 4 << 24 | 2, 24]); // 2
        types.extend([name("first"), 1, 0, 0, 4, 64]);
        types.extend([0, 4 << 24 | 2, 16]); // 3: no name
        types.extend([name("a"), 1, 0, name("inner"), 5, 32]);
        types.extend([0, 10 << 24, 3]); // 4: const 3
        types.extend([name("named"), 8 << 24, 6]); // 5: typedef
        types.extend([0, 5 << 24 | 1 | 1 << 31, 4]); // 6: union, with bit sizes
        types.extend([name("deep"), 1, 16]);
        types.extend([name("f"), 12 << 24, 1]); // 7
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_ne_bytes();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [
            24u32.to_ne_bytes(),
            [0; 4],
            length(&types),
            length(&types),
            length(strings),
        ] {
            bytes.extend(word);
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn fields_behind_names_and_without() {
        let btf = Btf::parse(made()).unwrap();
        for (path, offset) in [
            ("outer.first", Some(0)),
            ("outer.a", Some(8)),
            ("outer.inner", Some(12)),
            ("outer.inner.deep", Some(14)),
            ("outer.other", None),
            ("outer.first.deep", None),
            ("none.first", None),
        ] {
            assert_eq!(btf.offset(path), offset, "{path}");
        }
        assert_eq!((btf.function("f"), btf.function("outer")), (Some(7), None));
    }

    #[test]
    fn what_is_cut_or_none_is_refused() {
        let whole = made();
        for length in 0..whole.len() - 40 {
            let cut = Btf::parse(whole[..length].to_vec());
            assert!(cut.is_none_or(|btf| btf.offset("outer.inner.deep").is_none()));
        }
        assert!(Btf::parse(vec![0; 100]).is_none());
    }
}
