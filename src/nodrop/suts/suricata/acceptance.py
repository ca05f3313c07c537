"""What Suricata says of a configuration, asked before anything is touched (`suricata -T`)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from nodrop.errors import LabProblem
from nodrop.hosts.binary import find_node_binary
from nodrop.hosts.local import LocalHost
from nodrop.hosts.seam import AS_OURS, Surroundings
from nodrop.images.bits import Bits
from nodrop.untrusted.folder import read_end

TIMEOUT_S = 20.0
"""It takes 0.1 s without rules, which are not given to it."""
LONGEST_WORDS = 1 << 20
CONFIG = "suricata.yaml"
WORK_INSIDE = "/run/nodrop"
WRITABLE = ("run", "tmp", "var/log", "var/lib/suricata")
"""Of the image, into which Suricata may write: empty folders lie over them."""
_ERROR = re.compile(r"^\[\d+\] Error: (.*?)\s*$", re.MULTILINE)


def refusal(bits: Bits, configuration: Callable[[str], bytes]) -> str | None:
    """Suricata's own words; None if it takes the configuration (made for the work folder, as it
    sees that), or if it cannot be asked."""
    image = bits.kind == "image"
    with TemporaryDirectory(prefix="nodrop-") as folder:
        work = Path(folder) / "work"
        seen = WORK_INSIDE if image else str(work)
        over = [name for name in WRITABLE if (bits.path / name).is_dir()] if image else []
        binds = {Path(folder) / name: f"/{name}" for name in over}
        for place in (work, *binds):
            place.mkdir(parents=True)
        (work / CONFIG).write_bytes(configuration(seen))
        program = "suricata" if image else str(bits.path)
        argv = (program, "-T", "-c", f"{seen}/{CONFIG}", "-l", seen, "--af-packet")
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        try:
            host = LocalHost(name="this host", node=find_node_binary(), label="acceptance")
            of_image = Surroundings(root=bits.path, binds={**binds, work: seen})
            around = of_image if image else AS_OURS
            child = host.spawn(argv, stdout=stdout, stderr=stderr, caps=(), around=around)
        except LabProblem:
            return None
        try:
            status = child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return None
        words = b"".join(read_end(path, bytes_from_end=LONGEST_WORDS) for path in (stdout, stderr))
        said = _ERROR.findall(words.decode(errors="replace"))
    return "; ".join(said) if status and said else None
