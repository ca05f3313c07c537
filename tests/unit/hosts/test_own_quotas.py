"""CPU quotas around this process, of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.ledger.sender import Quota, rise
from nodrop.testbed.hosts.control_groups import own_quotas, sees_groups

V1 = "33 24 0:29 {within} /sys/fs/cgroup/cpu rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "31 24 0:27 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
HYBRID = "31 24 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"


def host(root: Path, mounts: str, own: str, files: dict[str, str]) -> Path:
    given = {"proc/self/mountinfo": mounts, "proc/self/cgroup": own, **files}
    for name, text in given.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def v1(folder: str, quota: int, stat: str, period: int = 100_000) -> dict[str, str]:
    return {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": f"{period}\n",
        f"{folder}/cpu.stat": stat,
    }


def test_a_service_of_version_2_and_the_slice_above_it(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    root = host(
        tmp_path,
        V2,
        "0::/system.slice/lab.service\n",
        {
            f"{top}/cpu.stat": "usage_usec 900\n",  # the host's top has no cpu.max
            f"{top}/system.slice/cpu.max": "max 100000\n",
            f"{top}/system.slice/cpu.stat": "nr_periods 0\n",
            f"{top}/system.slice/lab.service/cpu.max": "150000 100000\n",
            f"{top}/system.slice/lab.service/cpu.stat": (
                "usage_usec 5\nnr_periods 465\nnr_throttled 453\nthrottled_usec 2500000\n"
            ),
        },
    )
    assert own_quotas(root) == (
        Quota(
            group="/sys/fs/cgroup/system.slice/lab.service",
            cpus=1.5,
            periods=465,
            throttled_periods=453,
            throttled_s=2.5,
        ),
    )


def test_a_pod_of_version_1_that_sees_its_own_part(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        V1.format(within="/kubepods/pod1") + HYBRID,
        "4:cpu,cpuacct:/kubepods/pod1/c\n0::/\n",
        {
            **v1("sys/fs/cgroup/cpu", 70_000, "nr_periods 9\nnr_throttled 0\nthrottled_time 0\n"),
            **v1(
                "sys/fs/cgroup/cpu/c",
                10_000,
                "nr_periods 30\nnr_throttled 11\nthrottled_time 44000000\n",
                period=20_000,
            ),
        },
    )
    assert [(q.cpus, q.throttled_periods, q.throttled_s) for q in own_quotas(root)] == [
        (0.5, 11, 0.044),
        (0.7, 0, 0.0),
    ]


@pytest.mark.parametrize(
    ("mounts", "own", "files"),
    [
        (V1.format(within="/"), "4:cpu,cpuacct:/x\n", v1("sys/fs/cgroup/cpu/x", -1, "")),
        (V2, "0::/x\n", {"sys/fs/cgroup/x/cpu.max": "max 100000\n"}),
        (V2, "0::/x\n", {}),
    ],
)
def test_no_quota(tmp_path: Path, mounts: str, own: str, files: dict[str, str]) -> None:
    assert own_quotas(host(tmp_path, mounts, own, files)) == ()


def test_a_host_without_proc_is_not_known(tmp_path: Path) -> None:
    assert own_quotas(tmp_path) == ()


def quota(group: str, periods: int, throttled: int, seconds: float) -> Quota:
    return Quota(
        group=group, cpus=0.4, periods=periods, throttled_periods=throttled, throttled_s=seconds
    )


def test_the_group_that_held_longest_between_two_looks() -> None:
    before = [quota("/a", 100, 90, 9.0), quota("/b", 100, 0, 0.0)]
    now = [quota("/a", 120, 95, 9.1), quota("/b", 120, 17, 1.25), quota("/new", 500, 400, 80.0)]
    found = rise(before, now)
    assert found == quota("/b", 20, 17, 1.25)
    assert found.throttled_words == "throttled in 17 of 20 periods, 1.25 s in all"
    assert rise(before, [quota("/a", 140, 90, 9.0)]) is None


NO_GROUPS = "31 24 0:27 / /sys rw - sysfs mendr rw\n"
"""Mounts within `ip netns exec`, which hides the control groups of /sys."""


@pytest.mark.parametrize(
    ("seer", "parent", "mounts", "own", "group"),
    [
        ("77", "77", V2, "0::/ids\n", "/sys/fs/cgroup/ids"),
        ("1", "1", V1.format(within="/"), "4:cpu,cpuacct:/ids\n", "/sys/fs/cgroup/cpu/ids"),
        ("90", "0", V2, "0::/ids\n", "/sys/fs/cgroup/ids"),
    ],
)
def test_quotas_are_found_where_another_process_sees_the_groups(
    tmp_path: Path, seer: str, parent: str, mounts: str, own: str, group: str
) -> None:
    held = "nr_periods 30\nnr_throttled 11\nthrottled_time 44000000\n"
    if mounts == V2:
        files = {"cpu.max": "20000 100000\n", "cpu.stat": held.replace("time", "usec")}
    else:
        files = {
            "cpu.cfs_quota_us": "20000\n",
            "cpu.cfs_period_us": "100000\n",
            "cpu.stat": held,
        }
    there = f"proc/{seer}/root{group}"
    root = host(
        tmp_path,
        NO_GROUPS,
        own,
        {
            "proc/self/stat": f"80 (nodrop) S {parent} 80\n",
            f"proc/{parent}/stat": f"{parent} (sh ) x) S 0 1\n",
            f"proc/{seer}/mountinfo": mounts,
            "proc/500/cgroup": own,
            **{f"{there}/{name}": text for name, text in files.items()},
        },
    )
    (quota,) = own_quotas(root, "500")
    assert (quota.group, quota.cpus, quota.throttled_periods) == (group, 0.2, 11)


@pytest.mark.parametrize("other", [NO_GROUPS, ""])
def test_groups_that_nobody_sees_are_not_known(tmp_path: Path, other: str) -> None:
    root = host(tmp_path, NO_GROUPS, "0::/\n", {"proc/1/mountinfo": other})
    assert sees_groups(root) is None and own_quotas(root, "500") == ()
