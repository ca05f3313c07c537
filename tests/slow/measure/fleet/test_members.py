"""Workers that are there, as dask itself says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.config.experiment import load_experiment
from nodrop_fleet.file import load_fleet
from nodrop_fleet.members import Members
from nodrop_fleet.worker import PAIR, QUIET, Job
from tests.slow.measure.fleet.test_pairs import EXPERIMENT

OFTEN = {"distributed.client.scheduler-info-interval": "1ms"}
"""dask's client asks again by itself, for everything but the workers; as a rule every 2 s."""
LOOKS = 200


# A normal user's tests have a network of their own, which leads nowhere.
@pytest.mark.filterwarnings("ignore:Couldn't detect a suitable IP address:RuntimeWarning")
def test_a_worker_that_is_there_is_seen_at_each_look(tmp_path: Path) -> None:
    import dask  # here, because each worker collects this file
    import distributed

    (tmp_path / "shared.toml").write_text(EXPERIMENT)
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nkind = "netns"\n')
    (tmp_path / "fleet.toml").write_text('name = "f"\npairs = ["a.toml", "b.toml"]\n')
    experiment, source = (
        load_experiment(tmp_path / "shared.toml"),
        load_fleet(tmp_path / "fleet.toml"),
    )
    jobs = {
        name: Job(run="r", pair=name, experiment=experiment, lab=lab)
        for name, lab in source.pairs.items()
    }
    with (
        dask.config.set(OFTEN),
        distributed.LocalCluster(
            n_workers=2,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs=dict(QUIET),
            resources={PAIR: 1},
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        members = Members(client, source.file, jobs)
        members.look()
        first = [one.worker for one in members.each.values()]
        assert all(first)
        for _ in range(LOOKS):
            members.look()
            assert [one.worker for one in members.each.values()] == first
