//! One reading of every counter the ledger uses, of the network namespace this process runs in.

use std::collections::BTreeMap;
use std::path::Path;

use nodrop_counters::{
    Conntrack, ConntrackReader, EthtoolReader, Link, LinkReader, Named, PacketSocket,
    PacketSocketReader, Reassembly, ReassemblyReader, Snmp, SnmpReader, SoftnetReader, SoftnetRow,
};
use nodrop_sys::clock::{mono_ns, real_ns};
use schemars::JsonSchema;
use serde::Serialize;

/// docs/reference/counters.md says what each field is.
#[derive(JsonSchema, Serialize)]
pub struct Counters {
    mono_ns: u64,
    real_ns: u64,
    /// By name.
    links: BTreeMap<String, Port>,
    snmp: Snmp,
    reassembly: Reassembly,
    conntrack: Conntrack,
    softnet: Vec<SoftnetRow>,
    packet_sockets: Vec<PacketSocket>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PortCounters")]
struct Port {
    #[serde(flatten)]
    link: Link,
    /// The driver's own counters.
    ethtool: Named<u64>,
}

/// Reads everything; a port that is missing is an error, a counter that this kernel lacks is not.
pub fn read(ports: &[String]) -> nodrop_counters::Result<Counters> {
    let root = Path::new("/");
    let mut links = LinkReader::new()?;
    let mut seen = Counters {
        mono_ns: mono_ns(),
        real_ns: real_ns(),
        links: BTreeMap::new(),
        snmp: Snmp::default(),
        reassembly: ReassemblyReader::new(root).read()?,
        conntrack: Conntrack::default(),
        softnet: Vec::new(),
        packet_sockets: PacketSocketReader::new(root)?.read()?,
    };
    SnmpReader::new(root)?.read(&mut seen.snmp)?;
    ConntrackReader::new(root)?.read(&mut seen.conntrack)?;
    SoftnetReader::new(root)?.read(&mut seen.softnet)?;
    for name in ports {
        let mut ethtool = Named::default();
        EthtoolReader::new(name)?.read(&mut ethtool)?;
        let port = Port {
            link: links.read(name)?,
            ethtool,
        };
        seen.links.insert(name.clone(), port);
    }
    Ok(seen)
}
