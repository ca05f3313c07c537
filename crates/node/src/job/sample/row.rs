//! One row: what was read of each source, when, and what is only remembered from an earlier row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use educe::Educe;
use nodrop_counters::{
    Cgroup, CpuTimes, Disks, Interrupt, LinkStats, Load, Memory, Named, Pressure, ProcessReading,
    Snmp, SoftnetRow, Swap, TreeTotals,
};
use nodrop_proto::SampleSource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::schedule::{Due, microseconds};

/// A value that keeps its memory, and whether this row is the one it was read for: a row never repeats an old value.
#[derive(Debug, Educe, Default)]
#[educe(Clone)]
pub struct Reading<T> {
    value: T,
    stale: bool,
}

impl<T> Reading<T> {
    /// For `skip_serializing_if`.
    pub fn is_stale(&self) -> bool {
        self.stale
    }
}

impl<T> Deref for Reading<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Reading<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Reading<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// When each source was read last, as the time from there to the end of this row's reading.
#[derive(Debug, Clone, Default)]
pub struct Ages {
    read_at_ns: [Option<u64>; SampleSource::ALL.len()],
    end_ns: u64,
}

impl Ages {
    pub fn read(&mut self, source: SampleSource, at_ns: u64) {
        self.read_at_ns[source as usize] = Some(at_ns);
    }

    pub fn end(&mut self, at_ns: u64) {
        self.end_ns = at_ns;
    }
}

impl Serialize for Ages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sources = SampleSource::ALL.iter().zip(&self.read_at_ns);
        serializer.collect_map(sources.filter_map(|(source, at_ns)| {
            let age = self.end_ns.saturating_sub((*at_ns)?);
            Some((source.name(), microseconds(age)))
        }))
    }
}

impl JsonSchema for Ages {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ages".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, f64>::json_schema(generator)
    }
}

/// One reading of everything that was due but the processes, which stay where they are; all counters are since boot. Reused,
/// so that a tick allocates nothing.
#[derive(Debug, Educe, Default, JsonSchema, Serialize)]
#[educe(Clone)]
pub struct Row {
    /// When the reading began.
    pub mono_ns: u64,
    /// The same moment on the wall clock.
    pub real_ns: u64,
    /// Behind the schedule; `None` for the row taken at stop.
    pub lateness_us: Option<f64>,
    /// CPU time from the end of the row before to the end of this reading: this reading and the writing of that row.
    pub cost_us: f64,
    pub age_us: Ages,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub cpus: Reading<Vec<CpuTimes>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub memory: Reading<Memory>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub swap: Reading<Swap>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub disks: Reading<Disks>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub load: Reading<Load>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub pressure: Reading<Pressure>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub softnet: Reading<Vec<SoftnetRow>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub interrupts: Reading<Vec<Interrupt>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub links: Reading<Named<LinkStats>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub ethtool: Reading<Named<Named<u64>>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub snmp: Reading<Snmp>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub cgroup: Reading<Option<Cgroup>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub cgroups: Reading<Named<Cgroup>>,
    #[serde(skip_serializing_if = "Reading::is_stale")]
    pub tree: Reading<TreeTotals>,
    #[serde(skip_serializing_if = "is_left_out")]
    pub beside: Reading<Vec<ProcessReading>>,
}

/// For `skip_serializing_if`.
fn is_left_out(processes: &Reading<Vec<ProcessReading>>) -> bool {
    processes.is_stale() || processes.is_empty()
}

impl Row {
    /// From here on the row shows these sources alone.
    pub fn show_only(&mut self, sources: Due) {
        use SampleSource as S;
        let stale = |source| !sources.has(source);
        self.cpus.stale = stale(S::Cpus);
        self.memory.stale = stale(S::Memory);
        self.swap.stale = stale(S::Swap);
        self.disks.stale = stale(S::Disks);
        (self.load.stale, self.pressure.stale) = (stale(S::Load), stale(S::Load));
        self.softnet.stale = stale(S::Softnet);
        self.interrupts.stale = stale(S::Interrupts);
        self.links.stale = stale(S::Links);
        self.ethtool.stale = stale(S::Ethtool);
        self.snmp.stale = stale(S::Snmp);
        (self.cgroup.stale, self.cgroups.stale) = (stale(S::Cgroup), stale(S::Cgroup));
        (self.tree.stale, self.beside.stale) = (stale(S::Tree), stale(S::Tree));
    }

    /// Sources that were read at least once.
    pub fn ever_read(&self) -> Due {
        let mut ever = Due::default();
        for source in SampleSource::ALL {
            if self.age_us.read_at_ns[source as usize].is_some() {
                ever.add(source);
            }
        }
        ever
    }
}
