//! What a hypervisor on this CPU may make a guest exit for: Intel's VMX capability registers (SDM vol. 3, appendix A).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

/// What a control can be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "VmxSetting")]
pub enum Setting {
    /// Cannot be switched on.
    No,
    /// May be switched on; whether a hypervisor does so is not known.
    Yes,
    /// Is always on.
    Forced,
}

/// The listing, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Vmx {
    /// Why the registers cannot be read; null if they could.
    pub unreadable: Option<String>,
    /// Group → control → setting.
    pub controls: BTreeMap<&'static str, BTreeMap<&'static str, Setting>>,
}

type Control = (u8, &'static str);

/// Group, register, its successor if IA32_VMX_BASIC bit 55 is set, named bits.
const GROUPS: [(&str, u64, u64, &[Control]); 5] = [
    (
        "pin_based",
        0x481,
        0x48d,
        &[
            (0, "external_interrupt_exiting"),
            (3, "nmi_exiting"),
            (5, "virtual_nmis"),
            (6, "preemption_timer"),
            (7, "posted_interrupts"),
        ],
    ),
    (
        "processor_based",
        0x482,
        0x48e,
        &[
            (2, "interrupt_window_exiting"),
            (3, "tsc_offsetting"),
            (7, "hlt_exiting"),
            (9, "invlpg_exiting"),
            (10, "mwait_exiting"),
            (11, "rdpmc_exiting"),
            (12, "rdtsc_exiting"),
            (15, "cr3_load_exiting"),
            (16, "cr3_store_exiting"),
            (21, "tpr_shadow"),
            (23, "mov_dr_exiting"),
            (24, "unconditional_io_exiting"),
            (25, "io_bitmaps"),
            (28, "msr_bitmaps"),
            (29, "monitor_exiting"),
            (30, "pause_exiting"),
            (31, "secondary_controls"),
        ],
    ),
    (
        "processor_based_2",
        0x48b,
        0x48b,
        &[
            (0, "virtualize_apic_accesses"),
            (1, "ept"),
            (3, "rdtscp"),
            (5, "vpid"),
            (6, "wbinvd_exiting"),
            (7, "unrestricted_guest"),
            (8, "apic_register_virtualization"),
            (9, "virtual_interrupt_delivery"),
            (10, "pause_loop_exiting"),
            (11, "rdrand_exiting"),
            (12, "invpcid"),
            (13, "vm_functions"),
            (14, "vmcs_shadowing"),
            (16, "rdseed_exiting"),
            (17, "pml"),
            (25, "tsc_scaling"),
        ],
    ),
    (
        "exit",
        0x483,
        0x48f,
        &[
            (2, "save_debug_controls"),
            (9, "host_64_bit"),
            (15, "acknowledge_interrupt"),
            (18, "save_pat"),
            (19, "load_pat"),
            (20, "save_efer"),
            (21, "load_efer"),
            (22, "save_preemption_timer"),
        ],
    ),
    (
        "entry",
        0x484,
        0x490,
        &[
            (2, "load_debug_controls"),
            (9, "guest_64_bit"),
            (14, "load_pat"),
            (15, "load_efer"),
        ],
    ),
];
const VMX_BASIC: u64 = 0x480;
const TRUE_CONTROLS_BIT: u64 = 1 << 55;

/// Reads them from CPU 0. `root` is `/` in production and a fixture folder in tests.
#[must_use]
pub fn read(root: &Path) -> Vmx {
    match controls(root) {
        Ok(controls) => Vmx {
            unreadable: None,
            controls,
        },
        Err(why) => Vmx {
            unreadable: Some(why),
            controls: BTreeMap::new(),
        },
    }
}

fn controls(
    root: &Path,
) -> Result<BTreeMap<&'static str, BTreeMap<&'static str, Setting>>, String> {
    let cpu = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    if cpu.contains("AuthenticAMD") || cpu.contains("HygonGenuine") {
        return Err(
            "this is an AMD CPU: it has SVM, whose intercepts are not listed in registers".into(),
        );
    }
    let path = root.join("dev/cpu/0/msr");
    let registers = File::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => format!("{} does not exist: `modprobe msr`", path.display()),
        ErrorKind::PermissionDenied => format!(
            "{}: only root with CAP_SYS_RAWIO may read it",
            path.display()
        ),
        _ => format!("{}: {e}", path.display()),
    })?;
    let register = |number: u64| {
        let mut value = [0; 8];
        registers
            .read_exact_at(&mut value, number)
            .map(|()| u64::from_le_bytes(value))
    };
    let basic = register(VMX_BASIC).map_err(|e| {
        format!("register {VMX_BASIC:#x}: {e}: no VMX here; inside a guest the hypervisor hides it unless it nests")
    })?;
    let mut found = BTreeMap::new();
    for (group, old, new, names) in GROUPS {
        let number = if basic & TRUE_CONTROLS_BIT != 0 {
            new
        } else {
            old
        };
        // The secondary controls exist only if the primary ones say so.
        if let Ok(value) = register(number) {
            found.insert(
                group,
                names
                    .iter()
                    .map(|(bit, name)| (*name, setting(value, *bit)))
                    .collect(),
            );
        }
    }
    Ok(found)
}

/// The low half has a one for a control that must be one, the high half for one that may.
fn setting(value: u64, bit: u8) -> Setting {
    match (value >> bit & 1, value >> (32 + bit) & 1) {
        (1, _) => Setting::Forced,
        (0, 1) => Setting::Yes,
        _ => Setting::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cpu: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::create_dir_all(root.path().join("dev/cpu/0")).unwrap();
        fs::write(root.path().join("proc/cpuinfo"), cpu).unwrap();
        root
    }

    #[test]
    fn bits_say_no_yes_and_forced() {
        let root = host("vendor_id : GenuineIntel");
        let mut registers = vec![0; 0x500];
        let mut put = |number: usize, value: u64| {
            registers[number..number + 8].copy_from_slice(&value.to_le_bytes())
        };
        // Registers lie 1 apart in the file's addresses and are 8 bytes long: only every eighth has a place of its own in a plain file.
        put(0x480, 0);
        fs::write(root.path().join("dev/cpu/0/msr"), &registers).unwrap();
        let found = read(root.path());
        assert_eq!(found.unreadable, None);
        assert_eq!(
            found.controls["processor_based"]["rdtsc_exiting"],
            Setting::No
        );
        assert_eq!(setting(1 << (32 + 12), 12), Setting::Yes);
        assert_eq!(setting(1 << 12 | 1 << (32 + 12), 12), Setting::Forced);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let why = |cpu: &str| read(host(cpu).path()).unreadable.unwrap();
        assert!(why("vendor_id : AuthenticAMD").contains("SVM"));
        assert!(why("vendor_id : GenuineIntel").contains("modprobe msr"));
    }
}
