"""How long a quota held somebody back, on hosts with either version of control groups, and both."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.hosts.control_groups import throttled_ns

V1 = "33 24 0:29 {within} /sys/fs/cgroup/cpu rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "31 24 0:27 / {point} rw shared:9 - cgroup2 cgroup2 rw\n"
V1_STAT = "nr_periods 9\nnr_throttled 2\nthrottled_time {}\n"
V2_STAT = "usage_usec 700\nnr_throttled 2\nthrottled_usec {}\n"


def host(root: Path, *, mounts: str, own: str, stats: dict[str, str]) -> Path:
    for name, text in ({"proc/self/mountinfo": mounts, "proc/7/cgroup": own} | stats).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def by_group(root: Path, mount: str) -> dict[str, int]:
    found = throttled_ns(7, root)
    return {str(file.parent.relative_to(root / mount)): ns for file, ns in found.items()}


def test_each_group_up_to_the_top_of_version_2(tmp_path: Path) -> None:
    mount = "sys/fs/cgroup"
    stats = {
        f"{mount}/cpu.stat": "usage_usec 900\n",  # the host's top knows no quota
        f"{mount}/a.slice/cpu.stat": V2_STAT.format(5),
        f"{mount}/a.slice/b.scope/cpu.stat": V2_STAT.format(30),
    }
    host(tmp_path, mounts=V2.format(point=f"/{mount}"), own="0::/a.slice/b.scope\n", stats=stats)
    assert by_group(tmp_path, mount) == {"a.slice/b.scope": 30_000, "a.slice": 5_000}


def test_a_hybrid_host_has_quotas_in_version_1(tmp_path: Path) -> None:
    mount, unified = "sys/fs/cgroup/cpu", "sys/fs/cgroup/unified"
    stats = {
        f"{mount}/docker/abc/cpu.stat": V1_STAT.format(77),
        f"{mount}/docker/cpu.stat": V1_STAT.format(0),
        f"{unified}/x/cpu.stat": "usage_usec 3\n",
    }
    mounts = V1.format(within="/") + V2.format(point=f"/{unified}")
    own = "4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/x\n"
    host(tmp_path, mounts=mounts, own=own, stats=stats)
    assert by_group(tmp_path, mount) == {"docker/abc": 77, "docker": 0}


@pytest.mark.parametrize("inner", ["", "/inner"])
def test_a_container_that_sees_its_own_part(tmp_path: Path, inner: str) -> None:
    mount = "sys/fs/cgroup/cpu"
    host(
        tmp_path,
        mounts=V1.format(within="/docker/abc"),
        own=f"4:cpu,cpuacct:/docker/abc{inner}\n",
        stats={f"{mount}/cpu.stat": V1_STAT.format(8)},
    )
    assert by_group(tmp_path, mount) == {".": 8}


def test_a_process_that_is_gone_waits_for_nothing(tmp_path: Path) -> None:
    host(tmp_path, mounts=V2.format(point="/sys/fs/cgroup"), own="0::/\n", stats={})
    (tmp_path / "proc/7/cgroup").unlink()
    assert throttled_ns(7, tmp_path) == {}
