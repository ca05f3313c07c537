"""Shares of functions and what they are for, from what a profiler said."""

from __future__ import annotations

from typing import Any

import pytest

from nodrop.profile.functions import OTHER, UNNAMED, NamedFunctions, group_of, groups, trial_profile


def said(**changes: Any) -> dict[str, Any]:
    """Two workers and a thread without a role; stacks `main > Decode` and `main > futex`."""

    def thread(role: str | None, running: dict[int, int], waiting: dict[int, int]) -> Any:
        return {
            "role": role,
            "lost": 1,
            "seen_ns": 1000,
            "cpu_ns": 600,
            "queued_ns": 100,
            "blocked_ns": 300,
            "running": [{"stack": s, "samples": n} for s, n in running.items()],
            "waiting": [{"stack": s, "ns": n, "times": 1} for s, n in waiting.items()],
        }

    names = [("suricata", "main"), ("suricata", "DecodeIPV4"), ("[kernel]", "futex_wait")]
    return {
        "began_mono_ns": 0,
        "ended_mono_ns": 1000,
        "own_cpu_ns": 20,
        "missing": [{"what": "hardware", "why": "none"}],
        "functions": [
            *({"module": m, "name": n, "begins": None} for m, n in names),
            {"module": "stripped", "name": None, "begins": 4096},
        ],
        "stacks": [[0, 1], [0, 2], [3], []],
        "threads": [
            thread("worker", {0: 60, 1: 10}, {1: 500}),
            thread("worker", {0: 20, 2: 10}, {}),
            thread(None, {3: 5}, {}),
        ],
        "concurrency": {"ns": [100, 700, 200], "unsure_ns": 50},
        **changes,
    }


def test_threads_of_a_role_are_one() -> None:
    found = trial_profile(said())
    worker = found.roles["worker"]
    assert (worker.threads, worker.seen_ns, worker.cpu_ns) == (2, 2000, 1200)
    decode = NamedFunctions(module="suricata", function="DecodeIPV4")
    stripped = NamedFunctions(module="stripped", function="+0x1000")
    assert worker.shares()[decode] == pytest.approx(0.8)
    assert worker.shares()[stripped] == pytest.approx(0.1)
    assert worker.group_shares() == pytest.approx(
        {"decode": 0.8, "locks and conditions": 0.1, UNNAMED: 0.1}
    )
    assert worker.group_shares(waiting=True) == {"locks and conditions": 1.0}
    assert found.roles[OTHER].shares() == {}, "a stack without frames is of no function"


def test_the_rest_is_as_said() -> None:
    found = trial_profile(said())
    assert found.own_cpu_ratio == pytest.approx(0.02)
    assert (found.lost, found.missing) == (3, {"hardware": "none"})
    assert found.concurrency == pytest.approx((0.1, 0.7, 0.2))
    assert found.concurrency_error == pytest.approx(0.05)
    assert trial_profile(said(concurrency=None)).concurrency == ()


@pytest.mark.parametrize("changes", [{"stacks": [[9]]}, {"threads": [{}]}, {"functions": None}])
def test_what_is_damaged_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, IndexError)):
        trial_profile(said(**changes))


@pytest.mark.parametrize(
    ("stack", "group"),
    [
        ("suricata:StreamTcp libc.so.6:memcpy", "memory"),
        ("suricata:StreamTcp suricata:own", "stream"),
        ("suricata:FlowGet libc.so.6:pthread_mutex_lock", "locks and conditions"),
        ("libc.so.6:poll [kernel]:do_sys_poll [kernel]:schedule", "poll"),
        ("suricata:ReceiveAFPLoop [kernel]:packet_poll", "capture"),
        ("libhs.so.5:+0x1000", "detect"),
        ("suricata:OutputJsonLog libc.so.6:write [kernel]:ksys_write", "output"),
        ("suricata:FlowGetFlowFromHash", "flow table"),
        ("suricata:DecodeIPV4 [kernel]:asm_sysvec_apic_timer_interrupt", "interrupts"),
        ("libc.so.6:poll [kernel]:schedule [kernel]:finish_task_switch.isra.0", "switching"),
        ("suricata:StatsIncr", "threads and counters"),
        ("suricata:PacketPoolGetPacket", "memory"),
        ("any:+0x10 [kernel]:__seccomp_filter", "system calls"),
        ("suricata:+0x292930 [kernel]:schedule", UNNAMED),
        ("suricata:DetectRun suricata:+0x292930", "detect"),
        ("any:thing", OTHER),
    ],
)
def test_a_stack_belongs_to_its_innermost_known_function(stack: str, group: str) -> None:
    frames = [
        NamedFunctions(module=m, function=f)
        for m, _, f in (s.partition(":") for s in stack.split())
    ]
    assert group_of(frames) == group


def test_each_group_of_the_file_has_patterns() -> None:
    names = [name for name, patterns in groups() if patterns]
    assert len(names) == len(set(names)) == 13
    assert not {OTHER, UNNAMED} & {*names}


def counted(*threads: dict[str, int | None]) -> dict[str, float]:
    """The rates of one role whose threads counted this."""
    found = said()
    of = [{**found["threads"][0], **thread} for thread in threads]
    return trial_profile({**found, "threads": of}).roles["worker"].hardware_rates()


def test_rates_of_the_cpus_counters_are_of_all_threads() -> None:
    one: dict[str, int | None] = {"cycles": 1000, "instructions": 3000, "cache_misses": 6}
    two: dict[str, int | None] = {"cycles": 2000, "instructions": 3000, "cache_misses": 0}
    assert counted(one, two) == pytest.approx({"ipc": 2.0, "misses": 1.0})
    assert counted(one, {**two, "cycles": None}) == pytest.approx({"misses": 1.0})
    assert counted(one, {**two, "cache_misses": None}) == pytest.approx({"ipc": 2.0})
    assert counted({**one, "cycles": 0, "instructions": 0}) == {}
    assert counted({}) == {}, "an older record, or not asked for"
