"""Suricata 7 and 8 as the SUT: how to start it from an experiment's `[sut]` table."""

from __future__ import annotations

import hashlib
import io
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodrop.config.options import check
from nodrop.errors import BadInput, LabProblem
from nodrop.hosts.folders import cache_folder
from nodrop.hosts.seam import Json
from nodrop.images.bits import Bits
from nodrop.ledger.places import Knobs, Place, socket_ring
from nodrop.ledger.threads import Role
from nodrop.setups.seam import Env, ProcessSpec
from nodrop.suts.suricata.acceptance import CONFIG, refusal
from nodrop.suts.suricata.capture import role
from nodrop.suts.suricata.config import (
    defrag_configured,
    defrag_expected,
    dump,
    full_sync_s,
    load_base,
    named_files,
    plain_name,
    render,
    retire_s,
)
from nodrop.suts.suricata.effective import Asked
from nodrop.suts.suricata.options import SuricataOptions
from nodrop.suts.suricata.running import RunningSuricata
from nodrop.untrusted.folder import open_file, read_file
from nodrop.untrusted.packed import unpack

RULES_BYTES = 256 << 20
LOOK_BYTES = 64 << 10
"""The largest published rule sets have 40 MB."""


RING = socket_ring(
    Knobs(
        ring="sut.ring_size",
        threads="sut.threads",
        workers="more workers (sut.detect_threads)",
        fewer_threads="fewer threads (sut.threads)",
        less_work="fewer rules",
        cpus="limits.cpus, sut.cpus",
        defrag='sut.defrag = "no"',
    ),
    counter="tp_drops (PACKET_STATISTICS): stats.capture.kernel_drops in eve.json",
    source="read in Suricata's src/source-af-packet.c (AFPDumpCounters)",
)
REST_SEEN_S = 0.15
"""Two looks at its threads, and the first of them late."""


class Suricata:
    """A `Sut`. The constructor refuses bad options (BadInput) and touches nothing."""

    name = "suricata"
    places: Sequence[Place] = (RING,)

    def __init__(self, options: Mapping[str, Any], *, base: Path) -> None:
        self.options = check(SuricataOptions, options, table="sut", base=base)
        # Rendered once for its errors, and for what overrides make of defrag.
        self.defrag = defrag_expected(self._configuration(["eth0"], "/work"))
        self.cpus = self.options.pinned_to
        self.ports = self.options.ports
        self.cpu_sets = {f"sut.{key}": cpus for key, cpus in self.options.role_cpus.items()}
        self.holds_packets = self._holds_packets()
        self.rest_seen_s = REST_SEEN_S
        self._refusals: dict[str, str | None] = {}

    def _holds_packets(self) -> int | None:
        """Of rings with a slot for each packet; between threads, as in autofp, more wait."""
        entry = self._configuration(["eth0"], "/work")["af-packet"][0]
        frames, threads = _whole(entry.get("ring-size")), _whole(entry.get("threads"))
        slots = str(entry.get("tpacket-v3", "no")).lower() not in ("yes", "true", "on", "1")
        if not slots or frames is None or threads is None or self._runmode() == "autofp":
            return None
        return frames * threads * self.options.ports

    def needs_bits(self) -> str | None:
        return "suricata"

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
        for path in self.options.rules:
            try:
                problems += _no_text(path, plain_rules(path))
            except OSError as error:
                problems.append(f"sut.rules: {path}: cannot be read: {error.strerror}")
            except BadInput as error:
                problems.append(str(error))
        if bits is not None and not problems:
            problems += self._refused(bits)
        return problems

    def _refused(self, bits: Bits) -> list[str]:
        """A test of the configuration is stricter than a start (what only warns there is fatal
        here), so an override is blamed only if the same configuration is taken without it."""
        if not self.options.overrides:
            return []
        if bits.sha256 not in self._refusals:
            plain = self.options.model_copy(update={"overrides": {}})
            found = refusal(bits, lambda work: self._without_rules(self.options, work))
            taken = found and refusal(bits, lambda work: self._without_rules(plain, work)) is None
            self._refusals[bits.sha256] = found if taken else None
        words = self._refusals[bits.sha256]
        return [f"sut.overrides: `suricata -T` refuses it: {words}"] if words else []

    def _without_rules(self, options: SuricataOptions, work: str) -> bytes:
        base = load_base(options)
        document = render(options, base, interfaces=["lo"], work=work, rules=())
        document |= {"rule-files": []}
        if options.classification is not None:
            del document["classification-file"]
        return dump(document)

    def role(self, thread: str) -> Role | None:
        return role(thread)

    def launch(self, env: Env) -> RunningSuricata:
        interfaces = tuple(env.capture_interfaces)
        online = _online_cpus(env) if self.options.detect_threads else 1
        document = self._configuration(interfaces, env.work_inside, online_cpus=online)
        spec = ProcessSpec(
            argv=self._argv(env),
            files={CONFIG: dump(document), **self.files()},
            reads=named_files(document),
            cpus=self.options.pinned_to,
        )
        entry = document["af-packet"][0]
        asked = Asked(
            interfaces=interfaces,
            threads=_whole(entry.get("threads")),
            runmode=self._runmode(),
            detect_threads=self.options.detect_threads,
            ring_frames=_whole(entry.get("ring-size")),
            defrag=defrag_configured(document),
            full_sync_s=full_sync_s(document),
            retire_s=retire_s(document),
            names_rules=bool(document.get("rule-files")),
            rules_errors=self.options.rules_errors,
        )
        return RunningSuricata(env.launch(spec), env, asked)

    def facts(self) -> Json:
        options = self.options
        named = [("rules", p) for p in options.rules]
        named += [(k, p) for k in ("config", "classification") if (p := getattr(options, k))]
        return {
            "options": options.model_dump(mode="json", exclude_unset=True),
            "files": [{"use": k, "path": str(p), "sha256": _sha256(p)} for k, p in named],
            "configuration_sha256": hashlib.sha256(
                dump(self._configuration(["eth0"], "/work"))
            ).hexdigest(),
        }

    def _configuration(
        self, interfaces: Sequence[str], work: str, *, online_cpus: int = 1
    ) -> dict[str, Any]:
        return render(
            self.options,
            load_base(self.options),
            interfaces=interfaces,
            work=work,
            rules=self._rule_names(),
            online_cpus=online_cpus,
        )

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
            # Without a name: `--af-packet=IF` would not use the settings of our entries.
            "--af-packet",
            *(("--runmode", runmode) if runmode else ()),
        )

    def _runmode(self) -> str | None:
        """None: a user's own yaml decides, unless the experiment says otherwise."""
        own = self.options.config is not None and "runmode" not in self.options.model_fields_set
        return None if own else self.options.runmode

    def _rule_names(self) -> list[str]:
        """Names in the work folder; numbered, for two folders may hold files of one name."""
        names = [p.name.removesuffix(".xz") for p in self.options.rules]
        return [f"rules-{i}-{plain_name(name)}" for i, name in enumerate(names)]

    def files(self) -> dict[str, Path]:
        files = {
            name: plain_rules(path)
            for name, path in zip(self._rule_names(), self.options.rules, strict=True)
        }
        if self.options.classification is not None:
            files[plain_name(self.options.classification.name)] = self.options.classification
        return files


def _online_cpus(env: Env) -> int:
    """Of the machine that it runs on, as its C library counts them; limits do not change that."""
    said = env.host.run(["getconf", "_NPROCESSORS_ONLN"]).stdout.strip()
    if not said.isdecimal() or int(said) == 0:
        raise LabProblem(f"sut.detect_threads: getconf says {said[:80]!r} CPUs are online")
    return int(said)


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


def _no_text(path: Path, plain: Path) -> Sequence[str]:
    """A trace or an archive in this place: Suricata would complain of each of its lines."""
    with open_file(plain) as file:
        if b"\0" not in file.read(LOOK_BYTES):
            return []
    return [f"sut.rules: {path}: holds no rules: it is no UTF-8 text; unpack an archive first"]


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_file(path, most_bytes=RULES_BYTES)).hexdigest()
