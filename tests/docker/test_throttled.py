"""The quota of a container's own: what `docker update --cpus` does to one that runs."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from nodrop.measure.controllers.blocks import TrialInput
from nodrop.measure.plan import Progress
from nodrop.testbed.setups.docker_engine import DockerEngine
from tests.depth import depth
from tests.docker.test_containers import containers
from tests.e2e.conftest import Run, closes, only
from tests.e2e.faults import label
from tests.e2e.test_throttled import TEXT, throttled_s, was_throttled


class Updated(Progress):
    """The work of `docker update --cpus`, before the first packet and after the last."""

    def __init__(self, url: str) -> None:
        self._url = url

    def trial_started(self, trial: TrialInput) -> None:
        pass

    def phase(self, name: str) -> None:
        if name == "offer":
            self._update(0.02)
        if name == "drain":
            self._update(1)

    def _update(self, cpus: float) -> None:
        (container,) = containers(self._url, label())
        with closing(DockerEngine(self._url)) as engine:
            api: Any = engine._client.api
            # The SDK's own call has no word for `--cpus`.
            address = api._url("/containers/{0}/update", container)
            api._raise_for_status(api._post_json(address, data={"NanoCpus": int(cpus * 1e9)}))


@pytest.mark.parametrize("kind", ["docker", depth("docker-macvtap")])
def test_a_containers_own_quota_is_the_cause(run: Run, docker: str, kind: str) -> None:
    outcome = run(f"setup.kind={kind}", "sut.ring_size=64", text=TEXT, progress=Updated(docker))
    record, waited_s = only(outcome), throttled_s(outcome)
    assert record.valid, record.verdict
    assert closes(record)
    assert record.packets.loss_place == "socket ring"
    assert waited_s > 0.2
    assert was_throttled(waited_s) in record.packets.loss_cause, record.verdict
    assert "cpu.max, cpu.cfs_quota_us" in record.packets.knob
