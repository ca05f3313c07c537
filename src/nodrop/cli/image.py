"""`nodrop image`: the root filesystems a SUT runs out of, kept by hash in the cache folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.terminal.arguments import AsJson
from nodrop.terminal.saying import complain, say, say_json

if TYPE_CHECKING:
    from nodrop.images.image import Image

Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="What to build: suricata, tcpdump, capture-tools.")
]

image = typer.Typer(no_args_is_help=True, help="The images a SUT runs out of.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(image, name="image")


@image.command()
def build(
    recipe: Recipe,
    release: Annotated[
        str | None, typer.Option(metavar="NAME", help="Release of the distribution: bookworm …")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build an image and keep it; the same packages give the same sha256.

    \b
    nodrop image build suricata
    nodrop image build suricata --release trixie-backports
    """
    from nodrop.images.image import build_image

    _print(build_image(recipe, release=release), as_json)


@image.command()
def ensure(recipe: Recipe, as_json: AsJson = False) -> None:
    """Build an image only if there is neither one nor the program itself.

    \b
    nodrop image ensure suricata
    """
    from nodrop.images.choice import ensure_bits

    bits = ensure_bits(recipe)
    if as_json:
        say_json(asdict(bits))
    else:
        say(f"{recipe} {bits.version or '(version unknown)'}: {bits.kind} {bits.path}")


@image.command()
def guest(recipe: Recipe, as_json: AsJson = False) -> None:
    """Make what setup vm boots: kernel, initramfs, disk. Else the first trial in it does.

    \b
    nodrop image guest suricata
    """
    from nodrop.images.choice import find_image
    from nodrop.images.guest_assets import make_assets

    found = make_assets(find_image(recipe).bits())
    if as_json:
        say_json(asdict(found))
        return
    say(f"kernel    {found.kernel.package} {found.kernel.version}")
    say(f"initramfs {found.initramfs}")
    say(f"disk      {found.disk}")


@image.command("import")
def import_it(
    rootfs: Annotated[Path, typer.Argument(metavar="ROOTFS.tar", help="Not packed.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Such as snort.")],
    program: Annotated[
        str, typer.Option("--program", metavar="PATH", help="Of the program, in the image.")
    ],
    version: Annotated[str, typer.Option("--version", metavar="TEXT", help="The program's.")],
    as_json: AsJson = False,
) -> None:
    """Keep a root filesystem of your own as an image, for `sut.image = "NAME:VERSION"`.

    \b
    docker export CONTAINER >rootfs.tar
    nodrop image import rootfs.tar --name snort --program /usr/bin/snort --version 3.1.0
    """
    from nodrop.images.image import import_image

    _print(import_image(rootfs, name=name, program=program, version=version), as_json)


@image.command("list")
def list_them(as_json: AsJson = False) -> None:
    """List the images there are, the newest first. One is taken if an experiment names none; others
    are named by sut.image, such as "suricata:8" or the start of a sha256.

    \b
    nodrop image list
    nodrop image list --json
    """
    from nodrop.images.choice import default_image
    from nodrop.images.image import list_images, unusable_images
    from nodrop.terminal.tables import console, images_table

    found = list_images()
    for words in unusable_images():
        complain(f"not an image: {words}")
    if as_json:
        say_json([_fields(one) for one in found])
    elif found:
        console().print(images_table(found, [default_image(one.name) for one in found]))
    else:
        say("no image yet; `nodrop image build suricata` makes one")


@image.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="IMAGE", help="Recipe, recipe:version, or start of a sha256.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what an image holds.

    \b
    nodrop image show suricata
    nodrop image show suricata:8 --json
    """
    from nodrop.images.choice import find_image

    _print(find_image(name), as_json)


def _print(found: Image, as_json: bool) -> None:
    if as_json:
        say_json(_fields(found))
        return
    say(f"{found.name} {found.version} ({found.release}, built {found.built_utc})")
    say(f"sha256   {found.sha256}")
    say(f"rootfs   {found.rootfs}")
    say(f"packages {len(found.packages)} (--json lists them)")


def _fields(found: Image) -> dict[str, Any]:
    return {**asdict(found), "rootfs": str(found.rootfs)}
