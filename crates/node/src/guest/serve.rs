//! The server of the port: reads frames, hands them to their channels, and says the time.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use nodrop_proto::PROTOCOL;
use nodrop_sys::clock::{mono_ns, real_ns};
use serde_json::json;

use super::channel::{self, Channel};
use super::frame::{self, Frame};
use super::line::Line;

const PORTS: &str = "/sys/class/virtio-ports";
const PORT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// SIGKILL.
const KILL: u8 = 9;
/// Of frames that belong to no conversation.
const NO_CHANNEL: u32 = 0;

/// Returns when the controller's end is closed.
pub fn serve(port: &str) -> Result<(), String> {
    let mut reading = open(port)?;
    let writing = reading
        .try_clone()
        .map_err(|e| format!("port {port}: {e}"))?;
    let line = Line::new(writing);
    line.say(NO_CHANNEL, b'h', &hello());
    let mut channels: HashMap<u32, Channel> = HashMap::new();
    while let Ok(frame) = frame::read(&mut reading) {
        obey(frame, &line, &mut channels);
    }
    // What was started has no other owner, and the machine may go on without us.
    for channel in channels.values() {
        channel.kill(Some(KILL));
    }
    Ok(())
}

fn hello() -> serde_json::Value {
    let interfaces: Vec<String> = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != "lo")
        .collect();
    json!({
        "protocol": PROTOCOL,
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "interfaces": interfaces,
    })
}

fn obey(frame: Frame, line: &Line, channels: &mut HashMap<u32, Channel>) {
    match frame.kind {
        b'o' => {
            let opened = channel::open(frame.channel, &frame.payload, line);
            match opened {
                Ok(opened) => drop(channels.insert(frame.channel, opened)),
                Err(message) => line.say(frame.channel, b'f', &json!({ "message": message })),
            }
        }
        b't' => say_time(&frame.payload, line),
        kind => {
            if let Some(channel) = channels.get_mut(&frame.channel) {
                match kind {
                    b'd' => channel.data(frame.payload),
                    b'e' => channel.end_of_data(),
                    b'k' => channel.kill(frame.payload.first().copied()),
                    _ => {}
                }
            }
        }
    }
}

/// A question `{"id"}` is answered with both clocks; one with `set_real_ns` sets the wall clock first, which a machine without a
/// network starts with whole seconds of error, so that times in logs are the controller's.
fn say_time(payload: &[u8], line: &Line) {
    let asked: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    if let Some(ns) = asked["set_real_ns"].as_u64() {
        let time = TimeSpec::from_duration(Duration::from_nanos(ns));
        let _refused = clock_settime(ClockId::CLOCK_REALTIME, time);
    }
    let answer = json!({"id": asked["id"], "mono_ns": mono_ns(), "real_ns": real_ns()});
    line.say(NO_CHANNEL, b't', &answer);
}

/// By the port's name; the driver makes it in the background.
fn open(name: &str) -> Result<File, String> {
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        if let Some(device) = device_of(name) {
            return File::options()
                .read(true)
                .write(true)
                .open(&device)
                .map_err(|e| format!("{device}: {e}"));
        }
        if Instant::now() > deadline {
            return Err(format!("no virtio-serial port {name}"));
        }
        io::stderr().flush().unwrap_or_default();
        std::thread::sleep(POLL);
    }
}

fn device_of(name: &str) -> Option<String> {
    fs::read_dir(PORTS).ok()?.flatten().find_map(|entry| {
        let said = fs::read_to_string(entry.path().join("name")).ok()?;
        let device = format!("/dev/{}", entry.file_name().to_str()?);
        (said.trim() == name && fs::exists(&device).ok()?).then_some(device)
    })
}
