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
use nodrop_io::link;

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
    /// Give this interface an address and one neighbour, and do nothing else: eth0,198.18.0.2,198.18.0.1,02:00:00:00:00:01
    #[arg(long, value_name = "INTERFACE,OWN,OTHER,MAC", conflicts_with_all = ["serve", "receive_on"])]
    address: Option<String>,
}

/// Does not return in a virtual machine's process 1.
pub fn run(args: &GuestArgs) -> ExitCode {
    if let Some(interface) = &args.receive_on {
        return status(link::receive_only(interface, args.mtu).map_err(|e| e.to_string()));
    }
    if let Some(words) = &args.address {
        return status(addressed(words));
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

fn addressed(words: &str) -> Result<(), String> {
    let parts: Vec<&str> = words.split(',').collect();
    let &[interface, own, other, mac] = &parts[..] else {
        return Err(format!(
            "--address {words}: INTERFACE,OWN,OTHER,MAC is needed"
        ));
    };
    let address = |text: &str| text.parse().map_err(|e| format!("--address {text}: {e}"));
    let octets = mac.split(':').map(|two| u8::from_str_radix(two, 16));
    let octets: Result<Vec<u8>, _> = octets.collect();
    let mac = octets.ok().and_then(|octets| octets.try_into().ok());
    let mac = mac.ok_or_else(|| format!("--address {words}: the last must be a MAC address"))?;
    let other = link::Neighbour {
        address: address(other)?,
        mac,
    };
    link::address(interface, address(own)?, other).map_err(|e| e.to_string())
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
