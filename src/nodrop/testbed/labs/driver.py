"""The driver of a NIC of this machine, loaded anew, so that rings, counters and memory begin again.

The port loses what was set on it. MTU, the IPv6 setting, and all that its driver keeps of features,
queues, rings, coalescing, flow control and hashes are put back; else the trial does not begin.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import LabPort, UndoAction, UndoJournal
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.labs.nic import ONCE_BACK, ipv6_off, must, set_ipv6_off
from nodrop.testbed.labs.port_settings import Device, Piece, flow_rules, of_driver, settle

NICS, MODULES = Path("/sys/class/net"), Path("/sys/module")
LOAD_TIMEOUT_S = 30.0
PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
BACK_TIMEOUT_S = 10.0
"""A driver makes its ports while it is loaded; udev gives them their names a moment later."""


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
    live, words = Device(), (word.partition("=") for word in before.split())
    goal = {Piece(port, name): raw for name, _, raw in words}
    settle(live, goal)
    set_ipv6_off(port, ipv6)
    must(["ip", "link", "set", port, "up"])
    if names := [one.name for one, raw in goal.items() if live.read(one) != raw]:
        raise LabProblem(
            f"after its driver was loaded anew {port} is otherwise, and its driver does not let "
            f"that be put back: {', '.join(names)}",
            hint="set it so that it can be set again, or leave measure.reset out",
        )


def settings(port: str) -> str:
    """`rings=10000000… feature/rx-gro=11 …`: all that its driver keeps and could be set."""
    live = Device()
    said = ((name, live.read(Piece(port, name))) for name in of_driver(port))
    return " ".join(f"{name}={raw}" for name, raw in said if raw is not None)


def pci_address(port: LabPort) -> str | None:
    """None for a virtual one. A driver knows it wherever the port is; sysfs only in its network
    namespace."""
    ports = port.host.probe("sensor", ports=[port.name])["sensor"]["ports"]
    places = [one["bus"] or "" for one in ports if one["name"] == port.name]
    return next((place for place in places if PCI_ADDRESS.fullmatch(place)), None)


if __name__ == "__main__":  # of `nodrop undo` (hosts/reversal.py), and in a port's own namespace
    try:
        match sys.argv[1:]:
            case ["settings", port]:
                print(settings(port))  # noqa: T201
            case arguments:
                bring_back(*arguments)
    except LabProblem as problem:
        sys.exit(f"{problem}")
