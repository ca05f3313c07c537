"""Cache of root filesystem images: one set of bits, by content hash, for every place a SUT runs in.

<cache>/images/<name>/<sha256 of the tar>/{rootfs.tar, rootfs/, manifest.json}
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts.folders import building, cache_folder, locked
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.images.recipe import default_release
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import SMALL_FILE_BYTES, NotJson, decode_object, member, shown

MANIFEST = "manifest.json"
UNPACK_TIMEOUT_S = 300.0
IMPORTED = "imported"
"""Release of an image that the user made: only its name with its version, or its hash, names it."""
IMAGE_NAME = r"[a-z0-9][a-z0-9-]{0,40}"


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
        """Whether `tag` is its release, its version or the first numbers of its version."""
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


def images_folder() -> Path:
    return cache_folder() / "images"


def find_image(name: str) -> Image:
    """The image called NAME (the recipe's default), NAME:VERSION or NAME:RELEASE (the newest of
    these), or by the beginning of its sha256. A version may be cut after a number: suricata:8.
    BadInput if there is none."""
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


def default_image(recipe: str) -> Image | None:
    """The newest of the default release."""
    release = default_release()
    return next((image for image in list_images(recipe) if image.release == release), None)


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
        unpack(kept, rootfs)
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
        keep_image(image, made)
    return image


def _packages_in(rootfs: Path) -> dict[str, str]:
    """Installed Debian packages; none of another distribution."""
    status = rootfs / "var/lib/dpkg/status"
    if status.is_symlink() or not status.is_file():
        return {}
    return dpkg_packages(status.read_text(errors="replace"))


def take_image(image: Image, tar: Path) -> None:
    """Puts an image that another machine made into the cache: its tar is moved there."""
    with locked(images_folder() / image.name) as folder:
        if image.folder.exists():
            return
        if file_sha256(tar) != image.sha256:
            raise LabProblem(f"image {image.name}: {tar} is not the one that was asked for")
        with building(folder) as made:
            shutil.move(tar, made / "rootfs.tar")
            unpack(made / "rootfs.tar", made / "rootfs")
            keep_image(image, made)


def keep_image(image: Image, made: Path) -> None:
    """Puts an image in its place. The newer manifest is kept if the same bits are there, perhaps
    under another version."""
    Folder(made).write(MANIFEST, (json.dumps(asdict(image), indent=1) + "\n").encode())
    if image.folder.exists():
        shutil.rmtree(image.folder)
    made.rename(image.folder)


def unpack(tar: Path, rootfs: Path) -> None:
    """Unpacks an image without /dev: device nodes are the host's, shown there when something runs
    in it."""
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


def dpkg_packages(status: str) -> dict[str, str]:
    """Installed package → version, from a dpkg status file."""
    pairs = re.findall(r"(?ms)^Package: (\S+)$.*?^Version: (\S+)$", status)
    return dict(sorted(pairs))
