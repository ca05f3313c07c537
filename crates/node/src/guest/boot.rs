//! From the kernel's first process to a root folder with everything mounted and the interfaces up.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};

/// Where the binary is once the root has changed.
pub const OURSELVES: &str = "/run/nodrop-node";
const MODULES: &str = "/modules";
const NEW_ROOT: &str = "/newroot";
const DISK_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
const NONE: Option<&str> = None;

/// With no disk, the initramfs stays the root.
pub fn boot(disk: Option<&Path>, mtu: i32) -> Result<(), String> {
    fs_at("proc", "/proc")?;
    fs_at("sysfs", "/sys")?;
    fs_at("devtmpfs", "/dev")?;
    load_modules()?;
    let root = match disk {
        Some(disk) => {
            mount_disk(disk)?;
            NEW_ROOT
        }
        None => "/",
    };
    fs_at("tmpfs", &format!("{root}/run"))?;
    let ours = Path::new(root).join(OURSELVES.trim_start_matches('/'));
    fs::copy("/init", &ours)
        .map_err(|e| format!("cannot copy /init to {}: {e}", ours.display()))?;
    if disk.is_some() {
        switch_root()?;
    }
    for (kind, target) in [
        ("tmpfs", "/tmp"),
        ("tmpfs", "/dev/shm"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        fs_at(kind, target)?;
    }
    open_interfaces(mtu)
}

fn fs_at(kind: &str, target: &str) -> Result<(), String> {
    fs::create_dir_all(target).map_err(|e| format!("cannot make {target}: {e}"))?;
    match mount(Some(kind), target, Some(kind), MsFlags::empty(), NONE) {
        // The kernel may have mounted /dev itself (CONFIG_DEVTMPFS_MOUNT).
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(errno) => Err(format!("cannot mount {kind} at {target}: {errno}")),
    }
}

/// In the order of /modules/order: whoever packed them knows who needs whom.
fn load_modules() -> Result<(), String> {
    let order = fs::read_to_string(format!("{MODULES}/order")).unwrap_or_default();
    for name in order.lines() {
        let file =
            File::open(format!("{MODULES}/{name}")).map_err(|e| format!("module {name}: {e}"))?;
        match finit_module(file, c"", ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(format!("module {name}: {errno}")),
        }
    }
    Ok(())
}

fn mount_disk(disk: &Path) -> Result<(), String> {
    let deadline = Instant::now() + DISK_TIMEOUT;
    while !disk.exists() {
        if Instant::now() > deadline {
            return Err(format!(
                "no {} after {} s",
                disk.display(),
                DISK_TIMEOUT.as_secs()
            ));
        }
        std::thread::sleep(POLL); // the driver probes its devices in the background
    }
    fs::create_dir_all(NEW_ROOT).map_err(|e| format!("{NEW_ROOT}: {e}"))?;
    mount(
        Some(disk),
        NEW_ROOT,
        Some("ext4"),
        MsFlags::MS_NOATIME,
        NONE,
    )
    .map_err(|errno| format!("cannot mount {}: {errno}", disk.display()))
}

fn switch_root() -> Result<(), String> {
    let moved = |from: &str, to: &str| mount(Some(from), to, NONE, MsFlags::MS_MOVE, NONE);
    for name in ["proc", "sys", "dev"] {
        let target = format!("{NEW_ROOT}/{name}");
        fs::create_dir_all(&target).map_err(|e| format!("{target}: {e}"))?;
        moved(&format!("/{name}"), &target)
            .map_err(|errno| format!("cannot move /{name}: {errno}"))?;
    }
    chdir(NEW_ROOT)
        .and_then(|()| moved(".", "/"))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"))
        .map_err(|errno| format!("cannot enter the root disk: {errno}"))
}

fn open_interfaces(mtu: i32) -> Result<(), String> {
    let folder = fs::read_dir("/sys/class/net").map_err(|e| format!("/sys/class/net: {e}"))?;
    for entry in folder.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lo" {
            nodrop_io::link::receive_only(&name, mtu).map_err(|e| e.to_string())?;
        }
    }
    nodrop_io::loopback::raise().map_err(|e| e.to_string())
}
