"""Attaches over the kernel's SCTP, in a guest that has it: this host's kernel may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nodrop.testbed.hosts.guest import GuestHost
from nodrop.testbed.hosts.local import LocalHost
from nodrop.testbed.images.guest_assets import make_assets
from nodrop.testbed.setups import qemu
from nodrop.testing.fakes import FakeJournal

pytestmark = pytest.mark.timeout(120)
COUNT, RATE = 2000, 400
BOOT_S, OFFER_S = 60, 60


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
    running = qemu.boot(
        machine, None, on=LocalHost(), work=tmp_path, journal=FakeJournal(), timeout_s=BOOT_S
    )
    yield running.host
    running.close()


def attached(guest: GuestHost, **faults: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The books of the load, and those of the MME."""
    listen = {"job": "reference-mme", "listen": "sctp:127.0.0.1:0", **faults}
    with closing(guest.job(listen)) as mme:
        mme.start()
        spec = {"job": "attach", "mme": [mme.ready["listen"]], "rate": RATE, "hold_s": 0.5}
        with closing(guest.job({**spec, "count": COUNT if not faults else 100})) as load:
            load.start()
            said = dict(load.result(timeout_s=OFFER_S))
        mme.stop()
        return said, dict(mme.result(timeout_s=OFFER_S))


def test_attaches_over_kernel_sctp_close_the_books_of_both_ends(guest: GuestHost) -> None:
    load, mme = attached(guest)
    assert load["transport"] == "sctp"
    assert (load["started"], load["attached"], load["detached"]) == (COUNT,) * 3, load
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
