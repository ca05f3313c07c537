//! A driver's own counters (`ethtool -S`) and its settings, through the SIOCETHTOOL ioctl.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use schemars::JsonSchema;
use serde::Serialize;

use crate::named::Named;
use crate::netlink::{u32_at, u64_at};
use crate::{CounterError, Result};

const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const ETH_SS_FEATURES: u32 = 4;
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
        let mut reader = Self {
            socket: open()?,
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
        let count = count(&self.socket, &self.interface, ETH_SS_STATS)?;
        if count != self.places.len() {
            (self.names, self.places) = merged(read_names(
                &self.socket,
                &self.interface,
                ETH_SS_STATS,
                count,
            )?);
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
}

/// How many names a set has. struct ethtool_sset_info: cmd, reserved, sset_mask (u64), data[]. The kernel clears the bit of a set
/// it does not have.
fn count(socket: &OwnedFd, interface: &str, set: u32) -> Result<usize> {
    let mut question = [0; 24];
    head(&mut question, &[ETHTOOL_GSSET_INFO]);
    question[8..16].copy_from_slice(&(1u64 << set).to_ne_bytes());
    match call(socket, interface, &mut question) {
        Err(error) if refused(&error) => Ok(0),
        Err(e) => Err(e),
        Ok(()) if u64_at(&question, 8) == Some(0) => Ok(0),
        Ok(()) => Ok(u32_at(&question, 16).unwrap_or_default() as usize),
    }
}

/// struct ethtool_gstrings: cmd, string_set, len, then 32 bytes each.
fn read_names(socket: &OwnedFd, interface: &str, set: u32, count: usize) -> Result<Vec<String>> {
    let mut question = vec![0; 12 + NAME_LENGTH * (count + SLACK)];
    head(&mut question, &[ETHTOOL_GSTRINGS, set, number(count)]);
    if count > 0 {
        call(socket, interface, &mut question)?;
    }
    let names = question[12..].chunks_exact(NAME_LENGTH).take(count);
    Ok(names.map(word).collect())
}

fn word(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    let text = &field[..end.unwrap_or(field.len())];
    String::from_utf8_lossy(text).trim().to_owned()
}

fn open() -> Result<OwnedFd> {
    // SAFETY: no pointers; a negative result is checked before the descriptor is owned.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(CounterError::last_os("socket(AF_INET)"));
    }
    // SAFETY: `fd` is open and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn refused(error: &CounterError) -> bool {
    matches!(error, CounterError::Kernel { source, .. } if source.raw_os_error() == Some(libc::EOPNOTSUPP))
}

/// What `ethtool -i`, `-g`, `-l`, `-a`, `-k` and `-x` show of receiving. `None`: the driver does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize)]
pub struct PortSettings {
    /// The kernel's name of it.
    pub driver: Option<String>,
    /// As the driver writes its version.
    pub firmware: Option<String>,
    /// The place of its device: a PCI address, mostly.
    pub bus: Option<String>,
    /// Descriptors of a receive ring, and the most that the driver takes.
    pub ring: Option<[u32; 2]>,
    /// Receive queues.
    pub queues: Option<u32>,
    /// A queue that receives sends too, and `ethtool -L` sets both at once.
    pub combined: Option<bool>,
    /// Whether pause frames are obeyed, and whether they are sent.
    pub pauses: Option<[bool; 2]>,
    /// By name, as `ethtool -k` has it.
    pub features: BTreeMap<String, Feature>,
    /// How a queue is chosen for a packet.
    pub spread: Option<Spread>,
}

/// One offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "PortFeature")]
pub struct Feature {
    /// In force, not only asked for.
    pub on: bool,
    /// The driver has it fixed.
    pub fixed: bool,
}

/// `struct ethtool_rxfh` of the port itself.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(rename = "QueueSpread")]
pub struct Spread {
    /// Those that its table names.
    pub queues: BTreeSet<u32>,
    /// Of the hash, in hex.
    pub key: String,
    /// ETH_RSS_HASH_*, as a bit.
    pub function: u8,
    /// The kernel makes the input symmetric (symmetric-xor, symmetric-or-xor; since 6.8).
    pub transformed: bool,
}

/// Settings of an interface of this thread's network namespace.
pub fn read_port_settings(interface: &str) -> Result<PortSettings> {
    let socket = open()?;
    // `count` words behind the command; a driver that refuses has no such thing.
    let words = |command: u32, words: usize| -> Option<Vec<u32>> {
        let mut question = vec![0; 4 + 4 * words];
        head(&mut question, &[command]);
        call(&socket, interface, &mut question).ok()?;
        (1..=words).map(|at| u32_at(&question, 4 * at)).collect()
    };
    let mut info = vec![0; 196];
    head(&mut info, &[ETHTOOL_GDRVINFO]);
    let named = match call(&socket, interface, &mut info) {
        Ok(()) => Some(&info),
        Err(error @ CounterError::NoInterface(_)) => return Err(error),
        Err(_) => None,
    };
    let field = |from: usize, to: usize| named.map(|info| word(&info[from..to]));
    let firmware = field(68, 100).map(|said| said.trim_matches(['N', '/', 'A', ' ']).to_owned());
    let rings = words(ETHTOOL_GRINGPARAM, 8);
    let channels = words(ETHTOOL_GCHANNELS, 8);
    let pauses = words(ETHTOOL_GPAUSEPARAM, 3);
    Ok(PortSettings {
        driver: field(4, 36).filter(|name| !name.is_empty()),
        firmware: firmware.filter(|said| !said.is_empty()),
        bus: field(100, 132).filter(|place| !place.is_empty()),
        ring: rings
            .filter(|rings| rings[0] > 0)
            .map(|rings| [rings[4], rings[0]]),
        combined: channels.as_ref().map(|channels| channels[3] > 0),
        queues: channels
            .map(|channels| channels[4] + channels[7])
            .filter(|queues| *queues > 0),
        pauses: pauses.map(|pauses| [pauses[1] != 0, pauses[2] != 0]),
        features: features(&socket, interface).unwrap_or_default(),
        spread: spread(&socket, interface),
    })
}

/// struct ethtool_gfeatures: cmd, size, then for each 32 features available, requested, active, never_changed.
fn features(socket: &OwnedFd, interface: &str) -> Option<BTreeMap<String, Feature>> {
    let count = count(socket, interface, ETH_SS_FEATURES).ok()?;
    let names = read_names(socket, interface, ETH_SS_FEATURES, count).ok()?;
    let blocks = count.div_ceil(32);
    let mut answer = vec![0; 8 + 16 * blocks];
    head(&mut answer, &[ETHTOOL_GFEATURES, number(blocks)]);
    call(socket, interface, &mut answer).ok()?;
    let bit = |number: usize, word: usize| {
        u32_at(&answer, 8 + 16 * (number / 32) + 4 * word)
            .is_some_and(|bits| bits >> (number % 32) & 1 == 1)
    };
    let each = names.into_iter().enumerate();
    let named = each.filter(|(_, name)| !name.is_empty());
    let seen = named.map(|(number, name)| {
        let fixed = !bit(number, 0) || bit(number, 3);
        let on = bit(number, 2);
        (name, Feature { on, fixed })
    });
    Some(seen.collect())
}

/// struct ethtool_rxfh: cmd, context, entries of the table, bytes of the key, function, input_xfrm, padding; the table; the key.
fn spread(socket: &OwnedFd, interface: &str) -> Option<Spread> {
    const HEAD: usize = 24;
    let mut sizes = [0; HEAD];
    head(&mut sizes, &[ETHTOOL_GRSSH]);
    call(socket, interface, &mut sizes).ok()?;
    let (entries, key_bytes) = (u32_at(&sizes, 8)?, u32_at(&sizes, 12)?);
    let key_at = HEAD + 4 * entries as usize;
    let mut answer = vec![0; key_at + key_bytes as usize];
    head(&mut answer, &[ETHTOOL_GRSSH, 0, entries, key_bytes]);
    call(socket, interface, &mut answer).ok()?;
    Some(Spread {
        queues: (HEAD..key_at)
            .step_by(4)
            .filter_map(|at| u32_at(&answer, at))
            .collect(),
        key: answer[key_at..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        function: answer[16],
        transformed: answer[17] != 0,
    })
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
    // stand inside of it.
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
    fn a_loopback_has_features_and_no_queues_to_choose() {
        let seen = read_port_settings("lo").unwrap();
        let on = |name: &str| seen.features[name];
        assert_eq!(
            on("loopback"),
            Feature {
                on: true,
                fixed: true
            }
        );
        assert_eq!((seen.ring, &seen.spread), (None, &None));
        assert!(read_port_settings("nonesuch").is_err());
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
