"""A certificate counts for one host, kernel, lab, setup and node; for another it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodrop.results.calibration import Certificate, Key, file_name, find_certificate
from tests.unit.calibrate.test_calibration import certificate
from tools.schemas import schemas

KEY = certificate().key


def put(folder: Path, made: str = "2026-11-22T16:00:00+00:00", **changes: Any) -> Certificate:
    key = Key.model_validate(KEY.model_dump() | changes)
    found = certificate("caught").model_copy(update={"key": key, "made_utc": made})
    (folder / file_name(key)).write_text(found.to_text())
    return found


def test_the_one_of_this_very_key(tmp_path: Path) -> None:
    put(tmp_path, kernel="5", made="2026-11-23T00:00:00+00:00")
    mine = put(tmp_path)
    assert find_certificate(tmp_path, KEY) == mine


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernel": "5.10"}, "another kernel (5.10)"),
        ({"host": "x"}, "another host"),
        ({"lab_sha256": "x"}, "another lab file"),
        ({"node_sha256": "x"}, "another node binary"),
        ({"node_sha256": "x", "kernel": "5"}, "another kernel (5) and another node binary"),
    ],
)
def test_of_another_it_says_of_which(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    put(tmp_path, **changes)
    said = find_certificate(tmp_path, KEY)
    assert said == f"the certificate of 2026-11-22T16:00:00+00:00 is for {words}"


def test_what_has_changed_least_is_told(tmp_path: Path) -> None:
    put(tmp_path, node_sha256="x", made="2026-11-01")
    put(tmp_path, node_sha256="x", kernel="5", made="2026-11-09")
    assert find_certificate(tmp_path, KEY) == (
        "the certificate of 2026-11-01 is for another node binary"
    )


def test_of_another_setup_it_is_none(tmp_path: Path) -> None:
    assert find_certificate(tmp_path, KEY) == "run `nodrop calibrate --setup bare`"
    assert find_certificate(tmp_path / "nowhere", KEY) == "run `nodrop calibrate --setup bare`"
    put(tmp_path, setup="docker")
    assert find_certificate(tmp_path, KEY) == "run `nodrop calibrate --setup bare`"


@pytest.mark.parametrize("text", ["", "{}", "[1", '{"format": 2}', "\x00\xff"])
def test_what_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / file_name(KEY)).write_bytes(text.encode("latin-1"))
    assert find_certificate(tmp_path, KEY) == "run `nodrop calibrate --setup bare`"


def test_what_is_written_fits_the_schema() -> None:
    written = json.loads(certificate("caught", "missed").to_text())
    Draft202012Validator(schemas()["certificate"]).validate(written)
