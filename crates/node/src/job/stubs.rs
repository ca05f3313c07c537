//! Jobs `stub-hss` and `stub-sgw`: what an MME needs behind it for an attach, and no more.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use nodrop_attach::behind::{serve_hss, serve_sgw};
use nodrop_attach::mme::Home;
use nodrop_attach::stubs::{Counts, Hss, Sgw};
use nodrop_proto::{JobError, StubHssSpec, StubReady, StubResult, StubSgwSpec};
use nodrop_sys::clock::thread_cpu_ns;
use nodrop_sys::thread::exact_timers;

use crate::job::Job;
use crate::job::attach::{home, named};
use crate::session::Session;

/// It listens.
pub struct StubHss {
    hss: Hss,
    listener: TcpListener,
}

/// It listens.
pub struct StubSgw {
    sgw: Sgw,
    socket: UdpSocket,
}

/// An address in a field, of something that speaks neither framed TCP nor SCTP.
pub fn socket_address(name: &str, text: &str) -> Result<SocketAddr, JobError> {
    text.parse().map_err(|e| {
        JobError::new(
            "spec",
            format!("{name} = {text}: {e}; 127.0.0.1:3868 is one"),
        )
    })
}

fn refused(at: SocketAddr) -> impl Fn(std::io::Error) -> JobError {
    move |e| {
        let kind = match e.kind() {
            ErrorKind::AddrInUse => "port_in_use",
            _ => "socket",
        };
        JobError::new(kind, format!("listen = {at}: {e}"))
    }
}

/// The name by which the kernel, and so a sampler, tells it from other jobs.
fn call(name: &std::ffi::CStr) {
    let _refused = nix::sys::prctl::set_name(name);
}

fn result(counts: &Counts, before: u64) -> StubResult {
    StubResult {
        requests: named(counts.requests.clone()),
        refused: counts.refused,
        undecodable: counts.undecodable,
        peak_sessions: counts.peak_sessions,
        cpu_s: (thread_cpu_ns() - before) as f64 / 1e9,
    }
}

impl Job for StubHss {
    const NAME: &'static str = "stub-hss";
    type Spec = StubHssSpec;
    type Ready = StubReady;
    type Outcome = StubResult;

    fn prepare(spec: StubHssSpec, _: &Session) -> Result<(Self, StubReady), JobError> {
        let (subscribers, network) = home(&spec.home, spec.subscribers)?;
        let home = Home {
            subscribers,
            network,
        };
        let at = socket_address("listen", &spec.listen)?;
        let listener = TcpListener::bind(at).map_err(refused(at))?;
        let listen = listener.local_addr().unwrap_or(at).to_string();
        call(c"stub-hss");
        let hss = Hss::new(home);
        Ok((Self { hss, listener }, StubReady { listen }))
    }

    fn run(&mut self, session: &Session) -> Result<StubResult, JobError> {
        exact_timers();
        let before = thread_cpu_ns();
        serve_hss(&mut self.hss, &self.listener, &|| session.stopped())
            .map_err(|e| JobError::new("socket", e.to_string()))?;
        Ok(result(&self.hss.counts, before))
    }
}

impl Job for StubSgw {
    const NAME: &'static str = "stub-sgw";
    type Spec = StubSgwSpec;
    type Ready = StubReady;
    type Outcome = StubResult;

    fn prepare(spec: StubSgwSpec, _: &Session) -> Result<(Self, StubReady), JobError> {
        let at = socket_address("listen", &spec.listen)?;
        let socket = UdpSocket::bind(at).map_err(refused(at))?;
        let listen = socket.local_addr().unwrap_or(at).to_string();
        call(c"stub-sgw");
        let sgw = Sgw::default();
        Ok((Self { sgw, socket }, StubReady { listen }))
    }

    fn run(&mut self, session: &Session) -> Result<StubResult, JobError> {
        exact_timers();
        let before = thread_cpu_ns();
        serve_sgw(&mut self.sgw, &self.socket, &|| session.stopped())
            .map_err(|e| JobError::new("socket", e.to_string()))?;
        Ok(result(&self.sgw.counts, before))
    }
}
