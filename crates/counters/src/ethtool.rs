//! A driver's own counters (`ethtool -S`), through the SIOCETHTOOL ioctl.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::named::Named;
use crate::netlink::{u32_at, u64_at};
use crate::{CounterError, Result};

const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const NAME_LENGTH: usize = 32;

/// Room beyond what was counted: kernels may write as many values as the driver has by then, whatever the
/// caller made room for, and a driver has more of them once it has more queues.
const SLACK: usize = 4096;

/// Counters of one interface; their names are read again only if their number has changed.
#[derive(Debug)]
pub struct EthtoolReader {
    socket: OwnedFd,
    interface: String,
    names: Vec<String>,
    /// The place in `names` of each counter: some drivers give each queue's the same names (vmxnet3).
    places: Vec<usize>,
    sums: Vec<u64>,
    answer: Vec<u8>,
}

impl EthtoolReader {
    /// An interface of this thread's network namespace. A driver without such counters has none: no error.
    pub fn new(interface: &str) -> Result<Self> {
        // SAFETY: no pointers; a negative result is checked before the descriptor is owned.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(CounterError::last_os("socket(AF_INET)"));
        }
        // SAFETY: `fd` is open and ours alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut reader = Self {
            socket,
            interface: interface.into(),
            names: Vec::new(),
            places: Vec::new(),
            sums: Vec::new(),
            answer: Vec::new(),
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// Replaces `counters` by the present ones; what has one name is added up.
    pub fn read(&mut self, counters: &mut Named<u64>) -> Result<()> {
        self.refresh()?;
        self.sums.fill(0);
        for (number, place) in self.places.iter().enumerate() {
            let value = u64_at(&self.answer, 8 + 8 * number).unwrap_or_default();
            self.sums[*place] = self.sums[*place].wrapping_add(value);
        }
        let mut renewal = counters.renew();
        for (name, sum) in self.names.iter().zip(&self.sums) {
            renewal.put(&[name], *sum);
        }
        Ok(())
    }

    /// Has the kernel fill in the answer.
    fn refresh(&mut self) -> Result<()> {
        let count = self.count()?;
        if count != self.places.len() {
            (self.names, self.places) = merged(self.read_names(count)?);
            self.sums = vec![0; self.names.len()];
            // struct ethtool_stats: cmd, n_stats, then one u64 each.
            self.answer = vec![0; 8 + 8 * (count + SLACK)];
        }
        if count > 0 {
            head(&mut self.answer, &[ETHTOOL_GSTATS, number(count)]);
            call(&self.socket, &self.interface, &mut self.answer)?;
        }
        Ok(())
    }

    /// struct ethtool_sset_info: cmd, reserved, sset_mask (u64), data[]. The kernel clears the bit of a set it does not have.
    fn count(&self) -> Result<usize> {
        let mut question = [0; 24];
        head(&mut question, &[ETHTOOL_GSSET_INFO]);
        question[8..16].copy_from_slice(&(1u64 << ETH_SS_STATS).to_ne_bytes());
        match call(&self.socket, &self.interface, &mut question) {
            Err(CounterError::Kernel { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
            {
                Ok(0)
            }
            Err(e) => Err(e),
            Ok(()) if u64_at(&question, 8) == Some(0) => Ok(0),
            Ok(()) => Ok(u32_at(&question, 16).unwrap_or_default() as usize),
        }
    }

    /// struct ethtool_gstrings: cmd, string_set, len, then 32 bytes each.
    fn read_names(&self, count: usize) -> Result<Vec<String>> {
        let mut question = vec![0; 12 + NAME_LENGTH * (count + SLACK)];
        head(
            &mut question,
            &[ETHTOOL_GSTRINGS, ETH_SS_STATS, number(count)],
        );
        if count > 0 {
            call(&self.socket, &self.interface, &mut question)?;
        }
        let text = |name: &[u8]| {
            let end = name
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(name.len());
            String::from_utf8_lossy(&name[..end]).trim().to_owned()
        };
        Ok(question[12..]
            .chunks_exact(NAME_LENGTH)
            .take(count)
            .map(text)
            .collect())
    }
}

/// Each name once, in the driver's order, and the place there of each that was given.
fn merged(given: Vec<String>) -> (Vec<String>, Vec<usize>) {
    let mut names = Vec::new();
    let mut known = HashMap::new();
    let places = given.into_iter().map(|name| {
        *known.entry(name).or_insert_with_key(|name: &String| {
            names.push(name.clone());
            names.len() - 1
        })
    });
    let places = places.collect();
    (names, places)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn head(question: &mut [u8], words: &[u32]) {
    for (place, word) in question.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

fn call(socket: &OwnedFd, interface: &str, question: &mut [u8]) -> Result<()> {
    // SAFETY: an all-zero ifreq is valid: plain bytes and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: a name that is too long is one the kernel does not know.
    if interface.len() >= request.ifr_name.len() {
        return Err(CounterError::NoInterface(interface.into()));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = question.as_mut_ptr().cast();
    // SAFETY: `request` lives through the call; ifru_data points at `question`, which has room for the counts that
    // stand inside of it and SLACK more.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if status == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::ENODEV) => {
            Err(CounterError::NoInterface(interface.into()))
        }
        source => Err(CounterError::Kernel {
            call: "ioctl(SIOCETHTOOL)",
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_counters_has_none() {
        let mut reader = EthtoolReader::new("lo").unwrap();
        let mut counters = Named::default();
        reader.read(&mut counters).unwrap();
        assert_eq!(counters, Named::default());
    }

    #[test]
    fn queues_whose_counters_have_the_same_names_are_added_up() {
        let given = [
            "Rx Queue#",
            "pkts rx OOB",
            "Rx Queue#",
            "pkts rx OOB",
            "err",
        ];
        let (names, places) = merged(given.map(str::to_owned).to_vec());
        assert_eq!(names, ["Rx Queue#", "pkts rx OOB", "err"]);
        assert_eq!(places, [0, 1, 0, 1, 2]);
    }

    #[test]
    fn a_missing_interface_is_named() {
        let missing = |name: &str| EthtoolReader::new(name).unwrap_err().to_string();
        assert_eq!(
            missing("nonesuch"),
            "no network interface `nonesuch` in this network namespace"
        );
        assert!(missing("a-name-longer-than-fifteen").starts_with("no network interface"));
    }
}
