"""Bits of a SUT that an experiment gets: its own binary, an image it names, or the default."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodrop.config.options import INPUTS, input_path
from nodrop.errors import BadInput, BadKey, LabProblem
from nodrop.testbed.hosts.local import run_command
from nodrop.testbed.hosts.node import file_sha256
from nodrop.testbed.images.bootstrap import build_image
from nodrop.testbed.images.image_cache import default_image, find_image, list_images
from nodrop.testbed.images.image_tree import Bits
from nodrop.testbed.images.recipe import load_recipe, recipes, variant_of
from nodrop.untrusted.json_text import one_line
from nodrop.untrusted.matching import TooSlow, matches

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
            raise BadKey("sut.binary", f"{path} is not an executable file", given=f'"{binary}"')
        return binary_bits(path.resolve(), version)
    wanted = options.get("image")
    name = INPUTS.get().image(str(wanted or recipe))
    if wanted or name != recipe:
        try:
            return find_image(name).bits()
        except BadInput as error:
            raise BadKey("sut.image", error.message, given=f'"{wanted}"', hint=error.hint) from None
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
