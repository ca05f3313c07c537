"""Whole runs in a virtual machine: as root, with QEMU and the real Suricata image."""

from __future__ import annotations

import pytest

from nodrop.testbed.images.image_cache import list_images
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.vm import Vm
from tests.e2e.conftest import _patience, _root, real_trace, run
from tests.e2e.test_throttled import quota

__all__ = ["_patience", "_root", "quota", "real_trace", "run"]


@pytest.fixture(scope="session", autouse=True)
def image(real_root: None) -> None:
    images = list_images("suricata")
    if not images:
        pytest.skip("no image of suricata: run `nodrop image build suricata`")
    if problems := Vm({}).problems(images[0].bits(), Limits()):
        pytest.skip(problems[0])
