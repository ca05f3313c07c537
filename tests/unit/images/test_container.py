"""The container image of nodrop: an archive for `docker load`, the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from pathlib import Path

from nodrop.testbed.hosts.rights import OPENING
from tools import container

EPOCH = 1_700_000_000
INSTALL = Path(__file__).parents[3] / "docs/how-to/install.md"


def tree(folder: Path) -> Path:
    (folder / "usr/local/bin").mkdir(parents=True)
    (folder / "usr/local/bin/nodrop").write_text(container.PROGRAM)
    (folder / "usr/local/bin/nodrop").chmod(0o700)
    (folder / "a").write_text("1")
    return folder


def archive(folder: Path) -> Path:
    folder.mkdir()
    layers = [folder / "below", folder / "above"]
    (tree(folder / "tree-above") / "more").write_text("more")
    tree(folder / "tree-below")
    for layer in layers:
        with layer.open("wb") as file:
            container.pack(folder / f"tree-{layer.name}", file, EPOCH)
    container.write(folder / "out.tar", layers, epoch=EPOCH, architecture="aarch64")
    return folder / "out.tar"


def test_it_is_what_docker_load_reads(tmp_path: Path) -> None:
    with tarfile.open(archive(tmp_path / "one")) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config_text = tar.extractfile(manifest["Config"]).read()
        layers = [tar.extractfile(name).read() for name in manifest["Layers"]]
    assert manifest["RepoTags"] == [container.TAG]
    assert manifest["Config"] == f"{hashlib.sha256(config_text).hexdigest()}.json"
    config = json.loads(config_text)
    hashes = [hashlib.sha256(layer).hexdigest() for layer in layers]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{one}" for one in hashes]
    assert (config["architecture"], config["created"]) == ("arm64", "2023-11-14T22:13:20Z")
    assert config["config"]["Entrypoint"] == ["nodrop"]
    # Seen with `docker run --user`: HOME was /, and "/.cache: Permission denied".
    assert "HOME=/tmp" in config["config"]["Env"]


def test_install_has_the_options_that_nodrop_names_and_the_image() -> None:
    (alias,) = re.findall(r"^alias nodrop='(docker run .*)'$", INSTALL.read_text(), re.MULTILINE)
    assert OPENING in alias
    assert '--user "$(id -u):$(id -g)"' in alias
    assert alias.endswith(f" {container.TAG}")


def test_a_layer_has_roots_files_of_one_time(tmp_path: Path) -> None:
    with (tmp_path / "layer").open("wb") as file:
        container.pack(tree(tmp_path / "tree"), file, EPOCH)
    with tarfile.open(tmp_path / "layer") as tar:
        entries = tar.getmembers()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(e.uid, e.gid, e.uname, e.mtime) for e in entries} == {(0, 0, "", EPOCH)}
    assert {entry.name: entry.mode for entry in entries if entry.isfile()} == {
        "a": 0o644,
        "usr/local/bin/nodrop": 0o755,
    }


def test_two_have_the_same_bytes(tmp_path: Path) -> None:
    one = archive(tmp_path / "one")
    assert one.read_bytes() == archive(tmp_path / "other").read_bytes()


def test_records_name_only_what_is_there(tmp_path: Path) -> None:
    """Seen: two clones made images that differed in the hash of pip's direct_url.json alone."""
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "a.py").touch()
    record = tmp_path / "a-1.dist-info/RECORD"
    record.write_text(
        '../../bin/a,sha256=x,9\na-1.dist-info/RECORD,,\n"a.py",,\na-1.dist-info/direct_url.json,,\n'
    )
    container.record_what_is_there(tmp_path)
    assert record.read_text() == 'a-1.dist-info/RECORD,,\n"a.py",,\n'
