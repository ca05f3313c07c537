"""An audit of real ports and sockets in a foreign namespace: what it sees, and that it changes
nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.audit.answer import findings
from nodrop.audit.reading import read_world
from nodrop.audit.world import HASH, Feature

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root and unshare")


def test_an_audit_sees_a_port_in_a_foreign_namespace_and_changes_nothing() -> None:
    script = Path(__file__).with_name("captured_port.py")
    command = ["unshare", "--net", "--mount", sys.executable, str(script)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as there:
        assert there.stdin and there.stdout

        def state() -> str:
            there.stdin.write("\n")
            there.stdin.flush()
            return there.stdout.readline()

        before = state()
        world = read_world()
        after = state()
        there.stdin.close()
    assert before == after and len(before) == 65

    port = next(p for p in world.ports for s in world.listening(p) if s.pid == there.pid)
    assert (port.name, port.mtu, port.driver) == ("drx", 9000, "veth")
    assert port.features["rx-gro"] == Feature(on=True, fixed=False)
    rings = [one for one in world.listening(port) if one.pid == there.pid]
    assert [(s.version, s.blocks, s.retire_ms, s.fanout_id, s.fanout_type, s.filtered)
            for s in rings] == 2 * [(3, 13, 10, 7, HASH, False)]  # fmt: skip
    said = {one.kind.id: one.seen for one in findings(world) if "drx" in one.seen.where}
    assert said["ring-tolerance"].says.startswith("its ring holds 130 ms")
    enter = f"nsenter -t {there.pid} -n "
    assert said["merged-frames"].change == f"{enter}ethtool -K drx gro off"
    assert said["second-listener"].says.startswith("sniffer (pid ")
