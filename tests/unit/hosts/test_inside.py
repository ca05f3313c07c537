"""What the kernel's files say of a process's threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.hosts.inside import cpu_ns_asleep, look


def task(proc: Path, number: int, state: str, ran_ns: int) -> None:
    folder = proc / "7/task" / str(number)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{number} (W#01) R) {state} 1 7 7 0 -1\n")
    (folder / "schedstat").write_text(f"{ran_ns} 900 3\n")


def test_what_sleeping_threads_have_run_is_added(tmp_path: Path) -> None:
    task(tmp_path, 7, "S", 100)
    task(tmp_path, 8, "S", 23)
    assert cpu_ns_asleep(7, proc=tmp_path) == 123


@pytest.mark.parametrize("state", ["R", "D", "T", "Z"])
def test_a_thread_that_runs_or_would_is_not_asleep(tmp_path: Path, state: str) -> None:
    """R is also a thread that waits for a CPU; D waits for a disk, and goes on by itself."""
    task(tmp_path, 7, "S", 100)
    task(tmp_path, 8, state, 23)
    assert cpu_ns_asleep(7, proc=tmp_path) is None


@pytest.mark.parametrize(("flags", "refuses"), [(0x404140, True), (0x404144, False)])
def test_what_a_dying_process_refuses_is_its_end(
    flags: int, refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen as a normal user: /proc/PID/fd is root's once the memory is gone."""
    task(tmp_path, 7, "S", 100)
    (tmp_path / "7/stat").write_text(f"7 (W#01) R) R 1 7 7 0 -1 {flags} 0\n")

    def denied(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("nodrop.hosts.inside.os.listdir", denied)
    if refuses:
        with pytest.raises(PermissionError):
            look(7, proc=tmp_path)
    else:
        assert look(7, proc=tmp_path) is None
