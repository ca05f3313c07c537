"""Knobs of Suricata, as changes of its yaml: the user's text with single values put in.

The user's file is never written: a change is printed, or stands whole in FILE.nodrop. Comments and
order stay, because only the characters of a value are replaced.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from nodrop.errors import BadInput

NUMBER, SIZE, YES_NO = r"\d{1,10}", r"\d{1,10} ?([kmg]i?b)?", r"yes|no"
AF_PACKET = "af-packet"
USER_GUIDE = "Suricata user guide"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlKnob:
    id: str
    path: str
    """Path in the yaml; `af-packet.*` is the entry of the port."""
    takes: str
    """Pattern of its values."""
    values: str
    why: str
    source: str
    key: str = ""
    """Key of an experiment by which it is proved; without one, `sut.overrides`."""

    @property
    def proved_by(self) -> str:
        return self.key or f"sut.overrides.{self.path.replace('*', '0')}"


def _port(name: str, takes: str, values: str, why: str, source: str, key: str = "") -> YamlKnob:
    return YamlKnob(
        id=name, path=f"{AF_PACKET}.*.{name}", takes=takes, values=values, why=why, source=source,
        key=key,
    )  # fmt: skip


OF_SURICATA: tuple[YamlKnob, ...] = (
    _port("ring-size", NUMBER, "frames per thread", "memory and tolerance of a stall without "
          "tpacket-v3; with it, blocks count", "SEPTun; nodrop audit: ring-tolerance",
          "sut.ring_size"),
    _port("block-size", NUMBER, "bytes, whole pages", "of tpacket-v3: at least 128 KiB",
          "Suricata 8", "sut.block_size"),
    _port("block-timeout", NUMBER, "ms", "of tpacket-v3: a block ends so soon however empty, so "
          "blocks × timeout is the longest stall that loses nothing", "zeek-af_packet-plugin #37"),
    _port("tpacket-v3", YES_NO, "yes, no", "fewer wake-ups, blocks instead of frames",
          "SEPTun", "sut.tpacket_v3"),
    _port("threads", rf"{NUMBER}|auto", "a number, auto", "workers: as many as CPUs they may use, "
          "or as queues", USER_GUIDE, "sut.threads"),
    _port("cluster-type", r"cluster_(flow|cpu|qm)", "cluster_flow, cluster_cpu, cluster_qm",
          "cluster_qm needs a symmetric hash", "SEPTun II; user guide", "sut.cluster_type"),
    _port("cluster-id", NUMBER, "a number", "one of its own for each port and process", USER_GUIDE),
    _port("defrag", YES_NO, "yes, no", "the kernel puts fragments together ahead of the ring",
          USER_GUIDE, "sut.defrag"),
    _port("use-mmap", YES_NO, "yes, no", "a ring at all", "SEPTun", "sut.use_mmap"),
    _port("mmap-locked", YES_NO, "yes, no", "the ring is not swapped; needs the memory lock limit",
          "SEPTun"),
    _port("use-emergency-flush", YES_NO, "yes, no", "drops a whole ring to catch up: leave it off",
          "SEPTun"),
    YamlKnob(id="max-pending-packets", path="max-pending-packets", takes=NUMBER, values="packets",
             why="packets in work; also the default of ring-size", source="SEPTun; user guide"),
    YamlKnob(id="mpm", path="mpm-algo", takes=r"auto|ac|ac-bs|ac-ks|hs",
             values="auto, ac, ac-ks, hs",
             why="hs (Hyperscan) where it is built in", source="SEPTun"),
    YamlKnob(id="detect-profile", path="detect.profile", takes=r"low|medium|high|custom",
             values="low, medium, high", why="larger groups of rules: more memory, fewer checks",
             source="SEPTun: high"),
    YamlKnob(id="sgh-mpm-context", path="detect.sgh-mpm-context", takes=r"auto|full|single",
             values="auto, full, single", why="full: a matcher for each group", source="SEPTun"),
    YamlKnob(id="flow-memcap", path="flow.memcap", takes=SIZE, values="a size such as 1gb",
             why="flows that are followed; emergency mode loses analysis, no packet",
             source="SEPTun"),
    YamlKnob(id="stream-memcap", path="stream.memcap", takes=SIZE, values="a size such as 1gb",
             why="TCP sessions that are followed", source="SEPTun"),
    YamlKnob(id="reassembly-memcap", path="stream.reassembly.memcap", takes=SIZE,
             values="a size such as 1gb", why="TCP data that waits for what is missing",
             source="SEPTun; SEPTun-Mark-II #3: more made drops worse"),
    YamlKnob(id="reassembly-depth", path="stream.reassembly.depth", takes=SIZE,
             values="a size such as 1mb, 0: all", why="bytes of a TCP stream that are looked at",
             source="SEPTun"),
    YamlKnob(id="checksum-validation", path="stream.checksum-validation", takes=YES_NO,
             values="yes, no", why="no: packets with a wrong checksum go into streams as well; an "
             "attack may hide behind some that its target throws away", source="SEPTun: no"),
    YamlKnob(id="prealloc-sessions", path="stream.prealloc-sessions", takes=NUMBER,
             values="sessions per thread", why="memory for sessions that is there at the start",
             source="SEPTun: 200000"),
    YamlKnob(id="segment-prealloc", path="stream.reassembly.segment-prealloc", takes=NUMBER,
             values="segments", why="the same for segments that wait", source="SEPTun II: 200000"),
    YamlKnob(id="bypass", path="stream.bypass", takes=YES_NO, values="yes, no",
             why="what lies behind the depth is not taken from the ring any more",
             source="SEPTun II"),
    YamlKnob(id="set-cpu-affinity", path="threading.set-cpu-affinity", takes=YES_NO,
             values="yes, no", why="workers stay on their CPUs", source="SEPTun"),
)  # fmt: skip


def checked(knob: YamlKnob, value: str) -> str:
    value = {"true": "yes", "false": "no"}.get(value, value)
    if re.fullmatch(knob.takes, value, re.ASCII | re.IGNORECASE) is None:
        raise BadInput(f"{knob.id}={value}: must be {knob.values}")
    return value


def patched(text: str, asked: Sequence[tuple[YamlKnob, str]], *, port: str, file: str) -> str:
    """The yaml with these values. BadInput if it has no place for one."""
    for knob, value in asked:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise BadInput(f"{file}: no yaml: {str(error).splitlines()[0]}") from None
        text = _with(text, root, knob, checked(knob, value), port, file)
    return text


def _with(text: str, node: object, knob: YamlKnob, value: str, port: str, file: str) -> str:
    *folders, last = knob.path.split(".")
    for name in folders:
        node = _entry(node, port) if name == "*" else _child(node, name)
        if node is None:
            place = knob.path.replace("*", port or "(first port)")
            raise BadInput(f"{file}: has no place for {place}", hint="add its section first")
    if not isinstance(node, yaml.MappingNode) or node.flow_style or not node.value:
        raise BadInput(f"{file}: {knob.path}: is not a table over several lines")
    old = _child(node, last)
    if old is None:
        first = node.value[0][0].start_mark
        line = f"{last}: {value}\n{' ' * first.column}"
        return text[: first.index] + line + text[first.index :]
    if not isinstance(old, yaml.ScalarNode):
        raise BadInput(f"{file}: {knob.path}: is no single value")
    begin, end = old.start_mark.index, old.end_mark.index
    space = " " if begin == end else ""  # a key without a value
    return text[:begin] + space + value + text[end:]


def _child(node: object, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _entry(node: object, port: str) -> yaml.Node | None:
    if not isinstance(node, yaml.SequenceNode):
        return None
    named = {getattr(_child(one, "interface"), "value", None): one for one in node.value}
    return named.get(port) if port else next(iter(node.value), None)


def difference(old: str, new: str, file: str) -> list[str]:
    made = difflib.unified_diff(
        old.splitlines(), new.splitlines(), file, f"{file}.nodrop", lineterm="", n=1
    )
    return list(made)


def write_beside(file: Path, text: str) -> Path:
    """FILE.nodrop; one that is there was written by nodrop."""
    to = file.with_name(f"{file.name}.nodrop")
    to.write_text(text)
    return to
