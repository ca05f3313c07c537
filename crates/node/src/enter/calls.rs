//! System calls that no program of a lab needs, and by which a bug in it would reach the kernel or other programs.
//!
//! A list of what is denied, as in Docker's default: a list of what is allowed would break SUTs that were never tried.

use std::collections::BTreeMap;

use caps::Capability;
use nix::libc;
use nodrop_sys::seccomp::filter_calls;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::failure::{Explain, Failure};
use super::rights::Rights;

/// Answered with EPERM.
const DENIED: &[i64] = &[
    // mounts and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // files past all folders
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // the kernel
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    // A queue of calls that this filter does not see.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // what all programs of the host share; SYS_adjtimex says how well the clock is kept, and sets it by CAP_SYS_TIME alone
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS__sysctl,
    libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[libc::SYS_kexec_file_load];

const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// For good, of this process and all that it starts. A flood is a program of the kernel, and so is what walks over sockets;
/// who may trace others reads their memory, where their capture rings lie.
pub fn deny(rights: &Rights) -> Result<(), Failure> {
    let what = || "cannot filter system calls".to_owned();
    for filter in [
        denials(rights).explain(what)?,
        unknown_clone3().explain(what)?,
    ] {
        let program: Vec<libc::sock_filter> = filter
            .iter()
            .map(|step| libc::sock_filter {
                code: step.code,
                jt: step.jt,
                jf: step.jf,
                k: step.k,
            })
            .collect();
        filter_calls(&program).explain(what)?;
    }
    Ok(())
}

fn denials(rights: &Rights) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut denied: Vec<i64> = [DENIED, DENIED_HERE].concat();
    if !rights.has(Capability::CAP_BPF) {
        denied.push(libc::SYS_bpf);
    }
    if !rights.has(Capability::CAP_SYS_PTRACE) {
        denied.push(libc::SYS_process_vm_readv);
    }
    #[cfg(target_arch = "x86_64")]
    denied.extend(under_x32(&denied));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        denied.into_iter().map(|call| (call, vec![])).collect();
    let makes_namespaces = NEW_NAMESPACES.map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        let has = SeccompCmpOp::MaskedEq(flag);
        let flags = SeccompCondition::new(0, SeccompCmpArgLen::Dword, has, flag)?;
        SeccompRule::new(vec![flags])
    });
    rules.insert(
        libc::SYS_clone,
        makes_namespaces.into_iter().collect::<Result<_, _>>()?,
    );
    compile(rules, libc::EPERM)
}

/// Its flags lie in memory, which a filter does not see: the C library takes clone(2) if the kernel says that it has no other.
fn unknown_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    compile(BTreeMap::from([(libc::SYS_clone3, vec![])]), libc::ENOSYS)
}

/// The same calls by their other numbers, which no program of today uses, and those that have a number only there.
#[cfg(target_arch = "x86_64")]
fn under_x32(denied: &[i64]) -> Vec<i64> {
    const X32: i64 = 0x4000_0000;
    let others = [libc::SYS_clone, libc::SYS_clone3]
        .into_iter()
        .chain(512..=547);
    let all = denied.iter().copied().chain(others);
    all.map(|call| X32 | call).collect()
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    answer: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(answer.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}
