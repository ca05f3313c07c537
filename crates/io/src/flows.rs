//! A fanout group that is shown a part of a port's flows, beside the programs that capture there.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::socket::{IoError, PacketSocket};

/// Bytes that are kept of a frame: its headers.
pub const KEPT_BYTES: usize = KEPT as usize;
const KEPT: u32 = 128;
const ETH_P_ALL: u16 = 0x0003;
const TCP: u32 = 6;
const UDP: u32 = 17;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
/// More to come, or an offset.
const FRAGMENT: u32 = 0x3fff;

/// Its members, each with the packets that are dealt to it.
pub struct FlowListeners(Vec<PacketSocket>);

impl FlowListeners {
    /// Opens a group that deals by `kind` (PACKET_FANOUT_*), in the network namespace of this thread. One flow in `mask + 1` is
    /// shown, both of its directions, and nothing that leaves by the port.
    ///
    /// # Errors
    /// If there is no such interface, or no permission (CAP_NET_RAW).
    pub fn open(interface: &str, kind: u32, members: u32, mask: u32) -> Result<Self, IoError> {
        let mut steps = sampling(mask);
        let program = libc::sock_fprog {
            len: u16::try_from(steps.len()).unwrap_or(u16::MAX),
            filter: steps.as_mut_ptr(),
        };
        // The kernel chooses a number that no group has.
        let mut group = libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;
        let mut found = Vec::new();
        for _ in 0..members {
            let socket = PacketSocket::new(interface)?;
            let filter = libc::SO_ATTACH_FILTER;
            socket.set(libc::SOL_SOCKET, filter, &program, "SO_ATTACH_FILTER")?;
            let (one, outgoing) = (1_i32, libc::PACKET_IGNORE_OUTGOING);
            socket.set(libc::SOL_PACKET, outgoing, &one, "PACKET_IGNORE_OUTGOING")?;
            socket.bind(ETH_P_ALL)?;
            let (join, fanout) = (kind << 16 | group, libc::PACKET_FANOUT);
            socket.set(libc::SOL_PACKET, fanout, &join, "PACKET_FANOUT")?;
            let joined: u32 = socket.get(libc::SOL_PACKET, fanout, "PACKET_FANOUT")?;
            group = joined & 0xffff;
            found.push(socket);
        }
        Ok(Self(found))
    }

    /// How many share the packets.
    #[must_use]
    pub fn members(&self) -> usize {
        self.0.len()
    }

    /// The headers of the next frame of a member; `None` if none waits, or the port is down or gone.
    #[must_use]
    pub fn next<'a>(&self, member: usize, frame: &'a mut [u8; KEPT_BYTES]) -> Option<&'a [u8]> {
        let fd = self.0.get(member)?.fd.as_raw_fd();
        // SAFETY: the kernel writes at most the length of `frame` into it.
        let got = unsafe {
            libc::recv(
                fd,
                frame.as_mut_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        frame.get(..usize::try_from(got).ok()?)
    }
}

/// Waits until a member of some group has a frame, or the time is over; a signal ends the wait early.
pub fn wait<'a>(groups: impl Iterator<Item = &'a FlowListeners>, timeout: Duration) {
    let polled = groups
        .flat_map(|group| &group.0)
        .map(|member| libc::pollfd {
            fd: member.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
    let mut polled: Vec<_> = polled.collect();
    let count = polled.len() as libc::nfds_t;
    let timeout_ms = i32::try_from(timeout.as_millis().max(1)).unwrap_or(i32::MAX);
    // SAFETY: `polled` has that many entries and lives through the call.
    unsafe { libc::poll(polled.as_mut_ptr(), count, timeout_ms) };
}

/// An instruction of classic BPF, its jumps if the value fits and if not, and the value.
type Step = (u16, i16, i16, u32);

const LOAD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_AT: u16 = 0x48;
const HEADER_TO_X: u16 = 0xb1;
const STORE: u16 = 0x02;
const X_FROM: u16 = 0x61;
const XOR_X: u16 = 0xac;
const AND: u16 = 0x54;
const RIGHT: u16 = 0x74;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// To the end that refuses.
const LEAVE: i16 = -1;

/// TCP and UDP of flows whose addresses and ports, mixed, are 0 under the mask; the first bytes of those.
fn sampling(mask: u32) -> Vec<libc::sock_filter> {
    let four = [
        &[
            (LOAD_BYTE, 0, 0, 23),
            (EQUAL, 1, 0, TCP),
            (EQUAL, 0, LEAVE, UDP),
            (LOAD_HALF, 0, 0, 20),
            (ANY_BIT, LEAVE, 0, FRAGMENT),
            (LOAD, 0, 0, 26),
        ][..],
        &mixed(30),
        &[
            (HEADER_TO_X, 0, 0, 14),
            (STORE, 0, 0, 0),
            (LOAD_HALF_AT, 0, 0, 14),
            (STORE, 0, 0, 1),
            (LOAD_HALF_AT, 0, 0, 16),
        ],
        &with(1),
        &with(0),
        &[(JUMP, 0, 0, 0)],
    ]
    .concat();
    let mut six = vec![
        (LOAD_BYTE, 0, 0, 20),
        (EQUAL, 1, 0, TCP),
        (EQUAL, 0, LEAVE, UDP),
        (LOAD, 0, 0, 22),
    ];
    six.extend((26..54).step_by(4).flat_map(mixed));
    six.extend([
        (STORE, 0, 0, 0),
        (LOAD_HALF, 0, 0, 54),
        (STORE, 0, 0, 1),
        (LOAD_HALF, 0, 0, 56),
    ]);
    six.extend([with(1), with(0)].concat());
    let past_four = i16::try_from(four.len()).unwrap_or(i16::MAX);
    let begin = [
        (LOAD_HALF, 0, 0, 12),
        (EQUAL, 1, 0, IPV4),
        (EQUAL, past_four, LEAVE, IPV6),
    ];
    let test = [
        &[(STORE, 0, 0, 0), (RIGHT, 0, 0, 16)][..],
        &with(0),
        &[
            (AND, 0, 0, mask),
            (EQUAL, 0, 1, 0),
            (RETURN, 0, 0, KEPT),
            (RETURN, 0, 0, 0),
        ],
    ]
    .concat();
    let steps = [&begin[..], &four[..], &six[..], &test[..]].concat();
    let (end, tested) = (steps.len() - 1, steps.len() - test.len());
    let each = steps.into_iter().enumerate();
    let placed = each.map(|(place, (code, yes, no, k))| {
        let left = || u8::try_from(end - place - 1).unwrap_or(u8::MAX);
        let jump = |to: i16| u8::try_from(to).unwrap_or_else(|_| left());
        let k = match code {
            JUMP => u32::try_from(tested - place - 1).unwrap_or(u32::MAX),
            _ => k,
        };
        libc::sock_filter {
            code,
            jt: jump(yes),
            jf: jump(no),
            k,
        }
    });
    placed.collect()
}

/// What was loaded, mixed with a word of the frame.
fn mixed(word: u32) -> [Step; 4] {
    let [first, second] = with(0);
    [(STORE, 0, 0, 0), (LOAD, 0, 0, word), first, second]
}

fn with(slot: u32) -> [Step; 2] {
    [(X_FROM, 0, 0, slot), (XOR_X, 0, 0, 0)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation)]
    use super::*;

    /// The kernel's machine, as far as it is used.
    fn passes(steps: &[libc::sock_filter], frame: &[u8]) -> u32 {
        let (mut a, mut x, mut at, mut kept) = (0_u32, 0_u32, 0_usize, [0_u32; 16]);
        let bytes = |from: u32, count: usize| {
            let from = from as usize;
            frame[from..from + count]
                .iter()
                .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
        };
        loop {
            let libc::sock_filter { code, jt, jf, k } = steps[at];
            let mut jump = 0;
            match code {
                LOAD => a = bytes(k, 4),
                LOAD_HALF => a = bytes(k, 2),
                LOAD_BYTE => a = bytes(k, 1),
                LOAD_HALF_AT => a = bytes(x + k, 2),
                HEADER_TO_X => x = 4 * (bytes(k, 1) & 15),
                STORE => kept[k as usize] = a,
                X_FROM => x = kept[k as usize],
                XOR_X => a ^= x,
                AND => a &= k,
                RIGHT => a >>= k,
                JUMP => jump = k as usize,
                EQUAL => jump = usize::from(if a == k { jt } else { jf }),
                ANY_BIT => jump = usize::from(if a & k != 0 { jt } else { jf }),
                RETURN => return k,
                _ => unreachable!("{code:#x}"),
            }
            at += 1 + jump;
        }
    }

    /// Numbers without a pattern, the same in each run.
    fn numbers(mut seed: u64) -> impl FnMut() -> u8 {
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u8
        }
    }

    fn frame(
        source: &[u8],
        target: &[u8],
        ports: [[u8; 2]; 2],
        protocol: u8,
        part: u16,
    ) -> Vec<u8> {
        let mut frame = vec![0; 12];
        if source.len() == 16 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
        } else {
            frame.extend([0x08, 0x00, 0x46, 0, 0, 0, 0, 0]);
            frame.extend(part.to_be_bytes());
            frame.extend([64, protocol, 0, 0]);
        }
        frame.extend([source, target].concat());
        frame.extend(if source.len() == 4 { &[0; 4][..] } else { &[] });
        frame.extend(ports.concat());
        frame.resize(frame.len() + 40, 0);
        frame
    }

    #[test]
    fn a_part_of_the_flows_is_chosen_and_both_directions_of_each() {
        for (bytes, mask) in [(4, 0), (4, 3), (16, 1), (16, 7)] {
            let (steps, mut next) = (sampling(mask), numbers(u64::from(mask)));
            let mut chosen = 0.0;
            for _ in 0..800 {
                let mut some = |count: usize| (0..count).map(|_| next()).collect::<Vec<u8>>();
                let (one, other) = (some(bytes), some(bytes));
                let ports = [some(2), some(2)].map(|port| [port[0], port[1]]);
                let protocol = if some(1)[0] & 1 == 0 { 6 } else { 17 };
                let there = passes(&steps, &frame(&one, &other, ports, protocol, 0));
                let [first, second] = ports;
                let back = frame(&other, &one, [second, first], protocol, 0);
                assert_eq!(there, passes(&steps, &back));
                chosen += f64::from(u8::from(there > 0));
            }
            let share = 1.0 / f64::from(mask + 1);
            let deviation = (800.0 * share * (1.0 - share)).sqrt();
            assert!(
                (chosen - 800.0 * share).abs() <= 6.0 * deviation,
                "{chosen}"
            );
        }
    }

    #[test]
    fn what_is_no_flow_is_left_out() {
        let of = |protocol, part| {
            let frame = frame(
                &[10, 0, 0, 1],
                &[10, 0, 0, 2],
                [[0, 1], [0, 2]],
                protocol,
                part,
            );
            passes(&sampling(0), &frame)
        };
        assert_eq!([of(1, 0), of(6, 0x2000), of(6, 7)], [0; 3]);
        assert_eq!([of(6, 0), of(17, 0x4000)], [KEPT; 2]);
        assert_eq!(passes(&sampling(0), &[0; 60]), 0);
    }
}
