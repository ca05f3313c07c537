"""However a run directory was spoilt, there is a report, and it says what it could not read."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodrop.errors import BadInput
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.layout import WrittenPart
from nodrop.untrusted.folder import Folder
from tests.made.rundirs import Fake, make_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just(-1) | st.just(1e308),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("small"),
        Fake(cells=({"load.multiplier": 8}, {}), repetitions=1, base_pps=200_000),
    )


def places(found: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys."""
    items = list(found.items()) if isinstance(found, dict) else list(enumerate(found))
    inner = [p for _, v in items if isinstance(v, dict | list) for p in places(v)]
    return [(found, key) for key, _ in items] + inner


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_may_be_anything(
    small: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spoilt = tmp_path_factory.mktemp("spoilt") / small.name
    shutil.copytree(small, spoilt)
    files = sorted(p for p in spoilt.rglob("*.json*") if p.is_file())
    path = data.draw(st.sampled_from(files), label="file")
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = data.draw(st.integers(0, len(lines) - 1), label="line")
    found = json.loads(lines[number])
    container, key = data.draw(st.sampled_from(places(found)), label="place")
    container[key] = data.draw(JSON, label="value")
    lines[number] = json.dumps(found)
    path.write_text("\n".join(lines) + "\n")
    assert write_report(read_story([spoilt]), spoilt / "report", only=[WrittenPart.HTML]).is_file()


@pytest.mark.parametrize("value", [[], {}, "x", [7]], ids=str)
@pytest.mark.parametrize("name", ["bytes", "bytes_between", "packets"])
def test_a_number_of_the_books_that_is_none(
    small: Path, tmp_path: Path, name: str, value: Any
) -> None:
    spoilt = tmp_path / small.name
    shutil.copytree(small, spoilt)
    for path in spoilt.glob("runs/*/ledger.json"):
        found = json.loads(path.read_text())
        found["accounts"][-1][name] = value
        path.write_text(json.dumps(found))
    assert "ledger.json makes no sense" in write_report(
        read_story([spoilt]), tmp_path / "out", only=[WrittenPart.HTML]
    ).read_text(encoding="utf-8")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_byte_may_be_any_other(
    small: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spoilt = tmp_path_factory.mktemp("spoilt") / small.name
    shutil.copytree(small, spoilt)
    path = data.draw(st.sampled_from(sorted(p for p in spoilt.rglob("*") if p.is_file())))
    content = bytearray(path.read_bytes() or b"x")
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=9))
    path.write_bytes(content)
    assert write_report(read_story([spoilt]), spoilt / "report", only=[WrittenPart.HTML]).is_file()


def test_rows_that_cannot_be_read_are_named_and_left_out(small: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / small.name
    shutil.copytree(small, spoilt)
    folder, loop, *_ = sorted(spoilt.glob("runs/*/samples-*.jsonl"))
    for path in (folder, loop):
        path.unlink()
    folder.mkdir()
    loop.symlink_to(loop.name)
    live = folder.with_name("live.jsonl")
    live.unlink(missing_ok=True)
    live.mkdir()
    page = write_report(read_story([spoilt]), tmp_path / "out").read_text()
    for path, why in (
        (folder, "Is a directory"),
        (live, "Is a directory"),
        (loop, "is a link, which is not followed"),
    ):
        assert f"{path.relative_to(spoilt)}: {why}; its series are left out" in page


def test_a_bottomless_manifest(small: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / small.name
    shutil.copytree(small, spoilt)
    deep = "[" * 900 + "]" * 900
    (spoilt / "manifest.json").write_text(f'{{"plan_sha256":"p","deep":{deep}}}')
    assert write_report(read_story([spoilt]), tmp_path / "out").is_file()


def test_a_folder_that_takes_no_report_is_named_with_what_to_do(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "cells.csv.part")

    monkeypatch.setattr(Folder, "writing", refuse)
    with pytest.raises(BadInput) as said:
        write_report(read_story([small]), tmp_path / "out")
    assert str(said.value) == (
        f"{tmp_path / 'out'}: Read-only file system; write to another disk (--out, TMPDIR): this "
        "one is mounted read-only"
    )
