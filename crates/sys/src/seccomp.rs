//! A filter of system calls, and a tree of mounts made read-only: what the kernel offers only as raw calls.

use std::ffi::CString;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Filters the calling thread and what it becomes; `no_new_privs` is set already. Without SPEC_ALLOW a kernel before 5.16 also
/// switches speculation off for whoever is filtered, which makes it slower; one before 4.17 does not know the flag.
pub fn filter_calls(program: &[libc::sock_filter]) -> Result<(), Error> {
    let len = u16::try_from(program.len()).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    let given = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the program lives through the call; the kernel copies it and never writes to it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const given,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    };
    match install(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(0),
        other => other,
    }
}

/// The mount at `folder` and all mounts below it (Linux 5.12).
pub fn make_tree_read_only(folder: &Path) -> Result<(), Error> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends in a zero and the attributes are as long as said; both live through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
