//! What an entered program may do: a list of capabilities, and never more than that again.

use std::str::FromStr;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl::{set_keepcaps, set_no_new_privs};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::failure::{Explain, Failure};

/// Capabilities by their names without `CAP_`, e.g. `NET_RAW,SYS_NICE`; an empty list keeps none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights(CapsHashSet);

impl FromStr for Rights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').filter(|name| !name.is_empty());
        let found = names.map(|name| {
            Capability::from_str(&format!("CAP_{name}"))
                .map_err(|_| format!("`{name}` is no capability"))
        });
        found.collect::<Result<_, _>>().map(Self)
    }
}

impl Rights {
    /// Whether the program keeps this capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Gives up everything else. The bounding set holds for root's next program too; `no_new_privs` for what a file would give.
    /// A `user` other than root keeps them through execve(2) only as ambient ones.
    pub fn keep_only(&self, user: Option<u32>) -> Result<(), Failure> {
        let what = || "cannot give up capabilities".to_owned();
        let held = caps::read(None, CapSet::Permitted).explain(what)?;
        // Who holds none may not narrow the bounding set, and gains nothing from it either.
        for capability in caps::all().into_iter().filter(|_| !held.is_empty()) {
            let is_known = caps::has_cap(None, CapSet::Bounding, capability);
            if !self.0.contains(&capability) && is_known.unwrap_or(false) {
                caps::drop(None, CapSet::Bounding, capability).explain(what)?;
            }
        }
        let kept: CapsHashSet = held.intersection(&self.0).copied().collect();
        caps::clear(None, CapSet::Ambient).explain(what)?;
        if let Some(user) = user {
            become_user(user).explain(|| format!("cannot become user {user}"))?;
        }
        caps::set(None, CapSet::Effective, &kept).explain(what)?;
        caps::set(None, CapSet::Permitted, &kept).explain(what)?;
        if user.is_some() {
            caps::set(None, CapSet::Inheritable, &kept).explain(what)?;
            caps::set(None, CapSet::Ambient, &kept).explain(what)?;
        } else {
            caps::clear(None, CapSet::Inheritable).explain(what)?;
        }
        set_no_new_privs().explain(what)
    }
}

fn become_user(user: u32) -> nix::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_keepcaps(true)?;
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_capabilities() {
        let both = Rights(CapsHashSet::from([
            Capability::CAP_NET_RAW,
            Capability::CAP_SYS_NICE,
        ]));
        assert_eq!("NET_RAW,SYS_NICE".parse(), Ok(both));
        assert_eq!("".parse(), Ok(Rights(CapsHashSet::new())));
        assert_eq!(
            "NET_ROW".parse::<Rights>(),
            Err("`NET_ROW` is no capability".into())
        );
    }
}
