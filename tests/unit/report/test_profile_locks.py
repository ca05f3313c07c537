"""The table of waits for locks: by who called the C library, of the time of a role."""

from __future__ import annotations

from nodrop.profile.functions import (
    NamedFunctions,
    Profiled,
    RoleProfile,
    Stack,
    TrialProfile,
    group_of,
)
from nodrop.profile.section import locks_table


def stack(*names: str) -> Stack:
    frames = tuple(
        NamedFunctions(module=m, function=f) for m, _, f in (n.partition("!") for n in names)
    )
    return Stack(frames=frames, group=group_of(frames))


LOCKED = ("libc.so.6!pthread_mutex_lock", "[kernel]!futex_wait", "[kernel]!schedule")
WAITING = {
    stack("libc.so.6!start_thread", "s!Loop", "s!FlowGet", *LOCKED): 300,
    stack("libc.so.6!start_thread", "s!Loop", "s!FlowDrop", *LOCKED): 100,
    stack("s!FlowGet", *LOCKED): 50,
    stack("libc.so.6!+0x86100", "[kernel]!futex_wait"): 200,
    stack("s!Loop", "libc.so.6!poll", "[kernel]!schedule"): 350,
}


def cell(waiting: dict[Stack, int]) -> Profiled:
    role = RoleProfile(
        role="worker", threads=2, seen_ns=1000, cpu_ns=0, queued_ns=0, blocked_ns=1000,
        running={}, waiting=waiting, hardware={}, uncounted_ns=0,
    )  # fmt: skip
    trial = TrialProfile(
        roles={"worker": role}, own_cpu_ratio=0.0, lost=0, missing={}, concurrency=(),
        concurrency_error=0.0,
    )  # fmt: skip
    return Profiled(label="all", trials=((0, trial),))


def test_each_call_site_has_its_part_of_the_time() -> None:
    table = locks_table([cell(WAITING)])
    assert table is not None
    rows = [tuple(value.raw for value in row.values) for row in table.rows]
    assert rows == [
        ("all", "worker", "FlowGet", "Loop", 30.0),
        ("all", "worker", "FlowDrop", "Loop", 10.0),
        ("all", "worker", "FlowGet", "", 5.0),
    ]


def test_without_a_caller_there_is_no_table() -> None:
    found = {stack("libc.so.6!+0x86100", "[kernel]!futex_wait"): 200}
    assert locks_table([cell(found)]) is None
