"""An image that goes away: the message names it, before the run or in the middle of it."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NotReady
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.folders import cache_folder
from nodrop.testbed.images.image_cache import Image, find_image
from nodrop.testbed.setups.docker_engine import DockerEngine
from tests.depth import depth
from tests.docker.test_containers import ONE
from tests.e2e.conftest import Run

TWICE = ONE.replace("repetitions = 1", "repetitions = 2")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """The newest, in a cache of its own, without its files."""
    shared = find_image("suricata").folder
    folder = tmp_path / "cache/nodrop/images/suricata" / shared.name
    folder.mkdir(parents=True)
    shutil.copy(shared / "manifest.json", folder)
    (folder / "rootfs.tar").symlink_to(shared / "rootfs.tar")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache/nodrop"
    return find_image("suricata")


@pytest.mark.parametrize("kind", ["docker", "bare", depth("oci")])
@pytest.mark.usefixtures("docker")
def test_an_image_without_its_files_is_told_before_anything_is_touched(
    run: Run, kind: str, image: Image
) -> None:
    with pytest.raises(NotReady, match=r"rootfs is gone; run `nodrop image build`"):
        run(f"setup.kind={kind}", text=ONE)


class AfterTheFirst(Progress):
    def __init__(self, lose: Any) -> None:
        self._lose = lose

    def trial_ended(self, trial: Any, record: Any) -> None:
        if trial.index == 1:
            self._lose()


@pytest.mark.parametrize("kind", ["docker", depth("bare"), depth("oci")])
def test_an_image_that_goes_in_the_middle_of_a_run(
    run: Run, kind: str, image: Image, docker: str
) -> None:
    # No hard links: of each, the runs beside this one would read the shared image again.
    files = (image.folder / "rootfs.tar").resolve().with_name("rootfs")
    subprocess.run(["cp", "-a", str(files), str(image.folder)], check=True, timeout=60)

    def lose() -> None:
        shutil.rmtree(image.folder)
        if kind != "docker":
            return
        with closing(DockerEngine(docker)) as engine:
            engine._client.images.remove(f"nodrop:{image.sha256}", force=True)

    outcome = run(f"setup.kind={kind}", text=TWICE, progress=AfterTheFirst(lose))
    whole, lost = outcome.records
    assert outcome.exit_code == 1
    assert whole.valid, whole.verdict
    assert "rootfs is gone; run `nodrop image build`" in lost.error, lost.error
