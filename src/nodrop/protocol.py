"""Generated from schema/node.schema.json by tools/node_schema.py (`make schema`).

Not to edit. What nodrop-node says (docs/node-protocol.md); each event has a `type` beside these
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

PROTOCOL = 2
Count: TypeAlias = Annotated[int, Field(ge=0)]

VmxSetting: TypeAlias = Literal["no", "yes", "forced"]


class Achieved(TypedDict):
    bytes: list[Count]
    interval_ns: Count
    largest_error_ns: list[Count]
    packets: list[Count]


class AfPacketProof(TypedDict):
    defrag: DefragProof | None
    own_namespace: bool
    ring: RingProof


class AttachAnomalies(TypedDict):
    empty_contexts: Count
    ended_ues: Count
    error_indications: Count
    mac_failures: Count
    old_sqns: Count
    refused_algorithms: Count
    repeats: Count
    resets: Count
    undecodable_nas: Count
    undecodable_pdus: Count
    unexpected: Count
    unknown_ue_ids: Count
    without_context: Count
    wrong_autns: Count
    wrong_hashes: Count
    wrong_ppids: Count


class AttachReady(TypedDict):
    listen_ns: list[Count]
    setup_ns: list[Count]
    transport: str


class AttachResult(TypedDict):
    aborted: dict[str, Count]
    accepts: list[Count]
    anomalies: AttachAnomalies
    attach_us: LatencyUs
    attached: Count
    auth_us: LatencyUs
    cpu_s: float
    detach_us: LatencyUs
    detached: Count
    first_accept_ns: Count | None
    ics_us: LatencyUs
    last_accept_ns: Count | None
    last_start_ns: Count
    lateness_us: LatencyUs
    peak_in_progress: Count
    peak_sessions: Count
    received: dict[str, Count]
    rejected: dict[str, Count]
    resolved_ns: Count | None
    sctp_retransmits: Count | None
    sent: dict[str, Count]
    smc_us: LatencyUs
    start_mono_ns: Count
    started: Count
    timed_out: Count
    transport: str
    unreleased: Count


class AttachSample(TypedDict):
    attached: Count
    in_progress: Count
    mono_ns: Count
    started: Count


class Backwards(TypedDict):
    max_ns: Count
    packets: Count


class BadRecord(TypedDict):
    message: str


class CapturePort(TypedDict):
    ethtool: dict[str, Count]
    index: int
    link: Link | None
    name: str
    namespace: Count
    rx_packets: list[Count]
    table: PortTableRow | None
    tx_packets: list[Count]


class CaptureProgram(TypedDict):
    arguments: list[str]
    name: str
    stopped: bool
    suricata: SuricataSaid | None
    threads: list[ThreadReading]
    usage: ProcessUsage


class CaptureSocket(TypedDict):
    counted: SocketCounted | None
    fanout: Fanout | None
    fd: Count | None
    ifindex: int
    inode: Count
    namespace: Count
    pid: Count | None
    receive_queue_bytes: Count | None
    ring: RingShape | None
    selective: bool | None
    waiting: list[RingFill] | None


class Captures(TypedDict):
    driven: list[SensorLack]
    missing: list[NotVisible]
    mono_ns: Count
    namespace: Count | None
    ports: list[CapturePort]
    programs: dict[str, CaptureProgram]
    real_ns: Count
    reassembly: dict[str, list[Reassembled]]
    sockets: list[CaptureSocket]
    softnet: list[SoftnetRow]
    took_ns: Count


class Cgroup(TypedDict):
    anon_bytes: Count | None
    cpu_ns: Count | None
    file_bytes: Count | None
    memory_bytes: Count | None
    memory_limit_bytes: Count | None
    memory_limit_hits: Count | None
    memory_peak_bytes: Count | None
    oom_kills: Count | None
    system_ns: Count | None
    throttled_ns: Count | None
    throttled_periods: Count | None
    user_ns: Count | None


class Checksums(TypedDict):
    icmp: Verified
    icmpv6: Verified
    ipv4_header: Verified
    tcp: Verified
    udp: Verified


class ClockAnswer(TypedDict):
    id: Count
    mono_ns: Count
    real_ns: Count
    tai: TaiAnswer | None


class ClockCost(TypedDict):
    best: float
    median: float
    worst: float


class ClockCosts(TypedDict):
    batches: Count
    ns: dict[str, ClockCost]


class Counters(TypedDict):
    conntrack: dict[str, Count]
    links: dict[str, PortCounters]
    mono_ns: Count
    packet_sockets: list[PacketSocket]
    real_ns: Count
    reassembly: Reassembly
    snmp: dict[str, int]
    softnet: list[SoftnetRow]


class CpuInfo(TypedDict):
    boost: bool | None
    clock_source: str | None
    cpus: Count
    governor: str | None
    hypervisor: bool
    model: str | None
    online: str | None
    smt: bool | None
    stable_tsc: bool


class CpuQuota(TypedDict):
    cpus: float
    group: str
    periods: Count
    throttled_periods: Count
    throttled_s: float


class CpuTimes(TypedDict):
    cpu: Count
    guest_nice_ns: Count
    guest_ns: Count
    idle_ns: Count
    iowait_ns: Count
    irq_ns: Count
    nice_ns: Count
    softirq_ns: Count
    steal_ns: Count
    system_ns: Count
    user_ns: Count


class DefragProof(TypedDict):
    merges_fragments: bool
    received_packets: Count
    sent_fragments: Count


class Disk(TypedDict):
    busy_ns: Count
    in_flight: Count
    read_bytes: Count
    read_ns: Count
    reads: Count
    write_bytes: Count
    write_ns: Count
    writes: Count


class Fanout(TypedDict):
    defrag: bool
    id: Count
    kind: Count


class FlowSizes(TypedDict):
    effective: float
    largest_packets: Count
    packets: Count


class FlowsMet(TypedDict):
    flows: Count
    seen: Count
    together: Count


class FlowsSeen(TypedDict):
    groups: list[dict[str, FlowsMet] | None]


class Gap(TypedDict):
    after_packet: Count
    ns: Count


class Hello(TypedDict):
    job: str
    pid: Count
    protocol: Count
    version: str


class Host(TypedDict):
    boot_id: str | None
    capabilities: str | None
    cgroup: dict[str, Count]
    cpu: CpuInfo
    hostname: str
    kernel: str
    machine: str
    memory: Memory
    network_namespace: str | None
    sysctl: dict[str, str]
    uid: Count
    user_namespace: str | None


class Interrupt(TypedDict):
    irq: Count
    name: str
    per_cpu: list[Count]
    port: str


class JobError(TypedDict):
    hint: str | None
    kind: str
    message: str


class Kvm(TypedDict):
    ns_per_iteration: float | None
    pvm: bool
    reason: str | None
    usable: bool


class LateBurst(TypedDict):
    begin_mono_ns: Count
    end_mono_ns: Count
    late_ns: Count
    packets: Count


class LateBursts(TypedDict):
    bursts: Count
    largest: list[LateBurst]
    late_ns: Count
    packets: Count


class LatencyUs(TypedDict):
    count: Count
    max: Count
    p50: Count
    p90: Count
    p99: Count


class LeftOut(TypedDict):
    first_packet: Count
    packets: Count


class Link(TypedDict):
    carrier: bool
    carrier_changes: Count
    index: Count
    kind: str | None
    mtu: Count
    operstate: str
    promiscuity: Count
    rx_queues: Count
    stats: LinkStats
    tx_queue_length: Count
    tx_queues: Count
    up: bool
    xdp: Xdp | None


class LinkStats(TypedDict):
    collisions: Count
    multicast: Count
    rx_bytes: Count
    rx_compressed: Count
    rx_crc_errors: Count
    rx_dropped: Count
    rx_errors: Count
    rx_fifo_errors: Count
    rx_frame_errors: Count
    rx_length_errors: Count
    rx_missed_errors: Count
    rx_nohandler: Count | None
    rx_otherhost_dropped: Count | None
    rx_over_errors: Count
    rx_packets: Count
    tx_aborted_errors: Count
    tx_bytes: Count
    tx_carrier_errors: Count
    tx_compressed: Count
    tx_dropped: Count
    tx_errors: Count
    tx_fifo_errors: Count
    tx_heartbeat_errors: Count
    tx_packets: Count
    tx_window_errors: Count


class Load(TypedDict):
    fifteen: float
    five: float
    one: float
    runnable: Count
    tasks: Count


class Memory(TypedDict):
    anon_bytes: Count | None
    available_bytes: Count | None
    buffers_bytes: Count | None
    cached_bytes: Count | None
    free_bytes: Count | None
    shmem_bytes: Count | None
    slab_bytes: Count | None
    swap_free_bytes: Count | None
    swap_total_bytes: Count | None
    total_bytes: Count | None


class MemoryHits(TypedDict):
    file: str
    times: Count


class NoHandler(TypedDict):
    never_at_tap_packets: Count
    packets: Count
    tagged: dict[str, Count]
    tagged_packets: Count
    untagged: dict[str, Count]


class NotVisible(TypedDict):
    needs: str
    what: str
    why: str


class OverhearReady(TypedDict):
    interfaces: list[str]


class OverhearResult(TypedDict):
    heard: list[Overheard]
    lost_packets: Count


class Overheard(TypedDict):
    interface: str
    packets: Count
    source: str


class PacketSocket(TypedDict):
    ifindex: int
    inode: Count
    protocol: Count
    receive_queue_bytes: Count
    running: bool
    socket_type: Count
    uid: Count


class PeakDemand(TypedDict):
    packets_in_10_ms: Count
    packets_in_1_ms: Count
    speed: float


class Percentiles(TypedDict):
    max: float
    p50: float
    p99: float


class PortCounters(TypedDict):
    carrier: bool
    carrier_changes: Count
    ethtool: dict[str, Count]
    index: Count
    kind: str | None
    mtu: Count
    operstate: str
    promiscuity: Count
    rx_queues: Count
    stats: LinkStats
    tx_queue_length: Count
    tx_queues: Count
    up: bool
    xdp: Xdp | None


class PortFeature(TypedDict):
    fixed: bool
    on: bool


class PortTableRow(TypedDict):
    rx_dropped_or_missed: Count
    rx_errors: Count
    rx_packets: Count
    tx_packets: Count


class Pressure(TypedDict):
    cpu_some_us: Count | None
    io_full_us: Count | None
    io_some_us: Count | None
    memory_full_us: Count | None
    memory_some_us: Count | None


class ProbeResult(TypedDict):
    account: NotRequired[dict[str, Count | None]]
    af_packet: NotRequired[AfPacketProof]
    captures: NotRequired[Captures]
    counters: NotRequired[Counters]
    flows: NotRequired[FlowsSeen]
    host: NotRequired[Host]
    kvm: NotRequired[Kvm]
    process: NotRequired[dict[str, ProcessInside | None]]
    processes: NotRequired[dict[str, ProcessEntry]]
    proof: NotRequired[dict[str, ProcessProof | None]]
    rings: NotRequired[RingLevels]
    sensor: NotRequired[SensorLook]
    spells: NotRequired[RingSpells]
    tsc: NotRequired[ClockCosts]
    usage: NotRequired[dict[str, ProcessUsage | None]]
    vmx: NotRequired[Vmx]


class ProcessEntry(TypedDict):
    arguments: list[str]
    name: str
    parent: Count


class ProcessInside(TypedDict):
    asleep_cpu_ns: Count | None
    lab: str | None
    packet_sockets: list[PacketSocket]
    rss_peak_bytes: Count | None
    stopped: bool
    threads: list[str]


class ProcessIo(TypedDict):
    read_bytes: Count
    read_calls: Count
    write_bytes: Count
    write_calls: Count


class ProcessProof(TypedDict):
    capabilities: str
    effective_capabilities: str
    exe: str
    exe_sha256: str
    files: dict[str, str]
    filters_system_calls: bool
    libraries: dict[str, str | None]
    no_new_privileges: bool
    user_id: Count


class ProcessReading(TypedDict):
    cpu_ns: Count
    io: ProcessIo | None
    major_faults: Count
    minor_faults: Count
    name: str
    pid: Count
    rss_bytes: Count
    rss_peak_bytes: Count | None
    threads: list[ThreadReading]


class ProcessUsage(TypedDict):
    allowed_cpus: list[Count]
    cpu_ns: Count
    name: str
    start_ticks: Count
    throttled_ns: dict[str, Count]


class ProfileMissing(TypedDict):
    what: str
    why: str


class ProfileOutcome(TypedDict):
    began_mono_ns: Count
    concurrency: ProfiledConcurrency | None
    ended_mono_ns: Count
    functions: list[ProfiledFunction]
    missing: list[ProfileMissing]
    own_cpu_ns: Count
    stacks: list[list[Count]]
    threads: list[ProfiledThread]


class ProfileReady(TypedDict):
    processes: Count
    threads: Count


class ProfiledConcurrency(TypedDict):
    ns: list[Count]
    unsure_ns: Count


class ProfiledFunction(TypedDict):
    begins: Count | None
    module: str
    name: str | None


class ProfiledRunning(TypedDict):
    samples: Count
    stack: Count


class ProfiledThread(TypedDict):
    blocked_ns: Count
    cache_misses: Count | None
    cpu_ns: Count
    cycles: Count | None
    instructions: Count | None
    involuntary_switches: Count | None
    lost: Count
    migrations: Count | None
    name: str
    pid: Count
    preempted_ns: Count | None
    queued_ns: Count
    running: list[ProfiledRunning]
    samples: Count
    seen_ns: Count
    throttled: Count
    tid: Count
    uncounted_ns: Count
    voluntary_switches: Count | None
    waited_in: list[ProfiledWaitChannel]
    waiting: list[ProfiledWaiting]
    waiting_ns: Count | None


class ProfiledWaitChannel(TypedDict):
    function: str
    readings: Count


class ProfiledWaiting(TypedDict):
    ns: Count
    stack: Count
    times: Count


class QueueSpread(TypedDict):
    function: Count
    key: str
    queues: list[Count]
    transformed: bool


class Rate(TypedDict):
    mean: float
    peak: Count


class Reassembled(TypedDict):
    fails: int
    oks: int
    requests: int
    timeouts: int


class Reassembly(TypedDict):
    high_thresh_bytes: Count | None
    max_distance: Count | None
    memory_bytes: Count | None
    queues: Count | None
    time_s: Count | None


class ReassemblyForecast(TypedDict):
    absorbed_bytes: Count
    absorbed_packets: Count
    contradicting_packets: Count
    datagram_bytes: Count
    datagrams: Count
    duplicate_packets: Count
    ecn_mixed_packets: Count
    held_bytes: Count
    held_packets: Count
    incomplete_datagrams: Count
    incomplete_packets: Count
    memory_peak_bytes: Count
    offered_packets: Count
    overlapping_packets: Count
    oversize_packets: Count
    reasm_fails: Count
    reasm_overlaps: Count
    reasm_timeouts: Count
    refused_packets: Count
    timed_out_packets: Count
    too_far_packets: Count


class ReferenceMmeReady(TypedDict):
    listen: str


class ReferenceMmeResult(TypedDict):
    attach_requests: Count
    attached: Count
    cpu_s: float
    detached: Count
    dropped: Count
    given_up: Count
    hss_us: LatencyUs
    mac_failures: Count
    peak_ues: Count
    received: dict[str, Count]
    rejected: Count
    repeats: Count
    sent: dict[str, Count]
    sgw_us: LatencyUs
    undecodable: Count
    undecodable_behind: Count
    unknown_ue_ids: Count


class ReplayPort(TypedDict):
    backend: str
    cpu: Count | None
    cpu_s: float
    first_sent_mono_ns: Count | None
    intended_packets: Count
    interface: str
    last_sent_mono_ns: Count | None
    refused_packets: dict[str, Count]
    schedule_error_us: ScheduleError | None
    sent_bytes: Count
    sent_packets: Count
    unsent_packets: Count


class ReplayReady(TypedDict):
    backend: str
    copies: Count
    first_copy: Count
    intended_duration_ns: Count | None
    intended_packets: Count
    realtime: bool
    replica_offsets_ns: list[Count]
    trace_bytes: Count
    trace_duration_ns: Count
    trace_packets: Count


class ReplayResult(TypedDict):
    achieved: Achieved
    asked_schedule_error_us: ScheduleError | None
    backend: str
    cpu_s: float
    first_sent_mono_ns: Count | None
    intended_duration_ns: Count | None
    intended_packets: Count
    last_sent_mono_ns: Count | None
    late_bursts: LateBursts | None
    not_rewritten_packets: Count
    ports: list[ReplayPort]
    realtime: bool
    refused_packets: dict[str, Count]
    replica_offsets_ns: list[Count]
    same_flows: Count
    schedule_error_us: ScheduleError | None
    sent_bytes: Count
    sent_packets: Count
    sent_profile: SentProfile
    shallow_idle: bool
    shaped_packets: Count
    shaped_pps: float | None
    spun_share: float | None
    unsent_packets: Count


class ReplaySample(TypedDict):
    mono_ns: Count
    sent_packets: Count


class RingFill(TypedDict):
    full: Count
    of: Count
    oldest_real_ns: Count | None
    packets: Count


class RingLevel(TypedDict):
    full: Count
    of: Count


class RingLevels(TypedDict):
    mono_ns: Count
    rings: dict[str, RingLevel]


class RingProof(TypedDict):
    readable_packets: Count
    sent_packets: Count
    tp_drops: Count
    tp_packets: Count
    tp_packets_includes_drops: bool | None


class RingShape(TypedDict):
    block_bytes: Count
    blocks: Count
    frame_bytes: Count
    frames: Count
    head: Count
    retire_ms: Count | None
    version: Count


class RingSpell(TypedDict):
    cpu_ns: Count
    longest_gap_ns: Count
    looks: list[list[Count]]
    mono_ns: Count
    real_ns: Count
    rings: list[WatchedRing]
    threads: list[SpellThread]


class RingSpells(TypedDict):
    spells: list[RingSpell]
    unread: str | None


class SampleEdge(TypedDict):
    cgroup: Cgroup | None
    cpus: list[CpuTimes]
    mono_ns: Count
    tree: TreeTotals


class SampleReady(TypedDict):
    interval_ms: Count
    metrics: str | None
    processes: Count
    threads: Count


class SampleResult(TypedDict):
    cost_us: Percentiles | None
    cpu_s: float
    first: SampleEdge | None
    host_busy_ratio: float | None
    host_steal_ratio: float | None
    interval_ms: Count
    last: SampleEdge | None
    lateness_us: Percentiles | None
    levels: SampledLevels | None
    missed_rows: Count
    path: str | None
    processes: list[ProcessReading]
    rows: Count
    rows_cpu_s: float
    speeds: list[SampledSpeed]
    tree_cpu_s: float | None
    tree_rss_peak_bytes: Count


class SampleRow(TypedDict):
    age_us: dict[str, float]
    beside: NotRequired[list[ProcessReading]]
    cgroup: NotRequired[Cgroup | None]
    cgroups: NotRequired[dict[str, Cgroup]]
    cost_us: float
    cpus: NotRequired[list[CpuTimes]]
    disks: NotRequired[dict[str, Disk]]
    ethtool: NotRequired[dict[str, dict[str, Count]]]
    interrupts: NotRequired[list[Interrupt]]
    lateness_us: float | None
    links: NotRequired[dict[str, LinkStats]]
    load: NotRequired[Load]
    memory: NotRequired[Memory]
    mono_ns: Count
    pressure: NotRequired[Pressure]
    processes: NotRequired[list[ProcessReading]]
    real_ns: Count
    snmp: NotRequired[dict[str, int]]
    softnet: NotRequired[list[SoftnetRow]]
    swap: NotRequired[Swap]
    tree: NotRequired[TreeTotals]


class SampledLevels(TypedDict):
    cpu_s: float
    longest_gap_us: float
    looks: Count
    rings: list[WatchedRing]
    unread: str | None


class SampledSpeed(TypedDict):
    cpu: Count
    cpu_s: float
    looks: Count
    slow_ratio: float
    slow_speed_ratio: float | None


class ScheduleError(TypedDict):
    max: float
    p50: float
    p99: float
    p999: float


class SensorLack(TypedDict):
    needs: str
    what: str


class SensorLine(TypedDict):
    allowed: list[Count]
    effective: list[Count]
    fired: Count
    name: str
    number: Count


class SensorLook(TypedDict):
    balancers: dict[str, list[str]]
    files: dict[str, YamlText]
    hypervisor: bool
    isolated: list[Count]
    memory_bytes: Count | None
    missing: list[SensorLack]
    names: list[str]
    nodes: dict[str, list[Count]]
    online: list[Count]
    own_quotas: list[CpuQuota]
    ports: list[SensorPort]
    programs: list[SensorProgram]
    sockets: list[SensorSocket]
    softnet_dropped: dict[str, Count]
    uptime_s: float | None
    values: list[SensorValue]


class SensorPeer(TypedDict):
    mtu: Count
    name: str
    pid: Count | None
    tx_dropped: Count


class SensorPort(TypedDict):
    bus: str | None
    carrier: bool | None
    combined: bool | None
    driver: str | None
    driver_counters: dict[str, Count]
    duplex: str | None
    features: dict[str, PortFeature]
    firmware: str | None
    flags: Count | None
    index: int
    lines: list[SensorLine]
    missing: list[SensorLack]
    mtu: Count | None
    name: str
    node: int | None
    pauses: list[bool] | None
    pcie: dict[str, str]
    peer: SensorPeer | None
    physical: bool
    pid: Count | None
    queue_folders: Count
    queues: Count | None
    ring: list[Count] | None
    rps: dict[str, list[Count]]
    space: Count
    speed_mbit: int | None
    spread: QueueSpread | None
    statistics: dict[str, Count]


class SensorProgram(TypedDict):
    answers: SuricataSaid | None
    arguments: list[str]
    memory_hits: list[MemoryHits]
    missing: list[SensorLack]
    name: str
    pid: Count
    quotas: list[CpuQuota]
    space: Count | None
    stopped: bool
    threads: list[SensorThread]
    uptime_s: float | None
    yaml: SensorYaml | None


class SensorSocket(TypedDict):
    block_bytes: Count | None
    blocks: Count | None
    drops: Count | None
    fanout_id: Count | None
    fanout_type: Count | None
    filtered: bool | None
    frame_bytes: Count | None
    frames: Count | None
    index: int
    inode: Count
    packets: Count | None
    pid: Count | None
    port: str | None
    program: str | None
    protocol: Count
    retire_ms: Count | None
    space: Count
    uid: Count
    version: Count | None


class SensorThread(TypedDict):
    allowed: list[Count]
    name: str
    tid: Count


class SensorValue(TypedDict):
    at: str
    value: str
    what: str


class SensorYaml(TypedDict):
    newer: bool
    path: str
    text: YamlText


class SentProfile(TypedDict):
    bin_ns: Count
    first_mono_ns: Count
    packets: list[Count]


class SinkReady(TypedDict):
    defrag: bool
    ring_bytes: Count
    ring_frames: Count | None
    threads: Count


class SinkResult(TypedDict):
    bytes: Count
    cpu_s: float
    first_packet_real_ns: Count | None
    flows: Count | None
    last_packet_real_ns: Count | None
    packets: Count
    per_thread: list[SinkThread]
    tp_drops: Count
    tp_freeze_q_count: Count | None
    tp_packets: Count


class SinkSample(TypedDict):
    mono_ns: Count
    packets: Count
    per_thread: list[SinkThread]
    tp_drops: Count
    tp_packets: Count


class SinkThread(TypedDict):
    bytes: Count
    mono_ns: Count
    packets: Count
    served_mono_ns: Count | None
    tp_drops: Count
    tp_freeze_q_count: Count | None
    tp_packets: Count


class SocketCounted(TypedDict):
    tp_drops: Count
    tp_freezes: Count
    tp_packets: Count


class SoftnetRow(TypedDict):
    cpu: Count
    dropped: Count
    flow_limit: Count | None
    processed: Count
    received_rps: Count | None
    time_squeeze: Count


class SpellThread(TypedDict):
    name: str
    pid: Count
    tid: Count
    times: list[list[Count]]


class StubReady(TypedDict):
    listen: str


class StubResult(TypedDict):
    cpu_s: float
    peak_sessions: Count
    refused: Count
    requests: dict[str, Count]
    undecodable: Count


class SuricataPortSaid(TypedDict):
    drops: Count
    invalid_checksums: Count
    packets: Count


class SuricataSaid(TypedDict):
    counters: dict[str, Count] | None
    counters_mono_ns: Count | None
    memcaps: dict[str, str]
    mode: str
    ports: dict[str, SuricataPortSaid]
    ports_before: dict[str, SuricataPortSaid]
    refused: bool
    silent: str | None
    socket: str


class Swap(TypedDict):
    in_bytes: Count | None
    major_faults: Count | None
    out_bytes: Count | None


class TaiAnswer(TypedDict):
    ahead_ns: Count
    max_error_ns: Count


class TapLengths(TypedDict):
    arriving: list[list[Count]]
    defragmented: list[list[Count]] | None


class ThreadReading(TypedDict):
    cpu_ns: Count
    involuntary_switches: Count | None
    last_cpu: Count
    name: str
    slices: Count
    state: str
    tid: Count
    voluntary_switches: Count | None
    wait_channel: str
    wait_ns: Count


class TracePlanned(TypedDict):
    duration_ns: Count | None
    flows: Count
    frame_bytes: Count
    never_at_tap_packets: Count
    packets: Count
    packets_in_10_ms: Count
    packets_in_1_ms: Count
    tagged_packets: Count
    window_ns: Count
    window_packets: Count


class TraceResult(TypedDict):
    backwards: Backwards
    bad_record: BadRecord | None
    beyond_wire_packets: Count
    bytes_per_s: Rate
    checksums: Checksums
    cut_packets: Count
    duplicate_frames: Count
    duration_ns: Count
    fcs_packets: Count
    first_timestamp_ns: Count | None
    flow_sizes: FlowSizes
    flows: Count
    fragments_in_pass: ReassemblyForecast
    fragments_in_trial: ReassemblyForecast
    fragments_unrefused: ReassemblyForecast
    fragments_untouched: UntouchedFragments
    frame_bytes: Count
    given_header_packets: dict[str, Count]
    last_timestamp_ns: Count | None
    left_out: dict[str, LeftOut]
    link_type: Count
    longer_than_1514_packets: Count
    longest_frame_bytes: Count
    longest_gap: Gap
    no_handler: NoHandler
    odd_fraction_packets: Count
    original_bytes: Count
    outer_flows: Count
    packets: Count
    packets_per_s: Rate
    peak_demand: PeakDemand
    planned: TracePlanned
    protocols: dict[str, TraceShare]
    sha256: str
    shortest_frame_bytes: Count
    sizes: dict[str, Count]
    tap_lengths: TapLengths
    vlan_packets: list[Count]


class TraceSample(TypedDict):
    read_ratio: float


class TraceShare(TypedDict):
    frame_bytes: Count
    packets: Count


class TreeTotals(TypedDict):
    cpu_ns: Count
    processes: Count
    rss_bytes: Count
    threads: Count


class UntouchedFragments(TypedDict):
    bad_header_packets: Count
    capture_cut_packets: Count
    ipv6_packets: Count
    second_tag_packets: Count


class Verified(TypedDict):
    absent: Count
    right: Count
    unverifiable: Count
    wrong: Count


class Vmx(TypedDict):
    controls: dict[str, dict[str, VmxSetting]]
    unreadable: str | None


class WatchedRing(TypedDict):
    block_bytes: Count
    blocks: Count
    fd: Count
    inode: Count
    pid: Count
    slots: Count | None
    version: Count


class Xdp(TypedDict):
    mode: str
    program_id: Count | None


class YamlText(TypedDict):
    errors: dict[str, str]
    path: str
    texts: dict[str, str]


EVERY_JOB: Mapping[str, type] = {"clock": ClockAnswer, "error": JobError, "hello": Hello}
"""Event → its fields."""
EVENTS: Mapping[str, Mapping[str, type]] = {
    "attach": {"ready": AttachReady, "result": AttachResult, "sample": AttachSample},
    "overhear": {"ready": OverhearReady, "result": OverhearResult},
    "probe": {"result": ProbeResult},
    "profile": {"ready": ProfileReady, "result": ProfileOutcome},
    "reference-mme": {"ready": ReferenceMmeReady, "result": ReferenceMmeResult},
    "replay": {"ready": ReplayReady, "result": ReplayResult, "sample": ReplaySample},
    "sample": {"ready": SampleReady, "result": SampleResult, "sample": SampleRow},
    "sink": {"ready": SinkReady, "result": SinkResult, "sample": SinkSample},
    "stub-hss": {"ready": StubReady, "result": StubResult},
    "stub-sgw": {"ready": StubReady, "result": StubResult},
    "trace": {"result": TraceResult, "sample": TraceSample},
}
"""Job → event → its fields; an event that is not here has none."""
