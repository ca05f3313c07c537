"""Before a run: what is missing on this host is said in one line, and nothing was touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from nodrop.config.experiment import load_experiment
from nodrop.config.lab_file import load_lab
from nodrop.errors import BadInput, NotReady
from nodrop.measure.plan import make_plan
from nodrop.measure.preflight import Parts, doctor, in_the_way, preflight
from nodrop.testbed.hosts import node
from nodrop.testbed.labs.netns import NetnsLab
from nodrop.testbed.load.replay import Replay
from nodrop.testbed.setups.api import Limits
from nodrop.testbed.setups.bare import Bare
from nodrop.testbed.setups.vm import Vm
from nodrop.testbed.suts.suricata.sut import Suricata
from tests.known_answers.frames import ip, write


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.pcap"
    path.write_bytes(b"whatever")
    return path


def test_what_is_missing_ends_a_run_with_exit_2(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        f'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "{trace}"\n'
    )
    experiment, lab = load_experiment(file), load_lab()
    monkeypatch.setenv(node.ENVIRONMENT, "/nope")
    with pytest.raises(NotReady, match="NODROP_NODE=/nope is not an executable file; unset") as no:
        preflight(experiment, lab, make_plan(experiment))
    assert no.value.exit_code == 2
    monkeypatch.setattr(Parts, "_longest_frame_bytes", lambda _: 1500)
    monkeypatch.setattr(Parts, "problems", lambda _: ["no tcpreplay", "no ip"])
    with pytest.raises(NotReady, match=r"^no tcpreplay \(and 1 more: run `nodrop doctor`\)$"):
        preflight(experiment, lab, make_plan(experiment))


def test_what_is_wrong_with_a_lab_file_is_no_fault_of_the_experiment(tmp_path: Path) -> None:
    file, lab = tmp_path / "x.toml", tmp_path / "lab.toml"
    trace = write(tmp_path / "t.pcap", [ip(bytes(16))])
    file.write_text(
        f'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "{trace}"\n'
    )
    lab.write_text('name = "l"\nkind = "netns"\nmtu = "long"\n')
    experiment = load_experiment(file)
    with pytest.raises(BadInput, match=f"^{re.escape(str(lab))}: mtu"):
        preflight(experiment, load_lab(str(lab)), make_plan(experiment))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('sut.cpus="9999"', r'^sut.cpus = "9999": the SUT\'s place has no CPU 9999'),
        ('sut.cpus="0-1"', r'^sut.cpus = "0-1": the SUT\'s place has no CPU 1'),
        ('sut.cpus="0"', None),
        ('sut.worker_cpus="1"', r'^sut.worker_cpus = "1": the SUT\'s place has no CPU 1'),
        ('sut.management_cpus="0,7"', r'^sut.management_cpus = "0,7": .* has no CPU 7$'),
        ('sut.worker_cpus="0"', None),
        ("load.cpu=9999", '^load.cpu = "9999": this host has no CPU 9999$'),
        ("load.cpu=0", None),
    ],
)
def test_a_cpu_that_sut_or_sender_cannot_have(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, setting: str, said: str | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(Parts, "_longest_frame_bytes", lambda _: 1500)
    monkeypatch.setattr(Parts, "bits", lambda *_: None)
    monkeypatch.setattr(NetnsLab, "problems", lambda _: [])
    monkeypatch.setattr(Replay, "problems", lambda _: [])
    monkeypatch.setattr(Replay, "duration_s", lambda _: None)
    monkeypatch.setattr(Suricata, "problems", lambda *_: [])
    file = tmp_path / "x.toml"
    file.write_text(
        f'name = "x"\n[sut]\nkind = "suricata"\n[load]\nkind = "replay"\ntrace = "{trace}"\n'
    )
    experiment = load_experiment(file, [setting])
    parts = Parts(experiment, load_lab(), make_plan(experiment))
    problems = parts.problems()
    assert len(problems) == (said is not None)
    assert said is None or re.search(said, problems[0])


@pytest.mark.parametrize(
    ("setup", "limits", "sut", "said"),
    [
        ("bare", "1", {"worker_cpus": "0-4"}, 'sut.worker_cpus = "0-4": .* no CPU 0,2-4, for'),
        ("bare", "4-7", {"cpus": "3-4"}, 'sut.cpus = "3-4": .* no CPU 3, for limits.cpus = "4-7"'),
        ("docker", "1", {"management_cpus": "2"}, 'sut.management_cpus = "2": .* no CPU 2, for'),
        ("vm", "3,5", {"cpus": "2-3"}, 'sut.cpus = "2-3": .* no CPU 2-3, for limits.cpus = "3,5"'),
        ("vm", "3,5", {"cpus": "0-1"}, None),
        ("vm", None, {"worker_cpus": "1-3"}, '"1-3": .* no CPU 2-3, without limits.cpus$'),
        ("vm", None, {"cpus": "7"}, 'sut.cpus = "7": .* no CPU 7, without limits.cpus$'),
        ("vm-vfio", None, {"management_cpus": "2"}, '"2": .* no CPU 2, without limits.cpus$'),
        ("vm", None, {"worker_cpus": "0-1"}, None),
        ("bare", None, {"worker_cpus": "4-6"}, None),
        ("bare", "4-7", {"worker_cpus": "4-6", "management_cpus": "7"}, None),
    ],
)
def test_pins_outside_the_limits_are_refused_with_the_plan_on_any_host(
    tmp_path: Path, setup: str, limits: str | None, sut: dict[str, str], said: str | None
) -> None:
    file, trace = tmp_path / "x.toml", write(tmp_path / "t.pcap", [ip(bytes(16))])
    pins = "".join(f'{key} = "{cpus}"\n' for key, cpus in sut.items())
    file.write_text(
        f'name = "x"\n[setup]\nkind = "{setup}"\n[sut]\nkind = "suricata"\n{pins}'
        + (f'[limits]\ncpus = "{limits}"\n' if limits else "")
        + f'[load]\nkind = "replay"\ntrace = "{trace}"\nspeed = 1\n'
        "[measure]\nrepetitions = 1\n"
    )
    experiment = load_experiment(file)
    if said is None:
        assert make_plan(experiment).cells
        return
    with pytest.raises(BadInput, match=said) as refused:
        make_plan(experiment)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("setup", [Bare, Vm])
@pytest.mark.parametrize("times", [2, 1 << 10])
def test_more_memory_than_the_host_has_is_a_problem(setup: Any, times: int) -> None:
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    place = setup({}, base=Path())

    def said(memory_bytes: int) -> list[str]:
        found = place.problems(None, Limits(memory_bytes=memory_bytes))
        return [words for words in found if "this host has" in words]

    assert said(has) == []
    for asked in (has + 1, has * times, 2**63 - 1):
        (words,) = said(asked)
        assert words.startswith(f"limits.memory = {asked}: this host has {has} bytes")


ABSENT = """
name = "x"
[setup]
kind = "{setup}"
[sut]
kind = "suricata"
image = "suricata:nothere"
[load]
kind = "tcpreplay"
trace = "make:demo"
cpu = {sender}
[limits]
cpus = "0,{sut}"
memory = "{gib}GiB"
"""


@pytest.mark.parametrize(
    ("setup", "sender", "sut", "gib"), [("oci", 1097, 1098, 900_000), ("vm", 2001, 2000, 70_000)]
)
def test_a_doctor_says_all_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setup: str,
    sender: int,
    sut: int,
    gib: int,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nodrop.testbed.labs.api.which", lambda _: None)
    file = tmp_path / "x.toml"
    file.write_text(ABSENT.format(setup=setup, sender=sender, sut=sut, gib=gib))
    experiment = load_experiment(file)
    plan = make_plan(experiment)
    problems, _ = doctor(experiment, load_lab(), plan)
    for words in (
        'sut.image = "suricata:nothere": no image',
        f'load.cpu = "{sender}": this host has no CPU {sender}',
        f'limits.cpus = "0,{sut}": this host has no CPU {sut}',
        f"limits.memory = {gib << 30}",
        "tcpreplay is not installed",
    ):
        assert any(words in one for one in problems), (words, problems)
    with pytest.raises(BadInput, match=f"^{re.escape(str(file))}: sut.image"):
        preflight(experiment, load_lab(), plan)
    assert in_the_way(experiment, load_lab(), plan) == problems


def test_a_plan_for_this_host_has_nothing_in_its_way(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "make:demo"\n'
    )
    experiment = load_experiment(file)
    assert in_the_way(experiment, load_lab(), make_plan(experiment)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[measure]\nreset = "module"\n', 'measure.reset = "module": not in this lab'),
        ('[setup]\nkind = "oci"\n[tune]\ngro = "off"\n', "tune: knobs are set in a lab"),
        ('[measure]\noutcome = ["alerts"]\n', "measure.outcome"),
    ],
)
def test_a_plan_names_what_a_run_refuses(tmp_path: Path, more: str, words: str) -> None:
    file = tmp_path / "x.toml"
    sink = 'name = "x"\n[sut]\nkind = "sink"\n[load]\nkind = "replay"\ntrace = "make:demo"\n'
    file.write_text(sink + more)
    experiment = load_experiment(file)
    plan = make_plan(experiment)
    with pytest.raises((BadInput, NotReady)) as refused:
        preflight(experiment, load_lab(), plan)
    said = in_the_way(experiment, load_lab(), plan)
    assert words in said[0] and str(refused.value).startswith(said[0])
