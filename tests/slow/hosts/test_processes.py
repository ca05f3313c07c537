"""A child's use of CPU can be read after its end and before it is reaped."""

from __future__ import annotations

import subprocess
import sys

from nodrop.testbed.hosts.api import HostProcess
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.hosts.processes import cpu_s, ended

BUSY = "import time\nwhile time.process_time() < 0.3: pass\ninput()"


def test_the_cpu_time_of_a_child_that_has_ended() -> None:
    host = LocalHost(name="here", node=find_node_binary(), label="test")
    with host, subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as child:
        assert not ended(child.pid, 0)
        assert child.stdin
        child.stdin.close()
        assert ended(child.pid, 60)
        used_s = cpu_s(HostProcess(host, child.pid))
        assert used_s is not None and 0.29 <= used_s < 3
        assert child.wait() != 0  # it was not reaped before: input() met the end of its file
