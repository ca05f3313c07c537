"""The image cache, and which bits an experiment gets; mmdebstrap is a stand-in here."""

import json
import os
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.config.options import INPUTS
from nodrop.errors import BadInput, LabProblem
from nodrop.remote.inputs import Copies
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.images import bootstrap, image_cache, recipe
from nodrop.testbed.images.apt_sources import one_line_sources
from nodrop.testbed.images.bootstrap import build_image, upstream_version
from nodrop.testbed.images.image_cache import (
    Image,
    dpkg_packages,
    find_image,
    images_folder,
    import_image,
    list_images,
    take_image,
)
from nodrop.testbed.images.image_tree import Bits, first_difference
from nodrop.testbed.images.recipe import deb_lines, load_recipe
from nodrop.testbed.images.sut_bits import ensure_bits, must_be_there, resolve_bits, script_problem

STATUS = """\
Package: suricata
Status: install ok installed
Priority: optional
Version: 1:7.0.10-1~bpo12+1
Description: x
 Version: 0

Package: libhtp2
Version: 1:0.5.50-1
"""
MMDEBSTRAP = f"""#!{sys.executable}
import io, json, os, sys, tarfile
if sys.argv[1] == "--version":
    raise SystemExit(print("mmdebstrap 9.9"))
if os.environ.get("FAIL"):
    raise SystemExit("E: no such suite")
here = os.path.dirname(os.path.realpath(__file__))
json.dump(sys.argv[1:], open(here + "/asked.json", "w"))
target = next(a for a in sys.argv if a.endswith("/rootfs.tar"))
for hook in (a for a in sys.argv if a.startswith("--setup-hook=tar-in ")):
    with tarfile.open(hook.split()[1]) as base:
        json.dump([m.name for m in base], open(here + "/base.json", "w"))
with tarfile.open(target, "w") as tar:
    def add(name, content, mode=0o755):
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), mode, int(os.environ["SOURCE_DATE_EPOCH"])
        tar.addfile(info, io.BytesIO(content))
    add("./usr/bin/suricata", os.environ.get("BITS", "bits").encode())
    status = {STATUS!r}.replace("7.0.10", os.environ.get("VERSION", "7.0.10"))
    add("./var/lib/dpkg/status", status.encode())
    add("./dev/null", b"")
"""
DEBIAN = {"ID": "debian", "VERSION_CODENAME": "trixie"}


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a stand-in mmdebstrap, an own cache, a Debian with one mirror."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder / "mmdebstrap", MMDEBSTRAP)
    program(folder / "apt-config", "#!/bin/sh\necho 'Acquire::http::Proxy \"http://p.example\";'\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = "deb http://m.example trixie main\ndeb http://s.example trixie-security main\n"
    sources = list(one_line_sources(source))
    monkeypatch.setattr(recipe, "host_sources", lambda: sources)
    for module in (bootstrap, recipe):
        monkeypatch.setattr(module, "os_release", lambda: DEBIAN)
    monkeypatch.setattr(bootstrap, "_mode", lambda name: "root")
    monkeypatch.setattr(shutil, "which", which_without_suricata(folder))
    return folder


def which_without_suricata(folder: Path) -> object:
    def which(name: str) -> str | None:
        path = folder / name
        return str(path) if path.exists() else None

    return which


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_an_image_is_built_from_the_hosts_mirrors_and_kept(programs: Path) -> None:
    built = build_image("suricata")
    assert (built.version, built.release) == ("7.0.10", "bookworm")
    assert built.packages == {"libhtp2": "1:0.5.50-1", "suricata": "1:7.0.10-1~bpo12+1"}
    assert (built.rootfs / "usr/bin/suricata").read_text() == "bits"
    assert not (built.rootfs / "dev/null").exists()
    assert list_images() == [built] == [find_image("suricata")] == [find_image(built.sha256[:8])]
    asked = json.loads((programs / "asked.json").read_text())
    assert asked[-4:] == [
        "deb http://m.example bookworm main",
        "deb http://m.example bookworm-updates main",
        "deb http://m.example bookworm-backports main",
        "deb http://s.example bookworm-security main",
    ]
    assert '--aptopt=Acquire::http::Proxy "http://p.example";' in asked
    assert "--include=suricata/bookworm-backports,libhtp2/bookworm-backports,iproute2" in asked


def test_the_same_bits_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = build_image("suricata"), build_image("suricata")
    assert first.sha256 == second.sha256 and len(list_images()) == 1
    monkeypatch.setenv("BITS", "others")
    third = build_image("suricata")
    assert third.sha256 != first.sha256 and len(list_images()) == 2


def test_a_variant_is_an_image_of_its_own(programs: Path) -> None:
    """It is the recipe's image with packages more, and not taken for the image that a user did not
    ask to change."""
    made = build_image("suricata", variant="dpdk")
    (plain,) = list_images("suricata")
    asked = json.loads((programs / "asked.json").read_text())
    assert "--variant=custom" in asked
    begun = json.loads((programs / "base.json").read_text())
    assert begun == ["./usr/bin/suricata", "./var/lib/dpkg/status"], "a normal user makes no /dev"
    (included,) = [word for word in asked if word.startswith("--include=")]
    assert included == "--include=" + ",".join(
        load_recipe("suricata").releases["bookworm"].variants["dpdk"]
    )
    assert (made.name, made.release) == ("suricata-dpdk", "bookworm")
    assert resolve_bits({}, "suricata", base=Path()) == plain.bits()
    assert resolve_bits({}, "suricata-dpdk", base=Path()) == made.bits()
    assert resolve_bits({"image": "suricata-dpdk"}, "suricata", base=Path()) == made.bits()
    with pytest.raises(BadInput, match="no variant 'xdp' in its recipe; allowed are dpdk"):
        build_image("suricata", variant="xdp")


def test_a_variant_of_newer_packages_is_not_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    build_image("suricata")
    monkeypatch.setenv("VERSION", "7.0.11")
    with pytest.raises(LabProblem, match="suricata would be newer in it"):
        build_image("suricata", variant="dpdk")
    assert list_images("suricata-dpdk") == []
    build_image("suricata")
    made = ensure_bits("suricata", variant="dpdk")
    assert made.version == "7.0.11" and ensure_bits("suricata", variant="dpdk") == made


def test_the_mend_for_a_variant_names_its_option() -> None:
    with pytest.raises(LabProblem) as error:
        resolve_bits({}, "suricata-dpdk", base=Path())
    assert "nodrop image build suricata --with dpdk" in str(error.value.hint)


def test_an_image_of_another_machine_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_image("suricata")
    copy = tmp_path / "copy.tar"
    copy.write_bytes((built.folder / "rootfs.tar").read_bytes())
    take_image(built, copy)
    assert copy.exists(), "it is there already"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert list_images() == []
    take_image(built, copy)
    assert list_images() == [built]
    assert not copy.exists()
    assert (built.rootfs / built.program).is_file()
    copy.write_bytes(b"another")
    with pytest.raises(LabProblem, match="is not the one that was asked for"):
        take_image(replace(built, sha256="0" * 64), copy)


def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(LabProblem, match=r"`mmdebstrap bookworm` failed .*no such suite"):
        build_image("suricata")
    assert list_images() == []
    assert [path.name for path in (images_folder() / "suricata").iterdir()] == [".lock"]


def test_unknown_recipes_and_releases_name_the_known() -> None:
    with pytest.raises(
        BadInput, match="no image recipe snort; there are: capture-tools, nodrop, suricata"
    ):
        build_image("snort")
    with pytest.raises(
        BadInput, match=r"no release 'sid'.*allowed are bookworm, trixie, trixie-backports, noble"
    ):
        build_image("suricata", release="sid")


def test_a_release_of_another_distribution() -> None:
    with pytest.raises(BadInput, match="this host is debian, and the release is of ubuntu"):
        deb_lines(load_recipe("suricata").releases["noble"], DEBIAN)


def test_bits_come_from_the_experiment_then_the_cache_then_path(programs: Path) -> None:
    with pytest.raises(LabProblem, match=r"no suricata found.*nodrop image build suricata"):
        resolve_bits({}, "suricata", base=Path())
    version = "#!/bin/sh\necho This is Suricata version 7.0.3 RELEASE\n"
    program(programs / "suricata", version)
    on_path = resolve_bits({}, "suricata", base=Path())
    assert (on_path.kind, on_path.version) == ("binary", "7.0.3")
    assert ensure_bits("suricata") == on_path
    built = build_image("suricata")
    assert resolve_bits({}, "suricata", base=Path()) == built.bits()
    own = program(programs / "own", version.replace("7.0.3", "8.0.1"))
    chosen = resolve_bits({"binary": "own"}, "suricata", base=programs)
    assert (chosen.kind, chosen.path, chosen.version) == ("binary", own, "8.0.1")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> dict[str, Image]:
    """The default release, and one built after it with a newer Suricata."""
    old = build_image("suricata")
    monkeypatch.setenv("VERSION", "8.0.8")
    new = build_image("suricata", release="trixie-backports")
    assert new.built_utc >= old.built_utc
    return {"7.0.10": old, "8.0.8": new}


def test_a_newer_suricata_is_taken_only_if_it_is_named(built: dict[str, Image]) -> None:
    old, new = "7.0.10", "8.0.8"
    assert {*built} == {old, new}
    for named, version in {
        None: old, "suricata": old, "suricata:7": old, "suricata:bookworm": old,
        "suricata:8": new, "suricata:8.0": new, "suricata:8.0.8": new,
        "suricata:trixie-backports": new,
    }.items():  # fmt: skip
        options = {} if named is None else {"image": named}
        assert resolve_bits(options, "suricata", base=Path()) == built[version].bits(), named
        assert ensure_bits("suricata") == built[old].bits()
    for name in ("suricata:9", "suricata:80", "suricata:8.0.80", "snort:8", "suricata:"):
        with pytest.raises(BadInput, match=f'sut.image = "{name}": no image {name}; run'):
            resolve_bits({"image": name}, "suricata", base=Path())


def test_only_a_newer_suricata_is_cached(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as building:
        building.setenv("VERSION", "8.0.8")
        new = build_image("suricata", release="trixie-backports")
    with pytest.raises(
        LabProblem, match=r'has only "suricata:8\.0\.8", which sut\.image must name'
    ):
        resolve_bits({}, "suricata", base=Path())
    with pytest.raises(BadInput, match="no image suricata; run"):
        find_image("suricata")
    assert find_image("suricata:8") == new
    program(programs / "suricata", "#!/bin/sh\necho This is Suricata version 7.0.3 RELEASE\n")
    assert resolve_bits({}, "suricata", base=Path()).kind == "binary"
    (programs / "suricata").unlink()
    assert ensure_bits("suricata").version == "7.0.10"


def test_an_image_chosen_on_another_machine_is_by_its_hash(
    built: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = built["7.0.10"], built["8.0.8"]
    # Of a distribution that has no image here: what it takes without a word is another.
    monkeypatch.setattr(image_cache, "default_release", lambda: "noble")
    names = {"suricata": old.sha256, "suricata:7": new.sha256}
    token = INPUTS.set(Copies({}, names))
    try:
        assert resolve_bits({}, "suricata", base=Path()) == old.bits()
        assert resolve_bits({"image": "suricata:7"}, "suricata", base=Path()) == new.bits()
        assert resolve_bits({"image": "suricata:8"}, "suricata", base=Path()) == new.bits()
    finally:
        INPUTS.reset(token)
    with pytest.raises(LabProblem, match="no suricata found"):
        resolve_bits({}, "suricata", base=Path())


def test_a_chosen_image_or_binary_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r'sut\.binary = "gone": .*is not an executable file'):
        resolve_bits({"binary": "gone"}, "suricata", base=tmp_path)
    with pytest.raises(BadInput, match=r'sut\.image = "abcd": no image abcd'):
        resolve_bits({"image": "abcd"}, "suricata", base=tmp_path)


@pytest.mark.parametrize(
    ("kind", "mend"), [("image", "run `nodrop image build`"), ("binary", "install it again")]
)
def test_bits_that_are_gone(tmp_path: Path, kind: str, mend: str) -> None:
    bits = Bits(kind=kind, path=tmp_path / "there", sha256="")
    with pytest.raises(LabProblem, match=f"the {kind} {bits.path} is gone; {mend}"):
        must_be_there(bits)
    bits.path.mkdir()
    must_be_there(bits)
    must_be_there(None)


def test_ensure_builds_where_nothing_is() -> None:
    assert ensure_bits("suricata").kind == "image"


@pytest.mark.parametrize(
    ("version", "upstream"),
    [("1:7.0.10-1~bpo12+1", "7.0.10"), ("7.0.3-1build3", "7.0.3"), ("5.1", "5.1")],
)
def test_upstream_version(version: str, upstream: str) -> None:
    assert upstream_version(version) == upstream


def test_packages_of_a_status_file() -> None:
    assert dpkg_packages(STATUS) == {"libhtp2": "1:0.5.50-1", "suricata": "1:7.0.10-1~bpo12+1"}


def test_a_normal_user_without_a_range_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(LabProblem, match=r"needs newuidmap and a range .*XDG_CACHE_HOME"):
        bootstrap._mode("suricata")


def rootfs_tar(folder: Path, files: dict[str, str], link: tuple[str, str] | None = None) -> Path:
    tar = folder / "rootfs.tar"
    with tarfile.open(tar, "w") as members:
        for name, text in files.items():
            (folder / "file").write_text(text)
            members.add(folder / "file", arcname=name)
        if link:
            made = tarfile.TarInfo(link[0])
            made.type, made.linkname = tarfile.SYMTYPE, link[1]
            members.addfile(made)
    return tar


@pytest.mark.parametrize("prefix", ["", "./"])
def test_a_root_filesystem_of_the_users_is_an_image(tmp_path: Path, prefix: str) -> None:
    files = {f"{prefix}usr/bin/snort": "a program", f"{prefix}dev/null": "", f"{prefix}etc/x": "y"}
    tar = rootfs_tar(tmp_path, files)
    made = import_image(tar, name="snort", program="/usr/bin/snort", version="3.1.0")
    again = import_image(tar, name="snort", program="usr/bin/snort", version="3.1.0")
    assert (again.sha256, list_images("snort")) == (made.sha256, [again])
    bits = resolve_bits({"image": "snort:3.1.0"}, "snort", base=tmp_path)
    assert (bits.sha256, bits.version) == (file_sha256(tar), "3.1.0")
    assert first_difference(bits) is None and not (bits.path / "dev/null").exists()
    (bits.path / "etc/x").write_text("z")
    assert first_difference(bits) is not None
    with pytest.raises(LabProblem, match=r"which sut\.image must name"):
        resolve_bits({}, "snort", base=tmp_path)


@pytest.mark.parametrize(
    ("program", "words"),
    [("/usr/bin/snort3", "is not in it"), ("/bin/out", "leaves it"), ("../../etc/passwd", "it")],
)
def test_an_image_without_its_program(tmp_path: Path, program: str, words: str) -> None:
    tar = rootfs_tar(tmp_path, {"usr/bin/snort": "a"}, ("bin/out", "/etc/passwd"))
    with pytest.raises(BadInput, match=words):
        import_image(tar, name="snort", program=program, version="3")
    assert not list_images("snort")


def test_what_is_no_root_filesystem(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b" + bytes(600))
    with pytest.raises(BadInput, match="is no tar that can be read"):
        import_image(tmp_path / "x.tar.gz", name="snort", program="x", version="3")
    with pytest.raises(BadInput, match="lower case letters"):
        import_image(tmp_path / "x", name="../x", program="x", version="3")


@pytest.mark.parametrize(
    ("text", "words"),
    [("#!/bin/sh\nexec snort", "is a script (/bin/sh)"), ("\x7fELF", ""), ("", "")],
)
def test_a_script_is_no_program(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own").write_text(text)
    bits = Bits(kind="binary", path=tmp_path / "own", sha256="", version=None)
    assert words in script_problem(bits) and bool(words) == bool(script_problem(bits))
    assert not script_problem(None) and not script_problem(replace(bits, kind="image"))
