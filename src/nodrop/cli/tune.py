"""Commands that change settings of this host and put them back: tune."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from nodrop.compare.prove import prove
from nodrop.errors import BadInput, BadKey
from nodrop.terminal.arguments import AsJson, complain, say, say_indented, say_json

if TYPE_CHECKING:
    from nodrop.tune.applying import Applied, KnobStep, State
    from nodrop.tune.kept import Tuning
    from nodrop.tune.knobs import Knob

Knobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="KNOB=VALUE...", help="gro=off, rps=1, mtu=1500, netdev-budget=600 …"),
]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        metavar="NAME",
        help="Knobs of this port. Default: the ports that a program captures on. Repeatable.",
    ),
]
NOT_ALL = 1

tune = typer.Typer(
    name="tune",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change settings of a sensor, read them back, restore them, and prove what they do.",
)


def add_to(app: typer.Typer) -> None:
    tune.command("prove")(prove)
    app.add_typer(tune)


@tune.command("plan")
def plan(
    knobs: Knobs = None,
    ports: Ports = None,
    persist: Annotated[
        bool,
        typer.Option(
            "--persist", help="Print a systemd unit and a .link file that set the same at boot."
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Change knobs of Suricata in this suricata.yaml."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="With --config: write the change to FILE.nodrop.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show what `apply` would change, in which order. Without a knob, list all knobs of this host.

    \b
    nodrop tune plan --port eth1
    nodrop tune plan --port eth1 gro=off rps=1 netdev-budget=600
    nodrop tune plan --config suricata.yaml --port eth1 ring-size=20000

    Exit code 0; 2: bad input. Nothing is changed.
    """
    from nodrop.testbed.labs.port_settings import Device
    from nodrop.tune.applying import values
    from nodrop.tune.namespaces import some_port
    from nodrop.tune.session_ports import session_ports

    if config is not None:
        return _yaml_plan(config, knobs or (), ports or (), write=write)
    if write:
        raise BadInput("--write: is for --config FILE")
    device, known = Device(), _known()
    if not knobs:
        found = [
            (port, knob, value)
            for port in [*_ports(ports, required=False), ""]
            for knob, value in values(device, port, known)
        ]
        if as_json:
            say_json([{"port": p, "knob": k.id, "value": v} for p, k, v in found])
        for port, knob, value in found if not as_json else ():
            say(f"{port or 'host'} {knob.id} = {value}  ({knob.title}; takes: {knob.values})")
        if as_json:
            return 0
        if not any(port for port, _, _ in found):
            say("No program captures packets here. To see the settings of a port, name it:")
            say(f"do: nodrop tune plan --port {some_port()}")
        for example in _examples([(port, knob.id) for port, knob, _ in found]):
            say(f"do: nodrop tune plan {example}   # shows the change, makes none")
        return 0
    steps = _steps(knobs, ports)
    if as_json:
        say_json([_step_json(step) for step in steps])
        return 0
    over = session_ports()
    for number, step in enumerate(steps, 1):
        say(f"{number}. {_step_words(step, step.port in over)}")
        say(f"   about it: {step.knob.why} ({step.knob.source})")
        if step.knob.wrong_when:
            say(f"   not: {step.knob.wrong_when}")
    places = [word for port in ports or () for word in ("--port", port)]
    say(f"do: {shlex.join(['nodrop', 'tune', 'apply', *places, *knobs])}")
    for line in _persistent(steps) if persist else ():
        say(line)
    return 0


def _examples(found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A setting that is here: a network namespace has no netdev-budget, for one."""
    if ("", "netdev-budget") in found:
        yield "netdev-budget=600"
    elif (port := next((port for port, knob in found if port and knob == "gro"), None)) is not None:
        yield f"--port {port} gro=off"


@tune.command("apply")
def apply(
    knobs: Knobs = None,
    ports: Ports = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Also set values that take the link of your own session down."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Set knobs. Journals the old values first, and reads every value back.

    \b
    nodrop tune apply --port eth1 gro=off rps=1
    nodrop tune apply --port eth1 mtu=9000

    Exit code 0: all values are set; 1: a value was accepted and ignored, or rounded; 2: bad input,
    no rights, or a value that the driver refuses, and nothing was changed; 3: the host failed.
    """
    from nodrop.testbed.labs.port_settings import Device
    from nodrop.tune.kept import apply_and_keep
    from nodrop.tune.session_ports import session_ports

    if not knobs:
        raise BadInput("tune apply: give KNOB=VALUE; `nodrop tune plan` lists the knobs")
    steps = _steps(knobs, ports)
    over = session_ports()
    if not yes and (cut := [s for s in steps if s.flaps and s.port in over and s.now != s.then]):
        raise BadInput(
            f"{cut[0].knob.id}={cut[0].value}: takes the link of {cut[0].port} down for a moment, "
            "and your own session runs over it",
            hint="add --yes to mean it; nothing was changed",
        )
    for step in steps if not as_json else ():
        if step.flaps and step.now != step.then:
            say(f"{step.where}: {step.knob.id} takes the link down and up")
    applied = apply_and_keep(Device(), steps)
    if as_json:
        say_json(_applied_json(applied))
    else:
        _say_applied(applied)
    return NOT_ALL if any(done.missed for done in applied.done) else 0


@tune.command("status")
def status(as_json: AsJson = False) -> int:
    """Show what `apply` has set, the values before, and whether anything has changed since.

    \b
    nodrop tune status
    nodrop tune status --json

    Exit code 0: all values are as set, or none is set; 1: a value has changed since; 3: a journal
    cannot be read.
    """
    from nodrop.testbed.hosts.journal import tuned_folder
    from nodrop.tune.kept import tunings

    kept = tunings(killed=True)
    for words in kept.unreadable:
        complain(words)
    rows = [row for tuning in kept.whole for row in _rows(tuning)]
    if as_json:
        say_json(
            [dict(zip(("place", "knob", "before", "set", "now"), r, strict=True)) for r in rows]
        )
    elif not rows:
        say(f"nothing is set by `nodrop tune apply` of this user (kept in {tuned_folder()})")
    for place, knob, before, ours, now in rows if not as_json else ():
        since = f", now {now}: changed since by somebody else"
        since = ": the port is gone, and its settings with it" if now is None else since
        since = "" if now == ours else ", as before now" if now == before else since
        say(f"{place} {knob}: {before} → {ours}{since}")
    if kept.unreadable:
        return 3
    return NOT_ALL if any(row[3] != row[4] for row in rows) else 0


@tune.command("restore")
def restore(
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Also restore values that others changed since."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Restore every value that `apply` changed, bit for bit. Keeps what others changed since.

    \b
    nodrop tune restore
    nodrop tune restore --overwrite

    Exit code 0: all values are as before; 1: others have changed a value since, which --overwrite
    restores, too; 3: a value could not be restored. After 1 and 3 the journal is kept.
    """
    from dataclasses import asdict

    from nodrop.testbed.hosts.journal import tuned_folder
    from nodrop.tune.kept import put_back, tunings

    kept = tunings(killed=True)
    found = [put_back(one, overwrite=overwrite) for one in kept.whole]
    for words in kept.unreadable:
        complain(words)
    if as_json:
        say_json([asdict(one) for one in found])
    elif not found and not kept.unreadable:
        say(f"nothing of this user to put back (kept in {tuned_folder()})")
    for one in found if not as_json else ():
        for words in [*one.done, *one.others, *(f"not put back: {w}" for w in one.failed)]:
            say(words)
        if not (one.done or one.others or one.failed):
            say("all is as before already")
    if kept.unreadable or any(one.failed for one in found):
        return 3
    return NOT_ALL if any(one.others for one in found) else 0


def _yaml_plan(config: Path, knobs: Sequence[str], ports: Sequence[str], *, write: bool) -> int:
    from nodrop.testbed.suts.suricata.own_yaml import of_option, read_own
    from nodrop.tune import suricata_yaml as of_suricata
    from nodrop.tune.applying import parse

    try:
        read_own(config)
    except BadKey as error:
        raise of_option(error) from None
    asked = parse(knobs, of_suricata.OF_SURICATA)
    if not asked:
        for knob in of_suricata.OF_SURICATA:
            say(f"{knob.id}  ({knob.path}; takes: {knob.values})")
        return 0
    if len(ports) > 1:
        raise BadInput("--config: one --port at a time")
    old = config.read_text()
    new = of_suricata.patched(old, asked, port=ports[0] if ports else "", file=str(config))
    for line in of_suricata.difference(old, new, str(config)):
        say_indented(line)
    if write:
        say(f"written: {of_suricata.write_beside(config, new)}")
    return 0


# --- words ----------------------------------------------------------------------------------------


def _known() -> tuple[Knob, ...]:
    from nodrop import plugins
    from nodrop.tune.knobs import KNOBS

    return (*KNOBS, *plugins.knobs())


def _steps(knobs: Sequence[str], ports: Sequence[str] | None) -> tuple[KnobStep, ...]:
    from nodrop.testbed.labs.port_settings import Device
    from nodrop.tune.applying import parse
    from nodrop.tune.applying import plan as planned

    asked = parse(knobs, _known())
    needed = any(not knob.of_host for knob, _ in asked)
    return planned(Device(), asked, _ports(ports, required=True) if needed else ())


def _ports(given: Sequence[str] | None, *, required: bool) -> list[str]:
    from nodrop.audit.reading import here, look
    from nodrop.testbed.labs.port_settings import must_be_there, names
    from nodrop.tune.namespaces import see_own_ports

    see_own_ports()
    for port in given or ():
        must_be_there(port)
    if given:
        return list(dict.fromkeys(given))
    with here() as host:
        found = [port.name for port in look(host).captured() if port.pid is None]
    if not found and required:
        raise BadInput(
            f"--port: nobody captures on a port here; there are: {', '.join(names())}",
            hint="give --port NAME",
        )
    return found


def _step_words(step: KnobStep, over: bool) -> str:
    flap = ""
    if step.flaps and step.now != step.then:
        flap = ": the link goes down and up"
        flap += ", and your own session runs over it (apply needs --yes)" if over else ""
    change = "stays" if step.now == step.then else f"→ {step.then}"
    return f"{step.where} {step.knob.id}: {step.now} {change}{flap}"


def _say_applied(applied: Applied) -> None:
    for done in applied.done:
        step = done.step
        words = {
            "set": f"{step.now} → {done.found}",
            "as it was": f"already {done.found}; nothing changed",
            "accepted and ignored": f"accepted and ignored: still {done.found}",
            "set otherwise": f"{step.now} → {done.found}, asked for {step.then}",
        }[done.verdict]
        say(f"{step.where} {step.knob.id}: {words}")
    for line in applied.along:
        say(f"changed along with it: {line}")
    for port, times in applied.flaps.items():
        say(f"the link of {port} went down or up {times} times")
    if any(done.verdict != "as it was" for done in applied.done):
        say("`nodrop tune restore` puts it back")


def _step_json(step: KnobStep) -> dict[str, object]:
    return {
        "port": step.port,
        "knob": step.knob.id,
        "now": step.now,
        "then": step.then,
        "flaps": step.flaps,
        "why": step.knob.why,
    }


def _applied_json(applied: Applied) -> dict[str, object]:
    return {
        "done": [
            {**_step_json(one.step), "found": one.found, "verdict": one.verdict}
            for one in applied.done
        ],
        "along": applied.along,
        "flaps": applied.flaps,
    }


SetKnob: TypeAlias = tuple[str, str, str, str, str | None]
"""Place, knob, its value before, as it was set, and now; None: the port is gone."""


def _rows(tuning: Tuning) -> list[SetKnob]:
    """Asked in a thread of its own, which goes to the network namespaces of the ports."""
    from concurrent.futures import ThreadPoolExecutor

    from nodrop.tune.namespaces import own_space

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: [*_set_knobs(tuning.state, own_space())]).result()


def _set_knobs(state: State, own: int) -> Iterator[SetKnob]:
    from nodrop.testbed.labs.port_settings import Device
    from nodrop.tune.applying import differences, located
    from nodrop.tune.namespaces import enter

    def place(port: str, space: int) -> str:
        return (port or "host") + ("" if space == own else f" (namespace {space})")

    as_set = [*differences(state.before, state.left)] if state.left is not None else []
    try:
        parts, gone = located(state)
    except OSError:  # this user may not go there
        for port, knob, before, ours in as_set:
            yield place(port, state.space), knob.id, before, ours, ours
        return
    for part in parts:
        if not enter(part.space):
            continue
        device = Device()
        pairs = ((one, device.read(one)) for one in part.before)
        here = {one: raw for one, raw in pairs if raw is not None}
        left = here if part.left is None else part.left
        set_to, now = (
            {(port, knob.id): (was, value) for port, knob, was, value in each}
            for each in (differences(part.before, left), differences(part.before, here))
        )
        for at, (before, _) in (set_to | now).items():
            ours, found = (states.get(at, (before, before))[1] for states in (set_to, now))
            yield place(at[0], part.space), at[1], before, ours, found
    for port, knob, before, ours in as_set:
        if port in gone:
            yield place(port, state.space), knob.id, before, ours, None


def _persistent(steps: Sequence[KnobStep]) -> Iterator[str]:
    """A .link file for what systemd-udevd sets itself, a unit for the rest."""
    yield ""
    yield "# /etc/systemd/system/nodrop-tune.service (nodrop installs nothing)"
    yield "[Unit]"
    yield "Description=Settings of a sensor's ports"
    yield "Before=suricata.service"
    yield "After=network-pre.target"
    yield "[Service]"
    yield "Type=oneshot"
    for step in steps:
        if command := step.knob.by_hand(step.port, step.value):
            yield f"ExecStart=/usr/bin/env {command}"
            continue
        from nodrop.testbed.labs.port_settings import path_of

        for piece in step.pieces:
            raw = step.knob.edit("", step.value)
            yield f"ExecStart=/bin/sh -c 'echo {raw} > /{path_of(piece)}'"
    yield "[Install]"
    yield "WantedBy=multi-user.target"
    for port in dict.fromkeys(step.port for step in steps if step.port and step.knob.link):
        yield ""
        yield f"# or, for what systemd-udevd sets: /etc/systemd/network/10-{port}.link"
        yield "[Match]"
        yield f"OriginalName={port}"
        yield "[Link]"
        for step in steps:
            if step.port == port and step.knob.link:
                value = {"on": "yes", "off": "no"}.get(step.value, step.value)
                yield f"{step.knob.link}={value}"
