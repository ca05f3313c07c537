"""`nodrop sut` and `nodrop image`: described capture programs, and the root filesystems of SUTs."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodrop.errors import BadInput
from nodrop.terminal.arguments import AsJson, Settings, complain, say, say_json

if TYPE_CHECKING:
    from nodrop.calibrate.program import ProgramProof
    from nodrop.testbed.images.image_cache import Image


Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="What to build: suricata, tcpdump, capture-tools.")
]

Variant = Annotated[
    str | None,
    typer.Option("--with", metavar="VARIANT", help="More packages beside it, such as dpdk."),
]

image = typer.Typer(no_args_is_help=True, help="Images that a SUT runs from.")


@image.command()
def build(
    recipe: Recipe,
    release: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Release of the distribution, such as bookworm."),
    ] = None,
    variant: Variant = None,
    as_json: AsJson = False,
) -> None:
    """Build an image and keep it; the same packages give the same sha256.

    \b
    nodrop image build suricata
    nodrop image build suricata --release trixie-backports
    nodrop image build suricata --with dpdk
    """
    from nodrop.testbed.images.bootstrap import build_image

    _print(build_image(recipe, release=release, variant=variant), as_json)


@image.command()
def ensure(recipe: Recipe, variant: Variant = None, as_json: AsJson = False) -> None:
    """Build an image unless there is one already, or the program itself.

    \b
    nodrop image ensure suricata
    nodrop image ensure suricata --with dpdk
    nodrop image ensure tcpdump
    """
    from nodrop.testbed.images.sut_bits import ensure_bits

    bits = ensure_bits(recipe, variant=variant)
    if as_json:
        say_json(asdict(bits))
    else:
        say(f"{recipe} {bits.version or '(version unknown)'}: {bits.kind} {bits.path}")


@image.command()
def guest(recipe: Recipe, as_json: AsJson = False) -> None:
    """Make the files that setup vm boots: kernel, initramfs, disk. Otherwise its first trial does.

    \b
    nodrop image guest suricata
    nodrop image guest tcpdump
    """
    from nodrop.testbed.images.guest_assets import make_assets
    from nodrop.testbed.images.image_cache import find_image

    found = make_assets(find_image(recipe).bits())
    if as_json:
        say_json(asdict(found))
        return
    say(f"kernel    {found.kernel.package} {found.kernel.version}")
    say(f"initramfs {found.initramfs}")
    say(f"disk      {found.disk}")


@image.command("import")
def import_it(
    rootfs: Annotated[
        Path, typer.Argument(metavar="ROOTFS.tar", help="A tar archive, not compressed.")
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the image, such as snort.")
    ],
    program: Annotated[
        str, typer.Option("--program", metavar="PATH", help="Path of the program in the image.")
    ],
    version: Annotated[
        str, typer.Option("--version", metavar="TEXT", help="Version of the program.")
    ],
    as_json: AsJson = False,
) -> None:
    """Import your own root filesystem as an image, for `sut.image = "NAME:VERSION"`.

    \b
    docker export CONTAINER >rootfs.tar
    nodrop image import rootfs.tar --name snort --program /usr/bin/snort --version 3.1.0
    nodrop image import sensor.tar --name suricata --program /usr/bin/suricata --version 8.0.1
    """
    from nodrop.testbed.images.image_cache import import_image

    _print(import_image(rootfs, name=name, program=program, version=version), as_json)


@image.command("list")
def list_the_images(as_json: AsJson = False) -> None:
    """List the images, newest first. An experiment that names no image takes the default one. Name
    others by sut.image, such as "suricata:8" or the start of a sha256.

    \b
    nodrop image list
    nodrop image list --json
    """
    from nodrop.terminal.console import console, images_table
    from nodrop.testbed.images.image_cache import default_image, list_images, unusable_images

    images = list_images()
    for words in unusable_images():
        complain(f"not an image: {words}")
    if as_json:
        say_json([_fields(one) for one in images])
    elif images:
        console().print(images_table(images, [default_image(one.name) for one in images]))
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
    from nodrop.testbed.images.image_cache import find_image

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


sut = typer.Typer(no_args_is_help=True, help="Capture programs that a file describes, as SUTs.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(sut, name="sut")
    app.add_typer(image, name="image")


@sut.command("list")
def list_them(as_json: AsJson = False) -> None:
    """List the programs that nodrop describes (`sut.program`), and whether this host has them.

    \b
    nodrop sut list
    nodrop sut list --json
    """
    from nodrop.testbed.suts.command.description import read_program, shipped

    programs = {name: (path, read_program(path)) for name, path in shipped().items()}
    if as_json:
        say_json(
            [
                {
                    "program": name,
                    "here": shutil.which(program.argv[0]),
                    "knobs": {key: knob.default for key, knob in program.knobs.items()},
                    "licence": program.licence,
                    "description": str(path),
                }
                for name, (path, program) in programs.items()
            ]
        )
        return
    for name, (_, program) in programs.items():
        knobs = ", ".join(
            f"sut.{key} = {knob.default or knob.type.upper()}"
            for key, knob in program.knobs.items()
        )
        say(f"{name:<12} {shutil.which(program.argv[0]) or 'not in PATH':<22} {knobs}")


@sut.command()
def check(
    program: Annotated[
        str,
        typer.Argument(metavar="FILE|NAME", help="A description, or the name of a shipped one."),
    ],
    settings: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Prove a description by two known answers, in about 10 seconds.

    First n packets come slowly: the program must report n, and none dropped. Then n packets come
    while it is stopped: it must report n, and as dropped those that its ring had no room for. Both
    are also counted from outside. Set knobs with `--set sut.NAME=VALUE`.

    \b
    nodrop sut check tcpdump
    nodrop sut check ./mine.toml --json

    Exit code 0: the description holds; 1: it does not, and the output says what would; 2: bad
    input, or something is missing here; 3: the lab failed.
    """
    from nodrop.calibrate.program import prove
    from nodrop.config.options import parse_setting
    from nodrop.testbed.hosts.folders import scratch, sweep
    from nodrop.testbed.hosts.rights import ensure_privileges
    from nodrop.testbed.suts.command import Command
    from nodrop.testbed.suts.command.description import find_program
    from nodrop.testbed.suts.command.sut import proof_of

    options: dict[str, object] = {"kind": "command", "program": program}
    for written in settings or ():
        found = parse_setting(written)
        if len(found.path) != 2 or found.path[0] != "sut":
            raise BadInput(f"--set {written}: only keys of sut can be set here")
        options[found.path[1]] = found.value
    Command(options, base=Path())  # for its errors, before anything is touched
    ensure_privileges()
    began = time.monotonic()
    sweep()
    with scratch() as work:
        proof = prove(options, base=Path(), work=work)
    note = proof_of(find_program(program, base=Path()))
    if proof.holds:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(_table(proof)))
    _say(proof, time.monotonic() - began, as_json=as_json)
    return 0 if proof.holds else 1


def _say(proof: ProgramProof, took_s: float, *, as_json: bool) -> None:
    if as_json:
        say_json(_table(proof))
        return
    say(f"{proof.program} {proof.version or '(version unknown)'}")
    for answer in proof.answers:
        true = answer.truth
        say(
            f"{answer.put_in}: {true['captured']:,} packets came, {true['dropped_ring_full']:,} "
            "found no room in its ring (the kernel's own counters)"
        )
        counters = ", ".join(f"{name} {value:,}" for name, value in answer.said.items())
        say(f"  it says: {counters or 'nothing'}")
    for words in proof.wrong:
        say(f"wrong: {words}")
    for words in proof.notes:
        say(f"note: {words}")
    if proof.holds:
        say(f"the description holds ({took_s:.0f} s)")


def _table(proof: ProgramProof) -> dict[str, object]:
    return {**asdict(proof), "holds": proof.holds}
