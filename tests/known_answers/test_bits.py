"""The bits that run are those the run names, down to the last file of the image."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NotReady
from nodrop.measure.plan import Progress
from nodrop.testbed.images.image_cache import list_images
from tests.e2e.conftest import Run

SHORT = "load.speed=60"


@pytest.fixture
def copied(suricata: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The newest image in a cache of this test's own, reached through a link; its root."""
    del suricata
    if not (images := list_images("suricata")):
        pytest.skip("no image of Suricata in the cache")
    to = tmp_path / "cache/nodrop/images/suricata" / images[0].sha256
    to.mkdir(parents=True)
    for name in ("rootfs", "rootfs.tar", "manifest.json"):
        argv = ["cp", "-a", str(images[0].folder / name), str(to)]
        subprocess.run(argv, check=True, timeout=120)
    (link := tmp_path / "linked-cache").symlink_to(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(link))
    return to / "rootfs"


def append_a_byte(root: Path) -> str:
    """Makes a library that the program loads a byte longer; its path in the image."""
    library = max(root.glob("usr/lib/*/libhtp.so.*"))  # the file; the links are shorter
    assert not library.is_symlink()
    with library.open("ab") as file:
        file.write(b"x")
    return str(library.relative_to(root))


def test_a_byte_more_in_a_library(run: Run, copied: Path) -> None:
    """Before the run it is refused; of a run that goes on, what follows is no measurement. Seen:
    each trial of a cache reached through a link was void, "has another sha256"."""

    class Changed(Progress):
        def trial_started(self, trial: Any) -> None:
            if trial.index == 2:
                self.library = append_a_byte(copied)

    progress = Changed()
    first, second = run(SHORT, "measure.repetitions=2", progress=progress).records
    assert first.valid, first.verdict
    assert (second.outcome, second.invalid_reasons) == ("void", ["other_bits"])
    assert progress.library in second.verdict
    with pytest.raises(NotReady, match=f"{Path(progress.library).name} is not what"):
        run(SHORT)
