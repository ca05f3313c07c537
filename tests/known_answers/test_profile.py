"""The profiler on a program whose shares are known: on the CPU and off it, stripped or not."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop.errors import NodeRefused
from nodrop.hosts.binary import find_node_binary
from nodrop.hosts.node import start_job
from nodrop.protocol.events import ProfiledThread, ProfileOutcome
from tests.disturbed import Spent

PARTS = ("first_part", "second_part", "third_part")
WITHIN = 0.02
"""The promise. At 10,000 samples the binomial error of 60 % is 0.5 %."""
HERTZ = 10_000
PIECES = 120_000
"""Of about a microsecond each, each done 8.5 times on average."""
NOT_HERE = "perf_event_open is not permitted here"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With symbols and frame pointers."""
    path = tmp_path_factory.mktemp("known") / "known-shares"
    source = Path(__file__).with_name("known_shares.c")
    flags = ["-O0", "-fno-omit-frame-pointer", "-pthread"]
    subprocess.run(["cc", *flags, "-o", path, source], check=True)
    return path


@pytest.fixture(scope="module")
def stripped(program: Path) -> Path:
    path = program.with_name("known-shares-stripped")
    subprocess.run(["strip", "--strip-all", "-o", path, program], check=True)
    return path


@contextmanager
def waiting(program: Path, words: Sequence[object]) -> Iterator[subprocess.Popen[bytes]]:
    """All its threads are there, and begin when its stdin gets a line."""
    child = subprocess.Popen(
        [program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def begin(child: subprocess.Popen[bytes]) -> bytes:
    """What it says when it is done."""
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    return child.stdout.readline()


def profile(program: Path, *words: object) -> tuple[ProfileOutcome, list[float]]:
    """Of all it does; and the shares of time by its own clock."""
    argv = [str(find_node_binary()), "profile", "--controlled"]
    with waiting(program, words) as child:
        spec = {"job": "profile", "pids": [child.pid], "hertz": HERTZ}
        try:
            job = start_job(argv, spec, env=os.environ, where="here", timeout_s=30)
        except NodeRefused as refused:
            if refused.kind == "permission":
                pytest.skip(NOT_HERE)
            raise
        try:
            job.start(at_mono_ns=time.monotonic_ns())
            said = begin(child)
            job.stop()
            found: ProfileOutcome = job.result(timeout_s=30)
        finally:
            job.close()
    spent = [int(word) for word in said.split()]
    return found, [ns / sum(spent) for ns in spent]


def workers(found: ProfileOutcome) -> list[ProfiledThread]:
    pid = found["threads"][0]["pid"]
    return [thread for thread in found["threads"] if thread["tid"] != pid]


def met(found: ProfileOutcome, stack: int) -> set[str]:
    """The functions of the program in a stack, by name or by where they begin."""
    functions = [found["functions"][index] for index in found["stacks"][stack]]
    return {
        f["name"] or f"{f['module']}+{f['begins']:#x}"
        for f in functions
        if f["module"].startswith("known-shares") and (f["name"] or f["begins"])
    }


def shares(weights: Sequence[tuple[set[str], int]]) -> dict[str, float]:
    total = sum(weight for _, weight in weights)
    names = set().union(*(names for names, _ in weights))
    return {n: sum(w for names, w in weights if n in names) / total for n in names}


def running(found: ProfileOutcome) -> dict[str, float]:
    return shares(
        [
            (met(found, r["stack"]), r["samples"])
            for thread in workers(found)
            for r in thread["running"]
        ]
    )


SHARES = [(6, 3, 1), (5, 4, 1), (1, 1, 2)]


@pytest.mark.parametrize("parts", SHARES)
def test_shares_on_the_cpu(program: Path, parts: tuple[int, int, int]) -> None:
    found, _ = profile(program, "run", 2, PIECES // sum(parts) // 2, *parts)
    assert sum(thread["samples"] for thread in workers(found)) > 2000
    assert sum(thread["lost"] for thread in found["threads"]) == 0
    seen = running(found)
    for name, part in zip(PARTS, parts, strict=True):
        assert seen[name] == pytest.approx(part / sum(parts), abs=WITHIN)
    # Frame pointers lead to the caller of all three.
    assert seen["work"] > 1 - WITHIN


@pytest.mark.parametrize("parts", SHARES)
def test_shares_of_a_stripped_program(
    program: Path, stripped: Path, parts: tuple[int, int, int]
) -> None:
    begins = {
        f"{stripped.name}+{int(address, 16):#x}": name
        for address, _, name in map(str.split, symbols(program))
        if name in PARTS
    }
    found, _ = profile(stripped, "run", 1, PIECES // sum(parts), *parts)
    seen = running(found)
    assert {f["name"] for f in found["functions"] if f["module"] == stripped.name} == {None}
    for address, name in begins.items():
        share = parts[PARTS.index(name)] / sum(parts)
        assert seen[address] == pytest.approx(share, abs=WITHIN)


def symbols(program: Path) -> list[str]:
    listed = subprocess.run(
        ["nm", "--defined-only", program], check=True, capture_output=True, text=True
    )
    return listed.stdout.splitlines()


@pytest.mark.parametrize("parts", [(60, 30, 10), (20, 20, 60), (30, 10, 10)])
def test_shares_off_the_cpu(program: Path, parts: tuple[int, int, int]) -> None:
    found, truth = profile(program, "wait", 2, 1000 // sum(parts), *parts)
    if any(missing["what"] == "waits" for missing in found["missing"]):
        pytest.skip(NOT_HERE)
    waited = [(met(found, w["stack"]), w["ns"]) for t in workers(found) for w in t["waiting"]]
    seen = shares([(names, ns) for names, ns in waited if names & set(PARTS)])
    for name, share in zip(PARTS, truth, strict=True):
        assert seen[name] == pytest.approx(share, abs=WITHIN)
    for thread in workers(found):
        assert thread["waiting_ns"] > 0.9 * 1e9
        assert thread["blocked_ns"] > 0.9 * thread["waiting_ns"]


def test_threads_that_run_at_once(program: Path) -> None:
    """Two threads cannot be on a CPU for longer than they had one, nor three at all."""
    before = Spent.now()
    found, _ = profile(program, "run", 2, PIECES // 40, 6, 3, 1)
    stolen_ns = (Spent.now().stolen_s - before.stolen_s) * 1e9
    together = found["concurrency"]
    assert together is not None
    on_cpu_ns = sum(count * ns for count, ns in enumerate(together["ns"]))
    cpu_ns = sum(thread["cpu_ns"] for thread in workers(found))
    wall_ns = found["ended_mono_ns"] - found["began_mono_ns"]
    assert sum(together["ns"]) == pytest.approx(wall_ns, rel=0.001)
    # What the hypervisor took is no CPU time of a thread, but by its switches it was on a CPU.
    unsure_ns = together["unsure_ns"] + stolen_ns + 2e7
    assert on_cpu_ns == pytest.approx(cpu_ns, abs=0.05 * cpu_ns + unsure_ns)
