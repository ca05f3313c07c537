"""Suricata by DPDK: its yaml, what is refused before it starts, the drops that it does not see."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodrop.errors import BadInput
from nodrop.measure.preflight import without_device
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.setups.bare_vfio import BareVfio
from nodrop.testbed.suts.api import SutCounters, less
from nodrop.testbed.suts.suricata import Suricata, dpdk
from nodrop.testbed.suts.suricata.capture import CaptureSettings, parse_ss
from nodrop.testbed.suts.suricata.config import SuricataPlaces, render
from nodrop.testbed.suts.suricata.own_yaml import read_own, template
from nodrop.testbed.suts.suricata.polling import DeviceQueues, Emptied, frame_room, xdp_rings
from nodrop.testbed.suts.suricata.sut_options import SuricataOptions

SS = """Netid Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
p_raw 0      0                  *:vb               *     ino:3818639 sk:1474
\tver:1 cpy_thresh:0 flags( running loss )
\tring_rx(blk_size:4096,blk_nr:1024,frm_size:2048,frm_nr:2048,tmo:0,features:0x0)
\tring_tx(blk_size:4096,blk_nr:1024,frm_size:2048,frm_nr:2048,tmo:0,features:0x0)
\tfanout(id:15443,type:hash)
"""
"""`ss -0 -e -n` beside DPDK 22.11."""


def rendered(may: tuple[int, ...] = (1,), **given: Any) -> Any:
    given = {"capture": "dpdk", **given}
    options = SuricataOptions.model_validate(given, context={"base": Path("/")})
    base = template() if options.config is None else read_own(options.config)
    return render(options, base, SuricataPlaces(interfaces=("ndrx0",), work="/work", cpus=set(may)))


def problems(bits: Bits | None = None, **given: Any) -> Any:
    return [*dpdk.problems(rendered(**given), bits)]


def test_one_port_by_the_driver_af_packet() -> None:
    table = rendered(ring_size=65_535)["dpdk"]
    assert table["eal-params"]["vdev"] == [
        "net_af_packet0,iface=ndrx0,blocksz=4096,framesz=2048,framecnt=65536"
    ]
    assert {"no-huge", "no-shconf", "no-pci"} <= set(table["eal-params"])
    (entry,) = table["interfaces"]
    assert (entry["interface"], entry["threads"], entry["copy-mode"]) == (dpdk.DEVICE, 1, "none")
    assert entry["tx-descriptors"] > 0, "Suricata refuses 0"
    assert "dpdk" not in rendered(capture="af-packet")


def test_a_device_of_its_own_has_no_port_of_the_kernel() -> None:
    options = SuricataOptions.model_validate({"capture": "dpdk"}, context={"base": Path("/")})
    seen = SuricataPlaces(interfaces=("0000:3b:00.0",), work="/work", cpus={1})
    table = render(options, template(), seen)["dpdk"]
    assert table["eal-params"]["a"] == table["interfaces"][0]["interface"] == "0000:3b:00.0"
    assert not {"no-pci", "vdev"} & set(table["eal-params"])
    assert {"no-huge", "no-shconf"} <= set(table["eal-params"])


def test_what_a_device_lost_is_in_its_own_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """DPDKDumpCounters: `pkts` is ipackets + imissed + ierrors + rx_nombuf. It is called at each
    new second in which packets come, so what stands still for longer is at rest."""
    clock = iter([10.0, 10.5, 11.6, 12.4, 12.6])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    asked = CaptureSettings(
        interfaces=("0000:3b:00.0",), capture="dpdk", threads=1, runmode="workers",
        ring_frames=None, defrag=True, full_sync_s=4, retire_s=0, names_rules=False,
        rules_errors="warn",
    )  # fmt: skip
    device = DeviceQueues(cast(Any, None), asked)
    rests = device.rest()
    said = [(20, 0), (30, 5), (30, 5), (30, 5), (30, 5)]
    found = []
    for pkts, drop in said:
        control = SimpleNamespace(command=lambda *_, n=pkts, d=drop, **__: {"pkts": n, "drop": d})
        found.append((device.per_port(cast(Any, control)), rests()))
    counted = {"captured_packets": 30, "dropped_ring_full_packets": 5}
    assert found[-1] == ({"0000:3b:00.0": counted}, True)
    assert [rested for _, rested in found] == [False, False, False, False, True]
    assert rests.since_s == 11.5, "up to a second after they last moved"


@pytest.mark.parametrize(
    ("cpus", "given", "worker", "others"),
    [
        ((1,), {}, [1], [1]),
        ((1, 2, 3), {}, [3], [1, 2]),
        ((1, 2, 3), {"worker_cpus": "2", "management_cpus": "1"}, [2], [1]),
        ((1, 2, 3), {"cpus": "1-2"}, [2], [1]),
    ],
)
def test_the_worker_has_a_cpu_of_its_own_if_there_are_two(
    cpus: tuple[int, ...], given: dict[str, str], worker: list[int], others: list[int]
) -> None:
    threading = rendered(cpus, **given)["threading"]
    sets = {name: said["cpu"] for one in threading["cpu-affinity"] for name, said in one.items()}
    assert threading["set-cpu-affinity"] is True, "Suricata by DPDK does not start without"
    assert sets == {"worker-cpu-set": worker, "management-cpu-set": others}


def test_a_users_own_yaml_keeps_what_holds_for_another_port(tmp_path: Path) -> None:
    own = tmp_path / "s.yaml"
    own.write_text(
        "%YAML 1.1\n---\ndpdk:\n  eal-params: {proc-type: primary, file-prefix: mine}\n"
        "  interfaces:\n  - {interface: '0000:3b:00.0', threads: 8, mtu: 9000, "
        "mempool-size: 65535, copy-mode: ips, copy-iface: '0000:3b:00.1'}\n"
    )
    table = rendered(config=own)["dpdk"]
    (entry,) = table["interfaces"]
    assert (entry["mempool-size"], entry["threads"], entry["mtu"]) == ("65535", 1, 1500)
    assert (entry["interface"], entry["copy-mode"]) == (dpdk.DEVICE, "none")
    assert "file-prefix" not in table["eal-params"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dpdk.interfaces.0.tx-descriptors": 0}, "tx-descriptors = 0"),
        ({"dpdk.interfaces.0.mtu": 9000}, "mtu = 9000"),
        ({"dpdk.interfaces.0.threads": 2}, "threads must be 1"),
        ({"dpdk.interfaces.0.rx-descriptors": 0}, "rx-descriptors = 0"),
        ({"dpdk.interfaces": []}, "a list of one table"),
        ({"dpdk.eal-params.no-huge": "no"}, "no-huge: leave it out: nodrop reserves no hugepages"),
        ({"dpdk.eal-params.no-shconf": "no"}, "two primaries would meet"),
        ({"dpdk.eal-params.proc-type": "secondary"}, "proc-type = secondary"),
    ],
)
def test_what_cannot_start_is_one_line_before_anything_is_touched(
    given: dict[str, Any], words: str
) -> None:
    (line,) = problems(overrides=given)
    assert words in line and "\n" not in line
    assert problems() == []


def test_overrides_take_no_hugepages_and_meet_no_other_primary() -> None:
    """They add keys to a table, and remove none."""
    mine = {"proc-type": "primary", "m": 1024}
    eal = rendered(overrides={"dpdk.eal-params": mine})["dpdk"]["eal-params"]
    assert eal["m"] == 1024 and {"no-huge", "no-shconf"} <= set(eal)


def test_an_image_without_the_drivers_names_the_one_that_has_them(tmp_path: Path) -> None:
    image = Bits(kind="image", path=tmp_path, sha256="0" * 64)
    (line,) = problems(image)
    assert "nodrop image build suricata --with dpdk" in line
    folder = tmp_path / "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0"
    folder.mkdir(parents=True)
    (folder / "librte_net_af_packet.so.23").touch()
    (line,) = problems(image)
    assert "librte_mempool_ring.so" in line and "librte_net_af_packet.so" not in line
    (folder / "librte_mempool_ring.so.23").touch()
    assert problems(image) == []
    ring = folder / "librte_mempool_ring.so.23"
    ring.write_bytes(b"\0librte_mempool_ring.so.23\0libc.so.6\0librte_ring.so.23\0")
    (line,) = problems(image)
    assert "no librte_ring.so.23, without which DPDK ends at librte_mempool_ring.so.23" in line
    (tmp_path / "usr/lib/x86_64-linux-gnu/librte_ring.so.23").touch()
    assert problems(image) == []
    program = Bits(kind="binary", path=Path("/usr/bin/suricata"), sha256="0" * 64)
    assert dpdk.lacking_drivers(program, tmp_path / "empty") == (), "they may be built into it"


@pytest.mark.parametrize(
    "given",
    [
        {"threads": 2},
        {"ports": 2},
        {"defrag": "no"},
        {"runmode": "autofp"},
        {"cluster_type": "cluster_qm"},
        {"buffer_bytes": 65_536},
    ],
)
def test_what_it_has_not_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r'"dpdk"|DPDK|is of capture'):
        Suricata({"capture": "dpdk", **given}, base=Path())


@pytest.mark.usefixtures("as_root")
def test_where_it_runs_and_from_which_image() -> None:
    sut = Suricata({"capture": "dpdk", "ring_size": 64}, base=Path())
    assert sut.needs_bits() == "suricata-dpdk"
    captures = ("af-packet", "pcap", "af-xdp", "dpdk")
    polled = [Suricata({"capture": capture}, base=Path()).polls for capture in captures]
    assert polled == [False, False, True, True]
    assert sut.defrag and sut.holds_packets == 64
    assert sut.misplaced("bare", mtu=9000, standing=False) == ""
    assert 'measure.sut = "fresh"' in sut.misplaced("bare", mtu=9000, standing=True)
    for setup, mtu in (("docker", 1500), ("bare", None)):
        found = sut.misplaced(setup, mtu=mtu, standing=False)
        assert "netns" in found and "\n" not in found


@pytest.mark.parametrize(
    ("given", "mtu", "words"),
    [
        ({"capture": "dpdk"}, None, ""),
        ({"capture": "dpdk"}, 9000, "the ports of this one are no PCI devices"),
        ({}, None, 'use Suricata with sut.capture = "dpdk"'),
        ({"capture": "af-xdp"}, None, 'use Suricata with sut.capture = "dpdk"'),
    ],
)
def test_a_nic_of_its_own_is_for_dpdk_and_of_a_lab_with_nics(
    given: dict[str, str], mtu: int | None, words: str
) -> None:
    sut, setup = Suricata(given, base=Path()), BareVfio()
    found = without_device(setup, sut, mtu)
    assert bool(found) == bool(words) and words in found and "\n" not in found
    assert without_device(Bare(), sut, mtu) == ""
    if given.get("capture") == "dpdk":
        assert sut.misplaced(setup.name, mtu=None, standing=False) == ""
        assert 'measure.sut = "fresh"' in sut.misplaced(setup.name, mtu=None, standing=True)


def test_the_ring_below_the_driver_is_seen() -> None:
    """Slots of 2,048 bytes: 66 are the kernel's, and what it puts together may be longer."""
    (ring,) = parse_ss(SS, [3818639])
    assert (ring.tpacket_version, ring.frames, ring.fanout_type) == (2, 2048, "hash")
    assert frame_room((ring,)) == {"bytes": 1982, "knob": ""}
    assert frame_room(()) is None


def test_drops_of_its_own_are_told_apart_by_trial() -> None:
    def said(own: int | None) -> SutCounters:
        return SutCounters(
            captured_packets=5, dropped_ring_full_packets=3, decoded_packets=2,
            own_dropped_packets=own,
        )  # fmt: skip

    assert less(said(7), said(4)).own_dropped_packets == 3
    assert less(said(None), said(None)).own_dropped_packets is None


MAPS = """\
7f10c0000000-7f10c0010000 rw-s 80000000 00:08 9120                       socket:[9120]
7f10c0010000-7f10c0020000 rw-s 00000000 00:08 9120                       socket:[9120]
7f10c0020000-7f10c0030000 rw-s 100000000 00:08 9120                      socket:[9120]
7f10c0030000-7f10c0040000 rw-p 00000000 00:00 0
7f10c0040000-7f10c0050000 r--p 00000000 08:01 77                         /lib/my socket:[1].so
"""
"""/proc/PID/maps of a Suricata by AF_XDP: rings of what was sent, received and filled."""


def test_a_worker_that_polls_rests_when_its_ring_is_empty() -> None:
    assert xdp_rings(MAPS) == [0x7F10C0010000]
    looks = iter([5, 0, None, 0, 0])
    rests = Emptied(lambda: next(looks))
    assert [rests() for _ in range(5)] == [False, False, False, False, True]
    assert rests.worked_s is not None and rests.since_s is not None
    assert rests.worked_s <= rests.since_s
