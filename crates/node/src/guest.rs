//! `guest`: this binary as the init process of a virtual machine, and the controller's hands in it.
//!
//! No shell, no network, no server: the kernel starts us as process 1 out of an initramfs, we mount the root disk, make the
//! network interfaces ready to receive, and serve the one virtio-serial port that the controller holds the other end of. When
//! that end closes, the machine powers off.

mod boot;
mod channel;
mod frame;
mod line;
mod serve;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, wait};

/// Flags of `guest`, from the kernel's command line (after `--`).
#[derive(Debug, clap::Args)]
pub struct GuestArgs {
    /// Block device that becomes / (ext4); without it, the initramfs stays
    #[arg(long, value_name = "DEVICE")]
    root: Option<PathBuf>,
    /// MTU of every network interface
    #[arg(long, default_value_t = 1500)]
    mtu: i32,
    /// Name of the virtio-serial port the controller speaks through
    #[arg(long, default_value = "nodrop.ctl")]
    port: String,
    /// Serve the port and do nothing else: in a machine with an init of its own, as a service that is started again
    #[arg(long)]
    serve: bool,
    /// Make this interface ready to receive, with --mtu, and do nothing else: for one that was plugged in later
    #[arg(long, value_name = "INTERFACE", conflicts_with = "serve")]
    receive_on: Option<String>,
}

/// Does not return in a virtual machine's process 1.
pub fn run(args: &GuestArgs) -> ExitCode {
    if let Some(interface) = &args.receive_on {
        return status(
            nodrop_io::link::receive_only(interface, args.mtu).map_err(|e| e.to_string()),
        );
    }
    if args.serve {
        return status(serve::serve(&args.port));
    }
    if std::process::id() != 1 {
        eprintln!("nodrop-node guest: only for process 1 of a virtual machine");
        return ExitCode::from(2);
    }
    if let Err(error) =
        boot::boot(args.root.as_deref(), args.mtu).and_then(|()| reap_until_served(&args.port))
    {
        failed(&error);
    }
    // Process 1 must not end: that would be a panic instead of a power-off.
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(errno) => failed(&format!("cannot power off: {errno}")),
    }
}

fn status(done: Result<(), String>) -> ExitCode {
    done.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

fn failed(error: &str) -> ExitCode {
    eprintln!("nodrop-node guest: {error}");
    ExitCode::FAILURE
}

/// The server is a child, because process 1 inherits every orphan and has to wait for any child, also those that are not its.
fn reap_until_served(port: &str) -> Result<(), String> {
    let server = Command::new(boot::OURSELVES)
        .args(["guest", "--serve", "--port", port])
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", boot::OURSELVES))?;
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))
                if u32::try_from(pid.as_raw()) == Ok(server.id()) =>
            {
                return Ok(());
            }
            Ok(_) => {}
            Err(errno) => return Err(format!("wait: {errno}")),
        }
    }
}
