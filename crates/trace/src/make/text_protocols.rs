//! SMTP and SSH conversations.

use crate::make::names;
use crate::make::rng::Rng;
use crate::make::tcp::{Side, Tcp};
use crate::make::time::MILLISECOND_NS;

/// One mail (RFC 5321).
pub fn smtp(tcp: &mut Tcp<'_>) {
    let rng = tcp.rng();
    let (server, client) = (names::host(rng), names::host(rng));
    let (from, to) = (names::word(rng), names::word(rng));
    let mut mail = format!(
        "From: <{from}@{client}>\r\nTo: <{to}@{server}>\r\nSubject: {}\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n",
        names::word(rng)
    );
    for _ in 0..rng.pareto(3, 400, 1.2) {
        let line: Vec<_> = (0..9).map(|_| names::word(rng)).collect();
        mail += &line.join(" ");
        mail += "\r\n";
    }
    mail += ".\r\n";
    let steps = [
        (
            format!("EHLO {client}\r\n"),
            format!("250-{server}\r\n250-SIZE 10485760\r\n250 8BITMIME\r\n"),
        ),
        (
            format!("MAIL FROM:<{from}@{client}>\r\n"),
            "250 2.1.0 Ok\r\n".into(),
        ),
        (
            format!("RCPT TO:<{to}@{server}>\r\n"),
            "250 2.1.5 Ok\r\n".into(),
        ),
        (
            "DATA\r\n".into(),
            "354 End data with <CR><LF>.<CR><LF>\r\n".into(),
        ),
        (mail, "250 2.0.0 Ok: queued\r\n".into()),
        ("QUIT\r\n".into(), "221 2.0.0 Bye\r\n".into()),
    ];
    tcp.send(Side::Server, format!("220 {server} ESMTP\r\n").as_bytes());
    for (ask, answer) in steps {
        tcp.send(Side::Client, ask.as_bytes());
        tcp.pause(MILLISECOND_NS);
        tcp.send(Side::Server, answer.as_bytes());
    }
}

/// Banners, key exchange and keystrokes, all encrypted (RFC 4253).
pub fn ssh(tcp: &mut Tcp<'_>) {
    const KEXINIT: u8 = 20;
    const NEWKEYS: u8 = 21;
    const KEX_ECDH_INIT: u8 = 30;
    const KEX_ECDH_REPLY: u8 = 31;
    tcp.send(Side::Client, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
    tcp.send(Side::Server, b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13\r\n");
    for side in [Side::Client, Side::Server] {
        let body = key_exchange_lists(tcp.rng());
        let packet = ssh_packet(tcp.rng(), KEXINIT, &body);
        tcp.send(side, &packet);
    }
    let mut key = vec![0, 0, 0, 32];
    tcp.rng().fill(&mut key, 32);
    let init = ssh_packet(tcp.rng(), KEX_ECDH_INIT, &key);
    tcp.send(Side::Client, &init);
    let mut proof = Vec::new();
    for (outer, length) in [(Some(51), 32), (None, 32), (Some(83), 64u8)] {
        // Host key and signature are strings of their own: the algorithm's name, then the bytes.
        if let Some(outer) = outer {
            proof.extend([0, 0, 0, outer, 0, 0, 0, 11]);
            proof.extend(b"ssh-ed25519");
        }
        proof.extend([0, 0, 0, length]);
        tcp.rng().fill(&mut proof, length.into());
    }
    let mut reply = ssh_packet(tcp.rng(), KEX_ECDH_REPLY, &proof);
    reply.extend(ssh_packet(tcp.rng(), NEWKEYS, &[]));
    tcp.send(Side::Server, &reply);
    let keys = ssh_packet(tcp.rng(), NEWKEYS, &[]);
    tcp.send(Side::Client, &keys);
    for _ in 0..tcp.rng().between(5, 40) {
        let think = tcp.rng().between(30, 350);
        tcp.pause(think * MILLISECOND_NS);
        let (mut stroke, mut echo) = (Vec::new(), Vec::new());
        tcp.rng().fill(&mut stroke, 36);
        let shown = 36 + 8 * tcp.rng().index(20);
        tcp.rng().fill(&mut echo, shown);
        tcp.send(Side::Client, &stroke);
        tcp.send(Side::Server, &echo);
    }
}

fn key_exchange_lists(rng: &mut Rng) -> Vec<u8> {
    const LISTS: [&str; 10] = [
        "curve25519-sha256,ecdh-sha2-nistp256",
        "ssh-ed25519,rsa-sha2-512",
        "chacha20-poly1305@openssh.com,aes128-ctr",
        "chacha20-poly1305@openssh.com,aes128-ctr",
        "hmac-sha2-256-etm@openssh.com,hmac-sha2-256",
        "hmac-sha2-256-etm@openssh.com,hmac-sha2-256",
        "none,zlib@openssh.com",
        "none,zlib@openssh.com",
        "",
        "",
    ];
    let mut body = Vec::new();
    rng.fill(&mut body, 16);
    for list in LISTS {
        body.extend(u32::try_from(list.len()).unwrap_or(0).to_be_bytes());
        body.extend(list.as_bytes());
    }
    body.extend([0; 5]);
    body
}

/// RFC 4253 6: padded to a multiple of eight with at least four bytes.
fn ssh_packet(rng: &mut Rng, kind: u8, body: &[u8]) -> Vec<u8> {
    let unpadded = 4 + 1 + 1 + body.len();
    let padding = 4 + (8 - (unpadded + 4) % 8) % 8;
    let length = u32::try_from(unpadded - 4 + padding).unwrap_or(0);
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap_or(0));
    packet.push(kind);
    packet.extend(body);
    rng.fill(&mut packet, padding);
    packet
}
