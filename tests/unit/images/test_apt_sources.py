"""Mirrors and proxies come from the host's own apt, in every way they can be written."""

from pathlib import Path

import pytest

from nodrop.errors import LabProblem
from nodrop.testbed.images.apt_sources import (
    AptSource,
    Mirrors,
    deb822_sources,
    find_mirrors,
    host_sources,
    one_line_sources,
    os_release,
)

DEB822 = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
  contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF: not a field
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://thirdparty.example bookworm main
deb http://mirror.example/debian bookworm main contrib # ours
deb-src http://mirror.example/debian bookworm main
deb\thttp://mirror.example/debian  bookworm-updates  main
deb http://security.example/debian-security bookworm-security main
nonsense
"""


def test_deb822() -> None:
    assert list(deb822_sources(DEB822)) == [
        AptSource(
            uri="http://mirror.example/debian",
            suites=("bookworm", "bookworm-updates"),
            components=("main", "contrib"),
        ),
        AptSource(
            uri="http://mirror.example/debian-security",
            suites=("bookworm-security",),
            components=("main",),
        ),
    ]


def test_one_line() -> None:
    found = list(one_line_sources(ONE_LINE))
    assert [source.uri for source in found] == [
        "https://thirdparty.example",
        "http://mirror.example/debian",
        "http://mirror.example/debian",
        "http://security.example/debian-security",
    ]
    assert found[1].components == ("main", "contrib")


def test_a_third_party_is_not_taken_for_the_archive() -> None:
    assert find_mirrors("bookworm", one_line_sources(ONE_LINE)) == Mirrors(
        archive="http://mirror.example/debian",
        security="http://security.example/debian-security",
    )


def test_no_security_mirror_is_none() -> None:
    only = AptSource(uri="http://mirror.example", suites=("bookworm",), components=("main",))
    assert find_mirrors("bookworm", [only]).security is None


def test_no_mirror_says_what_to_do() -> None:
    with pytest.raises(LabProblem, match=r"serves bookworm main; .*sut\.binary"):
        find_mirrors("bookworm", [])


def test_a_host_with_both_formats_and_a_file_of_mirrors(tmp_path: Path) -> None:
    mirrors = tmp_path / "mirrors.list"
    mirrors.write_text("# near ones\nhttp://near.example/debian\tpriority:1\n")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.example bookworm main\n")
    (parts / "b.list").write_text("deb http://b.example bookworm main\n")
    (parts / "c.sources").write_text(
        f"Types: deb\nURIs: mirror+file://{mirrors}\nSuites: bookworm\nComponents: main\n"
    )
    (parts / "d.save").write_text("deb http://d.example bookworm main\n")
    assert [source.uri for source in host_sources(tmp_path)] == [
        "http://a.example",
        "http://b.example",
        "http://near.example/debian",
    ]


def test_os_release(tmp_path: Path) -> None:
    file = tmp_path / "os-release"
    file.write_text('ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian GNU/Linux"\n# end\n')
    assert os_release(file) == {
        "ID": "debian",
        "VERSION_CODENAME": "bookworm",
        "NAME": "Debian GNU/Linux",
    }
    assert os_release(tmp_path / "none") == {}
