//! OpenMetrics on request: one path, one request at a time, on this machine only.
//!
//! A scrape copies the last row under the sampler's lock and works on the copy; it never makes a row late by more than that.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nodrop_proto::JobError;

use super::exposition::exposition;
use super::sources::Watched;

/// Of a whole request; more is refused.
const LONGEST_REQUEST: usize = 4096;
/// From the first byte asked to the last byte answered.
const TIMEOUT: Duration = Duration::from_secs(2);
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where requests are taken; a socket's file is removed at the end.
pub struct Metrics {
    /// For people.
    pub address: String,
    socket: Option<PathBuf>,
}

impl Metrics {
    /// `place`: a port of 127.0.0.1, or the path of a Unix socket.
    pub fn serve(place: &str, watched: Arc<Mutex<Watched>>) -> Result<Self, JobError> {
        let failed = |e: io::Error| JobError::new("metrics", format!("{place}: {e}"));
        if let Ok(port) = place.parse::<u16>() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A client that goes away is its own matter.
                    let _ = answer(stream, &watched);
                }
            });
            return Ok(Self {
                address: format!("http://{address}/metrics"),
                socket: None,
            });
        }
        if !place.contains('/') {
            let words = format!("field `metrics`: `{place}` is neither a port nor a path");
            return Err(JobError::new("spec", words).hint("9100, or ./sampler.sock"));
        }
        let path = PathBuf::from(place);
        remove_abandoned(&path).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &watched);
            }
        });
        Ok(Self {
            address: format!("{place} (GET /metrics)"),
            socket: Some(path),
        })
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// A socket without a listener is in the way of the next one; anything else is left alone.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match UnixStream::connect(path) {
        Err(e) if is_socket && e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

trait Stream: Read + Write {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
    /// Pages of a browser reach a loopback port under a name of their own.
    const CHECK_HOST: bool;
}

impl Stream for TcpStream {
    const CHECK_HOST: bool = true;

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Stream for UnixStream {
    const CHECK_HOST: bool = false;

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

fn answer<S: Stream>(mut stream: S, watched: &Mutex<Watched>) -> io::Result<()> {
    let request = read_request(&mut stream)?;
    let (status, body) = match verdict(&request, S::CHECK_HOST) {
        Ok(()) => {
            let (mut row, processes) = {
                let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                (watched.row.clone(), watched.sources.processes().to_vec())
            };
            row.show_only(row.ever_read());
            ("200 OK", exposition(&row, &processes))
        }
        Err(status) => (status, format!("{status}\n")),
    };
    let kind = if status == "200 OK" {
        CONTENT
    } else {
        "text/plain"
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.set_timeout(TIMEOUT)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Up to the empty line; nothing of a body is read.
fn read_request<S: Stream>(stream: &mut S) -> io::Result<String> {
    let deadline = Instant::now() + TIMEOUT;
    let mut request = vec![0; LONGEST_REQUEST];
    let mut length = 0;
    while !request[..length].windows(4).any(|four| four == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || length == request.len() {
            break;
        }
        stream.set_timeout(left)?;
        match stream.read(&mut request[length..])? {
            0 => break,
            more => length += more,
        }
    }
    request.truncate(length);
    Ok(String::from_utf8_lossy(&request).into_owned())
}

fn verdict(request: &str, check_host: bool) -> Result<(), &'static str> {
    let (head, _) = request.split_once("\r\n\r\n").ok_or("400 Bad Request")?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    let is_local = |host: &str| {
        let name = host
            .trim()
            .rsplit_once(':')
            .map_or(host.trim(), |(name, _)| name);
        ["127.0.0.1", "localhost"].contains(&name)
    };
    let foreign = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, host)| name.eq_ignore_ascii_case("host") && !is_local(host));
    if check_host && foreign {
        return Err("403 Forbidden");
    }
    match (method, path) {
        (Some("GET"), Some("/metrics")) => Ok(()),
        (Some("GET"), _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_path_for_local_names_only() {
        let asked = |line: &str, host: &str| {
            verdict(&format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"), true)
        };
        assert_eq!(asked("GET /metrics", "localhost:9100"), Ok(()));
        assert_eq!(asked("GET /metrics", "127.0.0.1"), Ok(()));
        assert_eq!(
            asked("GET /metrics", "evil.example:9100"),
            Err("403 Forbidden")
        );
        assert_eq!(asked("GET /", "localhost"), Err("404 Not Found"));
        assert_eq!(
            asked("POST /metrics", "localhost"),
            Err("405 Method Not Allowed")
        );
        assert_eq!(
            verdict("GET /metrics\r\n\r\n", true),
            Err("400 Bad Request")
        );
        assert_eq!(
            verdict("GET /metrics HTTP/1.1\r\n", true),
            Err("400 Bad Request")
        );
        assert_eq!(verdict("GET /metrics HTTP/1.0\r\n\r\n", true), Ok(()));
        let foreign = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(verdict(foreign, false), Ok(()));
    }
}
