"""`nodrop sut`: the capture programs that a file describes, and the proof of such a file."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodrop.errors import BadInput
from nodrop.terminal.arguments import AsJson, Settings
from nodrop.terminal.saying import say, say_json

if TYPE_CHECKING:
    from nodrop.calibrate.program import Proof

sut = typer.Typer(no_args_is_help=True, help="Capture programs as SUTs: described by a file.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(sut, name="sut")


@sut.command("list")
def list_them(as_json: AsJson = False) -> None:
    """List the programs that nodrop describes (`sut.program`), and whether they are here.

    \b
    nodrop sut list
    nodrop sut list --json
    """
    from nodrop.suts.command.description import read_program, shipped

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

    n packets slowly: the program must say n, and nothing dropped. n packets while it stands still:
    it must say n, and dropped what its ring had no room for. Both are seen from outside as well.
    Knobs: `--set sut.NAME=VALUE`.

    \b
    nodrop sut check tcpdump
    nodrop sut check ./mine.toml --json

    Exit code 0: it holds; 1: it does not, and the lines say what would; 2: bad input, or something
    is missing here; 3: the lab failed.
    """
    from nodrop.calibrate.program import prove
    from nodrop.config.toml_file import parse_setting
    from nodrop.hosts.folders import scratch, sweep
    from nodrop.hosts.rights import ensure_privileges
    from nodrop.suts.command import Command
    from nodrop.suts.command.description import find_program
    from nodrop.suts.command.sut import proof_of

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


def _say(proof: Proof, took_s: float, *, as_json: bool) -> None:
    if as_json:
        say_json(_table(proof))
        return
    say(f"{proof.program} {proof.version or '(version unknown)'}")
    for one in proof.answers:
        true = one.truth
        say(
            f"{one.put_in}: {true['captured']:,} packets came, {true['dropped_ring_full']:,} found "
            "no room in its ring (the kernel's own counters)"
        )
        counters = ", ".join(f"{name} {value:,}" for name, value in one.said.items())
        say(f"  it says: {counters or 'nothing'}")
    for words in proof.wrong:
        say(f"wrong: {words}")
    for words in proof.notes:
        say(f"note: {words}")
    if proof.holds:
        say(f"the description holds ({took_s:.0f} s)")


def _table(proof: Proof) -> dict[str, object]:
    return {**asdict(proof), "holds": proof.holds}
