"""What a child used can be read after its end and before it is reaped."""

from __future__ import annotations

import subprocess
import sys

from nodrop.hosts.processes import ended, process_cpu_s

BUSY = "import time\nwhile time.process_time() < 0.3: pass\ninput()"


def test_the_cpu_time_of_a_child_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as child:
        assert not ended(child.pid, 0)
        assert child.stdin
        child.stdin.close()
        assert ended(child.pid, 60)
        assert 0.29 <= process_cpu_s(child.pid) < 3
        assert child.wait() != 0  # it was not reaped before: input() met the end of its file
