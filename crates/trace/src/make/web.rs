//! HTTP/1.1 and TLS 1.3 conversations, as far as an inspector that has no key can follow them.

use crate::make::names;
use crate::make::rng::Rng;
use crate::make::tcp::{Side, Tcp};
use crate::make::time::MILLISECOND_NS;

/// How much the bodies of a profile hold.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Smallest body of the heavy tail.
    pub body_low: u64,
    /// Largest.
    pub body_high: u64,
    /// Exponent of the tail; smaller is heavier.
    pub alpha: f64,
}

/// A few requests on one connection.
pub fn http(tcp: &mut Tcp<'_>, sizes: Sizes) {
    let host = names::host(tcp.rng());
    let agent = *tcp.rng().pick(&names::AGENTS);
    for number in 0..tcp.rng().pareto(1, 6, 1.5) {
        if number > 0 {
            let think = tcp.rng().between(5, 400);
            tcp.pause(think * MILLISECOND_NS);
        }
        let (request, response) = http_exchange(tcp.rng(), sizes, &host, agent);
        tcp.send(Side::Client, &request);
        let think = tcp.rng().between(1, 60);
        tcp.pause(think * MILLISECOND_NS);
        tcp.send(Side::Server, &response);
    }
}

fn http_exchange(rng: &mut Rng, sizes: Sizes, host: &str, agent: &str) -> (Vec<u8>, Vec<u8>) {
    const KINDS: [(&str, &str); 5] = [
        ("html", "text/html; charset=utf-8"),
        ("json", "application/json"),
        ("png", "image/png"),
        ("css", "text/css"),
        ("bin", "application/octet-stream"),
    ];
    let (suffix, kind) = *rng.pick(&KINDS);
    let path = format!("/{}/{}.{suffix}", names::word(rng), names::word(rng));
    let head = format!("Host: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n");
    let request = if rng.chance(0.12) {
        let length = usize::try_from(rng.pareto(40, 20_000, 1.2)).unwrap_or(40);
        let form = format!(
            "{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\nvalue="
        );
        let mut request = format!("POST {path} HTTP/1.1\r\n{form}").into_bytes();
        text(rng, &mut request, length - 6);
        request
    } else {
        format!("GET {path} HTTP/1.1\r\n{head}\r\n").into_bytes()
    };
    let status = if rng.chance(0.05) {
        "404 Not Found"
    } else {
        "200 OK"
    };
    let length =
        usize::try_from(rng.pareto(sizes.body_low, sizes.body_high, sizes.alpha)).unwrap_or(0);
    let mut response = format!(
        "HTTP/1.1 {status}\r\nServer: nginx\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: keep-alive\r\n\r\n"
    )
    .into_bytes();
    if kind.starts_with("image") || kind.ends_with("stream") {
        rng.fill(&mut response, length);
    } else {
        text(rng, &mut response, length);
    }
    (request, response)
}

/// Letters and blanks.
fn text(rng: &mut Rng, out: &mut Vec<u8>, length: usize) {
    const LETTERS: &[u8; 32] = b"etaoinshrdlcumwfgypbvkjxqz etaoi";
    let end = out.len() + length;
    while out.len() < end {
        let mut bits = rng.next_u64();
        for _ in 0..12.min(end - out.len()) {
            out.push(LETTERS[(bits & 31) as usize]);
            bits >>= 5;
        }
    }
}

/// A handshake with a server name, and records that only its ends can read.
pub fn tls(tcp: &mut Tcp<'_>, sizes: Sizes) {
    let host = names::host(tcp.rng());
    let hello = client_hello(tcp.rng(), &host);
    tcp.send(Side::Client, &hello);
    let mut answer = server_hello(tcp.rng(), &hello[44..76]);
    let certificate = tcp.rng().between(1_800, 4_200);
    for length in [46, certificate, 280, 69] {
        record(tcp.rng(), &mut answer, length);
    }
    tcp.pause(2 * MILLISECOND_NS);
    tcp.send(Side::Server, &answer);
    let mut finished = change_cipher_spec();
    record(tcp.rng(), &mut finished, 69);
    tcp.send(Side::Client, &finished);
    for _ in 0..tcp.rng().pareto(1, 8, 1.4) {
        let (mut request, mut response) = (Vec::new(), Vec::new());
        let rng = tcp.rng();
        let asked = rng.between(120, 900);
        record(rng, &mut request, asked);
        let mut left = rng.pareto(sizes.body_low, sizes.body_high, sizes.alpha);
        while left > 0 {
            let piece = left.min(16_384);
            record(rng, &mut response, piece + 17);
            left -= piece;
        }
        let think = rng.between(1, 300);
        tcp.send(Side::Client, &request);
        tcp.pause(think * MILLISECOND_NS);
        tcp.send(Side::Server, &response);
    }
}

/// An application data record: of TLS 1.3 nothing more can be seen.
fn record(rng: &mut Rng, out: &mut Vec<u8>, length: u64) {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    out.extend([0x17, 3, 3]);
    out.extend(length.to_be_bytes());
    rng.fill(out, length.into());
}

fn change_cipher_spec() -> Vec<u8> {
    vec![0x14, 3, 3, 0, 1, 1]
}

/// A block with its length before it, in as many bytes as the field has.
fn sized(field: usize, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[4 - field..], body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(2, body)].concat()
}

fn handshake_record(kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind][..], &sized(3, body)].concat();
    [&[0x16, 3, 1][..], &sized(2, &message)].concat()
}

/// RFC 8446 4.1.2, with server name, groups, ALPN, signature algorithms, versions and an X25519 share.
fn client_hello(rng: &mut Rng, host: &str) -> Vec<u8> {
    let name = sized(2, &[&[0][..], &sized(2, host.as_bytes())].concat());
    let mut share = vec![0, 0x1d, 0, 32];
    rng.fill(&mut share, 32);
    let extensions = [
        extension(0, &name),
        extension(10, &sized(2, &[0, 0x1d, 0, 0x17])),
        extension(13, &sized(2, &[4, 3, 8, 4, 4, 1])),
        extension(16, &sized(2, &sized(1, b"http/1.1"))),
        extension(43, &sized(1, &[3, 4])),
        extension(45, &sized(1, &[1])),
        extension(51, &sized(2, &share)),
    ]
    .concat();
    let mut body = vec![3, 3];
    rng.fill(&mut body, 32);
    let mut session = Vec::new();
    rng.fill(&mut session, 32);
    body.extend(sized(1, &session));
    body.extend(sized(2, &[0x13, 1, 0x13, 2, 0x13, 3]));
    body.extend([1, 0]);
    body.extend(sized(2, &extensions));
    handshake_record(1, &body)
}

/// RFC 8446 4.1.3; the session of the client comes back.
fn server_hello(rng: &mut Rng, session: &[u8]) -> Vec<u8> {
    let mut share = vec![0, 0x1d, 0, 32];
    rng.fill(&mut share, 32);
    let extensions = [extension(43, &[3, 4]), extension(51, &share)].concat();
    let mut body = vec![3, 3];
    rng.fill(&mut body, 32);
    body.extend(sized(1, session));
    body.extend([0x13, 1, 0]);
    body.extend(sized(2, &extensions));
    let mut hello = handshake_record(2, &body);
    hello[2] = 3;
    hello.extend(change_cipher_spec());
    hello
}
