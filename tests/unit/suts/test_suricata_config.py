"""suricata.yaml of a trial: options, template, the user's own, overrides."""

from __future__ import annotations

import json
import lzma
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodrop.config.options import INPUTS
from nodrop.errors import BadInput
from nodrop.remote.inputs import Copies, NamedInputs
from nodrop.testbed.hosts.rights import USERNS_VARIABLE
from nodrop.testbed.suts.suricata import Suricata, log
from nodrop.testbed.suts.suricata.config import (
    SuricataPlaces,
    dump,
    full_sync_s,
    inline_words,
    render,
    retire_s,
)
from nodrop.testbed.suts.suricata.log import ConfigTest
from nodrop.testbed.suts.suricata.own_yaml import own_files, read_own, replaced, template
from nodrop.testbed.suts.suricata.sut import plain_rules
from nodrop.testbed.suts.suricata.sut_options import SuricataOptions

HEADER = "%YAML 1.1\n---\n"


def rendered(
    work: str = "/work",
    interfaces: tuple[str, ...] = ("ndrx0",),
    may: tuple[int, ...] = (),
    online_cpus: int = 1,
    **given: Any,
) -> Any:
    """The document as a YAML 1.1 reader sees it."""
    options = SuricataOptions.model_validate(given, context={"base": Path("/")})
    base = template() if options.config is None else read_own(options.config)
    seen = SuricataPlaces(interfaces=interfaces, work=work, cpus=set(may), online_cpus=online_cpus)
    text = dump(render(options, base, seen))
    assert text.startswith(b"%YAML 1.1\n---\n"), "Suricata refuses a file without it"
    return yaml.safe_load(text)


def test_the_capture_entry_names_the_real_interface() -> None:
    assert rendered()["af-packet"] == [
        {
            "interface": "ndrx0",
            "threads": "auto",
            "cluster-id": 99,
            "cluster-type": "cluster_flow",
            "defrag": True,
        }
    ]


def test_capture_options_reach_the_entry() -> None:
    (entry,) = rendered(
        threads=2, cluster_type="cluster_qm", defrag="no", ring_size=4096, block_size=65536,
        use_mmap="yes", tpacket_v3=False,
    )["af-packet"]  # fmt: skip
    assert entry == {
        "interface": "ndrx0",
        "threads": 2,
        "cluster-id": 99,
        "cluster-type": "cluster_qm",
        "defrag": False,
        "ring-size": 4096,
        "block-size": 65536,
        "use-mmap": True,
        "tpacket-v3": False,
    }


def test_two_interfaces_have_fanout_groups_of_their_own() -> None:
    entries = rendered(interfaces=("eth1", "eth2"))["af-packet"]
    assert [(e["interface"], e["cluster-id"]) for e in entries] == [("eth1", 99), ("eth2", 98)]


def test_a_small_ring_is_not_made_larger_by_max_pending_packets() -> None:
    assert rendered()["max-pending-packets"] == 1024
    assert rendered(ring_size=64)["max-pending-packets"] == 64
    assert rendered(ring_size=5000)["max-pending-packets"] == 1024


def test_eve_log_stands_where_the_shipped_file_has_it() -> None:
    document = rendered(overrides={"outputs.1.eve-log.enabled": False})
    assert document["outputs"][1]["eve-log"]["enabled"] is False
    assert document["outputs"][2]["eve-log"]["filename"] == "stats.json", "ours is another"


def test_overrides_make_tables_on_the_way_and_come_last() -> None:
    document = rendered(
        threads=2, overrides={"af-packet.0.threads": 1, "a.b.c": "x", "stats.interval": 4}
    )
    assert document["af-packet"][0]["threads"] == 1
    assert document["a"] == {"b": {"c": "x"}}
    assert full_sync_s(document) == 3 + 4 + 0.5


def test_how_long_a_ring_may_keep_a_frame() -> None:
    assert retire_s(rendered()) == 0.03, "Suricata's own 10 ms"
    slow = rendered(overrides={"af-packet.0.block-timeout": "400"}, interfaces=("a", "b"))
    assert retire_s(slow) == 1.2, "the slowest interface"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"thread": 2}, "sut.thread: "),
        ({"threads": 0}, "sut.threads = 0: "),
        *(
            ({"runmode": "single", "threads": threads}, 'sut: runmode = "single" ')
            for threads in (2, 64)
        ),
        ({"runmode": "fast"}, 'sut.runmode = "fast": '),
        ({"defrag": "maybe"}, 'sut.defrag = "maybe": '),
        ({"rules": ["none.rules"]}, 'sut.rules.0 = "none.rules": '),
        *(
            ({"runmode": runmode, key: value}, f"sut: {key} ")
            for runmode, key, value in (
                ("workers", "detect_threads", 2),
                ("single", "detect_threads", 1),
                ("workers", "autofp_scheduler", "ippair"),
                ("single", "capture_cpus", "1"),
            )
        ),
        (
            {"cpus": "0-1", "worker_cpus": "1-3", "management_cpus": "0"},
            'sut: worker_cpus = "1-3": CPU 2-3 ',
        ),
        ({"worker_cpus": "x"}, 'sut.worker_cpus = "x": '),
        ({"cpus": "0-"}, 'sut.cpus = "0-": '),
        (
            {"overrides": {"outputs.7.eve-log.enabled": True}},
            "sut.overrides.outputs.7.eve-log.enabled: outputs ",
        ),
        (
            {"overrides": {"flow.memcap.size": "1gb"}},
            "sut.overrides.flow.memcap.size: flow.memcap ",
        ),
    ],
)
def test_bad_options_are_one_clear_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Suricata(given, base=Path("/nowhere"))
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"defrag": "no"}, False),
        ({"threads": 1}, False),
        ({"runmode": "single"}, False),
        ({"cluster_type": "cluster_qm"}, False),
        ({"overrides": {"af-packet.0.defrag": "no"}}, False),
        ({"overrides": {"af-packet.0.threads": "1"}}, False),
    ],
)
def test_defrag_is_what_the_kernel_will_do(given: dict[str, Any], expected: bool) -> None:
    assert Suricata(given, base=Path("/")).defrag is expected


@pytest.mark.parametrize(
    ("cpus", "given", "threads"),
    [
        ((1,), {}, 1),
        ((1,), {"threads": "auto"}, 1),
        ((1, 2, 5), {}, 3),
        ((1, 2, 5), {"threads": 2}, 2),
        (tuple(range(7)), {"ports": 2}, 3),
        ((4,), {"ports": 4}, 1),
        ((0, 1, 2, 3), {"cpus": "2"}, 1),
        ((0, 1, 2, 3), {"worker_cpus": "1-2", "management_cpus": "0"}, 2),
        ((0, 1, 2, 3), {"runmode": "autofp", "capture_cpus": "0"}, 1),
        ((), {}, "auto"),  # a guest: all of its own
        ((1,), {"cluster_type": "cluster_qm"}, "auto"),  # one for each queue
        ((1, 2), {"runmode": "single"}, 1),
    ],
)
def test_auto_is_a_worker_for_each_cpu_that_it_may_use(
    cpus: tuple[int, ...], given: dict[str, Any], threads: int | str
) -> None:
    assert rendered(may=cpus, **given)["af-packet"][0]["threads"] == threads


@pytest.mark.parametrize(("cpus", "online"), [((1,), 2), ((1, 2, 3), 4), ((0, 7), 64)])
def test_auto_detect_threads_are_one_for_each_cpu_too(cpus: tuple[int, ...], online: int) -> None:
    document = rendered(may=cpus, online_cpus=online, runmode="autofp")
    assert int(document["threading"]["detect-thread-ratio"] * online) == len(cpus)
    assert rendered(runmode="autofp")["threading"]["detect-thread-ratio"] == 1.0, "not known"


AFFINITY = (
    HEADER
    + """threading:
  set-cpu-affinity: {on}
  cpu-affinity:
    - management-cpu-set:
        cpu: [ 0 ]
    - worker-cpu-set:
        cpu: [ {cpus} ]
        mode: exclusive
af-packet:
  - interface: eth0
    threads: {threads}
"""
)


@pytest.mark.parametrize(
    ("on", "cpus", "may", "threads", "affinity", "workers"),
    [
        ("yes", '"all"', (1,), "auto", "no", 1),
        ("yes", "2, 3", (0, 1), "auto", "no", 2),
        ("yes", '"1-2"', (0, 1, 2, 3), "auto", "yes", 2),
        ("yes", '"all"', (0, 1, 2, 3), "auto", "yes", 4),
        ("no", '"all"', (1,), "auto", "no", 1),
        ("yes", "2, 3", (0, 1), "7", "no", "7"),
    ],
)
def test_threads_of_a_users_yaml_stay_on_the_cpus_they_are_given(
    on: str, cpus: str, may: tuple[int, ...], threads: str, affinity: str, workers: object,
    tmp_path: Path,
) -> None:  # fmt: skip
    own = tmp_path / "own.yaml"
    own.write_text(AFFINITY.format(on=on, cpus=cpus, threads=threads))
    document = rendered(config=own, may=may, online_cpus=4)
    assert str(document["threading"]["set-cpu-affinity"]) == affinity
    assert document["af-packet"][0]["threads"] == workers


OWN = """%YAML 1.1
---
stats:
  enabled: no
include: more.yaml
af-packet:
  - interface: eth0
    cluster-type: cluster_cpu
    ring-size: 3000
    defrag: no
  - interface: default
outputs:
  - eve-log: &eve
      enabled: yes
      types: [alert]
  - copy: *eve
rule-files:
  - own.rules
custom:
  time: 12:30
  mode: 0777
  empty:
  nested: !include part.yaml
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "more.yaml").write_text(HEADER + "flow:\n  memcap: 1gb\n")
    (tmp_path / "part.yaml").write_text(HEADER + "deep: on\n")
    return tmp_path / "own.yaml"


def test_a_users_own_yaml_keeps_its_settings(own: Path) -> None:
    document = rendered(config=own)
    assert document["af-packet"] == [
        {
            "interface": "ndrx0",
            "cluster-type": "cluster_cpu",
            "ring-size": "3000",
            "defrag": "no",
            "cluster-id": 99,
        }
    ]
    assert document["flow"] == {"memcap": "1gb"}, "the included file"
    # Scalars stay the text they were: 12:30 is no number of base 60, 0777 no octal one.
    assert document["custom"] == {
        "time": "12:30",
        "mode": "0777",
        "empty": "",
        "nested": {"deep": "on"},
    }
    assert document["outputs"][1]["copy"] == {"enabled": "yes", "types": ["alert"]}
    assert document["outputs"][-1]["eve-log"]["filename"] == "stats.json"
    assert document["stats"]["enabled"] is True


@pytest.mark.parametrize(
    ("said", "now"),
    [
        ("eve-log: {filename: /var/log/suricata/eve.json}", {"filename": "eve.json"}),
        ("eve-log: {filename: eve.json, types: [x]}", {"filename": "eve.json", "types": ["x"]}),
        ("file-store: {dir: /data/files/, deep: [{filename: /a/b}]}",
         {"dir": "files", "deep": [{"filename": "b"}]}),
        ("eve-log: {filetype: unix_stream, filename: /run/eve.sock}",
         {"filetype": "unix_stream", "filename": "/run/eve.sock"}),
    ],
)  # fmt: skip
def test_outputs_of_a_users_yaml_are_written_into_the_run(
    said: str, now: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(f"{HEADER}outputs:\n  - {said}\n")
    (found,) = rendered(config=tmp_path / "own.yaml")["outputs"][0].values()
    assert found == now


def test_options_go_over_a_users_own_yaml(own: Path) -> None:
    (entry,) = rendered(config=own, defrag=True, threads=2)["af-packet"]
    assert (entry["defrag"], entry["threads"], entry["cluster-type"]) == (True, 2, "cluster_cpu")


def test_a_dumped_document_has_no_aliases(own: Path) -> None:
    seen = SuricataPlaces(interfaces=["a"], work="/w")
    text = dump(render(SuricataOptions(config=own), read_own(own), seen))
    assert b"*id" not in text and b"&id" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER + "a: [", "while parsing"),
        (HEADER + "just words", "must be a table"),
        (HEADER + "- a list", "must be a table"),
        (HEADER + "a: !include none.yaml", "No such file"),
        (HEADER + "include: none.yaml", "none.yaml: No such file"),
        (HEADER + "include: own.yaml", "includes itself"),
        (HEADER + "include: headless.yaml", "headless.yaml: Suricata says: "),
        ("a: b", "%YAML 1.1 and ---"),
        ("%YAML 1.2\n---\na: b", "%YAML 1.1 and ---"),
        (HEADER + "a: \udcff", "invalid start byte"),
    ],
)
def test_a_broken_own_yaml_is_bad_input(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own.yaml").write_text(text, errors="surrogateescape")
    (tmp_path / "headless.yaml").write_text("a: b\n")
    with pytest.raises(BadInput, match=r"sut\.config: .*\.yaml") as caught:
        Suricata({"config": "own.yaml"}, base=tmp_path)
    assert words in str(caught.value)


RULES_OF_OWN = (
    HEADER
    + """default-rule-path: {path}
rule-files:
  - one.rules
  - "more/*.rules"
  - {path}/gone.rules
classification-file: classes.config
threshold-file: /none/threshold.config
"""
)


def test_a_users_own_yaml_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    names = ["one.rules", "more/b.rules", "more/a.rules", "classes.config", "one.txt"]
    for name in names:
        (tmp_path / name).write_text("alert ip any any -> any any (sid:1;)\n")
    own = tmp_path / "own.yaml"
    own.write_text(RULES_OF_OWN.format(path=tmp_path))
    found = own_files(read_own(own), tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in found.rules] == [
        "one.rules", "more/a.rules", "more/b.rules",
    ]  # fmt: skip
    assert found.lacking == (f"{tmp_path}/gone.rules",)
    assert found.others == {"classification-file": tmp_path / "classes.config"}
    suricata = Suricata({"config": "own.yaml"}, base=tmp_path)
    assert set(suricata.files()) == {"one.rules", "a.rules", "b.rules", "classification-file"}
    assert suricata.facts()["rules_lacking"] == [f"{tmp_path}/gone.rules"]
    given = Suricata({"config": "own.yaml", "rules": ["more/a.rules"]}, base=tmp_path)
    assert set(given.files()) == {"a.rules", "classification-file"}, "--rules replaces them"
    assert given.facts()["rules_lacking"] == []


@pytest.mark.parametrize("pattern", ["*.rules", "on?.rules", "one.rules"])
def test_what_a_users_yaml_names_comes_along_to_a_receiver_elsewhere(
    pattern: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    texts = {"one.rules": "# 1\n", "two.rule": "# 2\n", "more.yaml": HEADER + "flow: {memcap: 9}\n"}
    texts["own.yaml"] = (
        f"{HEADER}include: more.yaml\ndefault-rule-path: {here}\nrule-files: ['{pattern}']\n"
    )
    for name, text in texts.items():
        (here / name).write_text(text)
    named = NamedInputs()
    before = INPUTS.set(named)
    Suricata({"config": "own.yaml"}, base=here)
    INPUTS.reset(before)
    copies = {}
    for number, (written, path) in enumerate(named.found.items()):
        (there / str(number)).mkdir()
        copies[written] = str(path.rename(there / str(number) / path.name))
    before = INPUTS.set(Copies(copies))
    suricata = Suricata({"config": "own.yaml"}, base=here)
    INPUTS.reset(before)
    assert {name: path.read_text() for name, path in suricata.files().items()} == {
        "one.rules": "# 1\n"
    }
    assert suricata._base["flow"] == {"memcap": "9"}


def test_a_users_own_yaml_whose_rules_are_all_gone_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        HEADER + "default-rule-path: /none\nrule-files: [suricata.rules]\n"
    )
    (problem,) = Suricata({"config": "own.yaml"}, base=tmp_path).problems(None)[1:]
    assert "rule-files names /none/suricata.rules, which is not there" in problem


def test_rules_are_called_what_the_user_calls_them(tmp_path: Path) -> None:
    names = ["a/et.rules", "b/et.rules", "my rules.rules", "suricata.yaml"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# none\n")
    suricata = Suricata({"rules": names}, base=tmp_path)
    assert [(r.name, r.said) for r in suricata._rules] == [
        ("et.rules", "a/et.rules"),
        ("1-et.rules", "b/et.rules"),
        ("my_rules.rules", "my rules.rules"),
        ("3-suricata.yaml", "suricata.yaml"),
    ]


@pytest.mark.parametrize("given", [{}, {"stream.memcap": "1gb"}])
def test_what_is_replaced_in_a_users_yaml_is_listed(own: Path, given: dict[str, Any]) -> None:
    options = SuricataOptions(config=own, overrides=given)
    base = read_own(own)
    document = render(options, base, SuricataPlaces(interfaces=["ndrx0"], work="/w", cpus={1}))
    found = {one["key"]: (one["was"], one["now"]) for one in replaced(base, document, given)}
    assert found["af-packet.0.interface"] == ('"eth0"', '"ndrx0"')
    assert found["af-packet.0.threads"] == (None, "1")
    assert found["af-packet.1"] == ('{"interface": "default"}', None)
    assert found["stats.enabled"] == ('"no"', "true")
    assert found["rule-files.0"] == ('"own.rules"', None)
    assert found["outputs.2"][0] is None and "custom" not in found
    assert not [key for key in found if key.startswith(("stream", "custom", "flow"))]
    assert base == read_own(own), "overrides are put into a copy"


@pytest.mark.parametrize(("mode", "inline"), [("ips", True), ("tap", True), ("none", False)])
def test_inline_is_replaced_listed_and_named(tmp_path: Path, mode: str, inline: bool) -> None:
    own = tmp_path / "inline.yaml"
    own.write_text(
        "%YAML 1.1\n---\naf-packet:\n  - interface: eth0\n    ring-size: 3000\n"
        f"    copy-mode: {mode}\n    copy-iface: eth1\n"
    )
    base = read_own(own)
    document = render(
        SuricataOptions(config=own), base, SuricataPlaces(interfaces=["ndrx0"], work="/w", cpus={1})
    )
    assert document["af-packet"][0]["ring-size"] == "3000"
    assert not {"copy-mode", "copy-iface"} & document["af-packet"][0].keys()
    found = {one["key"]: one["was"] for one in replaced(base, document, {})}
    assert found["af-packet.0.copy-mode"] == f'"{mode}"'
    assert found["af-packet.0.copy-iface"] == '"eth1"'
    assert ("not measured" in inline_words(base)) == inline


def test_the_socket_of_a_deep_run_directory_is_reached_through_the_working_directory() -> None:
    assert rendered()["unix-command"]["filename"] == "/work/suricata.socket"
    deep = "/" + "d" * 100
    assert rendered(work=deep)["unix-command"]["filename"] == "/proc/self/cwd/suricata.socket"


def test_packed_rules_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = tmp_path / "some.rules.xz"
    packed.write_bytes(lzma.compress(b"alert ip any any -> any any (sid:1;)\n"))
    plain = plain_rules(packed)
    assert plain.name == "some.rules"
    assert plain.read_bytes() == b"alert ip any any -> any any (sid:1;)\n"
    first = plain.stat()
    assert plain_rules(packed).stat().st_ino == first.st_ino


@pytest.mark.parametrize("content", [b"\xd4\xc3\xb2\xa1\x02\0\x04\0", b"\n" * 9000 + b"a\0"])
def test_what_is_no_text_holds_no_rules(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.rules").write_bytes(content)
    (problem,) = Suricata({"rules": ["x.rules"]}, base=tmp_path).problems(bits_of(tmp_path))
    assert problem.startswith(
        f"sut.rules: {tmp_path / 'x.rules'}: holds no rules: it is no UTF-8 text"
    )


def test_broken_packed_rules_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bad.rules.xz").write_bytes(b"no xz")
    (problem,) = Suricata({"rules": ["bad.rules.xz"]}, base=tmp_path).problems(bits_of(tmp_path))
    assert "bad.rules.xz: cannot be unpacked" in problem


def bits_of(path: Path) -> Any:
    from nodrop.testbed.images.image_tree import Bits

    return Bits(kind="binary", path=path, sha256="0", version="7.0.10")


def test_a_binary_that_is_no_suricata_is_a_problem(tmp_path: Path) -> None:
    from nodrop.testbed.images.sut_bits import binary_bits

    suricata = Suricata({}, base=tmp_path)
    (problem,) = suricata.problems(binary_bits(Path("/bin/true")))
    assert problem.startswith("sut.binary: /bin/true -V names no version")
    assert suricata.problems(bits_of(tmp_path)) == []


@pytest.mark.parametrize("base_is_taken", [True, False])
def test_an_override_is_blamed_where_without_it_all_is_well(
    base_is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def answer(_bits: Any, configuration: Any, _files: Any) -> ConfigTest:
        document = yaml.safe_load(configuration("/work"))
        assert document["rule-files"] == []
        asked.append(bad := document["stream"].get("memcap") == "lots")
        words = "stream-tcp: no" if bad or not base_is_taken else None
        return ConfigTest(refused=words, rules=None, looked_for_rules=False)

    monkeypatch.setattr("nodrop.testbed.suts.suricata.sut.asked", answer)
    suricata = Suricata({"overrides": {"stream.memcap": "lots"}}, base=tmp_path)
    said = ["sut.overrides: `suricata -T` refuses it: stream-tcp: no"] if base_is_taken else []
    assert [suricata.problems(bits_of(tmp_path)) for _ in range(2)] == [said, said]
    assert asked == [True, False]  # once for all trials
    assert Suricata({}, base=tmp_path).problems(bits_of(tmp_path)) == []
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("errors", "loads", "asked_of", "words"),
    [
        ("warn", {"head": 2}, ["head"], ""),
        ("warn", {"head": 0, "whole": 1}, ["head", "whole"], ""),
        ("warn", {"head": 0, "whole": 0}, ["head", "whole"], "Suricata loads none"),
        ("warn", {"head": None, "whole": None}, ["head", "whole"], "Suricata loads none"),
        ("error", {"whole": 9}, ["whole"], "1 of 10 rules do not load: x.rules line 3 (sid 7: ?)"),
    ],
)
def test_of_many_rules_only_the_first_are_asked_unless_each_must_load(
    errors: str, loads: dict[str, int | None], asked_of: list[str], words: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "x.rules").write_text("# long\n" * 30_000)
    asked: list[str] = []

    def answer(_bits: Any, configuration: Any, files: Any, *, timeout_s: float) -> ConfigTest:
        given = files["x.rules"]
        asked.append("head" if isinstance(given, bytes) else "whole")
        assert yaml.safe_load(configuration("/w"))["rule-files"] == ["/w/x.rules"]
        if isinstance(given, bytes):
            assert given.endswith(b"\n") and len(given) < 100_000
        said = {"engine": {"message": BAD_LINE, "module": "detect"}, "log_level": "Error"}
        line = log.parse_line(json.dumps(said).encode(), seen_mono_ns=1)
        loaded = loads[asked[-1]]
        found = None if loaded is None else log.Rules(loaded=loaded, failed=1, skipped=0)
        return ConfigTest(
            refused="x", rules=found, lines=(line,) if line else (), looked_for_rules=True
        )

    monkeypatch.setattr("nodrop.testbed.suts.suricata.sut.asked", answer)
    suricata = Suricata({"rules": ["x.rules"], "rules_errors": errors}, base=tmp_path)
    problems = suricata.problems(bits_of(tmp_path))
    assert asked == asked_of
    assert (words in problems[0].replace("no reason given", "?")) if words else problems == []


BAD_LINE = 'error parsing signature "alert ip (sid:7;)" from file /w/x.rules at line 3'


@pytest.mark.parametrize("online", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("threads", [1, 2, 3, 5, 63, 1024])
def test_detect_threads_become_the_ratio_that_makes_them(online: int, threads: int) -> None:
    options = SuricataOptions(runmode="autofp", detect_threads=threads)
    document = render(
        options, template(), SuricataPlaces(interfaces=["a"], work="/w", online_cpus=online)
    )
    ratio = yaml.safe_load(dump(document))["threading"]["detect-thread-ratio"]
    single = struct.unpack("f", struct.pack("f", ratio))[0]
    assert int(online * single) == threads, "Suricata's own arithmetic, in single precision"


def test_cpus_of_roles() -> None:
    assert rendered()["threading"]["set-cpu-affinity"] is False
    threading = rendered(runmode="autofp", capture_cpus="0", worker_cpus="2-3")["threading"]
    assert threading["set-cpu-affinity"] is True
    assert threading["cpu-affinity"] == [
        {"management-cpu-set": {"cpu": [0, 2, 3], "mode": "balanced"}},
        {"receive-cpu-set": {"cpu": [0], "mode": "exclusive"}},
        {"worker-cpu-set": {"cpu": [2, 3], "mode": "exclusive"}},
    ]
    within = rendered(cpus="0-3", worker_cpus="1")["threading"]["cpu-affinity"]
    assert [next(iter(one.values()))["cpu"] for one in within] == [[0, 1, 2, 3]] * 2 + [[1]]


@pytest.mark.parametrize(
    ("given", "cpus", "pins"),
    [
        ({}, None, {}),
        ({"cpus": "1"}, "1", {"sut.cpus": "1"}),
        ({"worker_cpus": "1"}, "1", {"sut.worker_cpus": "1"}),
        (
            {"worker_cpus": "1", "management_cpus": "3-4"},
            "1,3-4",
            {"sut.worker_cpus": "1", "sut.management_cpus": "3-4"},
        ),
    ],
)
def test_pins_are_known_by_their_keys(
    given: dict[str, Any], cpus: str | None, pins: dict[str, str]
) -> None:
    sut = Suricata(given, base=Path("/"))
    assert (sut.cpus, sut.pins) == (cpus, pins)


def test_an_autofp_scheduler_is_asked_for() -> None:
    assert "autofp-scheduler" not in rendered(runmode="autofp")
    assert rendered(runmode="autofp", autofp_scheduler="ippair")["autofp-scheduler"] == "ippair"


def test_each_capture_has_its_entry(tmp_path: Path) -> None:
    """Without a guess at checksums; an entry for af-xdp would leave it without a thread."""
    (entry,) = rendered(capture="pcap", buffer_bytes=65_536)["pcap"]
    assert entry == {
        "checksum-checks": "yes", "buffer-size": 65_536, "interface": "ndrx0", "threads": 1,
    }  # fmt: skip
    own = tmp_path / "s.yaml"
    own.write_text(
        HEADER + "pcap:\n  - interface: eth9\n    checksum-checks: no\n    bpf-filter: tcp\n"
    )
    (entry,) = rendered(capture="pcap", config=own)["pcap"]
    assert entry["interface"] == "ndrx0" and "buffer-size" not in entry
    assert (entry["checksum-checks"], entry["bpf-filter"]) == ("no", "tcp")
    assert rendered(capture="af-xdp")["af-xdp"] == []
    assert "pcap" not in rendered() and "af-xdp" not in rendered()
    assert retire_s(rendered(capture="pcap"), "pcap") == 1.5


@pytest.mark.parametrize("capture", ["pcap", "af-xdp"])
@pytest.mark.parametrize(
    "given",
    [
        {"threads": 2},
        {"ports": 2},
        {"defrag": True},
        {"ring_size": 64},
        {"cluster_type": "cluster_qm"},
    ],
)
def test_what_no_capture_without_fanout_has_is_refused(capture: str, given: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f'capture = "{capture}"'):
        Suricata({"capture": capture, **given}, base=Path())
    Suricata({**given}, base=Path())


@pytest.mark.parametrize(
    ("capture", "place", "words"),
    [
        ("pcap", {"setup": "vm", "mtu": None, "standing": False}, ""),
        ("pcap", {"setup": "bare", "mtu": 9000, "standing": True}, 'measure.sut = "fresh"'),
        ("af-xdp", {"setup": "bare", "mtu": 3506, "standing": True}, ""),
        ("af-xdp", {"setup": "bare", "mtu": 3507, "standing": False}, "above 3,506 (ERANGE)"),
        ("af-xdp", {"setup": "docker", "mtu": 1500, "standing": False}, "CAP_SYS_ADMIN"),
        ("af-xdp", {"setup": "bare", "mtu": None, "standing": False}, "netns"),
        ("af-packet", {"setup": "vm", "mtu": None, "standing": True}, ""),
    ],
)
@pytest.mark.usefixtures("as_root")
def test_where_a_capture_cannot_be_measured(capture: str, place: Any, words: str) -> None:
    found = Suricata({"capture": capture}, base=Path()).misplaced(**place)
    assert bool(found) == bool(words) and words in found and "\n" not in found


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("capture", ["af-xdp", "dpdk", "af-packet", "pcap"])
def test_what_a_normal_user_cannot_measure(capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is the same in a namespace, where `nodrop run` measures, and outside it, where
    `nodrop plan` stays."""
    sut = Suricata({"capture": capture}, base=Path())
    assert sut.misplaced("bare", mtu=3000, standing=False) == ""
    with monkeypatch.context() as inside:
        inside.setenv(USERNS_VARIABLE, "ready")
        found = sut.misplaced("bare", mtu=3000, standing=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert sut.misplaced("bare", mtu=3000, standing=False) == found
    assert ("run nodrop as root" in found) == (capture in ("af-xdp", "dpdk"))
    assert "\n" not in found


@pytest.mark.parametrize("option", [{"ring_size": 64}, {"ring_size": 30000}, {"threads": 3}])
def test_what_captures_decides_no_detection(tmp_path: Path, option: dict[str, int]) -> None:
    """One baseline serves all rings and threads; a ring of 64 frames also lowers
    max-pending-packets."""
    (tmp_path / "a.rules").write_text("alert ip any any -> any any (sid:1;)\n")
    (tmp_path / "b.rules").write_text("alert ip any any -> any any (sid:2;)\n")

    def key(**more: Any) -> Any:
        table = {"rules": ["a.rules"], **more}
        return Suricata(table, base=tmp_path).detecting(["alerts"]).detection_key(None)

    assert key(**option) == key() != key(rules=["b.rules"])
    assert key(defrag="no", **option)["runmode"] == "single"
