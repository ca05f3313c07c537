"""The name grammar, on names of every shape and on the list of all published ones."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from nodrop_studies.samples import (
    BadNameError,
    Channel,
    FigureName,
    StudyCondition,
    WorkbookName,
    parse_folder_name,
    parse_memory,
    parse_workbook_name,
)
from tests.slow.import_fixtures import published_data

VM_1_3 = StudyCondition(
    engine="vm",
    trace="bigFlows.pcap",
    workers=4,
    source_nic="em2",
    dest_nic="enp34s0",
    vtap=False,
    interval_s=4,
    memory_bytes=2 << 30,
    vcpus=4,
    cpuset="1,3",
    swappiness=5,
    vm_name="suricata-vm",
    vm_ip="dhcp",
    vm_nic="eth1",
    replay_speed=1,
)


def test_a_comma_inside_the_cpuset_is_not_a_field_separator() -> None:
    name = (
        "vm,bigFlows.pcap,4,em2,enp34s0,4,2g,4,1,3,5,suricata-vm,dhcp,eth1,1,vm,netin,netstat.xlsx"
    )
    assert parse_workbook_name(name) == WorkbookName(condition=VM_1_3, channel=Channel.GUEST_NIC)


def test_docker_with_vtap_bare_metal_and_raw_folder() -> None:
    docker = parse_workbook_name("docker,t.pcap,2,em2,enp34s0.vtap,4,1024m,0-3,5,1,eve.xlsx")
    assert isinstance(docker, WorkbookName)
    assert docker.condition.setup == "docker-macvtap"
    assert docker.condition.memory_bytes == 2**30 == parse_memory("1g")
    bare = parse_workbook_name("bm,t.pcap,2,em2,enp34s0,0.5,5,1,receiver,sysstat.xlsx")
    assert isinstance(bare, WorkbookName)
    assert (bare.condition.setup, bare.condition.interval_s) == ("bare", 0.5)
    folder = "logs,vm,1460678849,bigFlows.pcap,4,em2,enp34s0,4,2g,4,1,3,5,suricata-vm,dhcp,eth1,1"
    assert parse_folder_name(folder) == (VM_1_3, 1460678849)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bm,t.pcap,1,em2,enp34s0,4,5,1,eve.csv", ".xlsx"),
        ("bm,t.pcap,1,em2,enp34s0,4,5,1,notes.xlsx", "channel"),
        ("bm,t.pcap,x,em2,enp34s0,4,5,1,eve.xlsx", "load 'x'"),
        ("bm,t.pcap,1,em2,enp34s0,4,2g,5,1,eve.xlsx", "2g"),
        ("lxc,t.pcap,1,em2,enp34s0,4,5,1,eve.xlsx", "engine 'lxc'"),
        ("docker,t.pcap,1,em2,enp34s0,4,5,1,eve.xlsx", "memory and cpuset"),
        ("docker,t.pcap,1,em2,enp34s0,4,2x,0-3,5,1,eve.xlsx", "memory '2x'"),
        ("vm,t.pcap,1,em2,enp34s0,4,2g,4,0-3,5,1,eve.xlsx", "a VM needs"),
        ("bm,eve.xlsx", "fields"),
        ("eve.xlsx", "channel"),
    ],
)
def test_a_foreign_name_is_refused_with_the_field(name: str, words: str) -> None:
    with pytest.raises(BadNameError, match=words.replace(".", r"\.")):
        parse_workbook_name(name)


@pytest.mark.parametrize("name", ["logs", "logs,", "logs,bm", "logs,bm,x,t,1,a,b,4,5,1", "x,bm,1"])
def test_a_foreign_folder_is_refused(name: str) -> None:
    with pytest.raises(BadNameError):
        parse_folder_name(name)


def test_all_published_names_parse() -> None:
    with (published_data() / "inventory_all_files.csv").open(newline="") as lines:
        names = [parse_workbook_name(row["file"]) for row in csv.DictReader(lines)]
    assert len(names) == 956
    setups = Counter(
        "figure" if isinstance(name, FigureName) else name.condition.setup for name in names
    )
    assert setups["figure"] == 8
    assert set(setups) == {"figure", "bare", "docker", "docker-macvtap", "vm", "vm-vfio"}
    cpusets = {n.condition.cpuset for n in names if isinstance(n, WorkbookName)}
    assert cpusets == {None, "0-3", "1,3"}
