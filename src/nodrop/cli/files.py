"""The commands for nodrop's own files: init writes an experiment, clean removes caches and runs."""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nodrop.errors import BadInput, LabProblem
from nodrop.installation import PACKAGE, adding
from nodrop.terminal.arguments import complain, say


class Find(StrEnum):
    CAPACITY = "capacity"
    LOADS = "loads"


def add_to(app: typer.Typer) -> None:
    app.command("init")(init)
    app.command("clean")(clean)


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New experiment file.")] = Path(
        "experiment.toml"
    ),
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Capture to replay, or make:demo.")
    ] = None,
    sut: Annotated[
        str | None, typer.Option("--sut", metavar="KIND", help="What is measured: suricata, sink.")
    ] = None,
    rules: Annotated[
        str | None, typer.Option("--rules", metavar="FILE", help="Rules of Suricata; none: empty.")
    ] = None,
    find: Annotated[
        Find | None,
        typer.Option("--find", help="capacity searches the highest load, loads compares two."),
    ] = None,
    plugin: Annotated[
        str | None,
        typer.Option(
            "--plugin", metavar="NAME", help="Write a Python package that adds to nodrop."
        ),
    ] = None,
) -> None:
    """Write a commented experiment file. Asks four questions, if no options answer them.

    With --plugin it writes the folder NAME instead: a question of your own, whole, with its entry
    points and a test.

    \b
    nodrop init my.toml --trace my.pcap
    nodrop init my.toml --trace make:demo --sut sink --find loads
    nodrop init --plugin my-question
    """
    if plugin is not None:
        _write_plugin(plugin)
        return
    from nodrop.config.experiment import load_experiment
    from nodrop.config.options import unknown_key
    from nodrop.plugins import of_table

    if file.exists():
        raise BadInput(f"{file}: is there already", hint="name another file, or remove it")
    asks = sys.stdin.isatty()
    trace = trace or _asked(asks, "Capture to replay", "make:demo")
    sut = sut or _asked(asks, "What is measured (suricata, sink)", "suricata")
    kinds = sorted(plugin.kind for plugin in of_table("sut"))
    if sut not in kinds:
        raise BadInput(f"--sut {sut}: no such kind{unknown_key(sut, kinds)}")
    if rules is None and sut == "suricata":
        rules = _asked(asks, "File of rules, - for none", "-").removeprefix("-")
    find = find or Find(_asked(asks, "What to find (capacity, loads)", "capacity"))
    file.write_text(experiment_text(trace=trace, sut=sut, rules=rules or "", find=find))
    try:
        load_experiment(file)
    except BadInput:
        file.unlink()
        raise
    say(f"{file} is written. Next:")
    say(f"nodrop plan {file}")


def _write_plugin(name: str) -> None:
    """A copy of nodrop.testing/plugin with its own name."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise BadInput(f"--plugin {name}: no name of a package", hint="small letters, digits and -")
    if importlib.util.find_spec(module) is not None:
        raise BadInput(f"--plugin {name}: Python has a module of this name", hint="take another")
    folder, template = Path(name), PACKAGE / "testing/plugin"
    if folder.exists():
        raise BadInput(f"{folder}: is there already", hint="take another name, or remove it")
    for source in sorted(path for path in template.rglob("*") if path.suffix in (".py", ".toml")):
        file = folder / str(source.relative_to(template)).replace("toy_question", module)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        file.write_text(text.replace("toy_question", module).replace("toy-question", name))
    say(f"{folder} is written. Next, to have `nodrop {name}` and to test it:")
    say(adding("pytest", "--editable", f"./{folder}"))
    say(f"{shlex.quote(sys.executable)} -m pytest {folder}")


def _asked(asks: bool, question: str, default: str) -> str:
    return str(typer.prompt(question, default=default)) if asks else default


def experiment_text(*, trace: str, sut: str, rules: str, find: Find) -> str:
    """A whole experiment file; json quotes as TOML does."""
    from nodrop.installation import shipped

    schema = (shipped("schema") / "experiment.schema.json").as_uri()
    name = f"{find.value}-{Path(trace.removeprefix('make:')).stem}"
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    asks = (
        f"How much of {trace} does {sut} carry on this host before it drops a packet?"
        if find is Find.CAPACITY
        else f"What does {sut} lose of {trace} at two loads?"
    )
    return "\n".join(
        [
            f"#:schema {schema}",
            "# Written by `nodrop init`. `nodrop plan FILE` shows what would run, and",
            "# `nodrop run FILE` runs it. The schema above has every key, and what it means.",
            f"name = {json.dumps(plain)}",
            f"question = {json.dumps(asks)}",
            "",
            *(LOADS if find is Find.LOADS else ()),
            "[setup]",
            'kind = "bare" # where the SUT runs; `nodrop plugins` lists the others',
            "",
            "[sut]",
            f"kind = {json.dumps(sut)}",
            *(_of_suricata(rules) if sut == "suricata" else ()),
            "",
            "[load]",
            'kind = "replay"',
            f"trace = {json.dumps(trace)}",
            '# window = "12.0..17.0" # the part that is sent, in seconds of the trace',
            "",
            *(MEASURE[find]),
            "",
        ]
    )


LOADS = (
    "[matrix]",
    '"load.multiplier" = [1, 8] # replicas of the trace at once, each with its own flows',
    "",
)
MEASURE: Mapping[Find, tuple[str, ...]] = {
    Find.CAPACITY: (
        "[measure]",
        'mode = "capacity"',
        'sut = "standing" # started anew for each round of the search, not for each trial',
        "",
        "[search]",
        "budget_s = 240 # for all trials",
        "# goals = [0, 0.005] # tolerated loss",
    ),
    Find.LOADS: (
        "[measure]",
        "repetitions = 12 # of each cell, in random order: two cells need 8 for a sure difference",
    ),
}


def _of_suricata(rules: str) -> tuple[str, str]:
    return (
        f"rules = [{json.dumps(rules)}]" if rules else '# rules = ["my.rules"]',
        '# config = "/etc/suricata/suricata.yaml" # by default nodrop writes one',
    )


def clean(
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR...", help="Also remove these run directories, or folders."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove nodrop's caches, images and notes, and runs that you name. Lists them and asks first.

    It removes nothing while a killed run is still to be undone.

    \b
    nodrop clean
    nodrop clean results --yes
    """
    from nodrop.results.rundir import run_directories
    from nodrop.testbed.hosts.folders import cache_folder, state_folder
    from nodrop.testbed.hosts.journal import journals, tuned_folder
    from nodrop.untrusted.folder import Folder

    if journals() or any(tuned_folder().glob("*")):
        raise BadInput(
            "a run is going on, or is not undone, or settings are tuned",
            hint="wait for it, or run `nodrop undo` and `nodrop tune restore`",
        )
    parts = [path for base in (cache_folder(), state_folder()) for path in sorted(base.glob("*"))]
    named = [path for path in results or [] if path.exists()]
    for path in set(results or []) - set(named):
        complain(f"{path}: is not there")
    runs = run_directories(named)
    for run in runs:
        if not (run / "manifest.json").is_file():
            raise BadInput(f"{run}: is no run directory, so it stays")
    if not [*parts, *runs]:
        say("nothing to remove")
        return
    for path in [*parts, *runs]:
        say(f"{_bytes(path) / 1e6:9.1f} MB  {path}")
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput("this removes what is listed above", hint="add --yes to mean it")
        if not typer.confirm("Remove all this?"):
            raise typer.Abort
    for path in [*parts, *runs]:
        try:
            Folder(path.parent).remove(path.name)
        except OSError as error:
            complain(f"{path}: {error.strerror}")
    if left := [path for path in [*parts, *runs] if path.exists()]:
        raise LabProblem(f"{left[0]}: is still there", hint="remove it as its owner, or as root")
    for base in (cache_folder(), state_folder()):
        if base.is_dir():
            base.rmdir()
    for path in named:
        with suppress(OSError):  # gone, or not empty
            path.rmdir()
    say("removed")


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(each.lstat().st_size for each in files if not each.is_dir())
