"""The fixed list of what an undo may do. A journal names one of these actions with arguments, never
a command. Arguments that cannot be a run's own are refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.api import UndoAction
from nodrop.testbed.hosts.local import run_command
from nodrop.untrusted.folder import Folder

NETNS_FOLDER = Path("/run/netns")
NICS = Path("/sys/class/net")
TIMEOUT_S = 90.0
"""More than any of the commands gives itself: a guest that lets go of a NIC, a busy Docker."""

PORT_SETTINGS = r"((promisc|ipv[46]/(conf|neigh)/[a-z0-9_]+)=[a-z0-9:._-]+ ?)*"
"""Form of a port's settings, as labs/nic.py gives them."""

Command = Sequence[str] | None
"""None: what would be reversed is certainly gone."""


def reverse(action: str, arguments: Sequence[str], *, label: str) -> bool:
    """Puts one thing back. False if there was nothing to do; LabProblem if that is not certain."""
    making = _COMMANDS.get(action)
    if making is None:
        raise LabProblem(f"{action!r} is nothing that this version of nodrop knows how to undo")
    try:
        command = making(label, *arguments)
    except TypeError:
        raise LabProblem(f"{action} with {len(arguments)} arguments") from None
    if command is None:
        return False
    done = run_command(command, where="undo", timeout_s=TIMEOUT_S, check=False)
    # Programs have many words for a thing that is gone, and use them of other things too: only
    # looking is certain.
    if done.returncode != 0 and making(label, *arguments) is not None:
        # The last line: of a traceback it is the one that says what was wrong.
        said = done.stderr.strip().splitlines()
        raise LabProblem(said[-1] if said else f"exit code {done.returncode}")
    return True


def _delete_netns(label: str, name: str) -> Command:
    _must_be_of_run(label, name)
    return ["ip", "netns", "del", name] if (NETNS_FOLDER / name).exists() else None


def _delete_macvtap(label: str, name: str) -> Command:
    del label
    _must_be_named(name, r"ndlv[0-9a-f]{1,8}", "a macvtap of nodrop's")
    return ["ip", "link", "del", name] if (NICS / name).exists() else None


def _remove_group(label: str, path: str) -> Command:
    folder = Path(path)
    _must_be_named(
        folder.name, rf"nodrop-{re.escape(label)}-[A-Za-z0-9._-]+", "a control group of this run"
    )
    if not folder.is_absolute() or ".." in folder.parts:
        raise LabProblem(f"{path} is no control group")
    argv = [sys.executable, "-m", "nodrop.testbed.hosts.control_groups", path]
    return argv if folder.exists() else None


def _remove_containers(label: str, url: str) -> Command:
    _must_be_named(url, r"unix:///[^\0]+", "a Docker daemon of this machine")
    return [sys.executable, "-m", "nodrop.testbed.setups.docker_engine", url, label]


def _delete_container(label: str, state: str, name: str) -> Command:
    _must_be_named(name, rf"nodrop-{re.escape(label)}-[A-Za-z0-9._-]+", "a container of this run")
    folder = Path(state)
    if not folder.is_absolute():
        raise LabProblem(f"{state} is no folder of runc's")
    if not (folder / name).exists():
        return None  # runc keeps what it knows of a container there, and nowhere else
    Folder(folder).must_be_ours("runc's state")
    return ["runc", "--root", state, "delete", "--force", name]


def _detach_nic(label: str, uri: str, domain: str, port: str) -> Command:
    del label
    _must_be_named(port, r"ndlv[0-9a-f]{1,8}", "a macvtap of nodrop's")
    _must_be_named(uri, r"[a-z][a-z0-9+.-]*://[!-~]*", "the address of a libvirtd")
    _must_be_named(domain, r"[^-\x00-\x1f\x7f/][^\x00-\x1f\x7f/]*", "a domain of libvirt's")
    return [sys.executable, "-m", "nodrop.testbed.setups.libvirt_domain", uri, domain, port]


def _restore_driver(label: str, device: str, driver: str) -> Command:
    del label
    _must_be_named(device, r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "a PCI address")
    _must_be_named(driver, r"[A-Za-z0-9_-]*", "a driver")
    return [sys.executable, "-m", "nodrop.testbed.setups.vm_vfio", "restore", device, driver]


def _move_port_back(label: str, source: str, port: str, target: str) -> Command:
    for name in (source, target):
        _must_be_of_run(label, name)
    _must_be_a_port(port)
    if not (NETNS_FOLDER / source).exists() or not (NETNS_FOLDER / target).exists():
        return None
    shown = ["ip", "-n", source, "link", "show", port]
    if run_command(shown, where="undo", timeout_s=TIMEOUT_S, check=False).returncode != 0:
        return None
    return ["ip", "-n", source, "link", "set", port, "netns", target]


def _return_port(label: str, netns: str, port: str, home: str, settings: str) -> Command:
    _must_be_of_run(label, netns)
    _must_be_a_port(port)
    _must_be_named(home, r"\d+", "a network namespace")
    if settings in ("0", "1"):  # of a nodrop before 2026-11-25
        settings = f"ipv6/conf/disable_ipv6={settings}"
    _must_be_named(settings, PORT_SETTINGS, "settings of a port")
    if not (NETNS_FOLDER / netns).exists():
        return None
    return [sys.executable, "-m", "nodrop.testbed.labs.nic", netns, port, home, settings]


def _load_driver(
    label: str, port: str, module: str, mtu: str, settings: str, ipv6_off: str
) -> Command:
    del label
    _must_be_a_port(port)
    _must_be_named(module, r"([A-Za-z0-9][A-Za-z0-9_-]*)?", "a driver")
    _must_be_named(mtu, r"\d{2,5}", "an MTU")
    _must_be_named(ipv6_off, r"[01]?", "a value of disable_ipv6")
    _must_be_named(settings, r"((feature/)?[A-Za-z0-9_.-]+=[0-9a-f]+ ?)*", "settings of a port")
    return [
        sys.executable,
        "-m",
        "nodrop.testbed.labs.driver",
        port,
        module,
        mtu,
        settings,
        ipv6_off,
    ]


def _restore_settings(label: str, state: str) -> Command:
    del label
    return [sys.executable, "-m", "nodrop.tune.kept", state]


_COMMANDS: Mapping[str, Callable[..., Command]] = {
    UndoAction.DELETE_NETNS: _delete_netns,
    UndoAction.DELETE_MACVTAP: _delete_macvtap,
    UndoAction.REMOVE_GROUP: _remove_group,
    UndoAction.REMOVE_CONTAINERS: _remove_containers,
    UndoAction.DELETE_CONTAINER: _delete_container,
    UndoAction.DETACH_NIC: _detach_nic,
    UndoAction.RESTORE_DRIVER: _restore_driver,
    UndoAction.MOVE_PORT_BACK: _move_port_back,
    UndoAction.RETURN_PORT: _return_port,
    UndoAction.LOAD_DRIVER: _load_driver,
    UndoAction.RESTORE_SETTINGS: _restore_settings,
}


def _must_be_of_run(label: str, netns: str) -> None:
    _must_be_named(netns, rf"nodrop-{re.escape(label)}-[A-Za-z0-9._-]+", "a namespace of this run")


def _must_be_a_port(name: str) -> None:
    _must_be_named(name, r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "a port")


def _must_be_named(text: str, pattern: str, what: str) -> None:
    if not re.fullmatch(pattern, text):
        raise LabProblem(f"{text!r} is not {what}")
