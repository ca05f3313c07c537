"""Suricata 7 and 8 as the SUT: how to start it from an experiment's `[sut]` table."""

from __future__ import annotations

import hashlib
import io
import lzma
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodrop.config.options import check
from nodrop.detections import (
    By,
    FoundDetections,
    SentCopies,
    clocks_of_config,
    clocks_of_rules,
    limits_of_config,
    limits_of_rules,
    read_found,
    remembering_config,
    remembering_rules,
)
from nodrop.errors import BadInput, LabProblem
from nodrop.ledger.hops import Knobs, Place, socket_ring
from nodrop.ledger.imbalance import ThreadRole
from nodrop.testbed.hosts.api import Json
from nodrop.testbed.hosts.folders import cache_folder
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.images.recipe import variant_of
from nodrop.testbed.setups.api import Env, Process, ProcessSpec
from nodrop.testbed.suts.api import Sut
from nodrop.testbed.suts.suricata import dpdk, log
from nodrop.testbed.suts.suricata.capture import CaptureSettings, role
from nodrop.testbed.suts.suricata.config import (
    ENGINE_LOG,
    EVENT_LOG,
    SOCKET,
    STATS_LOG,
    SuricataPlaces,
    defrag_configured,
    defrag_expected,
    dump,
    full_sync_s,
    inline_words,
    named_files,
    own_affinity,
    plain_name,
    render,
    retire_s,
)
from nodrop.testbed.suts.suricata.log import (
    CONFIG,
    WITH_RULES_TIMEOUT_S,
    WORK,
    ConfigTest,
    asked,
    ran,
)
from nodrop.testbed.suts.suricata.own_yaml import (
    FILE_KEYS,
    OwnFiles,
    Yaml,
    own_files,
    read_own,
    replaced,
    template,
)
from nodrop.testbed.suts.suricata.polling import DeviceQueues, RingBelowDriver, XdpQueue
from nodrop.testbed.suts.suricata.running import Intake, OwnCounters, RunningSuricata
from nodrop.testbed.suts.suricata.sut_options import SuricataOptions
from nodrop.untrusted.folder import open_file, read_file
from nodrop.untrusted.json_text import unpack

RULES_BYTES = 256 << 20
"""The largest published rule sets have 40 MB."""
LOOK_BYTES = 64 << 10
"""Bytes at the beginning of each rule file that Suricata is asked about first: if no rule there
loads, it is asked about the whole files."""
TRACE = "trace.pcap"
OURS = (CONFIG, ENGINE_LOG, STATS_LOG, EVENT_LOG, TRACE, SOCKET, *FILE_KEYS)
"""Names in the work folder."""

KNOBS = Knobs(
    ring="sut.ring_size",
    threads="sut.threads",
    workers="more workers (sut.detect_threads)",
    fewer_threads="fewer threads (sut.threads)",
    less_work="fewer rules",
    cpus="limits.cpus, sut.cpus",
    defrag='sut.defrag = "no"',
)
RING = socket_ring(
    KNOBS,
    counter="tp_drops (PACKET_STATISTICS): stats.capture.kernel_drops in eve.json",
    source="read in Suricata's src/source-af-packet.c (AFPDumpCounters)",
)
RINGS = {
    "af-packet": RING,
    "pcap": socket_ring(
        replace(KNOBS, ring="sut.buffer_bytes", threads='sut.capture = "af-packet"'),
        counter='ps_drop of pcap_stats: "pcap total: …, drop: n" in engine.json, at the end',
        source="read in Suricata's src/source-pcap.c (ReceivePcapThreadExitStats)",
    ),
    "af-xdp": replace(
        socket_ring(
            replace(KNOBS, ring='sut.capture = "af-packet"', threads='sut.capture = "af-packet"'),
            counter="rx_dropped of XDP_STATISTICS: stats.capture.kernel_drops in eve.json",
        ),
        source="Linux net/xdp/xsk.c (xsk_rcv); read in Suricata's src/source-af-xdp.c "
        "(AFXDPDumpCounters)",
        knob='sut.capture = "af-packet", whose ring has a size and whose threads can be more; or '
        "fewer rules",
    ),
    "dpdk": socket_ring(
        replace(KNOBS, threads='sut.capture = "af-packet"', defrag='sut.capture = "af-packet"'),
        counter="tp_drops, the kernel's own counter of the driver's socket (BPF iterator)",
        source="emptied in DPDK's drivers/net/af_packet (eth_af_packet_rx), which counts no drops",
    ),
}
XDP_NEEDS = ("NET_ADMIN", "BPF", "IPC_LOCK", "SYS_ADMIN")
"""Rights to attach an XDP program, to load it, to lock the memory of its frames, and (libxdp) to
find its own maps by their numbers."""
NEEDS = {"af-xdp": XDP_NEEDS, "dpdk": dpdk.NEEDS}
FOR_ROOT = {
    "af-xdp": "only root may load its XDP program, and lock the memory of its socket",
    "dpdk": "only root may read the drops of the ring below its driver, and Suricata counts none "
    "of them",
}
"""Capture → what it takes in the lab netns that no user namespace gives."""
MOST_XDP_MTU = 3506
"""A page less headroom, Ethernet header and skb_shared_info (veth_xdp_set, Linux 6.18); less by the
alignment of headers on some CPUs."""
POLLED = ("af-xdp", "dpdk")
"""Captures whose workers never wait for a packet. Of af-xdp, Suricata's enable-busy-poll decides,
which only an entry in `af-xdp:` could switch off, and with one it has no thread on a veth."""
OFFLINE_TIMEOUT_S = 1200.0
REST_SEEN_S = 0.15
"""Time of two looks at its threads, the first of them late."""

OF_CAPTURE = ("af-packet", "pcap", "af-xdp", "dpdk", "threading", "max-pending-packets")
"""Keys of its configuration that lose packets, and change no detection."""


class Suricata(Sut):
    """A `Sut`. The constructor refuses bad options (BadInput) and touches nothing."""

    name = "suricata"
    places: Sequence[Place] = (RING,)
    event_log = EVENT_LOG
    alert_counter = "detect.alert"
    roomy: Mapping[str, Any] = {"ring_size": 32_768}
    _outcome: tuple[str, ...] = ()

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(SuricataOptions, options, table="sut", base=base)
        own = self.options.config
        self.places = (RINGS[self.options.capture],)
        self._base = template() if own is None else read_own(own)
        named = OwnFiles() if own is None else own_files(self._base, own.parent)
        self._others = dict(named.others)
        """Files by their names in the work folder: those of their keys."""
        if self.options.classification is not None:
            self._others["classification-file"] = self.options.classification
        self._rules = _as_shown(self.options.rules or named.rules)
        self._rules_lacking = () if self.options.rules else named.lacking
        # Rendered for its errors, and for what overrides make of defrag.
        self._rendered = self._configuration(SuricataPlaces(interfaces=["eth0"], work="/work"))
        self._by_dpdk = self.options.capture == "dpdk"
        self.polls = self.options.capture in POLLED
        self.drives_device = self._by_dpdk
        self.defrag = self.options.merges and (self._by_dpdk or defrag_expected(self._rendered))
        inline = inline_words(self._base) if own is not None else ""
        self.remarks = (f"sut.config: {own}: {inline}",) if inline else ()
        self.cpus = self.options.pinned_to
        self.ports = self.options.ports
        self.cpu_sets = {f"sut.{key}": cpus for key, cpus in self.options.role_cpus.items()}
        self.holds_packets = self._holds_packets()
        self.rest_seen_s = REST_SEEN_S
        self._refusals: dict[str, list[str]] = {}

    def misplaced(self, setup: str, *, mtu: int | None, standing: bool) -> str:
        capture = self.options.capture
        if capture in ("pcap", "dpdk") and standing:
            return (
                f'sut.capture = "{capture}": Suricata counts only while packets come, so its '
                'counters cannot be read between trials: set measure.sut = "fresh"'
            )
        if capture == "dpdk" and setup != dpdk.SETUP and (setup != "bare" or mtu is None):
            return (
                'sut.capture = "dpdk": its driver sets the MTU of the port and takes '
                'CAP_NET_ADMIN: only of setup.kind = "bare" in the lab netns, whose ports are made '
                f'anew; setup.kind = "{dpdk.SETUP}" gives it a NIC of its own'
            )
        in_lab = setup == "bare" and mtu is not None
        if in_lab and capture in FOR_ROOT and not is_root_of_the_host():
            return (
                f'sut.capture = "{capture}": {FOR_ROOT[capture]}: run nodrop as root, or set '
                'sut.capture = "af-packet"'
            )
        if capture != "af-xdp":
            return ""
        if setup != "bare" or mtu is None:
            return (
                'sut.capture = "af-xdp": it takes CAP_SYS_ADMIN, and libxdp leaves its program on '
                'the port: only of setup.kind = "bare" in the lab netns, whose ports are made anew'
            )
        if mtu > MOST_XDP_MTU:
            return (
                f'sut.capture = "af-xdp": the kernel attaches no XDP program to a veth whose peer '
                f"has an MTU above {MOST_XDP_MTU:,} (ERANGE), and the lab's is {mtu:,}: use a lab "
                "file with mtu = 3000, and a trace without longer frames"
            )
        return ""

    def _holds_packets(self) -> int | None:
        """Packets that the rings hold if each has a slot. None if that is not known, and in autofp,
        where more wait between threads."""
        if self._by_dpdk:
            return self.options.ring_size or dpdk.RING_FRAMES
        entry = self._rendered["af-packet"][0]
        frames, threads = _whole(entry.get("ring-size")), _whole(entry.get("threads"))
        slots = str(entry.get("tpacket-v3", "no")).lower() not in ("yes", "true", "on", "1")
        if self.options.capture != "af-packet":
            return None
        if not slots or frames is None or threads is None or self._runmode() == "autofp":
            return None
        return frames * threads * self.options.ports

    def needs_bits(self) -> str | None:
        return variant_of("suricata", dpdk.VARIANT) if self._by_dpdk else "suricata"

    def problems(self, bits: Bits | None) -> Sequence[str]:
        problems = []
        if bits is None:
            problems.append(
                "sut suricata: no Suricata found; run `nodrop image build suricata`, "
                "install one, or set sut.binary"
            )
        elif bits.kind == "binary" and bits.version is None:
            problems.append(
                f"sut.binary: {bits.path} -V names no version: it is no Suricata that runs here"
            )
        if self._by_dpdk:
            problems += dpdk.problems(self._rendered, bits)
        for rules in self._rules:
            try:
                problems += _no_text(rules.path, plain_rules(rules.path))
            except OSError as error:
                problems.append(f"sut.rules: {rules.path}: cannot be read: {error.strerror}")
            except BadInput as error:
                problems.append(str(error))
        names_others = any(key.startswith("rule-files") for key in self.options.overrides)
        if self._rules_lacking and not self._rules and not names_others:
            problems.append(
                f"sut.config: {self.options.config}: rule-files names {self._rules_lacking[0]}, "
                "which is not there, and no other rules: give rules (--rules, sut.rules), or none "
                "(sut.overrides.rule-files = [])"
            )
        if bits is not None and not problems:
            if bits.sha256 not in self._refusals:
                self._refusals[bits.sha256] = self._refused(bits) or self._rules_refused(bits)
            problems += self._refusals[bits.sha256]
        return problems

    def _refused(self, bits: Bits) -> list[str]:
        """A test of the configuration is stricter than a start (what only warns there is fatal
        here), so an override is blamed only if the same configuration is taken without it."""
        options = self.options
        if options.config is None and not options.overrides:
            return []
        words = self._refusal(bits, options)
        if words is None:
            return []
        plain = options.model_copy(update={"overrides": {}})
        if options.overrides and self._refusal(bits, plain) is None:
            return [f"sut.overrides: `suricata -T` refuses it: {words}"]
        if options.config is None:
            return []
        return [f"sut.config: {options.config}: `suricata -T` refuses it: {words}"]

    def _refusal(self, bits: Bits, options: SuricataOptions) -> str | None:
        files = self._beside(bits)
        answer = asked(bits, lambda work: self._asking(work, options, rules=(), files=files), files)
        return None if answer is None else answer.refused

    def _rules_refused(self, bits: Bits) -> list[str]:
        """Whether any rule loads is asked of the beginning of each file first: to load 20,000 rules
        takes half a minute."""
        files = {rules.name: plain_rules(rules.path) for rules in self._rules}
        if not files:
            return []
        strict = self.options.rules_errors == "error"
        if not strict:
            heads = {name: _head(path) for name, path in files.items()}
            answer = self._rules_asked(bits, heads)
            if answer is None or (answer.rules is not None and answer.rules.loaded):
                return []
        answer = self._rules_asked(bits, files)
        if answer is None or not answer.looked_for_rules:
            return []
        bad = log.bad_rules(answer.lines, self._rule_names(), self._not_utf8())
        words = log.rules_refused(answer.rules, bad, strict=strict)
        return [f"sut.rules: {words}; {log.mend(answer.rules)}"] if words else []

    def _rules_asked(self, bits: Bits, rules: Mapping[str, bytes | Path]) -> ConfigTest | None:
        others = self._beside(bits)
        return asked(
            bits,
            lambda work: self._asking(work, self.options, rules=[*rules], files=others),
            {**others, **rules},
            timeout_s=WITH_RULES_TIMEOUT_S,
        )

    def _beside(self, bits: Bits) -> dict[str, bytes | Path]:
        """Classes, references and thresholds. One that is not there ends a test, but not a start:
        an empty one stands for it."""
        root = bits.path if bits.kind == "image" else Path("/")
        found: dict[str, bytes | Path] = {**self._others}
        for key, usual in FILE_KEYS.items():
            place = str(self._base.get(key) or usual)
            if key not in found and not (root / place.lstrip("/")).is_file():
                found[key] = b""
        return found

    def _asking(
        self,
        work: str,
        options: SuricataOptions,
        *,
        rules: Sequence[str],
        files: Mapping[str, bytes | Path],
    ) -> bytes:
        others = {key: key for key in files}
        seen = SuricataPlaces(interfaces=["lo"], work=work, rules=rules, others=others)
        document = render(options, self._base, seen)
        if not rules:
            document |= {"rule-files": []}
        return dump(document)

    def role(self, thread: str) -> ThreadRole | None:
        return role(thread)

    # --- what it finds --------------------------------------------------------------------------

    def detecting(self, outcome: Sequence[str]) -> Suricata:
        other = copy(self)
        other._outcome = tuple(outcome)
        other._rendered = other._configuration(SuricataPlaces(interfaces=["eth0"], work="/work"))
        return other

    def limits(self) -> dict[str, By]:
        found: dict[str, By] = {}
        for rules in self._rules:
            found |= limits_of_rules(_text(plain_rules(rules.path)))
        if thresholds := self._others.get("threshold-file"):
            found |= limits_of_config(_text(thresholds))
        return found

    def clocks(self) -> frozenset[str]:
        texts = [_text(plain_rules(rules.path)) for rules in self._rules]
        found = {rule for text in texts for rule in clocks_of_rules(text)}
        if thresholds := self._others.get("threshold-file"):
            found |= {*clocks_of_config(_text(thresholds))}
        return frozenset(found)

    def remembers(self) -> str:
        texts = [_text(plain_rules(rules.path)) for rules in self._rules]
        found = [rule for text in texts for rule in remembering_rules(text)]
        if thresholds := self._others.get("threshold-file"):
            found += remembering_config(_text(thresholds))
        if not found:
            return ""
        return (
            f"a SUT that stays up remembers from one trial to the next: rule {found[0]}, the first "
            f"of {len(found):,} with a limit for all addresses (track by_rule), a dataset that it "
            "sets, or a script"
        )

    def offline(self, bits: Bits | None, trace: Path, *, standing: bool) -> FoundDetections:
        if bits is None:
            raise LabProblem("no Suricata to read the trace with")
        others, rules = (
            self._beside(bits),
            {rule.name: plain_rules(rule.path) for rule in self._rules},
        )
        files = {**others, **rules, TRACE: trace}
        how = ("-r", f"{WORK}/{TRACE}", "--runmode", self._offline_runmode())
        seen = SuricataPlaces(
            interfaces=["lo"], work="", rules=[*rules], others={key: key for key in others}
        )

        def configuration(work: str) -> bytes:
            return dump(self._offline_document(replace(seen, work=work)))

        with ran(bits, configuration, files, *how, timeout_s=OFFLINE_TIMEOUT_S) as ended:
            if ended is None or ended.status:
                words = b"" if ended is None else ended.words
                last = words.decode(errors="replace").strip()[-200:]
                raise LabProblem(f"Suricata does not read the trace to its end: {last or 'late'}")
            return read_found(
                [ended.work / EVENT_LOG],
                self.limits(),
                with_flows="flows" in self._outcome,
                sent=SentCopies(trace=trace) if standing else None,
            )

    def _offline_document(self, seen: SuricataPlaces) -> Yaml:
        """The configuration of a live run without its live capture. Checksums are checked as
        AF_PACKET has them checked: left to itself, Suricata guesses from the first 1,000
        packets."""
        document = render(self.options, self._base, seen, self._outcome)
        return {
            **document,
            "pcap-file": {"checksum-checks": "yes"},
            "unix-command": {"enabled": False},
        }

    def _offline_runmode(self) -> str:
        """`single` stands for workers: each flow is one thread's either way."""
        runmode = self._runmode() or str(self._base.get("runmode", "workers"))
        return "autofp" if runmode == "autofp" else "single"

    def detection_key(self, bits: Bits | None) -> Json:
        document = self._offline_document(SuricataPlaces(interfaces=["lo"], work="/work"))
        for of_capture in OF_CAPTURE:
            document.pop(of_capture, None)
        return {
            "bits": None if bits is None else bits.sha256,
            "configuration": hashlib.sha256(dump(document)).hexdigest(),
            "runmode": self._offline_runmode(),
            "files": {name: _sha256(path) for name, path in sorted(self.files().items())},
        }

    def launch(self, env: Env) -> RunningSuricata:
        interfaces = tuple(env.capture_interfaces)
        document = self._configuration(
            SuricataPlaces(
                interfaces=interfaces,
                work=env.work_inside,
                cpus=env.cpus,
                online_cpus=self._online_cpus(env),
            )
        )
        spec = ProcessSpec(
            argv=self._argv(env),
            files={CONFIG: dump(document), **self.files()},
            reads=named_files(document),
            cpus=self.options.pinned_to,
            needs=NEEDS.get(self.options.capture, ()),
            devices=[dpdk.VFIO] if self._by_dpdk and dpdk.is_pci(interfaces[0]) else (),
        )
        entry = document["af-packet"][0]
        own = self.options.config
        wanted = CaptureSettings(
            interfaces=interfaces,
            threads=_whole(entry.get("threads")),
            runmode=self._runmode(),
            detect_threads=self.options.detect_threads,
            ring_frames=_whole(entry.get("ring-size")),
            capture=self.options.capture,
            defrag=self._merges(document, interfaces[0]),
            defrag_named=own is not None or "defrag" in self.options.model_fields_set,
            full_sync_s=full_sync_s(document),
            retire_s=retire_s(document, self.options.capture),
            names_rules=bool(document.get("rule-files")),
            rules_errors=self.options.rules_errors,
            rule_names=self._rule_names(),
            rules_not_utf8=self._not_utf8(),
            rules_lacking=self._rules_lacking,
            yaml=None if own is None else own.name,
            replaced=self._replaced(document),
        )
        process = env.launch(spec)
        return RunningSuricata(process, env, wanted, self._intake(process, wanted))

    def _merges(self, document: Yaml, interface: str) -> bool:
        """Whether the kernel is asked to put fragments together, which it does on its ports."""
        if self._by_dpdk:
            return not dpdk.is_pci(interface)
        return self.options.merges and defrag_configured(document)

    def _intake(self, process: Process, asked: CaptureSettings) -> Intake:
        if asked.capture == "af-xdp":
            return XdpQueue(process, asked)
        if not self._by_dpdk:
            return OwnCounters(process, asked)
        by_dpdk = dpdk.is_pci(asked.interfaces[0])
        return DeviceQueues(process, asked) if by_dpdk else RingBelowDriver(process, asked)

    def _replaced(self, document: Yaml) -> Sequence[Json]:
        if self.options.config is None:
            return ()
        return replaced(self._base, document, self.options.overrides)

    def _online_cpus(self, env: Env) -> int:
        """Number of CPUs of the machine that it runs on, as its C library counts them; limits do
        not change that. Asked only if something rests on it: a guest has to boot for it."""
        options = self.options
        behind = options.runmode == "autofp" and options.config is None and bool(env.cpus)
        pinned = bool(env.cpus and own_affinity(self._base, 1))
        if not (options.detect_threads or behind or pinned):
            return 1
        said = env.host.run(["getconf", "_NPROCESSORS_ONLN"]).stdout.strip()
        if not said.isdecimal() or int(said) == 0:
            raise LabProblem(f"sut.detect_threads: getconf says {said[:80]!r} CPUs are online")
        return int(said)

    def facts(self) -> Json:
        options = self.options
        named = [("rules", rules.path) for rules in self._rules]
        named += [("config", options.config)] if options.config else []
        named += [(key.removesuffix("-file"), path) for key, path in self._others.items()]
        return {
            "options": options.model_dump(mode="json", exclude_unset=True),
            "files": [{"use": k, "path": str(p), "sha256": _sha256(p)} for k, p in named],
            "configuration_sha256": hashlib.sha256(dump(self._rendered)).hexdigest(),
            "yaml_replaced": self._replaced(self._rendered),
            "rules_lacking": list(self._rules_lacking),
        }

    def _configuration(self, seen: SuricataPlaces) -> Yaml:
        names = [rules.name for rules in self._rules]
        others = {key: key for key in self._others}
        seen = replace(seen, rules=names, others=others)
        return render(self.options, self._base, seen, self._outcome)

    def _argv(self, env: Env) -> tuple[str, ...]:
        bits = env.bits
        program = str(bits.path) if bits is not None and bits.kind == "binary" else "suricata"
        runmode = self._runmode()
        return (
            program,
            "-c",
            f"{env.work_inside}/{CONFIG}",
            "-l",
            env.work_inside,
            self._captures(env),
            *(("--runmode", runmode) if runmode else ()),
        )

    def _captures(self, env: Env) -> str:
        """Option that captures, without a name: `--af-packet=IF` would not use the settings of our
        entries."""
        by_name = f"={env.capture_interfaces[0]}" if self.options.capture == "af-xdp" else ""
        return f"--{self.options.capture}{by_name}"

    def _runmode(self) -> str | None:
        """None: a user's own yaml decides, unless the experiment says otherwise."""
        own = self.options.config is not None and "runmode" not in self.options.model_fields_set
        return None if own else self.options.runmode

    def files(self) -> dict[str, Path]:
        rules = {rules.name: plain_rules(rules.path) for rules in self._rules}
        return {**rules, **self._others}

    def _rule_names(self) -> dict[str, str]:
        return {rules.name: rules.said for rules in self._rules}

    def _not_utf8(self) -> list[log.BadRule]:
        contents = (
            (rules.said, read_file(plain_rules(rules.path), most_bytes=RULES_BYTES))
            for rules in self._rules
        )
        return [rule for said, content in contents for rule in log.not_utf8(said, content)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    path: Path
    name: str
    """Name in the work folder."""
    said: str
    """Name that a user calls it by."""


def _as_shown(paths: Sequence[Path]) -> tuple[_Rules, ...]:
    """Rules by their own names, with the folder if several have one name."""
    names = [path.name.removesuffix(".xz") for path in paths]
    found: list[_Rules] = []
    taken = set(OURS)
    for number, (path, name) in enumerate(zip(paths, names, strict=True)):
        inside = plain_name(name)
        if inside in taken:
            inside = plain_name(f"{number}-{name}")
        taken.add(inside)
        said = name if names.count(name) == 1 else f"{path.parent.name}/{name}"
        found.append(_Rules(path=path, name=inside, said=said))
    return tuple(found)


def _whole(value: object) -> int | None:
    """A number that a user's yaml or an override may hold as text; `auto` is None."""
    text = str(value)
    return int(text) if text.isdecimal() else None


def plain_rules(path: Path) -> Path:
    """The file itself, or what an .xz file holds, unpacked once into the cache folder."""
    if path.suffix != ".xz":
        with open_file(path):
            return path
    packed = read_file(path)
    plain = cache_folder() / "rules" / hashlib.sha256(packed).hexdigest() / path.stem
    if not plain.is_file():
        plain.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(io.BytesIO(packed)) as stream:
            unpack(stream, plain, most_bytes=RULES_BYTES, where=f"sut.rules: {path}")
    return plain


def _head(path: Path) -> bytes:
    """Beginning of the file: as many whole lines as `LOOK_BYTES` have room for."""
    with open_file(path) as file:
        begin = file.read(LOOK_BYTES)
        return begin if len(begin) < LOOK_BYTES else begin[: begin.rfind(b"\n") + 1]


def _no_text(path: Path, plain: Path) -> Sequence[str]:
    """A trace or an archive in this place: Suricata would complain of each of its lines."""
    with open_file(plain) as file:
        if b"\0" not in file.read(LOOK_BYTES):
            return []
    return [f"sut.rules: {path}: holds no rules: it is no UTF-8 text; unpack an archive first"]


def _text(path: Path) -> str:
    return read_file(path, most_bytes=RULES_BYTES).decode(errors="replace")


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_file(path, most_bytes=RULES_BYTES)).hexdigest()
