//! No accident shall flood an office: a replay by hand onto a port that the host talks through needs `--yes`.

use std::fs::read_to_string;
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nodrop_proto::JobError;

/// Refuses a port with an IP address or a default route, or in a bridge or bond that has one.
pub fn refuse_port_in_use(interface: &str) -> Result<(), JobError> {
    let above = master(interface);
    let Some(words) = std::iter::once(interface)
        .chain(above.as_deref())
        .find_map(use_of)
    else {
        return Ok(());
    };
    Err(JobError::new(
        "port_in_use",
        format!("{interface} is a port that this host talks through: {words}"),
    )
    .hint("add --yes to replay onto it all the same, or name a port that is only there for tests"))
}

fn master(interface: &str) -> Option<String> {
    let link = Path::new("/sys/class/net").join(interface).join("master");
    let name = link.read_link().ok()?.file_name()?.to_owned();
    name.into_string().ok()
}

/// `linux/route.h`: the destination cannot be reached.
const RTF_REJECT: u32 = 0x0200;

fn use_of(interface: &str) -> Option<String> {
    if let Some(address) = address_of(interface) {
        return Some(format!("{interface} has the address {address}"));
    }
    let routes = [
        (
            "/proc/self/net/route",
            default_route_4 as fn(&str, &str) -> bool,
        ),
        ("/proc/self/net/ipv6_route", default_route_6),
    ];
    routes
        .into_iter()
        .any(|(path, is_default)| {
            let table = read_to_string(path).unwrap_or_default();
            table.lines().any(|route| is_default(route, interface))
        })
        .then(|| format!("{interface} has the default route"))
}

/// An address it was given; link-local IPv6 addresses come by themselves.
fn address_of(interface: &str) -> Option<IpAddr> {
    getifaddrs()
        .ok()?
        .filter(|entry| entry.interface_name == interface)
        .filter_map(|entry| {
            let address = entry.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .find(|address| !matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80))
}

/// A line of /proc/net/route: Iface Destination Gateway Flags RefCnt Use Metric Mask.
fn default_route_4(route: &str, interface: &str) -> bool {
    let fields: Vec<&str> = route.split_whitespace().collect();
    matches!(fields[..], [name, "00000000", _, _, _, _, _, "00000000", ..] if name == interface)
}

/// A line of /proc/net/ipv6_route: destination, its prefix length, source, its prefix length, next hop, metric, two counters, flags, device.
/// The kernel's own one of lo leads nowhere.
fn default_route_6(route: &str, interface: &str) -> bool {
    let fields: Vec<&str> = route.split_whitespace().collect();
    let leads = |flags| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & RTF_REJECT == 0);
    matches!(fields[..], [to, "00", .., flags, name]
        if name == interface && to.bytes().all(|c| c == b'0') && leads(flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_told_from_others() {
        let default = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert!(default_route_4(default, "eth0") && !default_route_4(default, "eth1"));
        let net = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert!(!default_route_4(net, "eth0"));
        let zeros = "0".repeat(32);
        let route = |length, flags, name| {
            format!("{zeros} {length} {zeros} 00 {zeros} 00000400 1 0 {flags}     {name}")
        };
        let default = route("00", "00000003", "eth0");
        assert!(default_route_6(&default, "eth0") && !default_route_6(&default, "lo"));
        assert!(!default_route_6(&route("40", "00000003", "eth0"), "eth0"));
        assert!(!default_route_6(&route("00", "00200200", "lo"), "lo"));
    }

    #[test]
    fn loopback_has_an_address_and_what_is_not_there_has_none() {
        let error = refuse_port_in_use("lo").map_err(|error| error.kind);
        assert_eq!(error, Err("port_in_use".into()));
        assert!(refuse_port_in_use("nonesuch0").is_ok());
    }
}
