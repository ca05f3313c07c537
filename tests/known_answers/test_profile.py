"""The profiler on a program whose shares are known: on the CPU and off it, stripped or not."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.protocol import ProfiledThread, ProfileOutcome
from nodrop.testbed.hosts.node import find_node_binary, start_job
from tests.depth import depth
from tests.disturbed import Spent

PARTS = ("first_part", "second_part", "third_part")
WITHIN = 0.02
"""The promise. At 10,000 samples the binomial error of 60 % is 0.5 %."""
HERTZ = 10_000
PIECES = 120_000
"""Number of pieces of work of about a microsecond; each is done 8.5 times on average."""
NOT_HERE = "perf_event_open is not permitted here"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with symbols and frame pointers."""
    path = tmp_path_factory.mktemp("known") / "known-shares"
    source = Path(__file__).with_name("known_shares.c")
    flags = ["-O0", "-fno-omit-frame-pointer", "-pthread"]
    subprocess.run(["cc", *flags, "-o", path, source], check=True)
    return path


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program without frame pointers, as those of distributions are."""
    path = tmp_path_factory.mktemp("known") / "known-shares-locks"
    source = Path(__file__).with_name("known_locks.c")
    subprocess.run(
        ["cc", "-O2", "-fomit-frame-pointer", "-pthread", "-o", path, source], check=True
    )
    return path


@pytest.fixture(scope="module")
def stripped(program: Path) -> Path:
    path = program.with_name("known-shares-stripped")
    subprocess.run(["strip", "--strip-all", "-o", path, program], check=True)
    return path


@contextmanager
def waiting(
    program: Path, words: Sequence[object], prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """All its threads are there, and begin when its stdin gets a line."""
    child = subprocess.Popen(
        [*prefix, program, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def begin(child: subprocess.Popen[bytes]) -> bytes:
    """Starts the program's work, and returns its line at the end."""
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    return child.stdout.readline()


def profile(program: Path, *words: object, **spec: Any) -> tuple[ProfileOutcome, list[float]]:
    """Profile of all that the program does, and the shares of time by the program's own clock."""
    try:
        return profile_as((), find_node_binary(), program, *words, **spec)
    except NodeRefused as refused:
        if refused.kind == "permission":
            pytest.skip(NOT_HERE)
        raise


def profile_as(
    prefix: Sequence[str],
    node: Path,
    program: Path,
    *words: object,
    root: Path | None = None,
    **changes: Any,
) -> tuple[ProfileOutcome, list[float]]:
    """Both run with `prefix` in front; the program in a root of its own, if one is given."""
    argv = [*prefix, str(node), "profile", "--controlled"]
    with waiting(program, words, prefix if root is None else ["chroot", str(root)]) as child:
        spec = {"job": "profile", "pids": [child.pid], "hertz": HERTZ, **changes}
        job = start_job(argv, spec, env=os.environ, where="here", timeout_s=30)
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


SHARES = [(6, 3, 1), depth((5, 4, 1)), depth((1, 1, 2))]


@pytest.mark.alone  # shares of time, within 2 points
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


@pytest.mark.alone  # shares of time, within 2 points
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


def test_a_stripped_program_has_the_names_of_a_debug_file_in_its_root(tmp_path: Path) -> None:
    """Found by its build id, as packages of debug symbols put it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the program has a root of its own")
    whole, stripped = tmp_path / "whole", tmp_path / "known-shares-stripped"
    source = Path(__file__).with_name("known_shares.c")
    build_id = "abcdef0123456789"
    flags = ["-O0", "-fno-omit-frame-pointer", "-static", f"-Wl,--build-id=0x{build_id}"]
    subprocess.run(["cc", *flags, "-pthread", "-o", whole, source], check=True)
    subprocess.run(["strip", "--strip-all", "-o", stripped, whole], check=True)

    def names() -> set[str]:
        words = ("run", 1, PIECES // 100, 6, 3, 1)
        found, _ = profile(Path("/") / stripped.name, *words, root=tmp_path)
        return {f["name"] for f in found["functions"] if f["module"] == stripped.name and f["name"]}

    assert not names() & {*PARTS}
    debug = tmp_path / f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
    assert {*PARTS} <= names()
    debug.write_bytes(debug.read_bytes().replace(bytes.fromhex(build_id), bytes(8)))
    assert not names() & {*PARTS}  # of another program


def symbols(program: Path) -> list[str]:
    listed = subprocess.run(
        ["nm", "--defined-only", program], check=True, capture_output=True, text=True
    )
    return listed.stdout.splitlines()


@pytest.mark.alone  # shares of time, within 2 points
@pytest.mark.parametrize("parts", [(60, 30, 10), depth((20, 20, 60)), depth((30, 10, 10))])
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


PLACES = ("first_place", "second_place")


@pytest.mark.alone  # shares of time, within 2 points
@pytest.mark.parametrize(
    ("words", "within"),
    [((50, 2, 8), WITHIN), (("turns", 20_000), 0.1)],
    ids=["2-8", "40,000 in turns"],
)
def test_two_places_that_wait_for_one_lock(
    locks: Path, words: tuple[object, ...], within: float
) -> None:
    """The place is the caller of the library's own functions, which keep no frame pointer. Waits of
    the first are all looked at; of the last, one in some hundred."""
    found, truth = profile(locks, *words, hertz=99)
    if any(missing["what"] == "waits" for missing in found["missing"]):
        pytest.skip(NOT_HERE)
    waited = [(met(found, w["stack"]), w["ns"]) for t in workers(found) for w in t["waiting"]]
    at_lock = [(names, ns) for names, ns in waited if "wait_for_lock" in names]
    seen = shares(at_lock)
    assert seen.keys() == {"waiter", "wait_for_lock", *PLACES}
    # The last has thousands of switches in its first look: copies of all took the room of others.
    switches = sum(thread["voluntary_switches"] or 0 for thread in found["threads"])
    assert sum(thread["lost"] for thread in found["threads"]) < 0.01 * switches
    for name, share in zip(PLACES, truth, strict=True):
        assert seen[name] == pytest.approx(share, abs=within)
    for thread in workers(found):
        assert thread["waiting_ns"] == pytest.approx(
            sum(w["ns"] for w in thread["waiting"]), rel=0.01
        )


@pytest.mark.alone
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
    # A worker's CPU time was last read up to 0.1 s before its end, its switches to the end.
    unread_ns = sum(wall_ns - thread["seen_ns"] for thread in workers(found))
    # What the hypervisor took is no CPU time of a thread, but by its switches it was on a CPU.
    unsure_ns = together["unsure_ns"] + unread_ns + stolen_ns + 2e7
    assert on_cpu_ns == pytest.approx(cpu_ns, abs=0.05 * cpu_ns + unsure_ns)


@pytest.fixture
def of_nobody(program: Path) -> Iterator[tuple[list[str], Path, Path]]:
    """Words that run a program as a normal user, and where that user finds node and program."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it becomes another user")
    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="nodrop-test-", dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        node = Path(shutil.copy(find_node_binary(), folder))
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        yield ["setpriv", *ids], node, Path(shutil.copy(program, folder))


@pytest.mark.usefixtures("real_root")
def test_a_normal_user_has_what_the_kernel_gives_and_the_rest_is_named(
    of_nobody: tuple[list[str], Path, Path],
) -> None:
    level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    if level > 2:  # Debian's and Ubuntu's own levels: nothing for normal users
        with pytest.raises(NodeRefused, match=f"kernel.perf_event_paranoid is {level}") as refused:
            profile_as(*of_nobody, "run", 1, 10, 6, 3, 1)
        assert refused.value.kind == "permission"
        return
    parts = (6, 3, 1)
    found, _ = profile_as(*of_nobody, "run", 2, PIECES // 20, *parts)
    missing = {one["what"]: one["why"] for one in found["missing"]}
    assert ("kernel" in missing) == ("waits" in missing) == (level == 2)
    if level == 2:
        assert "Permission denied" in missing["kernel"]
        assert "kernel.perf_event_paranoid is 2" in missing["kernel"]
    seen = running(found)
    for name, part in zip(PARTS, parts, strict=True):
        assert seen[name] == pytest.approx(part / sum(parts), abs=WITHIN)
    # The times of its waits are shown to the owner of a thread at every level.
    assert found["concurrency"] is not None
    assert all(thread["waiting_ns"] is not None for thread in workers(found))


def pieces_of(rounds: int, parts: tuple[int, int, int]) -> int:
    """Number of pieces that known_shares.c draws."""
    chance, total = 1, 0
    for _ in range(rounds):
        chance = (chance * 1103515245 + 12345) % 2**32
        total += (1 + (chance >> 16) % 16) * sum(parts)
    return total


@pytest.mark.parametrize("threads", [1, 2])
def test_instructions_of_a_known_loop(program: Path, threads: int) -> None:
    """A piece is 3,000 turns of two instructions. The rounds, the kernel's ticks and, beside other
    work, its switches add some (5 % were seen); a virtual CPU loses some (0.1 %)."""
    rounds, parts = 2000, (6, 3, 1)
    found, _ = profile(program, "run", threads, rounds, *parts, hertz=99, hardware=True)
    missing = {one["what"]: one["why"] for one in found["missing"]}
    if any(t["instructions"] is None for t in workers(found)):
        assert "instructions" in missing["hardware"]
        pytest.skip("instructions are not counted on this host")
    expected = pieces_of(rounds, parts) * 3000 * 2
    for thread in workers(found):
        assert 0.98 * expected <= thread["instructions"] <= 1.25 * expected
        if "hardware" not in missing:
            assert thread["cycles"] and thread["cache_misses"] is not None
        assert thread["uncounted_ns"] <= thread["cpu_ns"]
