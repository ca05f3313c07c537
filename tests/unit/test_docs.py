"""Blocks of the documentation: a command parses, a file is valid, and what is run by no test is
named with the reason."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml
from jsonschema import Draft202012Validator

from nodrop import exit_codes
from nodrop.cli import main
from nodrop.cli.lab import NODE_JOBS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING"))]
)
COMMANDS = ROOT / "docs/reference/commands.md"
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:sudo )?nodrop [a-z][^`\n]*)`")
FILE = re.compile(
    r"(?<![\w./<{-])(?:crates|experiments|images|labs|schema|src/nodrop|tools|"
    r"tests/(?:browser|contract|docker|e2e|fixtures|known_answers|made|netns|slow|ssh|unit|vm))"
    r"/[\w./-]*[\w*]/?"
)
"""A file of the repository, wherever a page names one."""
IN_BRACES = re.compile(r"`([\w./-]+/)\{([\w,-]+)\}(/[\w./-]+)`")
"""`src/nodrop/testbed/{suts,load}/api.py`."""
PLACEHOLDERS = {"experiments/X.toml", "labs/Y.toml"}

NOT_RUN: Mapping[str, str] = {
    "alias": "another name of a command beside it",
    "curl": "reads what `nodrop monitor --metrics` serves; tests have a client of their own",
    "cut": "shortens output",
    "dask": "tests/netns/test_fleet.py begins a scheduler and workers with its own names",
    "docker": "loads and runs the image of `make image`, which takes minutes to make",
    "dockerd": "tests/docker starts its own, in the same way",
    "export": "an environment variable",
    "grep": "shortens output",
    "ip": "makes ports as tests/netns makes them",
    "jq": "shortens output",
    "kill": "ends a program of the lines before",
    "make": "CI runs `make test`; the other targets are Makefile's",
    "nodrop-node": "crates/node/tests runs it",
    "python3": "makes a virtual environment: `make dist` does",
    "~/.nodrop/bin/pip": "installs a wheel: `make dist` does",
    "pipx": "installs a wheel: `make dist` does",
    "sed": "shortens output",
    "tail": "shortens output",
    "uv": "installs a wheel: `make dist` does",
    "uvx": "installs a wheel: `make dist` does",
    ".venv/bin/python": "for a machine that no test has (aarch64)",
}
"""Other programs in command blocks, and why no test runs the line as it stands."""
PYTHON_RUN_BY = {"docs/reference/python.md": "tests/unit/test_runs.py"}


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text()):
            text = re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE)
            yield Block(page=str(page.relative_to(ROOT)), language=found[2], text=text)


def lines(block: Block) -> Iterator[str]:
    """Command lines, without prompts and continued ones joined."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "sh":
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def programs(line: str) -> Iterator[list[str]]:
    """Each program of a line with its arguments, without sudo, variables and where it runs."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    argv: list[str] = []
    for word in [*lexer, ";"]:
        if re.fullmatch(r"[|&;<>]+", word):
            if argv and argv[-1] == "2" and word.startswith(">"):
                argv.pop()
            if argv:
                yield from alone(argv)
            argv = [">"] if word.startswith((">", "<")) else []
        else:
            argv.append(word)


def alone(argv: list[str]) -> Iterator[list[str]]:
    if argv[0] == ">":  # the file after it
        argv = argv[2:]
    while argv and (argv[0] == "sudo" or re.match(r"[A-Z0-9_]+=", argv[0])):
        argv = argv[1:]
    if argv[:3] == ["ip", "netns", "exec"]:
        argv = argv[4:]
    if argv:
        yield argv


@cache
def program() -> Any:
    return typer.main.get_command(main.app)


def fault(argv: list[str]) -> str | None:
    """Why nodrop would refuse these words before it looks at anything."""
    command = program()
    context, words, path = command.context_class(command, info_name="nodrop"), argv[1:], []
    while hasattr(command, "commands"):
        options = [word for word in words if word.startswith("-")]
        found = command.get_command(context, words[0]) if words else None
        if found is not None:
            path.append(words.pop(0))
            command = found
            context = command.context_class(command, info_name=path[-1], parent=context)
        elif words and words[0].startswith("-"):
            known = {name for one in command.params for name in one.opts} | {"--help"}
            known |= {"--install-completion", "--show-completion"}
            return None if set(options) <= known else f"{options}: none of nodrop's options"
        else:
            return f"{words[:1]}: no command" if words else None
    if path[0] in NODE_JOBS or "--help" in words:
        return None  # tests/slow/cli/test_documented_jobs.py
    words = [word for word in words if word not in ("…", "...")]
    try:
        _, rest, _ = command.make_parser(context).parse_args(words)
    except Exception as refused:  # click's own, of two packages
        return str(getattr(refused, "message", refused))
    return f"{rest} is too much" if rest else None


def test_every_block_says_what_it_is() -> None:
    known = {"console", "ini", "json", "python", "sh", "text", "toml", "yaml"}
    assert {(b.page, b.text[:60]) for b in blocks() if b.language not in known} == set()


def test_every_command_of_a_block_parses_or_says_why_it_is_not_run() -> None:
    wrong = []
    for block in blocks():
        if block.language in ("console", "sh"):
            for line in lines(block):
                for argv in programs(line):
                    name = argv[0].removeprefix(".venv/bin/")
                    if name == "nodrop":
                        said = fault(argv)
                    else:
                        said = None if argv[0] in NOT_RUN else f"{name}: no reason in NOT_RUN"
                    if said:
                        wrong.append(f"{block.page}: {line}: {said}")
    assert wrong == []


def test_every_command_in_a_sentence_parses() -> None:
    wrong = []
    for page in PAGES:
        for found in INLINE.finditer(page.read_text()):
            argv = [w for w in found[1].removeprefix("sudo ").split() if w not in ("|", "…")]
            said = fault(argv)
            if said and "requires an argument" not in said:  # it names the option alone
                wrong.append(f"{page.relative_to(ROOT)}: {found[1]}: {said}")
    assert wrong == []


def test_every_reason_is_needed() -> None:
    shown = [b for b in blocks() if b.language in ("console", "sh")]
    names = {argv[0] for b in shown for line in lines(b) for argv in programs(line)}
    assert {*NOT_RUN} - names == set()


def test_a_wrong_command_is_found() -> None:
    assert fault(["nodrop", "capacity", "a.pcap", "--rule", "x"]) is not None
    assert fault(["nodrop", "tune", "probe"]) is not None
    assert fault(["nodrop", "put", "a", "b", "c"]) is not None
    assert list(programs("sudo A=1 nodrop run x 2> y | jq -c . && cp a b")) == [
        ["nodrop", "run", "x"],
        ["jq", "-c", "."],
        ["cp", "a", "b"],
    ]


def schema_of(table: Mapping[str, Any]) -> str | None:
    if "pairs" in table or "options" in table:
        return "fleet"
    if {"sender", "receiver", "storage"} & set(table):
        return "lab" if "name" in table else None
    return None if "argv" in table else "experiment"


def test_every_file_of_a_block_is_valid() -> None:
    wrong = []
    for block in blocks():
        if block.language == "toml":
            table = tomllib.loads(block.text)
            if name := schema_of(table):
                schema = json.loads((ROOT / f"schema/{name}.schema.json").read_text())
                if "name" not in table:  # a part of a file
                    schema = {
                        key: schema[key] for key in schema.keys() - {"allOf", "anyOf", "required"}
                    }
                for error in Draft202012Validator(schema).iter_errors(table):
                    wrong.append(f"{block.page}: {error.json_path}: {error.message[:200]}")
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "python" and block.page not in PYTHON_RUN_BY:
            compile(block.text, block.page, "exec")
    assert wrong == []


def test_every_file_that_a_page_names_is_there() -> None:
    wrong = []
    for page in PAGES:
        for name in set(FILE.findall(page.read_text())):
            if name not in PLACEHOLDERS and not any(ROOT.glob(name)):
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert sorted(wrong) == []


def test_each_file_of_a_set_in_braces_is_there() -> None:
    named = [
        f"{before}{name}{after}"
        for page in PAGES
        for before, names, after in IN_BRACES.findall(page.read_text())
        for name in names.split(",")
    ]
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_page_of_commands_explains_each_exit_code() -> None:
    explained = re.findall(r"^\| (\d) \| \S", COMMANDS.read_text(), re.MULTILINE)
    codes = {value for value in vars(exit_codes).values() if type(value) is int and value < 128}
    assert {int(code) for code in explained} == codes
