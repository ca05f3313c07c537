"""An MME of the user's: its options, its process, and that nothing of nodrop's ends it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import BadInput
from nodrop.testbed.hosts.api import HostProcess
from nodrop.testbed.hosts.waiting import looks
from nodrop.testbed.suts.external import External, ExternalProcess, found
from nodrop.testing.fakes import FakeHost, FakeWorld

HOST = FakeHost(FakeWorld(), "here")


def external(**options: Any) -> External:
    return External({"kind": "external", "process": "mmed", **options}, base=Path())


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0.5", "sctp:10.0.0.5", "10.0.0.5:0", "10.0.0.5:65536", "mme:36412", "udp:1.2.3.4:5"],
)
def test_an_address_that_makes_no_sense_is_refused_by_name(address: str) -> None:
    with pytest.raises(BadInput) as refused:
        external(address=address)
    assert "sut.address" in str(refused.value) and "sctp:10.0.0.5:36412" in str(refused.value)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_is_found_by_its_number_or_its_only_name(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert found(str(sleeper.pid)) == [sleeper.pid]
    # A program has its name a moment after it was started.
    assert any(sleeper.pid in found("sleep") for _ in looks(5.0))
    assert found("no-such-mme") == []
    missing = external(address="127.0.0.1:36412", process="no-such-mme").problems(None)
    assert any("no process of this host" in problem for problem in missing)


def test_the_users_process_is_watched_and_never_ended(sleeper: subprocess.Popen[bytes]) -> None:
    process = ExternalProcess(HostProcess(HOST, sleeper.pid))
    assert process.poll() is None
    process.signal(9)
    assert process.stop(timeout_s=1) == 0
    assert process.poll() == 0, "it is done with"
    assert sleeper.poll() is None
    again = ExternalProcess(HostProcess(HOST, sleeper.pid))
    os.kill(sleeper.pid, 9)
    sleeper.wait()
    assert again.poll() == 0
    again.stop(timeout_s=1)


def test_it_is_measured_where_it_runs() -> None:
    mme = external(address="sctp:10.0.0.5:36412")
    assert mme.misplaced("bare", mtu=1500, standing=True) == ""
    assert "leave it out" in mme.misplaced("docker", mtu=1500, standing=False)
