"""Recipes of images: the releases that each can be made of, and the packages of their variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from nodrop.config.options import Options, check, read_toml
from nodrop.errors import BadInput
from nodrop.installation import shipped
from nodrop.testbed.images.apt_sources import find_mirrors, host_sources, os_release

DEFAULT_RELEASES = {"debian": "bookworm", "ubuntu": "noble"}
"""bookworm on any Debian: the same image on each of them."""


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
