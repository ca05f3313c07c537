"""Arguments that commands share, and words that reach the terminal as one harmless line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from nodrop.errors import REMEDIES, BadInput, BadKey, Interrupted, NotReady, interrupts
from nodrop.results.layout import MANIFEST, safe_name
from nodrop.results.store import MARK, Store, before_anything, brought, copy_of
from nodrop.untrusted.folder import Folder
from nodrop.untrusted.json_text import one_line, plain

if TYPE_CHECKING:
    from nodrop.config.experiment import Experiment
    from nodrop.measure.plan import Plan


def run_directory(text: str | Path) -> Path:
    """The run directory here; of an address in a store its copy, which has what is there."""
    if MARK not in str(text):
        return Path(text)
    url = str(text).rstrip("/")
    above, _, name = url.rpartition("/")
    if above.endswith("/") or name != safe_name(name):
        raise BadInput(f"{text}: names no run directory; s3{MARK}bucket/folder/NAME does")
    here = _folder_here(above) / name
    with before_anything():
        writer = brought(url, here)
    if writer:
        complain(f"{url}: {writer}; this is what was there now")
    return here


def out_folder(text: str | Path) -> Path:
    """The folder with the copies of all its run directories; the copy, if it is one itself."""
    if MARK not in str(text):
        return Path(text)
    from nodrop.testbed.hosts.rights import in_user_namespace

    with before_anything():
        store = Store.of(str(text))
        if in_user_namespace():
            raise NotReady(
                f"{text}: a normal user's run has a network of its own, which leads to no store",
                hint="run as root; or leave --out alone, and `nodrop put` the run directory "
                "afterwards",
            )
        store.must_answer()
        if store.has(MANIFEST):
            return run_directory(text)
        here = _folder_here(store.url)
        copy_of(store.url, here)
        return here


def _folder_here(url: str) -> Path:
    """Folder for copies from a store. Its content may be nowhere else yet, so it is no cache."""
    from nodrop.testbed.hosts.folders import state_folder

    readable = safe_name(url.partition(MARK)[2])[:60]
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return state_folder() / "stores" / f"{readable}-{digest}"


SIGN_WITHIN_BYTES = 1000
IN_STORE = ", also s3://bucket/folder/NAME"


def writable(file: Path | None) -> Path | None:
    """Refuses a file that could not be written, before any work is done for it."""
    if file is not None and file.is_dir():
        raise BadInput(f"{file}: is a folder")
    if file is not None and not os.access(file if file.exists() else file.parent, os.W_OK):
        here = "cannot be written" if file.parent.is_dir() else f"there is no folder {file.parent}"
        raise BadInput(f"{file}: {here}")
    return file


def written_anew(what: str, sign: bytes) -> Callable[[Path | None], Path | None]:
    """A check like `writable`, of a file that a command writes anew. `sign` stands near the
    beginning of each that nodrop has written. Any other file in this place is a slip, and would be
    lost."""

    def checked(file: Path | None) -> Path | None:
        if writable(file) and file is not None and file.is_file():
            with file.open("rb") as content:
                begin = content.read(SIGN_WITHIN_BYTES)
            if begin and sign not in begin:
                raise BadInput(
                    f"{file}: is there, and no {what} that could be written anew",
                    hint="give a new path",
                )
        return file

    return checked


def write_anew(file: Path, content: bytes) -> None:
    """Writes a file. The content that is there stays until the new file is whole."""
    try:
        if file.exists() and not file.is_file():  # a pipe, a device
            file.write_bytes(content)
        else:
            to = file.resolve()
            Folder(to.parent).write(to.name, content)
    except OSError as error:
        hint = REMEDIES.get(error.errno or 0, "give another path")
        raise BadInput(f"{file}: {error.strerror or error}", hint=hint) from None


ExperimentFile = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT", help="Experiment file (TOML).", show_default=False)
]
TraceName = Annotated[
    str, typer.Argument(metavar="TRACE", help="Capture file, or make:demo.", show_default=False)
]
TraceNames = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE...",
        help="Capture file, the pieces of one (tcpdump -C, -G), or make:demo.",
        show_default=False,
    ),
]
Rules = Annotated[
    list[str] | None, typer.Option("--rules", metavar="FILE", help="A file of rules. Repeatable.")
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="PART",
        help="Part of TRACE to send: busiest, first, whole, or seconds such as 12.0..17.0.",
        show_default=False,
    ),
]
SetupKind = Annotated[
    str,
    typer.Option(
        "--setup",
        metavar="KIND",
        help="Where the SUT runs: bare, docker, oci, vm … (nodrop plugins).",
    ),
]
SutKind = Annotated[
    str,
    typer.Option("--sut", metavar="KIND", help="System under test (SUT): suricata, command, sink."),
]
OwnConfig = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Your own suricata.yaml."),
]
OwnBinary = Annotated[
    str | None, typer.Option("--binary", metavar="FILE", help="Your own program.")
]
ImageName = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="Image to run the SUT from (nodrop image list)."),
]
Threads = Annotated[
    str | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Capture threads; auto: one for each CPU that the SUT may use.",
    ),
]
LabName = Annotated[
    str | None,
    typer.Option("--lab", metavar="LAB", help="Lab file, or netns (the default)."),
]
FleetFile = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FLEET", help="Fleet file: many labs share the plan, by dask."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "--cell",
        metavar="KEY=VALUE",
        help="Change a key of the experiment; a key of the matrix is pinned. cell=NAME,NAME "
        "keeps only these named cells. Repeatable.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Allow more than 1,000 trials.")]
TolerateTruncated = Annotated[
    bool,
    typer.Option(
        "--tolerate-truncated",
        help="Use the whole packets of a cut trace (--set load.tolerate_truncated=true).",
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        parser=out_folder,
        help="Folder for the run directory, also s3://bucket/folder.",
    ),
]
RunDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", parser=run_directory, help=f"Run directory{IN_STORE}.", show_default=False
    ),
]
RunDirectories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...",
        parser=run_directory,
        help=f"Run directories{IN_STORE}.",
        show_default=False,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def blaming_options(asked: Experiment, plan: Callable[[], Plan]) -> Plan:
    """A SUT that has no such key is said by the option of the command line; so is a described
    program in the place of a kind."""
    from nodrop.config.options import shown
    from nodrop.testbed.suts.command.description import shipped

    try:
        return plan()
    except BadKey as error:
        kind, option = asked.sut["kind"], OF_SUT.get(error.key)
        no_such_kind = (error.key, error.given) == ("sut.kind", shown(kind))
        if no_such_kind and kind in shipped():
            raise BadInput(
                f"--sut {kind}: is a program of SUT command: --sut command --set sut.program={kind}"
            ) from None
        if no_such_kind:
            alike = [name for name in shipped() if name.startswith(kind.rstrip("0123456789"))]
            command = f"--sut command --set sut.program={alike[-1]}" if alike else "nodrop sut list"
            raise BadInput(error.message, hint=f"other capture programs: `{command}`") from None
        if error.unknown and option:
            raise BadInput(f"--{option}: {kind} takes no {option}; leave it out") from None
        raise


OF_SUT = {f"sut.{key}": key for key in ("rules", "config", "binary", "image", "threads")}
"""Key → its option of the command line."""


def all_settings(settings: list[str] | None, *, tolerate_truncated: bool) -> list[str]:
    """The `--set`s, and those that have a flag of their own."""
    return [*(settings or ()), *(["load.tolerate_truncated=true"] if tolerate_truncated else ())]


FarHost = Annotated[
    str | None,
    typer.Argument(
        metavar="HOST", help="A host as ssh knows it. Default: this host.", show_default=False
    ),
]
Become = Annotated[
    Literal["sudo"] | None,
    typer.Option("--become", help="How to become root on HOST. Default: root logs in."),
]
SshConfig = Annotated[
    Path | None, typer.Option("--ssh-config", metavar="FILE", help="Instead of ~/.ssh/config.")
]


def only_for_a_host(become: str | None, ssh_config: Path | None) -> None:
    if become is not None or ssh_config is not None:
        raise BadInput("--become, --ssh-config: are for a HOST; here, start nodrop as root")


def say(words: object = "") -> None:
    """A line that keeps its indentation, or several in a terminal that is too narrow."""
    indent = re.match(" *", str(words))[0]  # type: ignore[index]
    for line in laid_out(indent + one_line(words), columns_of(sys.stdout)):
        _print(line)


def say_in_a_pipe(words: object) -> None:
    """Says words to a program that reads the pipe; a person has read them further up."""
    if not sys.stdout.isatty():
        say(words)


def say_indented(words: str) -> None:
    """A line of a text that keeps its indentation."""
    _print(plain(words.expandtabs(), longest=2000))


def say_json(found: object) -> None:
    """Prints an object on one line for a program; all but ASCII is escaped, for a terminal obeys
    some of it."""
    _print(json.dumps(found, default=str))


def _print(line: str) -> None:
    with named("stdout"):
        print(line, flush=True)


@contextmanager
def named(stream: str) -> Iterator[None]:
    """Names the stream in an error: its destination may be full, and the kernel does not say whose
    error it is."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or stream
        raise


def complain(words: object) -> None:
    said = one_line(words)
    said = said if said.startswith("nodrop ") else f"nodrop: {said}"
    print(*laid_out(said, columns_of(sys.stderr)), sep="\n", file=sys.stderr)


def go_on(argv: Sequence[str], ended_run: str | None) -> None:
    """The command that goes on with a run, whole, on a line of its own on stderr."""
    from nodrop.config.asked import resumed_command

    if ended_run:
        words = shlex.join(["nodrop", *resumed_command(argv, ended_run)])
        print(f"do: {one_line(words, longest=2000)}", file=sys.stderr)


def columns_of(out: TextIO) -> int | None:
    """Width of the terminal in columns; None if the output is a pipe or a file."""
    return shutil.get_terminal_size().columns if out.isatty() else None


_PIECE = re.compile(r"\s*(?:[^\s`]*`[^`]+`[^\s`]*|\S+(?:(?<=\d) (?:%|s|ms|µs|min|h)(?!\w))?)")
"""A word, a number with its unit, or a command in backticks, with the space before it."""


def laid_out(words: str, columns: int | None) -> list[str]:
    """The lines of a sentence: no word is broken, nor a command in backticks. A longer command has
    lines of its own, which can be pasted. Lines below a first one with columns keep to the last."""
    if columns is None or len(words) <= columns:
        return [words]
    ends = [run.end() for run in re.finditer(r"  +", words)]
    hang = max((end for end in ends if 3 * end <= 2 * columns), default=0)
    lines, line = [], ""
    for piece in _PIECE.findall(words):
        if "`" in piece and len(piece.strip()) > columns - hang:
            before, command, after = piece.split("`", 2)
            lines += [line + before.rstrip()] if (line + before).strip() else []
            lines += [
                " " * (hang + 2) + part for part in command_lines(command, columns - hang - 2)
            ]
            line = after if after.strip(".,;: ") else ""
        elif line.strip() and len(line + piece) > columns:
            lines.append(line)
            line = " " * hang + piece.lstrip()
        else:
            line += piece if line.strip() or not lines else " " * hang + piece.lstrip()
    return [*lines, line] if line.strip() else lines


def command_lines(command: str, columns: int) -> list[str]:
    """A shell command in lines that can be pasted together: an option keeps its value."""
    lines: list[str] = []
    word = r"""(?:[^\s'"]|'[^']*'|"[^"]*")+"""
    for part in re.findall(f"--{word}(?: (?!-){word})?|{word}", command):
        room = columns - 2 if lines else 0
        if lines and len(lines[-1]) + 1 + len(part) <= room:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}" if lines else part)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


@contextmanager
def reporting(run: Path) -> Iterator[None]:
    """Tells whoever ends it that no trial is lost, and how to come by the report."""
    try:
        with interrupts():
            yield
    except Interrupted as ended:
        ended.left = "every trial has ended, but the report may be missing"
        ended.hint = f"nodrop report {shlex.quote(str(run))}"
        raise
