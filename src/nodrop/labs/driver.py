"""The driver of a NIC of this machine is loaded anew: rings, counters and memory begin again.

The port loses what was set on it. MTU, offloads and the IPv6 setting are put back; all else that
`ethtool` shows must be as it was, or the trial does not begin.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.hosts.local import run_command
from nodrop.hosts.seam import Action, UndoJournal
from nodrop.labs.far_hosts import OFFLOADS
from nodrop.labs.nic import COMMAND_TIMEOUT_S, ipv6_off, must, set_ipv6_off

NICS, MODULES = Path("/sys/class/net"), Path("/sys/module")
LOAD_TIMEOUT_S = 30.0
BACK_TIMEOUT_S = 10.0
"""A driver makes its ports while it is loaded; udev gives them their names a moment later."""
SHOWN = ("--show-features", "--show-ring", "--show-channels", "--show-coalesce", "--show-pause")


def module_of(port: str) -> str:
    """What drives it; "" if that is no module: a veth, a bridge, or built into the kernel."""
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
    if shutil.which("modprobe") is None:
        return ["program modprobe is missing; install the package kmod"]
    return []


def ports_of(module: str) -> Sequence[str]:
    """In this network namespace."""
    return sorted(path.name for path in NICS.iterdir() if module_of(path.name) == module)


def _other_devices(port: str, module: str) -> Sequence[str]:
    """Whatever network namespace their ports are in."""
    bound = {
        link.resolve()
        for driver in (MODULES / module / "drivers").glob("*")
        for link in driver.iterdir()
        if link.is_symlink() and link.name != "module"
    }
    return sorted(device.name for device in bound - {(NICS / port / "device").resolve()})


def load_anew(port: str, journal: UndoJournal) -> None:
    """LabProblem if the port is not what it was after that."""
    module, before = module_of(port), _shown(port)
    mtu = (NICS / port / "mtu").read_text().strip()
    kept = [port, module, mtu, _features(port), ipv6_off(port)]
    journal.push(
        what=f"port {port} with its driver {module}", action=Action.LOAD_DRIVER, arguments=kept
    )
    must(["modprobe", "--remove", module], timeout_s=LOAD_TIMEOUT_S)
    bring_back(*kept)
    for option, (then, now) in zip(SHOWN, zip(before, _shown(port), strict=True), strict=True):
        if now != then:
            lines = (line for line in now.splitlines() if line not in then.splitlines())
            raise LabProblem(
                f"after its driver was loaded anew {port} is otherwise: ethtool {option} says "
                f"{' '.join(next(lines, 'less').split())}",
                hint="let udev set it, or leave measure.reset out",
            )


def bring_back(port: str, module: str, mtu: str, features: str, ipv6: str) -> None:
    """As often as need be."""
    must(["modprobe", module], timeout_s=LOAD_TIMEOUT_S)
    deadline = time.monotonic() + BACK_TIMEOUT_S
    while not (NICS / port).exists():
        if time.monotonic() > deadline:
            raise LabProblem(f"{port} is not back {BACK_TIMEOUT_S:g} s after {module} was loaded")
        time.sleep(0.01)
    must(["ip", "link", "set", port, "mtu", mtu])
    for feature in features.split():
        name, _, state = feature.partition("=")
        must(["ethtool", "-K", port, name, state])
    set_ipv6_off(port, ipv6)
    must(["ip", "link", "set", port, "up"])


def _features(port: str) -> str:
    """`rx=off tx=on`: of those that change what a sensor sees, all that can be set."""
    lines = (line.partition(":") for line in _ethtool("--show-features", port).splitlines())
    states = [(OFFLOADS[name], state.strip()) for name, _, state in lines if name in OFFLOADS]
    return " ".join(f"{name}={state}" for name, state in states if state in ("on", "off"))


def _shown(port: str) -> list[str]:
    return [_ethtool(option, port) for option in SHOWN]


def _ethtool(option: str, port: str) -> str:
    """Nothing if the driver has no such thing."""
    argv = ["ethtool", option, port]
    return run_command(argv, where="lab", timeout_s=COMMAND_TIMEOUT_S, check=False).stdout


if __name__ == "__main__":  # of `nodrop undo` (hosts/reversal.py)
    try:
        bring_back(*sys.argv[1:])
    except LabProblem as problem:
        sys.exit(f"{problem}")
