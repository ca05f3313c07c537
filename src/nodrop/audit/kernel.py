"""Questions to the kernel that no file answers: ethtool's, who holds packet sockets, a Suricata's.

Each of them only reads, and none makes the kernel load a module.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nodrop.audit.symmetry import group
from nodrop.audit.world import Socket
from nodrop.errors import TrialFailed
from nodrop.testbed.hosts.control_groups import Looks
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.labs.driver import ioctl
from nodrop.testbed.setups.contained import connect
from nodrop.testbed.suts.suricata.config import ControlSocket

COMMANDS = frozenset({"version", "uptime", "iface-list", "iface-stat", "dump-counters"})
"""Commands that an audit may send to a Suricata: its socket also takes `shutdown`."""
ANSWER_WITHIN_S = 0.2
GROWS_BY_BYTES = 1 << 16
"""Room for what a driver counts more than it said a moment ago: the kernel writes all of it."""
CLONE_NEWNET = 0x40000000
SIOCGIFMTU = 0x8921
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLMSG_ERROR, NLMSG_DONE, NLM_F_DUMP_REQUEST = 2, 3, 0x301
RTM_GETLINK, RTM_GETNSID, NLM_F_REQUEST = 18, 90, 1
LINK_BYTES, LINK_NETNSID = 16, 37
"""struct ifinfomsg; IFLA_LINK_NETNSID."""
NSID_BYTES, NETNSA_NSID, NETNSA_PID = 4, 1, 2
"""struct rtgenmsg, padded."""
MESSAGE = struct.Struct("=IHHII")
"""struct nlmsghdr."""
SHOW = 1 | 4 | 8 | 32
"""INFO, RING_CFG, FANOUT, FILTER of struct packet_diag_req."""
ASKED = struct.Struct("=BBHIIII")
SAID = struct.Struct("=BBHIII")
"""struct packet_diag_msg."""
INFO, RING, FANOUT, UID, FILTER = 0, 2, 4, 5, 7
FANOUT_TYPE_SHIFT = 16
STEP = struct.Struct("=HBBI")
"""struct sock_filter."""
RETURN = 0x06
"""BPF_RET | BPF_K: the packet's first K bytes are taken."""


Found = TypeVar("Found")


class Kernel(Protocol):
    """Answers for the network namespace of a process; None: nodrop's own.

    PermissionError if this user may not enter it.
    """

    def interfaces(self, pid: int | None) -> Mapping[int, str]: ...

    def ethtool(self, pid: int | None, port: str, asked: bytes, more: int) -> bytes | None:
        """The answer to a GET, with `more` bytes behind what was asked; None if there is none."""

    def mtu(self, pid: int | None, port: str) -> int | None: ...

    def peer_space(
        self, pid: int | None, port: str, spaces: Sequence[int | None]
    ) -> Sequence[int | None]:
        """Processes out of `spaces` in whose namespace the other end of a veth is. Several stand
        for one namespace; none: it is in another."""

    def packet_sockets(self, pid: int | None) -> bytes:
        """The dump of packet_diag."""

    def counted(self, pids: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """Inode of each packet socket of these processes → packets taken and dropped since its
        owner last read them, which resets nothing. NodropError if the node does not run."""

    def listeners(
        self, pid: int | None, port: str, kind: int, members: int, mask: int
    ) -> list[socket.socket]:
        """A fanout group of our own at a port (audit/symmetry.py)."""

    def suricata(self, path: Path, commands: Sequence[tuple[str, Mapping[str, str]]]) -> list[Any]:
        """Answers of a command socket; TrialFailed if it gives none in time."""


class Live:
    """The kernel that nodrop runs on."""

    def interfaces(self, pid: int | None) -> Mapping[int, str]:
        return _within(pid, lambda: dict(socket.if_nameindex()))

    def ethtool(self, pid: int | None, port: str, asked: bytes, more: int) -> bytes | None:
        found = _within(pid, lambda: ioctl(port, asked, more=more + GROWS_BY_BYTES))
        return None if found is None else found[: len(asked) + more]

    def mtu(self, pid: int | None, port: str) -> int | None:
        return _within(pid, lambda: _mtu(port))

    def peer_space(
        self, pid: int | None, port: str, spaces: Sequence[int | None]
    ) -> Sequence[int | None]:
        here = _namespace(pid)
        number = _within(pid, lambda: _peer_space(port))
        if number is None:
            return [one for one in spaces if _namespace(one) == here]
        return _within(
            pid, lambda: [one for one in spaces if _space_number(one or os.getpid()) == number]
        )

    def packet_sockets(self, pid: int | None) -> bytes:
        return _within(pid, _dump)

    def counted(self, pids: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        with (
            closing(LocalHost(name="here", node=find_node_binary(), label="audit")) as host,
            closing(Looks(host, only=pids)) as looks,
        ):
            return {
                one["inode"]: (counted["tp_packets"], counted["tp_drops"])
                for one in looks()["sockets"]
                if (counted := one["counted"])
            }

    def listeners(
        self, pid: int | None, port: str, kind: int, members: int, mask: int
    ) -> list[socket.socket]:
        return _within(pid, lambda: group(port, kind, members, mask))

    def suricata(self, path: Path, commands: Sequence[tuple[str, Mapping[str, str]]]) -> list[Any]:
        if not {name for name, _ in commands} <= COMMANDS:
            raise TrialFailed("an audit sends no other command than those that read")
        with ControlSocket(lambda: connect(path, timeout_s=ANSWER_WITHIN_S)) as control:
            return [control.command(name, **more) for name, more in commands]


def _within(pid: int | None, work: Callable[[], Found]) -> Found:
    """In a thread of its own, for a namespace is a thread's."""
    if pid is None:
        return work()
    found: list[Found] = []
    errors: list[OSError] = []

    def entered() -> None:
        try:
            there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(there, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(there)
            found.append(work())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=entered)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def _mtu(port: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        said = fcntl.ioctl(any_socket, SIOCGIFMTU, struct.pack("16si12x", port.encode(), 0))
    return int(struct.unpack("16si12x", said)[1])


def _namespace(pid: int | None) -> int:
    return Path(f"/proc/{pid or 'self'}/ns/net").stat().st_ino


def _peer_space(port: str) -> int | None:
    """Number of the namespace in which a port's other end is, as this one counts them; None: in
    this one."""
    index = socket.if_nametoindex(port)
    said = _route(RTM_GETLINK, struct.pack("=BxHiII", 0, 0, index, 0, 0), LINK_BYTES)
    found = said.get(LINK_NETNSID)
    return None if found is None else int(struct.unpack("=i", found)[0])


def _space_number(pid: int) -> int | None:
    """Number of a process's namespace, as this one counts them; None: it knows it by none."""
    asked = struct.pack("=Bxxx", 0) + struct.pack("=HHI", 8, NETNSA_PID, pid)
    try:
        found = _route(RTM_GETNSID, asked, NSID_BYTES).get(NETNSA_NSID)
    except OSError:
        return None
    number = -1 if found is None else int(struct.unpack("=i", found)[0])
    return None if number < 0 else number


def _route(kind: int, body: bytes, head_bytes: int) -> dict[int, bytes]:
    """Attributes of the answer of rtnetlink."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
        asking.settimeout(ANSWER_WITHIN_S)
        asking.send(MESSAGE.pack(MESSAGE.size + len(body), kind, NLM_F_REQUEST, 1, 0) + body)
        for answer, said in _messages(asking.recv(1 << 18)):
            if answer == NLMSG_ERROR:
                raise OSError(-struct.unpack_from("=i", said)[0], "rtnetlink")
            return dict(_attributes(said[head_bytes:]))
    return {}


def _dump() -> bytes:
    parts = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(ANSWER_WITHIN_S)
        body = ASKED.pack(socket.AF_PACKET, 0, 0, 0, SHOW, 0, 0)
        head = (MESSAGE.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_DUMP_REQUEST, 1, 0)
        asking.send(MESSAGE.pack(*head) + body)
        while True:
            part = asking.recv(1 << 18)
            parts.append(part)
            if any(kind in (NLMSG_DONE, NLMSG_ERROR) for kind, _ in _messages(part)):
                return b"".join(parts)


def parse_sockets(dump: bytes, *, may_see_filters: bool) -> list[Socket]:
    """Sockets of a dump of packet_diag. For a normal user it says of no socket whether it has a
    filter."""
    return [
        _socket(body, may_see_filters=may_see_filters)
        for kind, body in _messages(dump)
        if kind == SOCK_DIAG_BY_FAMILY
    ]


def _socket(body: bytes, *, may_see_filters: bool) -> Socket:
    _, _, protocol, inode, _, _ = SAID.unpack_from(body)
    said = dict(_attributes(body[SAID.size :]))
    index, version = struct.unpack_from("=II", said.get(INFO, bytes(8)))
    more: dict[str, int] = {}
    if RING in said:
        sizes = struct.unpack_from("=IIIII", said[RING])
        names = ("block_bytes", "blocks", "frame_bytes", "frames", "retire_ms")
        more |= dict(zip(names, sizes, strict=True))
    if FANOUT in said:
        group = struct.unpack_from("=I", said[FANOUT])[0]
        more |= {"fanout_id": group & 0xFFFF, "fanout_type": group >> FANOUT_TYPE_SHIFT & 0xFF}
    if UID in said:
        more["uid"] = struct.unpack_from("=I", said[UID])[0]
    return Socket(
        inode=inode,
        protocol=protocol,
        index=index,
        version=version + 1,  # the kernel's enum counts TPACKET_V1 as 0
        filtered=_leaves_out(said.get(FILTER, b"")) if may_see_filters else None,
        asked=True,
        **more,  # type: ignore[arg-type]
    )


def _leaves_out(steps: bytes) -> bool:
    """Whether a classic filter takes only some packets. That of a tcpdump without an expression is
    one step that takes all."""
    if not steps:
        return False
    code, _, _, taken_bytes = STEP.unpack_from(steps)
    return bool(code != RETURN or taken_bytes == 0)


def _messages(dump: bytes) -> Iterator[tuple[int, bytes]]:
    while len(dump) >= MESSAGE.size:
        length, kind, _, _, _ = MESSAGE.unpack_from(dump)
        if length < MESSAGE.size:
            return
        yield kind, dump[MESSAGE.size : length]
        dump = dump[length + 3 & ~3 :]


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        if length < 4:
            return
        yield kind, body[4:length]
        body = body[length + 3 & ~3 :]


# --- structs of ethtool -------------------------------------------------------------------------

GDRVINFO, GCOALESCE, GRINGPARAM, GPAUSEPARAM, GSTRINGS = 0x03, 0x0E, 0x10, 0x12, 0x1B
GSTATS, GSSET_INFO, GFEATURES, GCHANNELS = 0x1D, 0x37, 0x3A, 0x3C
STATISTICS, FEATURES = 1, 4
"""Sets of strings: ETH_SS_STATS, ETH_SS_FEATURES."""
NAME_BYTES = 32
Ask = Callable[[bytes, int], bytes | None]
"""Command and bytes more → the answer."""


def numbers(ask: Ask, command: int, count: int) -> tuple[int, ...] | None:
    """Numbers of u32 behind the command."""
    said = ask(struct.pack("=I", command), 4 * count)
    return None if said is None else struct.unpack_from(f"={count}I", said, 4)


def driver(ask: Ask) -> tuple[str, str] | None:
    """Driver and firmware."""
    said = ask(struct.pack("=I", GDRVINFO), 192)
    return None if said is None else (_word(said[4:36]), _word(said[68:100]))


def strings(ask: Ask, group: int) -> list[str]:
    said = ask(struct.pack("=IIQ", GSSET_INFO, 0, 1 << group), 4)
    if said is None or not struct.unpack_from("=Q", said, 8)[0]:
        return []
    count = struct.unpack_from("=I", said, 16)[0]
    named = ask(struct.pack("=III", GSTRINGS, group, count), NAME_BYTES * count)
    if named is None:
        return []
    places = range(12, 12 + NAME_BYTES * count, NAME_BYTES)
    return [_word(named[place : place + NAME_BYTES]) for place in places]


def statistics(ask: Ask) -> dict[str, int]:
    """`ethtool -S`; a name that stands there for each queue is added up."""
    names, found = strings(ask, STATISTICS), dict[str, int]()
    said = ask(struct.pack("=II", GSTATS, len(names)), 8 * len(names)) if names else None
    if said is not None:
        for name, value in zip(names, struct.unpack_from(f"={len(names)}Q", said, 8), strict=True):
            found[name.strip()] = found.get(name.strip(), 0) + value
    return found


def features(ask: Ask) -> dict[str, tuple[bool, bool]]:
    """Name → on, fixed."""
    names, found = strings(ask, FEATURES), dict[str, tuple[bool, bool]]()
    blocks = (len(names) + 31) // 32
    said = ask(struct.pack("=II", GFEATURES, blocks), 16 * blocks) if names else None
    if said is None:
        return found
    for number, name in enumerate(names):
        place, bit = divmod(number, 32)
        available, _, active, never = struct.unpack_from("=4I", said, 8 + 16 * place)
        if name:
            fixed = not available >> bit & 1 or bool(never >> bit & 1)
            found[name] = (bool(active >> bit & 1), fixed)
    return found


def _word(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")
