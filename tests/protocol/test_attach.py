"""The jobs `attach` and `reference-mme` against each other, over loopback: both ends' books."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from nodrop.errors import NodeRefused
from nodrop.testbed.hosts.node import NodeProcess, find_node_binary, start_job
from nodrop.testbed.hosts.sctp import sctp_lacking

DEADLINE_S = 30
Books = dict[str, Any]


def started(spec: Books) -> NodeProcess:
    argv = [str(find_node_binary()), spec["job"], "--controlled"]
    return start_job(argv, spec, env=os.environ, where="here", timeout_s=DEADLINE_S)


@contextmanager
def reference_mme(**faults: object) -> Iterator[NodeProcess]:
    with closing(started({"job": "reference-mme", "listen": "127.0.0.1:0", **faults})) as job:
        job._send({"type": "start"})
        yield job


def offered(*mmes: NodeProcess, **fields: object) -> Books:
    addresses = [mme.ready["listen"] for mme in mmes]
    spec = {"job": "attach", "mme": addresses, "rate": 2000.0, "count": 300, "hold_s": 0.0}
    with closing(started({**spec, **fields})) as job:
        job._send({"type": "start"})
        return dict(job.result(timeout_s=DEADLINE_S))


def ended(mme: NodeProcess) -> Books:
    mme.stop()
    return dict(mme.result(timeout_s=DEADLINE_S))


def test_both_ends_of_two_mmes_count_the_same() -> None:
    with reference_mme() as one, reference_mme(eea=1, eia=3) as two:
        load = offered(one, two)
        both = [ended(one), ended(two)]
    assert (load["started"], load["attached"], load["detached"]) == (300, 300, 300)
    assert not any(load["anomalies"].values())
    assert [mme["attached"] for mme in both] == [150, 150], "UEs go to them in turn"
    for name, count in load["sent"].items():
        # S1 is set up before the load begins, by one request to each.
        assert count == sum(mme["received"][name] for mme in both)
    for name, count in load["received"].items():
        assert count == sum(mme["sent"][name] for mme in both)
    assert [mme["received"]["s1_setup_request"] for mme in both] == [1, 1]
    assert sum(load["accepts"]) == load["attach_us"]["count"] == 300


def test_each_ue_is_in_one_class_whatever_the_mme_does() -> None:
    with reference_mme(bad_mac=0.2, reject=0.2, wrong_id=0.1, drop=0.1, limit=200, seed=7) as mme:
        load = offered(mme, timeout_s=0.5)
        ended(mme)
    classes = load["attached"] + load["timed_out"]
    classes += sum(load["rejected"].values()) + sum(load["aborted"].values())
    assert load["started"] == classes == 300
    assert min(load["attached"], load["timed_out"], load["rejected"]["22"]) > 0
    assert min(load["anomalies"]["mac_failures"], load["anomalies"]["unknown_ue_ids"]) > 0


def test_an_mme_that_dies_takes_its_own_ues_alone() -> None:
    with reference_mme() as one, reference_mme(silent_after=1) as two:
        spec = {"job": "attach", "mme": [one.ready["listen"], two.ready["listen"]]}
        with closing(started({**spec, "rate": 1000.0, "count": 400, "hold_s": 0.0})) as job:
            job._send({"type": "start"})
            ended(two)
            load = job.result(timeout_s=DEADLINE_S)
    assert load["started"] == 400
    assert load["attached"] >= 200, "those of the other"
    assert load["attached"] + sum(load["aborted"].values()) == 400


def test_nobody_listens_and_a_port_that_is_busy_are_one_line_each() -> None:
    with reference_mme() as mme:
        listen = mme.ready["listen"]
        busy = by_hand("reference-mme", "--listen", listen)
        hss = by_hand("stub-hss", "--listen", listen)
    silent = by_hand("attach", "--mme", listen, "--rate=1", "--count=1", "--setup-s=0.1")
    assert (busy.returncode, hss.returncode, silent.returncode) == (2, 2, 3)
    for said in (busy.stderr, hss.stderr):
        assert listen in said and "in use" in said and said.count("\n") == 1
    assert f"no connection to {listen}" in silent.stderr
    assert silent.stderr.count("\n") == 1


def test_over_sctp_both_ends_count_the_same_or_the_kernel_has_none() -> None:
    """Over kernel SCTP as such: vm/test_attaches.py, in a guest that has it."""
    lacks = sctp_lacking()
    busy = by_hand("attach", "--mme", "sctp:127.0.0.1:9", "--rate=1", "--count=1", "--setup-s=0.1")
    assert busy.stderr.count("\n") == 1 and busy.returncode != 0
    assert ("modprobe sctp" in busy.stderr) == bool(lacks), busy.stderr
    listen = {"job": "reference-mme", "listen": "sctp:127.0.0.1:0"}
    if lacks:
        with pytest.raises(NodeRefused) as refused:
            started(listen)
        assert refused.value.kind == "no_sctp"
        return
    with closing(started(listen)) as mme:
        mme.start()
        load = offered(mme)
    assert (load["transport"], load["attached"]) == ("sctp", 300)


def by_hand(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(find_node_binary()), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_the_result_by_hand_is_one_line() -> None:
    with reference_mme() as mme:
        done = by_hand("attach", "--mme", mme.ready["listen"], "--rate=500", "--count=5", "--keep")
    assert json.loads(done.stdout)["peak_sessions"] == 5
