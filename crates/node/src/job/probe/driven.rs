//! Devices that programs drive themselves by vfio-pci: no port of the kernel, and none of its counters.

use std::fs;
use std::path::Path;

use super::process::is_suricata;
use super::sensor::Lack;

const GROUPS: &str = "dev/vfio";
/// Of PCI: a network controller.
const NETWORK: &str = "0x02";

/// Packets of each NIC that a program has open, and what counts them; none if its files may not be read, or no device is bound to
/// vfio-pci.
pub fn driven(root: &Path) -> Vec<Lack> {
    let any_group = names(&root.join(GROUPS)).iter().any(|name| group(name));
    if !any_group {
        return Vec::new();
    }
    let mut found = Vec::new();
    for process in names(&root.join("proc")) {
        let folder = root.join("proc").join(&process);
        for number in groups_of(&folder) {
            let devices = root.join(format!("sys/kernel/iommu_groups/{number}/devices"));
            for address in names(&devices) {
                if is_network(root, &address) {
                    found.push(of(&folder, &process, &address));
                }
            }
        }
    }
    found.sort_by(|one, other| one.what.cmp(&other.what));
    found.dedup();
    found
}

fn of(folder: &Path, pid: &str, address: &str) -> Lack {
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let name = name.trim_end();
    let own = if is_suricata(name) {
        format!("its own counters: suricatasc -c 'iface-stat {address}'")
    } else {
        "its own counters".into()
    };
    Lack {
        what: format!("packets of {address}, which {name} (pid {pid}) drives itself"),
        needs: own,
    }
}

fn group(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn groups_of(process: &Path) -> Vec<String> {
    let folder = process.join("fd");
    let links = names(&folder).into_iter();
    let targets = links.filter_map(|fd| fs::read_link(folder.join(fd)).ok());
    targets
        .filter_map(|target| {
            let name = target.to_str()?.strip_prefix("/dev/vfio/")?.to_owned();
            group(&name).then_some(name)
        })
        .collect()
}

fn is_network(root: &Path, address: &str) -> bool {
    let class = root.join(format!("sys/bus/pci/devices/{address}/class"));
    fs::read_to_string(class).is_ok_and(|class| class.starts_with(NETWORK))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn open(root: &Path, pid: u32, name: &str, target: &str) {
        let folder = root.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(root.join(format!("proc/{pid}/comm")), format!("{name}\n")).unwrap();
        std::os::unix::fs::symlink(target, folder.join("9")).unwrap();
    }

    #[test]
    fn a_nic_that_a_program_drives_itself() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (group, address, class) in [
            (7, "0000:3b:00.0", "0x020000\n"),
            (8, "0000:01:00.0", "0x010802\n"),
        ] {
            fs::create_dir_all(
                root.join(format!("sys/kernel/iommu_groups/{group}/devices/{address}")),
            )
            .unwrap();
            file(root, &format!("sys/bus/pci/devices/{address}/class"), class);
        }
        open(root, 70, "Suricata-Main", "/dev/vfio/7");
        open(root, 71, "qemu-system-x86", "/dev/vfio/8");
        open(root, 72, "Suricata-Main", "/dev/vfio/vfio");
        assert!(driven(root).is_empty(), "no group is there");
        file(root, "dev/vfio/7", "");
        assert_eq!(
            driven(root),
            [Lack {
                what: "packets of 0000:3b:00.0, which Suricata-Main (pid 70) drives itself".into(),
                needs: "its own counters: suricatasc -c 'iface-stat 0000:3b:00.0'".into(),
            }]
        );
    }
}
