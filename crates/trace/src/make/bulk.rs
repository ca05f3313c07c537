//! Transfers that fill a trace up to its sums of packets and bytes.

use crate::make::packets::Packets;
use crate::make::rng::Rng;
use crate::make::tcp::{Path, Side, Tcp};

/// Frames of handshake and end.
const FRAME_PACKETS: u64 = 7;

/// What is left to send.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
}

impl Budget {
    /// A part of it by weight.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // sums of a trace
    pub fn share(self, ratio: f64) -> Self {
        Self {
            packets: (self.packets as f64 * ratio) as u64,
            bytes: (self.bytes as f64 * ratio) as u64,
        }
    }
}

/// A transfer of about that many packets and bytes: long flights if the mean of what is left is high, short messages if it is low.
pub fn transfer(out: &mut Packets, rng: Rng, path: Path, budget: Budget) -> (u64, u64) {
    let (first_packet, first_byte) = (out.len() as u64, out.frame_bytes());
    let marks = Marks {
        first_packet,
        first_byte,
    };
    let mss = usize::from(path.mss);
    let mut tcp = Tcp::open(out, rng, path);
    tcp.send(Side::Client, b"BEGIN nodrop bulk transfer\n");
    loop {
        let left = marks.left(&tcp, budget);
        if left.packets < FRAME_PACKETS {
            break;
        }
        let is_behind = u128::from(left.bytes) * u128::from(budget.packets)
            >= u128::from(budget.bytes) * u128::from(left.packets);
        let mut data = Vec::new();
        if is_behind {
            let segments = usize::try_from(left.packets * 3 / 4)
                .unwrap_or(1)
                .clamp(1, 48);
            tcp.rng().fill(&mut data, segments * mss);
            tcp.send(Side::Server, &data);
        } else {
            let length = 8 + tcp.rng().index(180);
            tcp.rng().fill(&mut data, length);
            let side = if tcp.rng().chance(0.5) {
                Side::Client
            } else {
                Side::Server
            };
            tcp.send(side, &data);
            tcp.pause(3_000_000);
        }
    }
    if tcp.rng().chance(0.1) {
        tcp.reset(Side::Client)
    } else {
        tcp.close(Side::Server)
    }
}

struct Marks {
    first_packet: u64,
    first_byte: u64,
}

impl Marks {
    fn left(&self, tcp: &Tcp<'_>, budget: Budget) -> Budget {
        let (packets, bytes) = tcp.written();
        Budget {
            packets: budget.packets.saturating_sub(packets - self.first_packet),
            bytes: budget.bytes.saturating_sub(bytes - self.first_byte),
        }
    }
}
