"""The port of our own ssh session: found by the connection of an ancestor, down to real ports."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nodrop.tune.session_ports import session_ports

SHOWN = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]},
        {"ifname": "bond0", "addr_info": [{"local": "10.0.0.7"}, {"local": "fe80::7"}]},
        {"ifname": "eth9", "addr_info": [{"local": "10.9.9.9"}]},
        {"ifname": "dtap", "addr_info": []},
    ]
)
TCP = "  sl  local_address rem_address   st tx_queue rx_queue …\n"


def a_host(root: Path, *, local: str, state: str = "01", table: str = "tcp") -> Path:
    """Our parent's parent, 77, is an sshd with the connection 555."""
    ours, sshd = root / f"proc/{os.getppid()}", root / "proc/77"
    for folder, parent in ((ours, 77), (sshd, 1)):
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_text(f"1 (a (b) c) S {parent} 1 1")
    (sshd / "fd/4").symlink_to("socket:[555]")
    net = root / "proc/self/net"
    net.mkdir(parents=True)
    row = (
        f"   0: {local}:0016 0100000A:C350 {state} 00000000:00000000 00:00000000 00000000 0 0 555\n"
    )
    (net / table).write_text(TCP + row)
    for port in ("bond0/lower_eth0", "bond0/lower_eth1", "eth0/x", "eth1/x", "eth9/x"):
        (root / "sys/class/net" / port).mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("local", "table", "state", "found"),
    [
        ("0700000A", "tcp", "01", {"bond0", "eth0", "eth1"}),
        ("0909090A", "tcp", "01", {"eth9"}),
        ("0000000000000000FFFF00000909090A", "tcp6", "01", {"eth9"}),
        ("000080FE000000000000000007000000", "tcp6", "01", {"bond0", "eth0", "eth1"}),
        ("0700000A", "tcp", "0A", set()),
    ],
)
def test_it_is_found_by_the_connection_of_an_ancestor(
    tmp_path: Path, local: str, table: str, state: str, found: set[str]
) -> None:
    root = a_host(tmp_path, local=local, state=state, table=table)
    assert session_ports(root, environment={}, addresses_of=lambda: SHOWN) == found


@pytest.mark.parametrize(("said", "found"), [("10.9.9.9", {"eth9"}), ("10.1.1.1", set())])
def test_it_is_found_by_what_sshd_left_in_the_environment(
    tmp_path: Path, said: str, found: set[str]
) -> None:
    root = a_host(tmp_path, local="00000000", state="0A")
    environment = {"SSH_CONNECTION": f"10.0.0.1 50000 {said} 22"}
    assert session_ports(root, environment=environment, addresses_of=lambda: SHOWN) == found
