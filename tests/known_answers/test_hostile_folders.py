"""Folders that somebody else filled: nothing outside is read, written or deleted; nothing hangs."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import signal
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.cli import main
from nodrop.errors import BadInput
from nodrop.report.story import read_story
from nodrop.report.write import write_report
from nodrop.results.rundir import find_run, open_run
from nodrop.results.writer import RunWriter
from nodrop.testbed.images.image_cache import list_images, unusable_images
from nodrop.testbed.load.tcpreplay import Tcpreplay
from nodrop.testbed.suts.suricata.sut import plain_rules
from nodrop.untrusted import json_text
from nodrop.untrusted.folder import Folder, RefusedFile, read_file
from nodrop_studies import importer
from nodrop_studies.dataset import Dataset, DatasetCell, discover
from nodrop_studies.paper_tables import CellResult
from nodrop_studies.samples import parse_folder_name
from nodrop_studies.workbooks import UnsafeArchiveError, check_archive
from tests.made.rundirs import Fake, make_run

SMALL = Fake(cells=({"load.multiplier": 1},), repetitions=2)
SECRET = "the secret of somebody else"


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


FILES = ("manifest.json", "experiment.toml", "lab.toml", "trials.jsonl", "findings.json")
SPECIAL: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "socket": lambda path: bound(path),
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("kept"), SMALL)


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "d" / kept.name))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize("name", ["report/index.html", "report/figures/loss.svg"])
def test_a_report_writes_through_no_link(run: Path, secret: Path, name: str) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(secret)
    write_report(read_story([run]))
    assert secret.read_text() == SECRET
    assert (run / name).is_file() and not (run / name).is_symlink()


@pytest.mark.parametrize("name", ["report", "report/figures"])
def test_a_report_follows_no_folder_out(
    run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside)
    assert main.exit_code(["report", str(run)]) in (2, 3)
    assert list(outside.iterdir()) == []
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_hard_link_is_not_written_through(run: Path, secret: Path) -> None:
    (run / "report").mkdir(exist_ok=True)
    (run / "report/report.md").hardlink_to(secret)
    write_report(read_story([run]))
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("name", FILES)
def test_no_file_outside_gets_into_a_page(
    run: Path, secret: Path, tmp_path: Path, name: str
) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    write_report(read_story([run]), tmp_path / "out")
    told = b"".join(p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert SECRET.encode() not in told


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("trials.jsonl", kind) for kind in SPECIAL), *((name, "fifo") for name in FILES[:3])],
)
def test_what_is_no_file_is_read_as_one_that_is_gone(
    run: Path, tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hangs or fills the memory."""
    (run / name).unlink(missing_ok=True)
    monkeypatch.chdir(run)  # a socket's path is short
    SPECIAL[kind](Path(name))
    story = read_story([run])
    assert len(story.trials) == (0 if name == "trials.jsonl" else 2)
    assert write_report(story, tmp_path / "out").is_file()


@pytest.mark.parametrize("kind", SPECIAL)
def test_samples_that_are_no_files(
    run: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = min(run.glob("runs/*/samples-*.jsonl"))
    path.unlink()
    monkeypatch.chdir(path.parent)
    SPECIAL[kind](Path(path.name))
    page = write_report(read_story([run]), tmp_path / "out").read_text()
    assert "its series are left out" in page


def _resumed(path: Path) -> RunWriter:
    return RunWriter.resume(path, plan_sha256=open_run(path).manifest["plan_sha256"])


def test_resuming_deletes_nothing_outside(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "home"
    (outside / "precious").mkdir(parents=True)
    shutil.rmtree(run / "runs")
    (run / "runs").symlink_to(outside)
    with pytest.raises(RefusedFile, match="is a link"):
        _resumed(run)
    assert (outside / "precious").is_dir()


def test_resuming_removes_a_link_and_not_what_it_leads_to(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "home"
    (outside / "precious").mkdir(parents=True)
    (run / "runs" / "9999-half").mkdir()
    (run / "runs" / "9999-half" / "sut").symlink_to(outside)
    with _resumed(run):
        assert not (run / "runs" / "9999-half").exists()
    assert (outside / "precious").is_dir()


@pytest.mark.parametrize("name", ["lock", "trials.jsonl"])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_resuming_changes_nothing_through_a_link(
    run: Path, secret: Path, name: str, link: Callable[[Path, Path], None]
) -> None:
    (run / name).unlink(missing_ok=True)
    link(run / name, secret)
    with pytest.raises((RefusedFile, BadInput)):
        _resumed(run)
    assert secret.read_text() == SECRET


@pytest.mark.usefixtures("real_root")  # makes another user's folder
def test_root_resumes_no_other_users_run(run: Path) -> None:
    os.chown(run, 4242, 4242)
    with pytest.raises(BadInput, match="user 4242"):
        _resumed(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="what others may write to matters to root")
def test_root_resumes_nothing_that_others_may_write_to(run: Path) -> None:
    run.chmod(0o777)
    with pytest.raises(BadInput, match="other users may write"):
        _resumed(run)


@pytest.mark.parametrize(
    ("wanted", "there", "found"),
    [
        ("snk", ["snk-20260101T000000Z", "snk-large-20270101T000000Z"], "snk-20260101T000000Z"),
        ("a", ["a-20260101T000000Z-9", "a-20260101T000000Z-10"], "a-20260101T000000Z-10"),
        ("a", ["a-20260101T000000Z-2", "a-20260101T000000Z"], "a-20260101T000000Z-2"),
        ("a-b", ["a-20260101T000000Z", "a-b-20250101T000000Z"], "a-b-20250101T000000Z"),
        ("snk", ["snk-large-20270101T000000Z"], None),
    ],
)
def test_resuming_finds_the_run_of_this_name(
    tmp_path: Path, wanted: str, there: list[str], found: str | None
) -> None:
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    if found:
        assert find_run(tmp_path, wanted).name == found
    else:
        with pytest.raises(BadInput, match="no run of"):
            find_run(tmp_path, wanted)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b"])
def test_a_name_is_one_step_down(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedFile):
        Folder(tmp_path).read(name)
    with pytest.raises(RefusedFile):
        Folder(tmp_path).write(name, b"")


@pytest.mark.parametrize("size", [11, 3 << 20])
def test_a_file_has_a_bound_and_the_bound_a_key(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x" * size)
    with pytest.raises(RefusedFile, match=json_text.KEY):
        Folder(tmp_path).read("f", most_bytes=size // 2)
    monkeypatch.setenv(json_text.KEY, "3")
    assert len(Folder(tmp_path).read("f", most_bytes=size // 2)) == size


@pytest.mark.parametrize("text", ["0", "x", "nan", "1e9"])
def test_a_key_that_is_no_factor(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(json_text.KEY, text)
    with pytest.raises(BadInput, match=json_text.KEY):
        json_text.times()


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_the_user_names_is_a_file(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    SPECIAL[kind](Path("f"))
    with pytest.raises(OSError):
        read_file(Path("f"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nodrop"


@pytest.mark.parametrize("size", [1 << 20, 9 << 20])
def test_packed_rules_have_an_end(
    cache: Path, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.testbed.suts.suricata.sut.RULES_BYTES", size - 1)
    path = tmp_path / "x.rules.xz"
    path.write_bytes(lzma.compress(b"#" * size))
    with pytest.raises(BadInput, match="unpacks to more than"):
        plain_rules(path)
    assert [p for p in cache.rglob("*") if p.is_file()] == []
    monkeypatch.setenv(json_text.KEY, "2")
    assert plain_rules(path).stat().st_size == size


@pytest.mark.parametrize(("pack", "size"), [(gzip.compress, 3 << 20), (lzma.compress, 11 << 20)])
def test_a_packed_file_without_a_capture_is_one_line(
    cache: Path, tmp_path: Path, size: int, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "x.pcap.gz"
    path.write_bytes(pack(bytes(size)))
    with pytest.raises(BadInput, match="not a capture file that can be read"):
        Tcpreplay({"trace": str(path)}, base=tmp_path).problems()
    assert [p for p in cache.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(("pack", "cut"), [(gzip.compress, 10), (lzma.compress, 60)])
def test_a_packed_trace_that_is_cut_is_one_line(
    cache: Path, tmp_path: Path, cut: int, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "x.pcap.gz"
    path.write_bytes(pack(bytes(range(256)) * 9)[:cut])
    with pytest.raises(BadInput, match=r"load\.trace: .*file is cut or corrupt"):
        Tcpreplay({"trace": str(path)}, base=tmp_path).problems()
    assert [p for p in cache.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    ("part", "cell"),
    [
        *(("xl/ws/sheet1.xml", cell) for cell in ("XFD1048576", "A99999", "AAA1", "&#88;FD1")),
        *((part, "AAA1") for part in ("xl/a.bin", "sheet", "customXml/item.xml")),
    ],
)
def test_a_far_cell_in_any_part(tmp_path: Path, part: str, cell: str) -> None:
    path = tmp_path / "x.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(part, f'<sheetData><row><c r="{cell}"><v>1</v></c></row></sheetData>')
    with pytest.raises(UnsafeArchiveError, match="beyond ZZ9999"):
        check_archive(path.read_bytes())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_sheet_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/s.xml", '<c r="XFD1048576"/>'.encode(encoding))
    with pytest.raises(UnsafeArchiveError, match="UTF-16"):
        check_archive(path.read_bytes())


@pytest.mark.parametrize("kind", ["fifo", "zero", "loop"])
def test_a_data_set_of_links_and_fifos(tmp_path: Path, kind: str) -> None:
    SPECIAL[kind](tmp_path / "trace.xlsx")
    with pytest.raises(BadInput, match="nothing to import"):
        discover(tmp_path)


GOOD = (
    '{"name":"suricata","sha256":"SHA","release":"bookworm","program":"usr/bin/suricata",'
    '"version":"7","built_utc":"2026-01-01","suites":["bookworm"],"packages":{},"mmdebstrap":"1"'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"name":' + "9" * 5000 + "}",
        GOOD + ',"packages":{"a":1}}',
        GOOD.replace("SHA", "../../../etc") + "}",
        GOOD.replace('"name":"suricata"', '"name":7') + "}",
        GOOD.replace("usr/bin/suricata", "../../../bin/sh") + "}",
    ],
)
def test_a_damaged_image_is_named_and_the_others_stay(cache: Path, text: str) -> None:
    for sha256, content in (("SHA", text), ("GOOD", GOOD.replace("SHA", "GOOD") + ',"new":1}')):
        entry = cache / "images" / "suricata" / sha256
        entry.mkdir(parents=True)
        (entry / "manifest.json").write_text(content)
    assert [image.sha256 for image in list_images()] == ["GOOD"]
    assert len(unusable_images()) == 1


@pytest.mark.parametrize("kind", SPECIAL)
def test_an_image_manifest_that_is_no_file(
    cache: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache / "images" / "suricata" / "SHA"
    entry.mkdir(parents=True)
    monkeypatch.chdir(entry)
    SPECIAL[kind](Path("manifest.json"))
    assert list_images() == [] and len(unusable_images()) == 1


@pytest.mark.usefixtures("real_root")  # root alone must not trust others
@pytest.mark.parametrize(("owner", "mode"), [(4242, 0o755), (0, 0o777), (0, 0o775)])
def test_root_runs_nothing_out_of_another_users_cache(cache: Path, owner: int, mode: int) -> None:
    cache.mkdir(parents=True)
    cache.chmod(mode)
    os.chown(cache, owner, owner)
    with pytest.raises(BadInput, match="the cache"):
        list_images()


LOGS = "logs,vm,1460678849,bigFlows.pcap,4,em2,enp34s0,4,2g,4,1,3,5,suricata-vm,dhcp,eth1,1"


def read_or_die(cell: DatasetCell, **_: object) -> CellResult:
    if cell.part.startswith("deadly"):
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does for want of memory
    return CellResult(cell=cell, window=(0, 1))


@pytest.mark.parametrize(
    "parts", [["deadly", "b", "c"], ["a", "b", "deadly"], ["deadly 1", "b", "deadly 2"]]
)
def test_a_file_that_kills_its_reader_costs_its_own_cell(
    parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "_read_cell", read_or_die)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    condition, _ = parse_folder_name(LOGS)
    cells = tuple(DatasetCell(part=part, condition=condition) for part in parts)
    dataset = Dataset(folder=Path(), cells=cells, skips=())
    found = importer.read_cells(dataset, mode="sound", window=None)
    reasons = [[skip.reason for skip in result.skips] for result in found]
    assert reasons == [["its reader died"] if "deadly" in part else [] for part in parts]
