"""Attaches to an MME in a guest, and over the kernel's SCTP there: this host's may have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.measure.manager import run_experiment
from nodrop.measure.plan import Progress
from nodrop.testbed.hosts.guest import GuestHost
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.hosts.node import find_node_binary
from nodrop.testbed.images.guest_assets import make_assets
from nodrop.testbed.setups import qemu
from nodrop.testing.fakes import FakeJournal, FakeWorld

pytestmark = pytest.mark.timeout(240)
COUNT, RATE = 2000, 400
BOOT_S, OFFER_S = 60, 50


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[GuestHost]:
    """A machine that stays in its initramfs: the node and the kernel's modules."""
    machine = qemu.Machine(
        assets=make_assets(None),
        accelerator="tcg",
        vcpus=2,
        memory_bytes=512 << 20,
        cpus=None,
        ring_size=256,
    )
    here = LocalHost(name="here", node=find_node_binary(), label="sctp")
    journal = FakeJournal(FakeWorld())
    running = qemu.boot(machine, None, on=here, work=tmp_path, journal=journal, timeout_s=BOOT_S)
    yield running.host
    running.close()


def attached(guest: GuestHost, **faults: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The books of the load, and those of the MME."""
    listen = {"job": "reference-mme", "listen": "sctp:127.0.0.1:0", **faults}
    with closing(guest.job(listen)) as mme:
        mme.start()
        spec = {"job": "attach", "mme": [mme.ready["listen"]], "rate": RATE, "hold_s": 0.5}
        # Other tests run beside it: of the first load the books are asserted, not the pace.
        spec |= (
            {"count": 100, "timeout_s": 2.0}
            if faults
            else {"count": COUNT, "timeout_s": OFFER_S, "keep": True}
        )
        with closing(guest.job(spec)) as load:
            load.start()
            said = dict(load.result(timeout_s=2 * OFFER_S))
        mme.stop()
        return said, dict(mme.result(timeout_s=OFFER_S))


def test_attaches_over_kernel_sctp_close_the_books_of_both_ends(guest: GuestHost) -> None:
    load, mme = attached(guest)
    assert load["transport"] == "sctp"
    assert (load["started"], load["attached"], load["peak_sessions"]) == (COUNT,) * 3, load
    assert not any(load["anomalies"].values())
    assert mme["attached"] == COUNT and mme["mac_failures"] == mme["unknown_ue_ids"] == 0
    for name, count in load["sent"].items():
        assert count == mme["received"][name]
    for name, count in load["received"].items():
        assert count == mme["sent"][name]
    assert load["sctp_retransmits"] is not None
    # An MME that turns UEs away, loses messages and spoils MACs: the same classes as over TCP.
    load, mme = attached(guest, reject=0.3, bad_mac=0.2, wrong_id=0.1, seed=7)
    classes = sum((load["rejected"] | load["aborted"]).values()) + load["timed_out"]
    assert load["started"] == load["attached"] + classes == 100
    assert load["rejected"]["22"] > 0 and load["anomalies"]["mac_failures"] > 0
    assert load["detached"] + load["unreleased"] == load["attached"]


EXPERIMENT = """
name = "guest"
[setup]
kind = "vm"
accelerator = "tcg"
[sut]
kind = "reference-mme"
subscribers_file = "home.csv"
[load]
kind = "attach"
subscribers_file = "home.csv"
rate = 50
count = 100
hold_s = 0
timeout_s = 60
setup_s = 60
cpu = "any" # other tests run beside it
[measure]
repetitions = 1
late_p99_us = 60e6
steal_max_ratio = 1
"""


def test_ues_attach_to_an_mme_in_a_guest(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    # Far more than the guest's line holds at once.
    home = (f"001010000{n:06},{n:032x},{n:032x}\n" for n in range(5000))
    (tmp_path / "home.csv").write_text("imsi,k,opc\n" + "".join(home))
    outcome = run_experiment(
        load_experiment(file),
        load_lab(None),
        out=tmp_path / "results",
        resume=False,
        progress=Progress(),
    )
    (record,) = outcome.records
    assert record.valid, record.verdict
    books = record.transactions
    # It was cold, and its MME counted what warmed it up.
    assert (books.started, books.completed, books.unmatched) == (100, 100, None)
    assert record.accelerator == "tcg"
