"""The options of the reference MME that name what is behind it, and where it runs."""

from pathlib import Path

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.suts.mme import ReferenceMme


def test_stubs_run_beside_an_mme_of_this_host_alone() -> None:
    alone = ReferenceMme({}, base=Path())
    stubs = ReferenceMme({"core": "stubs", "core_cpus": "0"}, base=Path())
    for setup in ("bare", "docker", "vm"):
        assert alone.misplaced(setup, mtu=1500, standing=True) == ""
        assert bool(stubs.misplaced(setup, mtu=1500, standing=False)) == (setup != "bare")
    assert 'sut.core = "stubs"' in stubs.misplaced("docker", mtu=1500, standing=False)


@pytest.mark.parametrize(
    ("options", "words"), [({"core": "mine"}, "sut.core"), ({"core_cpus": "x"}, "sut.core_cpus")]
)
def test_a_core_that_makes_no_sense_is_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        ReferenceMme(options, base=Path())
    assert words in str(refused.value)
