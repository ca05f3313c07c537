"""A file of subscribers: what is wrong is one line with the file's, and no line shows a key."""

import hashlib
from pathlib import Path

import pytest

from nodrop.config.options import check
from nodrop.config.subscribers import MOST_LISTED, Subscribers
from nodrop.errors import BadInput

IMSI, K, OPC = "001010000000001", "46" * 16, "CD" * 16
HEADER = "imsi,k,opc"


def read(folder: Path, *lines: str, **options: object) -> Subscribers:
    (folder / "subscribers.csv").write_text("\n".join(lines))
    table = {"subscribers_file": "subscribers.csv", **options}
    return check(Subscribers, table, table="load", base=folder)


def test_each_is_known_by_its_imsi_and_the_file_by_its_content(tmp_path: Path) -> None:
    lines = (HEADER, f"{IMSI[:-1]}9,{K},{OPC}", f"{IMSI},{OPC},{K}", "")
    options = read(tmp_path, *lines)
    assert options.subscribers_file is not None
    assert options.subscribers_file.usims == (
        {"imsi": IMSI, "k": OPC.lower(), "opc": K},
        {"imsi": f"{IMSI[:-1]}9", "k": K, "opc": OPC.lower()},
    )
    said = {"load.subscribers_file": hashlib.sha256("\n".join(lines).encode()).hexdigest()}
    assert options.files_sha256("load") == said
    path = str(tmp_path / "subscribers.csv")
    assert options.model_dump(mode="json")["subscribers_file"] == path, "and not what it holds"
    assert check(Subscribers, {}, table="load", base=tmp_path).files_sha256("load") == {}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "csv:1: "),
        (["imsi;k;opc"], "csv:1: "),
        ([HEADER], ", not 0"),
        ([HEADER, f"{IMSI},{K}"], "csv:2: "),
        ([HEADER, f"{IMSI},{K},{OPC},8000"], "csv:2: "),
        ([HEADER, f"{IMSI},{K},{OPC}", "x"], "csv:3: "),
        ([HEADER, f"{IMSI[1:]},{K},{OPC}"], 'csv:2: imsi = "01010000000001": '),
        ([HEADER, f"{IMSI[1:]}x,{K},{OPC}"], "csv:2: imsi"),
        ([HEADER, f"{IMSI},{K[2:]},{OPC}"], "csv:2: k (30 "),
        ([HEADER, f"{IMSI},{K}00,{OPC}"], "csv:2: k (34 "),
        ([HEADER, f"{IMSI},{K},{OPC[1:]}"], "csv:2: opc (31 "),
        ([HEADER, f"{IMSI},{K},+{OPC[1:]}"], "csv:2: opc (32 "),
        (
            [HEADER, f"{IMSI},{K},{OPC}", f"{IMSI[:-1]}2,{K},{OPC}", f"{IMSI},{OPC},{K}"],
            f"csv:4: imsi = {IMSI} is in line 2",
        ),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, lines: list[str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, *lines)
    said = str(refused.value)
    assert said.startswith('load.subscribers_file = "subscribers.csv": ') and words in said
    assert "\n" not in said and K[:28] not in said and OPC[:28] not in said


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"

    def refused(written: object, **options: object) -> str:
        table = {"subscribers_file": written, **options}
        with pytest.raises(BadInput) as error:
            check(Subscribers, table, table="sut", base=tmp_path)
        return str(error.value)

    assert "no such file" in refused("other.csv")
    assert "must be a text" in refused(5)
    file.write_bytes(b"imsi,k,opc\n\xff")
    assert "byte 11 is not UTF-8" in refused("other.csv")
    file.write_bytes(HEADER.encode() + b"\nx" * (MOST_LISTED + 1))
    assert refused("other.csv").endswith(", not 100,001")
    file.write_text(f"{HEADER}\n{IMSI},{K},{OPC}\n")
    for key, value in (("k", K), ("opc", OPC), ("first_imsi", IMSI)):
        words = refused("other.csv", **{key: value})
        assert words.startswith(f"sut: {key}: ")
