"""Images made of recipes with mmdebstrap, from the mirrors of this host."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from nodrop.errors import BadInput, LabProblem
from nodrop.testbed.hosts.folders import building, locked
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.hosts.rights import is_root_of_the_host
from nodrop.testbed.images.apt_sources import os_release, proxy_options
from nodrop.testbed.images.image_cache import (
    Image,
    dpkg_packages,
    images_folder,
    keep_image,
    list_images,
    unpack,
)
from nodrop.testbed.images.recipe import (
    Recipe,
    Release,
    deb_lines,
    default_release,
    load_recipe,
    recipes,
    variant_of,
)
from nodrop.untrusted.json_text import one_line

SOURCE_DATE_EPOCH = "1700000000"
"""Fixed: the tar depends on the packages only, and the same packages give the same sha256."""
BUILD_TIMEOUT_S = 900.0
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
        run_mmdebstrap(plan, plan.codename or chosen, lines, mode, tar, base)
        unpack(tar, made / "rootfs")
        image = _describe(recipe, chosen, plan, tar, made / "rootfs")
        if base is not None:
            _must_have_its_bits(image, base)
        keep_image(image, made)
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
    return {"mmdebstrap"} if is_root_of_the_host() else {"mmdebstrap", "newuidmap"}


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


def run_mmdebstrap(
    plan: Release, suite: str, lines: list[str], mode: str, tar: Path, base: Image | None
) -> None:
    options = [f"--aptopt={option}" for option in ('Apt::Install-Recommends "false"',)]
    options += [f"--aptopt={option}" for option in proxy_options()]
    options += [f"--dpkgopt={option}" for option in LEAN]
    forgotten = " ".join(f'"$1/{path}"' for path in NOT_IN_THE_HASH)
    with building(tar.parent) as folder:
        if base is not None:
            begun = _without_devices(base, folder / "base.tar")
            hook = f"--setup-hook=tar-in {shlex.quote(str(begun))} /"
            options += [hook, "--skip=check/empty"]
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


def _without_devices(base: Image, copy: Path) -> Path:
    """Copies an image's tar without its device nodes. A normal user may make none, and mmdebstrap
    1.3.5 (Debian 12) cannot leave them out; it makes or mounts its own."""
    with tarfile.open(base.folder / "rootfs.tar", "r:") as tar, tarfile.open(copy, "w:") as rest:
        for member in tar:
            if not member.name.startswith("./dev/"):
                rest.addfile(member, tar.extractfile(member) if member.isreg() else None)
    return copy


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


def upstream_version(version: str) -> str:
    """`1:7.0.10-1~bpo12+1` → `7.0.10`: without Debian's epoch and revision."""
    return re.sub(r"^\d+:|-[^-]*$", "", version)
