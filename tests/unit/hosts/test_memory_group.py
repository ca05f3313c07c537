"""Finding the memory controller on hosts of every kind; removing a group."""

import errno
from pathlib import Path, PosixPath

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.hosts.control_groups import V1, V2, _settings, memory_controller, remove_group

V1_MOUNT = (
    "33 24 0:29 {within} /sys/fs/cgroup/memory rw,nosuid shared:15 - cgroup cgroup rw,memory\n"
)
V2_MOUNT = "31 24 0:27 / {point} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = "34 24 0:30 / /sys/fs/cgroup/cpu rw shared:16 - cgroup cgroup rw,cpu,cpuacct\n"


def host(root: Path, *, mounts: str, own: str, folder: str, handed_on: str | None = None) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(OTHER + mounts)
    (root / "proc/self/cgroup").write_text(own)
    (root / folder).mkdir(parents=True)
    if handed_on is not None:
        (root / folder / "cgroup.subtree_control").write_text(handed_on)
    return root


def test_version_1_below_our_own_group(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        mounts=V1_MOUNT.format(within="/"),
        own="5:cpu,cpuacct:/x\n4:memory:/user/me\n0::/\n",
        folder="sys/fs/cgroup/memory/user/me",
    )
    assert memory_controller(root) == (root / "sys/fs/cgroup/memory/user/me", V1)


def test_version_1_in_a_container_that_sees_its_own_part(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        mounts=V1_MOUNT.format(within="/docker/abc"),
        own="4:memory:/docker/abc\n",
        folder="sys/fs/cgroup/memory",
    )
    assert memory_controller(root) == (root / "sys/fs/cgroup/memory", V1)


def test_version_2_below_the_top(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        mounts=V2_MOUNT.format(point="/sys/fs/cgroup"),
        own="0::/user.slice/session-1.scope\n",
        folder="sys/fs/cgroup",
        handed_on="cpuset cpu io memory pids\n",
    )
    assert memory_controller(root) == (root / "sys/fs/cgroup", V2)


def test_a_hybrid_host_has_it_in_version_1(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        mounts=V2_MOUNT.format(point="/sys/fs/cgroup/unified") + V1_MOUNT.format(within="/"),
        own="4:memory:/\n0::/\n",
        folder="sys/fs/cgroup/memory",
    )
    assert memory_controller(root) == (root / "sys/fs/cgroup/memory", V1)


def test_swap_is_forbidden_unless_it_is_said_how_readily() -> None:
    assert _settings(V1, 9, None) == {
        "memory.limit_in_bytes": 9,
        "memory.memsw.limit_in_bytes": 9,
    }
    assert _settings(V2, 9, None) == {"memory.max": 9, "memory.swap.max": 0}
    assert _settings(V1, 9, 5) == {"memory.limit_in_bytes": 9, "memory.swappiness": 5}
    assert _settings(V1, None, 0) == {"memory.swappiness": 0}


def test_no_controller_is_said(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        mounts=V2_MOUNT.format(point="/sys/fs/cgroup"),
        own="0::/\n",
        folder="sys/fs/cgroup",
        handed_on="cpu\n",
    )
    with pytest.raises(LabProblem, match="no control groups with a memory controller"):
        memory_controller(root)


class Ending(PosixPath):
    """A group that still has a process which ends."""

    refusals = 0

    def rmdir(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EBUSY, "Device or resource busy")
        super().rmdir()


def test_a_group_goes_once_its_processes_have_ended(tmp_path: Path) -> None:
    """Seen: `nodrop undo` right after kill -9: a dying Suricata held the group, and was listed
    nowhere."""
    group = Ending(tmp_path / "nodrop-l-sut")
    group.mkdir()
    group.refusals = 2
    remove_group(group)
    assert not group.exists()
    remove_group(group)


def test_a_group_that_is_in_use_stays(tmp_path: Path) -> None:
    (tmp_path / "group" / "child").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        remove_group(tmp_path / "group", within_s=0)
