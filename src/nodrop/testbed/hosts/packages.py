"""The system packages of the programs that nodrop starts, and the one line that installs them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping

from nodrop.testbed.hosts.rights import is_root_of_the_host

DEBIAN: Mapping[str, str] = {
    "ethtool": "ethtool",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "mmdebstrap": "mmdebstrap",
    "newuidmap": "uidmap",
    "suricata": "suricata",
    "sysctl": "procps",
    "tcpreplay": "tcpreplay",
}
"""Program → the package of Debian and Ubuntu that has it."""
ELSEWHERE: Mapping[str, Mapping[str, str | None]] = {
    "dnf": {"ip": "iproute", "newuidmap": "shadow-utils", "sysctl": "procps-ng"},
    "pacman": {"mmdebstrap": None, "newuidmap": "shadow", "suricata": None, "sysctl": "procps-ng"},
}
"""Package manager → packages of another name than Debian's; None: its archives have none."""
INSTALLS = {
    "apt-get": ["apt-get", "install", "--no-install-recommends"],
    "dnf": ["dnf", "install"],
    "pacman": ["pacman", "-S"],
}


def installing(programs: Iterable[str]) -> str | None:
    """Command that installs those programs that this host lacks; None: it has all, or none of
    the three package managers has them."""
    lacking = sorted(program for program in set(programs) if shutil.which(program) is None)
    manager = next((name for name in INSTALLS if shutil.which(name)), None)
    if manager is None:
        return None
    names = [ELSEWHERE.get(manager, {}).get(program, DEBIAN.get(program)) for program in lacking]
    packages = list(dict.fromkeys(name for name in names if name))
    if not packages:
        return None
    sudo = [] if is_root_of_the_host() else ["sudo"]
    return shlex.join([*sudo, *INSTALLS[manager], *packages])
