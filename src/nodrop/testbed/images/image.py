"""Root filesystem images: one set of bits, by content hash, for every place a SUT runs in.

<cache>/images/<name>/<sha256 of the tar>/{rootfs.tar, rootfs/, manifest.json}
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nodrop.config.options import INPUTS, Options, check, input_path, read_toml
from nodrop.errors import BadInput, LabProblem
from nodrop.installation import shipped
from nodrop.testbed.hosts.folders import building, cache_folder, locked
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.rights import in_user_namespace
from nodrop.testbed.images.image_tree import Bits
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import (
    SMALL_FILE_BYTES,
    NotJson,
    decode_object,
    member,
    one_line,
    shown,
)
from nodrop.untrusted.matching import TooSlow, matches

APT = Path("/etc/apt")
PROXY_SETTINGS = ("Acquire::http::", "Acquire::https::")
"""Proxy, its exceptions by host, and the certificates a proxy may need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AptSource:
    """One place that apt fetches binary packages from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """Mirrors of one distribution. `security` is None if the host has none configured."""

    archive: str
    security: str | None


def find_mirrors(codename: str, sources: Iterable[AptSource]) -> Mirrors:
    """From the sources for the host's own release `codename`.

    Third parties use release names too; only the distribution itself serves `-updates`.
    """
    known = list(sources)
    archives = [s.uri for s in known if codename in s.suites and "main" in s.components]
    with_updates = {s.uri for s in known if f"{codename}-updates" in s.suites}
    archives.sort(key=lambda uri: uri not in with_updates)
    if not archives:
        raise LabProblem(
            f"no apt source of this host serves {codename} main",
            hint="add your distribution's mirror to /etc/apt/sources.list, install Suricata "
            "yourself, or set sut.binary",
        )
    security = [s.uri for s in known if f"{codename}-security" in s.suites]
    return Mirrors(archive=archives[0], security=security[0] if security else None)


def host_sources(apt: Path = APT) -> list[AptSource]:
    """/etc/apt/sources.list and sources.list.d, in both formats of sources.list(5)."""
    found: list[AptSource] = []
    parts = apt / "sources.list.d"
    for path in [apt / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            found += one_line_sources(path.read_text(errors="replace"))
    for path in sorted(parts.glob("*.sources")):
        found += deb822_sources(path.read_text(errors="replace"))
    return found


def one_line_sources(text: str) -> Iterator[AptSource]:
    """`deb [options] uri suite component...`"""
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        match = re.fullmatch(r"deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)(.*)", line)
        if match:
            components = tuple(match[3].split())
            yield AptSource(uri=_uri(match[1]), suites=(match[2],), components=components)


def deb822_sources(text: str) -> Iterator[AptSource]:
    """Stanzas of `Field: values`, continued on lines that begin with a space."""
    unfolded = re.sub(r"\n[ \t]+", " ", re.sub(r"(?m)^#.*\n?", "", text))
    for stanza in re.split(r"\n\s*\n", unfolded):
        pairs = (line.split(":", 1) for line in stanza.splitlines() if ":" in line)
        fields = {key.strip().lower(): value.split() for key, value in pairs}
        if "deb" not in fields.get("types", ()) or fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", ()):
            yield AptSource(
                uri=_uri(uri),
                suites=tuple(fields.get("suites", ())),
                components=tuple(fields.get("components", ())),
            )


def proxy_options() -> list[str]:
    """apt options that let another apt reach the mirrors as this host's does."""
    dump = run_command(["apt-config", "dump"], where="apt", timeout_s=10).stdout
    return [
        line
        for line in dump.splitlines()
        if line.startswith(PROXY_SETTINGS) and not line.endswith(' "";')
    ]


def os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """ID, VERSION_CODENAME and the like."""
    if not path.is_file():
        return {}
    words = shlex.split(path.read_text(), comments=True)
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _uri(uri: str) -> str:
    """Cloud images name a file of mirrors (`mirror+file:/etc/apt/mirrors/…`): its first one."""
    match = re.fullmatch(r"mirror\+file:/*(/.+)", uri)
    if match and (path := Path(match[1])).is_file():
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                return line.split()[0].rstrip("/")
    return uri.rstrip("/")


MANIFEST = "manifest.json"
DEFAULT_RELEASES = {"debian": "bookworm", "ubuntu": "noble"}
"""bookworm on any Debian: the same image on each of them."""
SOURCE_DATE_EPOCH = "1700000000"
"""Fixed: the tar depends on the packages only, and the same packages give the same sha256."""
BUILD_TIMEOUT_S = 900.0
UNPACK_TIMEOUT_S = 300.0
LEAN = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
)
NOT_IN_THE_HASH = ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap")
"""Name the mirror and proxy of the host that built it; the packages are the same without."""
NO_BYTECODE = 'cd "$1/usr" && find . -name __pycache__ -prune -exec rm -r {} +'
"""Command that removes what Python compiles at installation: it depends on the environment of the
build (seen)."""


class Release(Options):
    distribution: str
    components: Annotated[tuple[str, ...], Field(min_length=1)]
    suites: Annotated[tuple[str, ...], Field(min_length=1)]
    security: str
    packages: Annotated[tuple[str, ...], Field(min_length=1)]
    codename: str = ""
    """The release's name in mmdebstrap, if the release is called otherwise here."""
    variants: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Name → packages that this variant has beside the others, such as plugins of a library."""


class Recipe(Options):
    name: str
    program: str
    """Path of the program in the image."""
    version_of: str
    """The package whose version is the program's."""
    releases: dict[str, Release]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One built image; the fields are those of its manifest.json."""

    name: str
    sha256: str
    release: str
    program: str
    version: str
    built_utc: str
    suites: list[str]
    packages: Mapping[str, str]
    mmdebstrap: str

    @property
    def folder(self) -> Path:
        return images_folder() / self.name / self.sha256

    @property
    def rootfs(self) -> Path:
        return self.folder / "rootfs"

    @property
    def tag(self) -> str:
        return f"{self.name}:{self.version}"

    def is_called(self, tag: str) -> bool:
        """By its release, or by its version or the first numbers of it."""
        return tag == self.release or f"{self.version}.".startswith(f"{tag}.")

    def bits(self) -> Bits:
        return Bits(
            kind="image",
            path=self.rootfs,
            sha256=self.sha256,
            version=self.version,
            packages=self.packages,
        )


def list_images(name: str | None = None) -> list[Image]:
    """Newest first; what cannot be used is left out, and `unusable_images` says why."""
    found = [image for _, image in _manifests() if isinstance(image, Image)]
    chosen = [image for image in found if name in (None, image.name)]
    return sorted(chosen, key=lambda image: image.built_utc, reverse=True)


def unusable_images() -> list[str]:
    """Entries of the cache that are no image, in words."""
    return [f"{path}: {why}" for path, why in _manifests() if not isinstance(why, Image)]


def _manifests() -> Iterator[tuple[Path, Image | str]]:
    top = Folder(images_folder())
    for name in top.folders():
        for sha256 in top.folder(name).folders():
            entry = top.folder(name, sha256)
            if sha256.startswith(".") or not entry.is_there(MANIFEST):
                continue
            try:
                yield entry.path / MANIFEST, _image_of(entry, name, sha256)
            except (OSError, NotJson) as error:
                yield entry.path / MANIFEST, getattr(error, "strerror", None) or str(error)


def _image_of(entry: Folder, name: str, sha256: str) -> Image:
    """Fields that a newer nodrop added are passed over; name and hash are those of the folder."""
    said = decode_object(entry.read(MANIFEST), most_bytes=SMALL_FILE_BYTES)
    if (said.get("name"), said.get("sha256")) != (name, sha256):
        raise NotJson(f"is of {shown(said.get('name'))}, {shown(said.get('sha256'))}")
    packages = member(said, "packages", dict)
    suites = member(said, "suites", list)
    if not all(isinstance(text, str) for text in (*packages.values(), *suites)):
        raise NotJson("packages and suites must be texts")
    if ".." in (program := member(said, "program", str)).split("/"):
        raise NotJson(f"program: {shown(program)} leaves the image")
    return Image(
        name=name,
        sha256=sha256,
        program=program,
        packages=packages,
        suites=suites,
        release=member(said, "release", str),
        version=member(said, "version", str),
        built_utc=member(said, "built_utc", str),
        mmdebstrap=member(said, "mmdebstrap", str),
    )


def recipes() -> list[str]:
    """Names of the images that can be built."""
    return sorted(path.parent.name for path in shipped("images").glob("*/recipe.toml"))


def load_recipe(name: str) -> Recipe:
    path = shipped("images") / name / "recipe.toml"
    if not path.is_file():
        raise BadInput(f"no image recipe {name}", hint=f"there are: {', '.join(recipes())}")
    table, _ = read_toml(path)
    return check(Recipe, table, table="", base=path.parent)


def variant_of(recipe: str, variant: str) -> str:
    """Name of the image that has the packages of a variant, too."""
    return f"{recipe}-{variant}"


def build_image(name: str, *, release: str | None = None, variant: str | None = None) -> Image:
    """Makes the image with mmdebstrap and puts it into the cache; the same bits are kept once. A
    variant is its recipe's image, which is made if it is not there, with packages more."""
    recipe = load_recipe(name)
    host = os_release()
    chosen = release or default_release(host)
    if chosen not in recipe.releases:
        allowed = ", ".join(recipe.releases)
        raise BadInput(f"image {name}: no release {chosen!r} in its recipe; allowed are {allowed}")
    plan, base = recipe.releases[chosen], None
    if variant is not None:
        recipe, plan = _with_variant(recipe, plan, chosen, variant)
    lines = deb_lines(plan, host)
    mode = _mode(recipe.name)
    if variant is not None:
        plain = (image for image in list_images(name) if image.release == chosen)
        base = next(plain, None) or build_image(name, release=chosen)
    with locked(images_folder() / recipe.name) as folder, building(folder) as made:
        tar = made / "rootfs.tar"
        _bootstrap(plan, plan.codename or chosen, lines, mode, tar, base)
        _unpack(tar, made / "rootfs")
        image = _describe(recipe, chosen, plan, tar, made / "rootfs")
        if base is not None:
            _must_have_its_bits(image, base)
        _keep(image, made)
    return image


def _must_have_its_bits(image: Image, base: Image) -> None:
    """LabProblem if a mirror that went on made apt replace what the base has."""
    others = [name for name, version in base.packages.items() if image.packages[name] != version]
    if others:
        raise LabProblem(
            f"image {image.name}: {one_line(', '.join(others), longest=120)} would be newer in it "
            f"than in the image {base.name}, and it is to be the same bits",
            hint=f"run `nodrop image build {base.name} --release {base.release}` first",
        )


def _with_variant(
    recipe: Recipe, plan: Release, release: str, variant: str
) -> tuple[Recipe, Release]:
    if variant not in plan.variants:
        raise BadInput(
            f"image {recipe.name}, release {release}: no variant {variant!r} in its recipe; "
            f"allowed are {', '.join(plan.variants) or 'none'}"
        )
    packages = plan.variants[variant]
    return (
        recipe.model_copy(update={"name": variant_of(recipe.name, variant)}),
        plan.model_copy(update={"packages": packages}),
    )


def _keep(image: Image, made: Path) -> None:
    """If the same bits are there, perhaps under another version, the newer manifest is kept."""
    Folder(made).write(MANIFEST, (json.dumps(asdict(image), indent=1) + "\n").encode())
    if image.folder.exists():
        shutil.rmtree(image.folder)
    made.rename(image.folder)


IMPORTED = "imported"
"""Release of an image that the user made: only its name with its version, or its hash, names it."""
IMAGE_NAME = r"[a-z0-9][a-z0-9-]{0,40}"


def import_image(tar: Path, *, name: str, program: str, version: str) -> Image:
    """Puts a root filesystem of the user's into the cache, by its hash, as it is."""
    if re.fullmatch(IMAGE_NAME, name) is None:
        raise BadInput(f"--name {name!r}: lower case letters, digits and dashes")
    if not version or re.fullmatch(r"[\w.+~-]{1,40}", version, re.ASCII) is None:
        raise BadInput(f"--version {version!r}: such as 3.1.0")
    try:
        with tarfile.open(tar, mode="r:") as members:
            members.next()
    except (tarfile.TarError, OSError) as error:
        raise BadInput(
            f"{tar}: is no tar that can be read: {getattr(error, 'strerror', None) or error}",
            hint="a packed one is unpacked first; `docker export CONTAINER >rootfs.tar` makes one",
        ) from None
    with locked(images_folder() / name) as folder, building(folder) as made:
        kept, rootfs = made / "rootfs.tar", made / "rootfs"
        shutil.copyfile(tar, kept)
        _unpack(kept, rootfs)
        found = (rootfs / program.lstrip("/")).resolve()
        if not (found.is_relative_to(rootfs.resolve()) and found.is_file()):
            raise BadInput(f"{tar}: {program} is not in it, or is a link that leaves it")
        image = Image(
            name=name,
            sha256=file_sha256(kept),
            release=IMPORTED,
            program=program.lstrip("/"),
            version=version,
            built_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            suites=[],
            packages=_packages_in(rootfs),
            mmdebstrap="",
        )
        _keep(image, made)
    return image


def _packages_in(rootfs: Path) -> dict[str, str]:
    """Installed Debian packages; none of another distribution."""
    status = rootfs / "var/lib/dpkg/status"
    if status.is_symlink() or not status.is_file():
        return {}
    return dpkg_packages(status.read_text(errors="replace"))


def take_image(manifest: Mapping[str, Any], tar: Path) -> None:
    """Puts an image that another machine made into the cache: its tar is moved there."""
    image = Image(**manifest)
    with locked(images_folder() / image.name) as folder:
        if image.folder.exists():
            return
        if file_sha256(tar) != image.sha256:
            raise LabProblem(f"image {image.name}: {tar} is not the one that was asked for")
        with building(folder) as made:
            shutil.move(tar, made / "rootfs.tar")
            _unpack(made / "rootfs.tar", made / "rootfs")
            _keep(image, made)


def deb_lines(plan: Release, host: Mapping[str, str]) -> list[str]:
    """Lines of apt sources for making the image: the release, from the mirrors of this host."""
    if host.get("ID") != plan.distribution:
        raise BadInput(
            f"this host is {host.get('ID', 'of an unknown distribution')}, and the release is "
            f"of {plan.distribution}: no mirror of it is configured here",
            hint="choose a release of this host's distribution",
        )
    mirrors = find_mirrors(host.get("VERSION_CODENAME", ""), host_sources())
    components = " ".join(plan.components)
    lines = [f"deb {mirrors.archive} {suite} {components}" for suite in plan.suites]
    if mirrors.security:
        lines.append(f"deb {mirrors.security} {plan.security} {components}")
    return lines


def default_release(host: Mapping[str, str] | None = None) -> str:
    """The release that is built if none is named; empty if this host has none."""
    host = os_release() if host is None else host
    return DEFAULT_RELEASES.get(host.get("ID", ""), host.get("VERSION_CODENAME", ""))


def images_folder() -> Path:
    return cache_folder() / "images"


def _mode(name: str) -> str:
    """How mmdebstrap becomes root of what it makes."""
    if shutil.which("mmdebstrap") is None:
        raise LabProblem(
            "program mmdebstrap is missing",
            hint=f"apt-get install mmdebstrap; or install {name}, or set sut.binary",
        )
    if os.geteuid() == 0:
        return "root"
    # Not $USER: it keeps the name of whoever called su, setpriv or a container's entry.
    user = _user_name(os.geteuid())
    ranges = Path("/etc/subuid").read_text() if Path("/etc/subuid").is_file() else ""
    has_range = re.search(rf"(?m)^({re.escape(user)}|{os.geteuid()}):", ranges) is not None
    if shutil.which("newuidmap") and has_range:
        return "unshare"
    raise LabProblem(
        "a normal user needs newuidmap and a range in /etc/subuid to make an image",
        hint=f"apt-get install uidmap; or build it as root with the same XDG_CACHE_HOME, "
        f"or install {name}, or set sut.binary",
    )


def image_programs() -> set[str]:
    """Programs that make an image here."""
    root = os.geteuid() == 0 and not in_user_namespace()
    return {"mmdebstrap"} if root else {"mmdebstrap", "newuidmap"}


def can_build(recipe: str) -> bool:
    """Whether this host has what makes the image, as far as can be seen without a network."""
    if recipe not in recipes() or not default_release():
        return False
    try:
        _mode(recipe)
    except LabProblem:
        return False
    return True


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's arbitrary user
        return str(uid)


def _bootstrap(
    plan: Release, suite: str, lines: list[str], mode: str, tar: Path, base: Image | None
) -> None:
    options = [f"--aptopt={option}" for option in ('Apt::Install-Recommends "false"',)]
    options += [f"--aptopt={option}" for option in proxy_options()]
    options += [f"--dpkgopt={option}" for option in LEAN]
    if base is not None:
        options += [
            f"--setup-hook=tar-in {shlex.quote(str(base.folder / 'rootfs.tar'))} /",
            "--skip=check/empty,tar-in/mknod",
        ]
    forgotten = " ".join(f'"$1/{path}"' for path in NOT_IN_THE_HASH)
    run_command(
        [
            "mmdebstrap",
            f"--mode={mode}",
            f"--variant={'minbase' if base is None else 'custom'}",
            "--format=tar",
            f"--include={','.join(plan.packages)}",
            f"--components={','.join(plan.components)}",
            *options,
            f"--customize-hook=rm -f {forgotten}",
            f"--customize-hook={NO_BYTECODE}",
            suite,
            str(tar),
            *lines,
        ],
        shown=["mmdebstrap", suite],
        where="image",
        env={**os.environ, "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH, "LC_ALL": "C"},
        timeout_s=BUILD_TIMEOUT_S,
    )


def _unpack(tar: Path, rootfs: Path) -> None:
    """Without /dev: device nodes are the host's, shown there when something runs in it."""
    rootfs.mkdir()
    owner = "--same-owner" if os.geteuid() == 0 else "--no-same-owner"
    run_command(
        [
            "tar",
            "-x",
            "-f",
            str(tar),
            "-C",
            str(rootfs),
            owner,
            "--exclude=./dev/*",
            "--exclude=dev/*",
        ],
        where="image",
        timeout_s=UNPACK_TIMEOUT_S,
    )


def _describe(recipe: Recipe, release: str, plan: Release, tar: Path, rootfs: Path) -> Image:
    if not (rootfs / recipe.program).is_file():
        raise LabProblem(f"image {recipe.name}: {recipe.program} is not in it")
    packages = dpkg_packages((rootfs / "var/lib/dpkg/status").read_text())
    made_by = run_command(["mmdebstrap", "--version"], where="image", timeout_s=10).stdout
    return Image(
        name=recipe.name,
        sha256=file_sha256(tar),
        release=release,
        program=recipe.program,
        version=upstream_version(packages[recipe.version_of]),
        built_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        suites=[*plan.suites, plan.security],
        packages=packages,
        mmdebstrap=made_by.strip(),
    )


def dpkg_packages(status: str) -> dict[str, str]:
    """Installed package → version, from a dpkg status file."""
    pairs = re.findall(r"(?ms)^Package: (\S+)$.*?^Version: (\S+)$", status)
    return dict(sorted(pairs))


def upstream_version(version: str) -> str:
    """`1:7.0.10-1~bpo12+1` → `7.0.10`: without Debian's epoch and revision."""
    return re.sub(r"^\d+:|-[^-]*$", "", version)


# Which bits of a SUT an experiment gets: its own binary, an image it names, or the default.

VERSION_TIMEOUT_S = 5.0
MOST_SHEBANG_BYTES = 256


Version = tuple[Sequence[str], str]
"""Arguments that make a program say its version, and a regular expression that finds it."""
BY_V: Version = (("-V",), r"(\d+\.\d+\.\d+)")


def resolve_bits(
    options: Mapping[str, Any], recipe: str, *, base: Path, version: Version | None = None
) -> Bits:
    """`binary` of the SUT's table, then the image cache, then PATH."""
    if binary := options.get("binary"):
        path = input_path(Path(str(binary)), base)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise BadInput(f'sut.binary = "{binary}": {path} is not an executable file')
        return binary_bits(path.resolve(), version)
    wanted = options.get("image")
    name = INPUTS.get().image(str(wanted or recipe))
    if wanted or name != recipe:
        try:
            return find_image(name).bits()
        except BadInput as error:
            raise BadInput(f'sut.image = "{wanted}": {error.message}', hint=error.hint) from None
    if found := find_bits(recipe, version):
        return found
    others = ", ".join(f'"{image.tag}"' for image in list_images(recipe))
    cached = f"has only {others}, which sut.image must name" if others else "has none"
    raise LabProblem(
        f"no {recipe} found: sut.binary is not set, the image cache {cached}, PATH has none",
        hint=_mend(recipe),
    )


def _mend(name: str) -> str:
    if name in recipes():
        return f"run `nodrop image build {name}`, or install {name}"
    recipe, _, variant = name.rpartition("-")
    if recipe in recipes() and any(
        variant in r.variants for r in load_recipe(recipe).releases.values()
    ):
        return f"run `nodrop image build {recipe} --with {variant}`, or set sut.binary"
    return f"install {name}, or name its program with sut.binary"


def must_be_there(bits: Bits | None) -> None:
    """LabProblem if what an experiment was given is no longer on the disk."""
    if bits is not None and not bits.path.exists():
        mend = "run `nodrop image build`" if bits.kind == "image" else "install it again"
        raise LabProblem(f"the {bits.kind} {bits.path} is gone", hint=mend)


def script_problem(bits: Bits | None) -> str:
    """Reason why a script cannot be measured; empty if the binary is no script."""
    if bits is None or bits.kind != "binary" or not bits.path.is_file():
        return ""
    with bits.path.open("rb") as file:
        first = file.readline(MOST_SHEBANG_BYTES)
    if not first.startswith(b"#!"):
        return ""
    interpreter = one_line(first[2:].decode(errors="replace").strip(), longest=80)
    return (
        f"{bits.path} is a script ({interpreter}): its interpreter would run, or what it starts, "
        "and neither is the file of which the run keeps the sha256; name the program itself "
        "(sut.binary; in a program file: argv = [interpreter, script])"
    )


def find_bits(recipe: str, version: Version | None = None) -> Bits | None:
    """The bits for an experiment that asks for none: the image of the release that is built if none
    is named, else the host's program. Another release, such as a newer Suricata's, would change
    figures without a word: it is taken only if it is named."""
    if image := default_image(recipe):
        return image.bits()
    found = shutil.which(recipe)
    return binary_bits(Path(found).resolve(), version) if found else None


def default_image(recipe: str) -> Image | None:
    """The newest of the default release."""
    release = default_release()
    return next((image for image in list_images(recipe) if image.release == release), None)


def ensure_bits(recipe: str, *, variant: str | None = None) -> Bits:
    """The bits for an experiment that asks for none; an image is built if there are none."""
    name = recipe if variant is None else variant_of(recipe, variant)
    return find_bits(name) or build_image(recipe, variant=variant).bits()


def binary_bits(path: Path, version: Version | None = None) -> Bits:
    """A program of the host, with the version it says it has."""
    arguments, regex = version or BY_V
    argv = [str(path), *arguments]
    try:
        said = run_command(argv, where="host", timeout_s=VERSION_TIMEOUT_S, check=False)
        found = matches(regex, said.stdout + said.stderr)
    except LabProblem as problem:
        ends = "it has to print its version and end (`version` of a program file)"
        raise LabProblem(problem.message, hint=ends) from None
    except TooSlow as slow:
        raise LabProblem(f"version of {path.name}: {slow}", hint="see its program file") from None
    return Bits(
        kind="binary",
        path=path,
        sha256=file_sha256(path),
        version=found[0][1] if found else None,
    )


def find_image(name: str) -> Image:
    """By recipe name (its default), as NAME:VERSION or NAME:RELEASE (the newest of these), or by
    the beginning of a sha256. A version may be cut after a number: suricata:8."""
    if found := _found(name):
        return found
    raise BadInput(f"no image {name}", hint="run `nodrop image list`")


def _found(name: str) -> Image | None:
    images = list_images()
    recipe, _, tag = name.partition(":")
    if tag:
        return next((i for i in images if i.name == recipe and i.is_called(tag)), None)
    by_hash = (image for image in images if image.sha256.startswith(name))
    return default_image(name) or next(by_hash, None)
