//! The mount namespace of an entered program: its own, thrown away with it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, chroot};

use nodrop_sys::seccomp::make_tree_read_only;

use super::failure::{Explain, Failure};

const CGROUPS: &str = "/sys/fs/cgroup";
const NONE: Option<&str> = None;

/// What is shown where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    source: PathBuf,
    target: PathBuf,
    read_only: bool,
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A source may be any path and hold colons; a target is ours and holds none.
        let (places, read_only) = match text.strip_suffix(":ro") {
            Some(places) => (places, true),
            None => (text, false),
        };
        match places.rsplit_once(':') {
            Some((source, target)) if !source.is_empty() && target.starts_with('/') => Ok(Self {
                source: source.into(),
                target: target.into(),
                read_only,
            }),
            _ => Err("expected SRC:DST or SRC:DST:ro; DST begins with / and has no colon".into()),
        }
    }
}

/// A folder that becomes the program's /.
#[derive(Clone, Copy)]
pub struct Root<'a> {
    pub folder: &'a Path,
    /// Read-only, with a /dev and a /proc of its own.
    pub private: bool,
    /// Empty, and the host's / is shown there.
    pub of_host: bool,
}

/// Makes the namespace, fills `root`, moves into it and shows the binds.
pub fn build(root: Option<Root>, new_netns: bool, binds: &[Bind]) -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNS)
        .explain(|| "cannot make a mount namespace of its own".into())?;
    // Slave, not private: what the host unmounts goes away here too instead of staying busy.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .explain(|| "cannot detach from the host's mounts".into())?;
    // Opened before the root changes, so that sources are the host's paths and targets the program's.
    let sources = binds
        .iter()
        .map(open_source)
        .collect::<Result<Vec<File>, Failure>>()?;
    if let Some(Root {
        folder,
        private,
        of_host,
    }) = root
    {
        File::open(folder).explain(|| format!("root {}", folder.display()))?;
        if of_host {
            show_host(folder).explain(|| format!("cannot show / at {}", folder.display()))?;
        } else if private {
            bind_whole(folder, folder)
                .explain(|| format!("cannot show {} to itself", folder.display()))?;
        }
        fill(folder, new_netns, private, binds)?;
        chroot(folder).explain(|| format!("cannot change root to {}", folder.display()))?;
        chdir("/").explain(|| format!("cannot enter {}", folder.display()))?;
    } else if new_netns {
        // A fresh sysfs covers the control groups, which the sampler reads.
        let groups = open_path(Path::new(CGROUPS));
        // Where even this is refused, /sys shows the old namespace's interfaces: only a view, sockets are right anyway.
        if let (Ok(()), Ok(groups)) = (fresh_sysfs(Path::new("/sys")), groups) {
            let _absent = bind_whole(by_handle(&groups), Path::new(CGROUPS));
        }
    }
    for (bind, source) in binds.iter().zip(&sources) {
        // Only in a root of its own: on the host, a folder made here would stay.
        if root.is_some() {
            make_place(bind, source)?;
        }
        show(bind, source)?;
    }
    if root.is_some_and(|root| root.private) {
        make_read_only(Path::new("/")).explain(|| "cannot make the root read-only".into())?;
    }
    Ok(())
}

/// Read-only with everything mounted below; a kernel before 5.12 can do so only mount by mount, and what it has below stays.
fn show_host(folder: &Path) -> std::io::Result<()> {
    bind_whole("/", folder)?;
    match make_tree_read_only(folder) {
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) => {
            Ok(make_read_only(folder)?)
        }
        other => other,
    }
}

fn open_source(bind: &Bind) -> Result<File, Failure> {
    open_path(&bind.source).explain(|| format!("bind source {}", bind.source.display()))
}

fn open_path(path: &Path) -> std::io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(OFlag::O_PATH.bits())
        .open(path)
}

/// A name for what an open handle leads to, even if something else has been mounted over it.
fn by_handle(opened: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

fn fill(root: &Path, new_netns: bool, private: bool, binds: &[Bind]) -> Result<(), Failure> {
    for name in ["proc", "dev", "sys"] {
        let target = root.join(name);
        make_folder(&target)?;
        if private && name == "dev" {
            own_devices(&target, binds)
                .explain(|| format!("cannot make a /dev in {}", root.display()))?;
            continue;
        }
        // Refused if a host's own /proc is covered in part: then that one is shown.
        if private && name == "proc" && fresh("proc", &target).is_ok() {
            continue;
        }
        if name == "sys" && new_netns && fresh_sysfs(&target).is_ok() {
            // A fresh sysfs has nothing mounted in it; programs that ask for their limits look here.
            let _absent = bind_whole(CGROUPS, &target.join("fs/cgroup"));
            continue;
        }
        bind_whole(format!("/{name}"), &target)
            .explain(|| format!("cannot show /{name} in {}", root.display()))?;
    }
    if private { protect(root) } else { Ok(()) }
}

/// What the kernel lets user 0 write whatever its capabilities are.
fn protect(root: &Path) -> Result<(), Failure> {
    let settings = [
        "proc/sys",
        "proc/sysrq-trigger",
        "proc/irq",
        "sys",
        "sys/fs/cgroup",
    ];
    for path in settings.map(|name| root.join(name)) {
        if path.exists() {
            bind_whole(&path, &path)
                .and_then(|()| make_read_only(&path))
                .explain(|| format!("cannot make {} read-only", path.display()))?;
        }
    }
    Ok(())
}

/// A sysfs shows the interfaces of the network namespace it was mounted in.
fn fresh_sysfs(target: &Path) -> nix::Result<()> {
    fresh("sysfs", target)
}

/// In a container the host's may be read-only and locked so: then a fresh one is allowed only read-only as well.
fn fresh(kind: &str, target: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let attempt = |flags| mount(Some(kind), target, Some(kind), flags, NONE);
    match attempt(flags) {
        Err(Errno::EPERM) => attempt(flags | MsFlags::MS_RDONLY),
        other => other,
    }
}

/// The host's own nodes, shown one by one: a user namespace may make none. Empty folders of it are where `binds` show folders of
/// devices.
fn own_devices(target: &Path, binds: &[Bind]) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(
        Some("tmpfs"),
        target,
        Some("tmpfs"),
        flags,
        Some("mode=755,size=64k"),
    )?;
    for name in ["null", "zero", "full", "random", "urandom"] {
        let place = target.join(name);
        File::create(&place).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or_default()))?;
        bind_whole(Path::new("/dev").join(name), &place)?;
    }
    for inside in binds
        .iter()
        .filter_map(|bind| bind.target.strip_prefix("/dev").ok())
    {
        std::fs::create_dir_all(target.join(inside))
            .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or_default()))?;
    }
    make_read_only(target)
}

/// With everything mounted below: a part of locked mounts may not be shown alone.
fn bind_whole(source: impl AsRef<Path>, target: &Path) -> nix::Result<()> {
    mount(
        Some(source.as_ref()),
        target,
        NONE,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        NONE,
    )
}

fn make_place(bind: &Bind, source: &File) -> Result<(), Failure> {
    let is_folder = source.metadata().is_ok_and(|source| source.is_dir());
    if is_folder {
        return make_folder(&bind.target);
    }
    if !bind.target.exists() {
        make_folder(bind.target.parent().unwrap_or(Path::new("/")))?;
        File::create(&bind.target).explain(|| format!("cannot make {}", bind.target.display()))?;
    }
    Ok(())
}

fn show(bind: &Bind, source: &File) -> Result<(), Failure> {
    let what = || {
        format!(
            "cannot show {} at {}",
            bind.source.display(),
            bind.target.display()
        )
    };
    bind_whole(by_handle(source), &bind.target).explain(what)?;
    if bind.read_only {
        make_read_only(&bind.target).explain(what)?;
    }
    Ok(())
}

/// A remount must repeat the flags that are locked on, or it is refused.
fn make_read_only(target: &Path) -> nix::Result<()> {
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let now = statvfs(target)?.flags();
    for (has, keep) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ] {
        if now.contains(has) {
            flags |= keep;
        }
    }
    mount(NONE, target, NONE, flags, NONE)
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).explain(|| format!("cannot make folder {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_name_a_source_and_an_absolute_target() {
        let bind = Bind {
            source: "a".into(),
            target: "/b".into(),
            read_only: true,
        };
        assert_eq!("a:/b:ro".parse(), Ok(bind.clone()));
        assert_eq!(
            "a:/b".parse(),
            Ok(Bind {
                read_only: false,
                ..bind
            })
        );
        for source in ["/a:b", "/a:/b", ":", "a:ro", "/2026-11-22T16:38:00/x"] {
            let said = format!("{source}:/work:ro").parse::<Bind>();
            assert_eq!(said.map(|bind| bind.source), Ok(source.into()), "{source}");
        }
        assert!("a:b".parse::<Bind>().is_err());
        assert!(":/b".parse::<Bind>().is_err());
        assert!("a:/b:rw".parse::<Bind>().is_err());
    }
}
