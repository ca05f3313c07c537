"""The driver of a NIC of this machine: spread over queues, and loading it anew, so that rings,
counters and memory begin again.

The port loses what was set on it. MTU, the IPv6 setting, and all that `ethtool` shows of features,
queues, rings, coalescing, flow control and hashes are put back; else the trial does not begin.
"""

from __future__ import annotations

import ctypes
import fcntl
import re
import shutil
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import LabPort, UndoAction, UndoJournal
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs.nic import COMMAND_TIMEOUT_S, ONCE_BACK, ipv6_off, must, set_ipv6_off

# How a NIC spreads packets over its queues: hash key, table, function and fields, and flow rules.
#
# By ioctl and not by the program ethtool, which shows tables that it cannot set.
SIOCETHTOOL = 0x8946
GRSSH, SRSSH = 0x46, 0x47
"""struct ethtool_rxfh: `HEAD`, the table of u32, the key."""
HEAD = struct.Struct("=IIII8s")
"""Command, context (0: the port's own), entries of the table, bytes of the key, the function."""
GRXFH, SRXFH, GRXCLSRLCNT = 0x29, 0x2A, 0x2E
FIELDS = struct.Struct("=IIQ")
"""Command, kind of flow, fields that are hashed: the front of struct ethtool_rxnfc."""
RXNFC_BYTES, RULES_AT = 192, 184
FLOWS = {
    "tcp4": 1, "udp4": 2, "sctp4": 3, "tcp6": 5, "udp6": 6, "sctp6": 7, "ip4": 16, "ip6": 17
}  # fmt: skip
"""Kind of flow → the kernel's number. All but the last two are in the words of `ethtool -n PORT
rx-flow-hash`."""
RSS = "rss"


def shown(port: str) -> Mapping[str, str]:
    """`rss` and kinds of flows → hex. What the driver does not say is left out."""
    found = {name: read(port, name) for name in (RSS, *FLOWS)}
    return {name: said.hex() for name, said in found.items() if said}


def put_back(port: str, before: Mapping[str, str]) -> None:
    """Puts the settings back. One that the driver does not take stays otherwise: `shown` says
    so."""
    for name, said in before.items():
        value = bytes.fromhex(said)
        command = struct.pack("=I", SRSSH if name == RSS else SRXFH)
        ioctl(port, command + value[len(command) :])


def flow_rules(port: str) -> int:
    """How many were set (`ethtool -n PORT`); 0 if the driver has no such thing."""
    said = ioctl(port, struct.pack("=I", GRXCLSRLCNT), more=RXNFC_BYTES - 4)
    return 0 if said is None else int(struct.unpack_from("=I", said, RULES_AT)[0])


def read(port: str, name: str) -> bytes | None:
    """`rss`, or the fields of a kind of flow; None if the driver does not say it."""
    return _rss(port) if name == RSS else _fields(port, FLOWS[name])


def _rss(port: str) -> bytes | None:
    sizes = ioctl(port, HEAD.pack(GRSSH, 0, 0, 0, b""))
    if sizes is None:
        return None
    _, _, entries, key_bytes, _ = HEAD.unpack(sizes)
    asked = HEAD.pack(GRSSH, 0, entries, key_bytes, b"")
    return ioctl(port, asked, more=4 * entries + key_bytes)


def _fields(port: str, flow: int) -> bytes | None:
    return ioctl(port, FIELDS.pack(GRXFH, flow, 0))


GDRVINFO, GCOALESCE, GRINGPARAM, GPAUSEPARAM, GSTRINGS = 0x03, 0x0E, 0x10, 0x12, 0x1B
GSSET_INFO, GFEATURES, GCHANNELS = 0x37, 0x3A, 0x3C
FEATURES = 4
"""Number of the set of strings ETH_SS_FEATURES."""
NAME_BYTES = 32


def driver_name(port: str) -> str:
    """Name of a port's driver; empty if the driver does not say it."""
    said = ioctl(port, struct.pack("=I", GDRVINFO), more=192)
    return "" if said is None else _word(said[4:36])


def feature_names(port: str) -> list[str]:
    said = ioctl(port, struct.pack("=IIQ", GSSET_INFO, 0, 1 << FEATURES), more=4)
    if said is None or not struct.unpack_from("=Q", said, 8)[0]:
        return []
    count = struct.unpack_from("=I", said, 16)[0]
    named = ioctl(port, struct.pack("=III", GSTRINGS, FEATURES, count), more=NAME_BYTES * count)
    if named is None:
        return []
    places = range(12, 12 + NAME_BYTES * count, NAME_BYTES)
    return [_word(named[place : place + NAME_BYTES]) for place in places]


def _word(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


def ioctl(port: str, asked: bytes, *, more: int = 0) -> bytes | None:
    """The answer, which may be longer; None if the driver has none."""
    try:
        return ask(port, asked, more=more)
    except OSError:
        return None


def ask(port: str, asked: bytes, *, more: int = 0) -> bytes:
    """OSError if the driver refuses."""
    length = len(asked) + more
    answer = ctypes.create_string_buffer(asked, max(length, RXNFC_BYTES))
    request = struct.pack("16sP16x", port.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    return answer.raw[:length]


NICS, MODULES = Path("/sys/class/net"), Path("/sys/module")
LOAD_TIMEOUT_S = 30.0
BACK_TIMEOUT_S = 10.0
"""A driver makes its ports while it is loaded; udev gives them their names a moment later."""
KINDS = {"-l": "-L", "-g": "-G", "-c": "-C", "-a": "-A", "-k": "-K"}
"""How ethtool shows a kind of settings → how it sets them. In this order: other queues have other
rings, and a driver may turn features off when rings change."""
SET_SO = "set it so that it can be set again, or leave measure.reset out"
SPREADS = "-x"
"""How packets are spread over queues: after the others, as a driver spreads anew when queues
change."""
NOW = "Current hardware settings:"
"""Line above which the largest possible settings stand."""
BOTH_WAYS = re.compile(r"^(Adaptive|CQE mode) RX: (\S+) +TX: (\S+)", re.MULTILINE)
OTHER_NAMES = {"autonegotiate": "autoneg"}


def line_numbers(root: Path, device: str) -> set[int]:
    """Interrupt lines of a port; those of a virtio port are one level up."""
    places = (root / place / "msi_irqs" for place in (device, f"{device}/.."))
    found = ({int(one.name) for one in place.glob("*")} for place in places)
    return next(filter(None, found), set())


def module_of(port: str) -> str:
    """The module that drives the port; "" if there is none: a veth, a bridge, or a driver built
    into the kernel."""
    module = NICS / port / "device" / "driver" / "module"
    return module.resolve().name if module.exists() else ""


def problems(port: str) -> Sequence[str]:
    """Why its driver must not be loaded anew, in words."""
    if not (NICS / port).exists():
        return []  # that is said already
    module = module_of(port)
    if not module:
        return [
            f"measure.reset: {port} has no driver that could be loaded anew (a module of a NIC)"
        ]
    if others := [name for name in ports_of(module) if name != port]:
        return [
            f"measure.reset: {module} also drives {', '.join(others)}, which would go down with "
            f"{port}; measure on a NIC of another kind"
        ]
    if devices := _other_devices(port, module):
        return [
            f"measure.reset: {module} also drives {', '.join(devices)}, whose ports may be in "
            "other network namespaces and would go; measure on a NIC of another kind"
        ]
    holders = MODULES / module / "holders"
    if users := sorted(path.name for path in holders.glob("*")):
        return [f"measure.reset: {module} is in use by {', '.join(users)}"]
    if rules := flow_rules(port):
        return [
            f"measure.reset: {port} has {rules} flow rules (ethtool -n {port}), which go with its "
            "driver and are not put back; delete them, or leave measure.reset out"
        ]
    if shutil.which("modprobe") is None:
        return ["program modprobe is missing; install the package kmod"]
    return []


def ports_of(module: str) -> Sequence[str]:
    """Ports of a driver in this network namespace."""
    return sorted(path.name for path in NICS.iterdir() if module_of(path.name) == module)


def _other_devices(port: str, module: str) -> Sequence[str]:
    """Other devices of a driver, whatever network namespace their ports are in."""
    bound = {
        link.resolve()
        for driver in (MODULES / module / "drivers").glob("*")
        for link in driver.iterdir()
        if link.is_symlink() and link.name != "module"
    }
    return sorted(device.name for device in bound - {(NICS / port / "device").resolve()})


def load_anew(port: str, journal: UndoJournal) -> None:
    """LabProblem if the port is not what it was after that."""
    module = module_of(port)
    if not module:
        raise LabProblem(
            f"there is no port {port} any more: its NIC or its driver went away", hint=ONCE_BACK
        )
    mtu = (NICS / port / "mtu").read_text().strip()
    kept = [port, module, mtu, settings(port), ipv6_off(port)]
    journal.push(
        what=f"port {port} with its driver {module}", action=UndoAction.LOAD_DRIVER, arguments=kept
    )
    must(["modprobe", "--remove", module], timeout_s=LOAD_TIMEOUT_S)
    bring_back(*kept)


def bring_back(port: str, module: str, mtu: str, before: str, ipv6: str) -> None:
    """Loads the driver, if it is a module, and restores the port's settings; it may be repeated.
    `before`: the words that `settings` gave."""
    if module:
        must(["modprobe", module], timeout_s=LOAD_TIMEOUT_S)
    if not any((NICS / port).exists() for _ in looks(BACK_TIMEOUT_S)):
        raise LabProblem(f"{port} is not back {BACK_TIMEOUT_S:g} s after {module} was loaded")
    must(["ip", "link", "set", port, "mtu", mtu])
    for shows, sets in KINDS.items():
        if words := _otherwise(port, shows, before):
            _ethtool(sets, port, *words)  # what it could not set is seen below
    put_back(port, _spread_otherwise(port, before))
    set_ipv6_off(port, ipv6)
    must(["ip", "link", "set", port, "up"])
    for shows, sets in KINDS.items():
        if words := _otherwise(port, shows, before):
            raise LabProblem(
                f"after its driver was loaded anew {port} is otherwise, and "
                f"`ethtool {sets} {port} {' '.join(words)}` did not put it back",
                hint=SET_SO,
            )
    if names := _spread_otherwise(port, before):
        raise LabProblem(
            f"after its driver was loaded anew {port} spreads packets over its queues otherwise, "
            f"and its driver does not let that be put back: {', '.join(names)} (ethtool -x, -n)",
            hint=SET_SO,
        )


def settings(port: str) -> str:
    """`-l combined=4 -g rx=512 -k rx=off …`: all that could be set."""
    return " ".join(
        f"{shows} {name}={value}"
        for shows in (*KINDS, SPREADS)
        for name, value in _shown(port, shows).items()
    )


def _spread_otherwise(port: str, before: str) -> Mapping[str, str]:
    """Spreading settings that are not as before, with the values that they are to have."""
    words = _otherwise(port, SPREADS, before)
    return dict(zip(words[::2], words[1::2], strict=True))


def _otherwise(port: str, shows: str, before: str) -> list[str]:
    """Names and values to set."""
    words = before.split()
    wanted = (
        pair.partition("=")
        for kind, pair in zip(words[::2], words[1::2], strict=True)
        if kind == shows
    )
    now = _shown(port, shows)
    return [word for name, _, value in wanted if now.get(name) != value for word in (name, value)]


def _shown(port: str, shows: str) -> Mapping[str, str]:
    """Name → value, as the option that sets them takes both; what is fixed is left out."""
    if shows == SPREADS:
        return shown(port)
    text = _ethtool(shows, port)
    text = BOTH_WAYS.sub(r"\1 RX: \2\n\1 TX: \3", text.partition(NOW)[2] or text)
    found = {}
    for line, after in pairwise([*text.splitlines(), ""]):
        label, _, value = line.partition(":")
        words = value.split()
        made_of_others = after.startswith("\t") and not line.startswith("\t")
        if words and not made_of_others and words[-1] not in ("n/a", "[fixed]"):
            name = "-".join(label.lower().split()).replace("frame-", "frames-")
            found[OTHER_NAMES.get(name, name)] = words[0]
    return {name: value for name, value in found.items() if not name.endswith("-negotiated")}


def _ethtool(option: str, port: str, *more: str) -> str:
    """Output of ethtool; empty if the driver has no such thing."""
    argv = ["ethtool", option, port, *more]
    return run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S, check=False).stdout


def pci_address(port: LabPort) -> str | None:
    """None for a virtual one. A driver knows it wherever the port is; sysfs only in its network
    namespace."""
    shown = port.host.run(["ethtool", "-i", port.name], check=False).stdout
    found = re.search(r"^bus-info: ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$", shown, re.M)
    return found and found[1]


if __name__ == "__main__":  # of `nodrop undo` (hosts/reversal.py), and in a port's own namespace
    try:
        match sys.argv[1:]:
            case ["settings", port]:
                print(settings(port))  # noqa: T201
            case arguments:
                bring_back(*arguments)
    except LabProblem as problem:
        sys.exit(f"{problem}")
