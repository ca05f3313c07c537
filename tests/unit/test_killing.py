"""Names without a label are leftovers only if they are those of the run that was killed."""

from __future__ import annotations

import pytest

from nodrop.testbed.labs.netns import FIRST_INDEX
from tests.e2e import killing

OURS, ANOTHERS = 4321, 87654


def names(pid: int) -> set[str]:
    """Names with the number of its process that a run makes."""
    index = FIRST_INDEX + pid
    return {f"/sys/class/net/ndlv{index:x}", f"/dev/tap{index}", f"/dev/nodrop-tap-{pid}-7"}


NUMBERLESS = {"/sys/class/net/ndtx0", "/dev/nodrop-else", "/sys/fs/bpf/pinned"}


@pytest.mark.parametrize("pid", [1, OURS, (1 << 22) - 1])
def test_what_bears_the_number_of_another_is_anothers(
    monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    monkeypatch.setattr(killing, "unnamed", lambda: names(pid) | names(ANOTHERS) | NUMBERLESS)
    assert killing.unnamed_of(pid, set()) == names(pid) | NUMBERLESS
    assert killing.unnamed_of(pid, NUMBERLESS) == names(pid), "a host has some of its own"
    assert killing.unnamed_of(ANOTHERS, names(pid)) == names(ANOTHERS) | NUMBERLESS
