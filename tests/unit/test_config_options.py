"""Each way a table can be wrong becomes one line that names key, value and what is allowed."""

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field, PositiveInt

from nodrop.config.options import AnyPath, InputFile, MemorySize, Options, Overrides, YesNo, check
from nodrop.config.replay import ReplayOptions
from nodrop.errors import BadInput


class Inner(Options):
    depth: int = 1


class Table(Options):
    defrag: YesNo = True
    threads: PositiveInt | Literal["auto"] = "auto"
    mode: Literal["workers", "autofp"] = "workers"
    ratio: float = 0.0
    rules: tuple[InputFile, ...] = ()
    image: AnyPath | None = None
    memory: MemorySize | None = None
    overrides: Overrides = Field(default_factory=dict)
    inner: Inner = Inner()


def parse(tmp_path: Path, **options: Any) -> Table:
    return check(Table, options, table="sut", base=tmp_path)


def test_a_good_table(tmp_path: Path) -> None:
    (tmp_path / "a.rules").touch()
    table = parse(
        tmp_path,
        kind="suricata",
        defrag="no",
        threads=2,
        ratio=1,
        rules=["a.rules"],
        image="later/root.tar",
        memory="512MiB",
        overrides={"stream.memcap": "1gb", "app-layer": {"tls": {"enabled": False}}},
    )
    assert table == Table.model_construct(
        defrag=False,
        threads=2,
        mode="workers",
        ratio=1.0,
        rules=(tmp_path / "a.rules",),
        image=tmp_path / "later/root.tar",
        memory=536870912,
        overrides={"stream.memcap": "1gb", "app-layer.tls.enabled": False},
        inner=Inner(),
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"defarg": "yes"}, "sut.defarg: no such key; did you mean sut.defrag?"),
        ({"inner": {"dept": 1}}, "sut.inner.dept: no such key; did you mean sut.inner.depth?"),
        ({"inner": 3}, "sut.inner = 3: must be a table"),
        ({"defrag": "maybe"}, 'sut.defrag = "maybe": allowed are yes, no'),
        ({"mode": "fast"}, 'sut.mode = "fast": allowed are workers, autofp'),
        ({"threads": "many"}, 'sut.threads = "many": must be a whole number or auto'),
        ({"threads": 0}, "sut.threads = 0: must be > 0 or auto"),
        ({"threads": True}, "sut.threads = true: must be a whole number or auto"),
        ({"ratio": "1"}, 'sut.ratio = "1": must be a number'),
        ({"ratio": float("inf")}, "sut.ratio = Infinity: must be a finite number"),
        ({"rules": "a.rules"}, 'sut.rules = "a.rules": must be a list'),
        ({"rules": [1]}, "sut.rules.0 = 1: must be a text in quotes"),
        ({"rules": ["no"]}, 'sut.rules.0 = "no": no such file: {base}/no'),
        ({"rules": ["."]}, 'sut.rules.0 = ".": must be a file, and {base} is not one'),
        ({"memory": "1 lot"}, 'sut.memory = "1 lot": must be bytes, such as 1048576, "512MiB"'),
        ({"overrides": 1}, "sut.overrides = 1: must be a table"),
        (
            {"overrides": {"a.b": 1, "a": {"b": 2}}},
            'sut.overrides = {{"a.b": 1, "a": {{"b": 2}}}}: a.b is given twice',
        ),
    ],
)
def test_each_error_line(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(tmp_path, **options)
    assert caught.value.message.startswith(line.format(base=tmp_path))
    assert "\n" not in caught.value.message


def test_a_key_like_nothing_lists_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"sut\.xyz: no such key; allowed are sut\.defrag, sut\.im"):
        parse(tmp_path, xyz=1)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "load.trace: missing; it must be given"),
        ({"trace": "no.pcap"}, 'load.trace = "no.pcap": no such file: {base}/no.pcap'),
        ({"trace": 5}, "load.trace = 5: must be a text in quotes"),
        ({"trace": ["make:x"]}, 'load.trace = ["make:x"]: must have at least 2 entries'),
        ({"trace": ["make:x", 5]}, "load.trace.1 = 5: must be a text in quotes"),
        ({"trace": ["make:x", "no.pcap"]}, 'load.trace.1 = "no.pcap": no such file: {base}/no.p'),
        ({"trace": "make:a b"}, 'load.trace = "make:a b": must name what to make'),
        ({"trace": "make:x", "speed": 0}, "load.speed = 0: must be > 0"),
        ({"trace": "make:x", "multiplier": -1}, "load.multiplier = -1: must be > 0"),
        (
            {"trace": "make:x", "speed": 2, "pps": 10},
            "load: speed and pps contradict each other: give one of them",
        ),
        ({"trace": "make:x", "top_speed": 1}, "load.top_speed = 1: must be true or false"),
        ({"trace": "make:x", "withhold": {}}, "load.withhold = {{}}: give either ratio or flows"),
        (
            {"trace": "make:x", "withhold": {"ratio": 0.1, "flows": ["tcp 1.2.3.4:5 6.7.8.9:1"]}},
            'load.withhold = {{"ratio": 0.1, "flows": ["tcp 1.2.3.4:5 6.7.8.9:1"]}}: give either',
        ),
        (
            {"trace": "make:x", "withhold": {"flows": ["tcp"]}},
            'load.withhold.flows.0 = "tcp": must be a flow such as',
        ),
    ],
)
def test_load_error_lines(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        check(ReplayOptions, options, table="load", base=tmp_path)
    assert caught.value.message.startswith(line.format(base=tmp_path))


@pytest.mark.parametrize(
    ("withhold", "keys"),
    [
        ({"seed": 3}, ["load.withhold"]),
        (
            {"ratio": 0.1, "flows": ["tcp 1.2.3.4:5 6.7.8.9:1"]},
            ["load.withhold.ratio", "load.withhold.flows"],
        ),
    ],
)
def test_an_error_is_about_keys_at_odds_or_the_table_that_lacks_one(
    tmp_path: Path, withhold: dict[str, Any], keys: list[str]
) -> None:
    with pytest.raises(BadInput) as caught:
        check(ReplayOptions, {"trace": "make:x", "withhold": withhold}, table="load", base=tmp_path)
    assert [*caught.value.keys] == keys


def test_a_folder_that_json_cannot_name_is_refused(tmp_path: Path) -> None:
    """Seen: a plan whose load is not known, and "invalid JSON: lone leading surrogate"."""
    base = tmp_path / os.fsdecode(b"t\xff")
    base.mkdir()
    (base / "a.pcap").touch()
    with pytest.raises(BadInput, match=r'load\.trace = "a.pcap": its name is not UTF-8'):
        check(ReplayOptions, {"trace": "a.pcap"}, table="load", base=base)


def test_pace(tmp_path: Path) -> None:
    def pace(**options: Any) -> dict[str, float | bool]:
        made = {"trace": "make:demo", **options}
        return check(ReplayOptions, made, table="load", base=tmp_path).pace

    assert pace() == {"speed": 1.0}
    assert pace(speed=20) == {"speed": 20.0}
    assert pace(pps=1000) == {"pps": 1000.0}
    assert pace(top_speed=True) == {"top_speed": True}
